"""Frame bytes in shared append-only segment files; the database only points into them (K-26).

A record is `length u32 · crc32 u32 · channel i64 · claim u32 · seq i64 · bytes`. The crc covers all but itself and the
length. What no index row points to is garbage; what a batch appended that rolls back is taken back.
Each process appends to segments of its own, so nobody waits for a lock.
"""

from __future__ import annotations

import contextlib
import logging
import os
import struct
import threading
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .contract import SyncFailed
from .directories import sync_directory

log = logging.getLogger(__name__)

SEGMENT_BYTES = 64 * 1024 * 1024
_HEAD = struct.Struct("<IIqIq")
_COVERED = struct.Struct("<qIq")
_SUFFIX = ".frames"


@dataclass(frozen=True, slots=True, kw_only=True)
class Location:
    """Where a record's frame is: segment number, offset of the record, length of the frame in bytes."""

    segment: int
    offset: int
    length: int


class FrameDamaged(Exception):
    """A record whose checksum, owner or length is not what the index says; it is never served."""


class Journal:
    """Appends, syncs and reads records. With `directory=None` the segments live in memory."""

    def __init__(self, directory: Path | None, *, sync: bool = True) -> None:
        self.directory = directory
        self.damaged = 0
        self._sync = sync
        self._memory: dict[int, bytearray] = {}
        self._number = 0
        self._fd = -1
        self._size = 0
        self._dirty = False
        self._new = False
        self._readers: dict[int, int] = {}
        self._lock = threading.Lock()
        if directory is not None:
            directory.mkdir(mode=0o700, exist_ok=True)
        else:
            self._memory[0] = bytearray()

    def append(self, channel: int, claim: int, seq: int, data: bytes) -> Location:
        """Write one record at the end of the current segment. It is durable after `sync()`."""
        segment, (offset,) = self.append_run(channel, claim, seq, (data,))
        return Location(segment=segment, offset=offset, length=len(data))

    def append_run(self, channel: int, claim: int, first: int, run: Sequence[bytes]) -> tuple[int, list[int]]:
        """Write the records of consecutive frames at once; their segment, and the offset of each."""
        parts: list[bytes] = []
        offsets: list[int] = []
        offset = 0
        for seq, data in enumerate(run, first):
            crc = zlib.crc32(data, zlib.crc32(_COVERED.pack(channel, claim, seq)))
            offsets.append(offset)
            parts += (_HEAD.pack(len(data), crc, channel, claim, seq), data)
            offset += _HEAD.size + len(data)
        at = self._write(b"".join(parts))
        return self._number, [at + offset for offset in offsets] if at else offsets

    def _write(self, records: bytes) -> int:
        """Where they are in the current segment."""
        if self.directory is None:
            segment = self._memory[0]
            offset = len(segment)
            segment += records
            return offset
        if self._fd < 0 or self._size >= SEGMENT_BYTES:
            self._roll()
        offset = self._size
        written = os.pwrite(self._fd, records, offset)
        if written != len(records):  # a full disk may take a part: what is written is garbage, the space is reused
            raise OSError(28, "No space left on device", str(self._path(self._number)))
        self._size = offset + len(records)
        self._dirty = True
        return offset

    def mark(self) -> tuple[int, int]:
        """Where the next record goes."""
        return self._number, self._size

    def rewind(self, mark: tuple[int, int]) -> None:
        """What was appended since `mark` was rolled back: no index row will ever point there; give the space back."""
        size = mark[1] if mark[0] == self._number else 0  # a segment begun since holds nothing else
        if self._fd >= 0:
            self._size = size
            with contextlib.suppress(OSError):  # then it is written over
                if os.fstat(self._fd).st_size > size:
                    os.ftruncate(self._fd, size)

    def sync(self) -> None:
        """Make what was appended durable. Raises SyncFailed: after that nothing may be acknowledged."""
        if not self._dirty:
            return
        if self._sync:
            try:
                os.fdatasync(self._fd) if hasattr(os, "fdatasync") else os.fsync(self._fd)
                if self._new:
                    sync_directory(self._path(self._number).parent)
            except OSError as exc:
                raise SyncFailed(f"syncing {self._path(self._number)} failed: {exc}") from exc
        self._dirty = self._new = False

    def read(self, channel: int, claim: int, seq: int, where: Location) -> bytes:
        """The frame at `where`. Raises FrameDamaged when it is not the record that the index describes."""
        row = (seq, claim, where.segment, where.offset, where.length, 0)
        ((_seq, data),) = self.read_run(channel, (row,))
        if isinstance(data, FrameDamaged):
            raise data
        return data

    def read_run(self, channel: int, rows: Sequence[tuple[int, ...]]) -> list[tuple[int, bytes | FrameDamaged]]:
        """(seq, frame) of index rows `(seq, claim, segment, offset, length, ...)`; what is damaged says so.

        Records that lie one after the other are read at once.
        """
        frames: list[tuple[int, bytes | FrameDamaged]] = []
        at, count = 0, len(rows)
        while at < count:
            segment, begin = rows[at][2], rows[at][3]
            end, first = begin, at
            while at < count and rows[at][3] == end and rows[at][2] == segment:
                end += _HEAD.size + rows[at][4]
                at += 1
            raw, why = self._bytes(segment, begin, end - begin)
            for seq, claim, _segment, offset, length, *_ in rows[first:at]:
                data, wrong = _record(raw, offset - begin, channel, claim, seq, length)
                damage = why or wrong
                frames.append((seq, self._damage(channel, seq, segment, offset, damage) if damage else data))
        return frames

    def _bytes(self, segment: int, offset: int, size: int) -> tuple[bytes, str]:
        if self.directory is None:
            return bytes(self._memory[segment][offset : offset + size]), ""
        try:
            return os.pread(self._reader(segment), size, offset), ""
        except OSError as exc:
            return b"", str(exc)

    def segments(self) -> list[int]:
        """Numbers of the segment files on disk."""
        if self.directory is None:
            return []
        return sorted(int(p.stem) for p in self.directory.glob(f"*{_SUFFIX}") if p.stem.isdigit())

    def drop(self, number: int) -> None:
        """Delete one segment; the one being written is kept."""
        if number == self._number and self._fd >= 0:
            return
        with self._lock:
            fd = self._readers.pop(number, -1)
            if fd >= 0:
                os.close(fd)
        with contextlib.suppress(FileNotFoundError):
            self._path(number).unlink()

    def close(self) -> None:
        """Close every file."""
        with self._lock:
            for fd in self._readers.values():
                os.close(fd)
            self._readers.clear()
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _damage(self, channel: int, seq: int, segment: int, offset: int, why: str) -> FrameDamaged:
        self.damaged += 1
        message = f"frame {seq} of channel {channel} in segment {segment} at {offset} is damaged: {why}"
        log.error("%s", message)
        return FrameDamaged(message)

    def _path(self, number: int) -> Path:
        assert self.directory is not None
        return self.directory / f"{number:010d}{_SUFFIX}"

    def _roll(self) -> None:
        self.sync()
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        number = max(self.segments(), default=0) + 1
        while True:
            try:
                fd = os.open(self._path(number), os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            except FileExistsError:  # another process took the number
                number += 1
                continue
            break
        self._fd, self._number, self._size, self._new = fd, number, 0, True

    def _reader(self, number: int) -> int:
        with self._lock:
            fd = self._readers.get(number, -1)
            if fd < 0:
                if len(self._readers) >= 64:
                    os.close(self._readers.pop(next(iter(self._readers))))
                fd = os.open(self._path(number), os.O_RDONLY | os.O_CLOEXEC)
                self._readers[number] = fd
            return fd


def _record(raw: bytes, at: int, channel: int, claim: int, seq: int, length: int) -> tuple[bytes, str]:
    """The frame of the record at `at`, and what is wrong with it."""
    body = at + _HEAD.size
    data = raw[body : body + length]
    if len(data) < length or len(raw) < body:
        return b"", "the segment is shorter than the index says"
    said = _HEAD.unpack_from(raw, at)
    if said == (length, zlib.crc32(data, zlib.crc32(_COVERED.pack(channel, claim, seq))), channel, claim, seq):
        return data, ""
    if said[0] != length or said[2:] != (channel, claim, seq):
        return b"", "the record belongs to another frame"
    return b"", "the checksum does not match"
