"""What bodies print, in bounded files beside the plane: `logs/<seq // 1000>/<seq>.<attempt>.<claim>.<position>`.

A log is of one claim. Its two streams are numbered in bytes from 0, each by itself; `position` counts both together,
and is where a reader goes on. A file is a run of records `stream u8 · length u32 · offset u64 · position u64 ·
time f64 · crc32 u32 · bytes`; a new one begins after `FILE_BYTES`. The first file of a log and the last `last_files`
stay, those between go: what is missing shows in the positions. What is sent twice is stored once, by its offset.

Not synced: a log survives the death of the server's process, not a power cut. A disk without room loses what is
printed, never the job. One process writes; readers may be anywhere.
"""

from __future__ import annotations

import contextlib
import os
import struct
import zlib
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

STREAMS = ("stdout", "stderr")
FILE_BYTES = 256 * 1024
LAST_FILES = 4
PAGE_BYTES = 256 * 1024
_HEAD = struct.Struct("<BIQQdI")
_COVERED = struct.Struct("<BIQQd")
_OPEN = 512
_SHARD = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Bytes that one stream got. `offset` and `position` are those of the first of them; `at` is Unix seconds."""

    stream: str
    offset: int
    position: int
    at: float
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """A log that exists: of this attempt, made under this claim."""

    attempt: int
    claim: int


class _Tail:
    """Where a log is written on: `ends` are the ends of its streams, `files` the positions that its files begin at."""

    __slots__ = ("ends", "files", "size")

    def __init__(self) -> None:
        self.ends = [0, 0]
        self.files: list[int] = []
        self.size = 0


class Logs:
    """The logs below one directory, which is made when something is printed."""

    def __init__(self, root: Path, *, last_files: int = LAST_FILES) -> None:
        self.root = root
        self._last_files = last_files
        self._tails: OrderedDict[tuple[int, int, int], _Tail] = OrderedDict()

    # -- writing

    def append(self, seq: int, log: Log, parts: Iterable[tuple[str, int, bytes]], now: float) -> int:
        """Store (stream, offset, bytes) in this order; the position after them. What is there already is left out.

        Raises OSError, and has then stored nothing of it.
        """
        key = (seq, log.attempt, log.claim)
        tail = self._tails.pop(key, None) or self._recover(*key)
        self._tails[key] = tail
        while len(self._tails) > _OPEN:
            self._tails.popitem(last=False)
        ends = list(tail.ends)
        records: list[bytes] = []
        begin = sum(ends)
        for stream, offset, data in parts:
            number = STREAMS.index(stream)
            data = data[max(0, ends[number] - offset) :]
            if not data:
                continue
            offset = max(offset, ends[number])
            position = offset + ends[1 - number]
            said = (number, len(data), offset, position, now)
            records += (_HEAD.pack(*said, zlib.crc32(data, zlib.crc32(_COVERED.pack(*said)))), data)
            ends[number] = offset + len(data)
        if records:
            self._write(key, tail, begin, b"".join(records))
            tail.ends = ends
        return sum(ends)

    def ends(self, seq: int, log: Log) -> dict[str, int]:
        """How far each stream got, in bytes; what is kept of them may be less."""
        key = (seq, log.attempt, log.claim)
        tail = self._tails.get(key) or self._recover(*key)
        return dict(zip(STREAMS, tail.ends, strict=True))

    def _write(self, key: tuple[int, int, int], tail: _Tail, begin: int, data: bytes) -> None:
        is_new = not tail.files or tail.size >= FILE_BYTES
        start, size = (begin, 0) if is_new else (tail.files[-1], tail.size)
        path = self._path(key, start)
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            fd = os.open(path, flags, 0o600)
        except FileNotFoundError:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            fd = os.open(path, flags, 0o600)
        try:
            _write_at(fd, data, size)
        finally:
            os.close(fd)
        if is_new:
            tail.files.append(start)
            while len(tail.files) > 1 + self._last_files:
                with contextlib.suppress(FileNotFoundError):
                    self._path(key, tail.files.pop(1)).unlink()
        tail.size = size + len(data)

    def _recover(self, seq: int, attempt: int, claim: int) -> _Tail:
        """How far a log of an earlier process got; a record that it did not finish is written over."""
        tail = _Tail()
        key = (seq, attempt, claim)
        tail.files = self._files(seq, Log(attempt=attempt, claim=claim))
        while tail.files:
            last = None
            for number, offset, position, _at, data, end in _records(_bytes(self._path(key, tail.files[-1]))):
                last, tail.size = (number, offset + len(data), position + len(data)), end
            if last is not None:
                tail.ends[last[0]], tail.ends[1 - last[0]] = last[1], last[2] - last[1]
                break
            self._path(key, tail.files.pop()).unlink(missing_ok=True)
        return tail

    # -- reading

    def of(self, seq: int) -> list[Log]:
        """The logs of an invocation, in the order of their claims."""
        found = {(claim, attempt) for number, attempt, claim, _ in self._names(seq // _SHARD) if number == seq}
        return [Log(attempt=attempt, claim=claim) for claim, attempt in sorted(found)]

    def read(self, seq: int, log: Log, position: int, *, most: int = PAGE_BYTES) -> tuple[list[Part], bool]:
        """What follows `position`, up to about `most` bytes; and whether that is all there is."""
        starts = self._files(seq, log)
        first = max((place for place, start in enumerate(starts) if start <= position), default=0)
        parts: list[Part] = []
        size = 0
        for start in starts[first:]:
            for number, offset, at, time_, data, _end in _records(
                _bytes(self._path((seq, log.attempt, log.claim), start))
            ):
                skip = max(0, position - at)
                if skip >= len(data):
                    continue
                parts.append(
                    Part(stream=STREAMS[number], offset=offset + skip, position=at + skip, at=time_, data=data[skip:])
                )
                size += len(data) - skip
                if size >= most:
                    return parts, False
        return parts, True

    # -- keeping house

    def forget(self, seqs: Sequence[int]) -> None:
        """Delete the logs of these invocations."""
        gone = set(seqs)
        for shard in {seq // _SHARD for seq in gone}:
            self._delete(name for name in self._names(shard) if name[0] in gone)

    def shards(self) -> dict[int, set[int]]:
        """The numbers of invocations that have logs, by shard."""
        with contextlib.suppress(FileNotFoundError):
            numbers = [int(name) for name in os.listdir(self.root) if _is_number(name)]
            return {shard: {name[0] for name in self._names(shard)} for shard in sorted(numbers)}
        return {}

    def bytes(self) -> int:
        """What all of them take."""
        total = 0
        for shard in self.shards():
            for name in self._names(shard):
                with contextlib.suppress(FileNotFoundError):
                    total += self._path(name[:3], name[3]).stat().st_size
        return total

    def _delete(self, names: Iterable[tuple[int, int, int, int]]) -> None:
        for name in list(names):
            self._tails.pop(name[:3], None)
            self._path(name[:3], name[3]).unlink(missing_ok=True)

    def _names(self, shard: int) -> list[tuple[int, int, int, int]]:
        try:
            found = os.listdir(self.root / str(shard))
        except FileNotFoundError:
            return []
        parted = [parts for name in found if len(parts := name.split(".")) == 4 and all(map(_is_number, parts))]
        return [(int(seq), int(attempt), int(claim), int(start)) for seq, attempt, claim, start in parted]

    def _files(self, seq: int, log: Log) -> list[int]:
        wanted = (seq, log.attempt, log.claim)
        return sorted(name[3] for name in self._names(seq // _SHARD) if name[:3] == wanted)

    def _path(self, key: tuple[int, int, int], start: int) -> Path:
        return self.root / str(key[0] // _SHARD) / ".".join(map(str, (*key, start)))


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


def _write_at(fd: int, data: bytes, at: int) -> None:
    """All of it or none."""
    written = -1
    try:
        written = os.pwrite(fd, data, at)
    finally:
        if written != len(data):
            with contextlib.suppress(OSError):
                os.ftruncate(fd, at)
    if written != len(data):
        raise OSError(28, "No space left on device")


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:  # of the middle, and gone since it was listed
        return b""


def _records(raw: bytes) -> Iterator[tuple[int, int, int, float, bytes, int]]:
    """(stream, offset, position, time, bytes, end) of the whole records; what follows a broken one is not read."""
    at = 0
    while at + _HEAD.size <= len(raw):
        number, length, offset, position, time_, crc = _HEAD.unpack_from(raw, at)
        end = at + _HEAD.size + length
        data = raw[at + _HEAD.size : end]
        said = _COVERED.pack(number, length, offset, position, time_)
        if len(data) < length or number >= len(STREAMS) or crc != zlib.crc32(data, zlib.crc32(said)):
            return
        yield number, offset, position, time_, data, end
        at = end
