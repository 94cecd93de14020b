"""What a running body yields: frames in files of its working directory, read in the order of their numbers.

    frames/<seq of the first, 20 digits>     whole frames and perhaps the beginning of one, verbatim

A file is removed when all of it is stored at the server and a later one is there; what a new daemon finds is what an
older one had not posted (or just had: the server knows what it has). It is a job's directory: no link is followed, and
what is no frame ends the reading. The other side: `sdk/entry/frame_files`. CONTRACT K-23, K-24.
"""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path
from typing import Final

import msgpack

from lakeshore.wire.frames import MAX_FRAME_BYTES
from lakeshore.wire.values import value

RUN_FRAMES: Final = 1024
RUN_BYTES: Final = 1 << 20
MOST_FILES: Final = 1000
"""What is looked through each time. Who writes frames waits with sixteen."""
_DIGITS: Final = 20
_ARRAY_OF_4: Final = 0x94
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class NoFrames(Exception):
    """What lies there is none of ours; says what it is."""


@value
class Run:
    """Consecutive frames, `seq` being the first's."""

    seq: int
    frames: bytes
    count: int


class FrameReader:
    """Reads on where it stands; `next_seq` is the number of the frame that comes next."""

    def __init__(self, directory: Path, first_seq: int) -> None:
        self._directory = directory
        self._first = first_seq
        self.next_seq = first_seq
        self._file: int | None = None
        """The number that the file begins with."""
        self._at = 0

    def is_stream(self) -> bool:
        """Whether the body yields at all."""
        return self._directory.is_dir() and not self._directory.is_symlink()

    def read(self) -> Run | None:
        """What comes next; None when nothing whole is there yet. NoFrames, OSError."""
        try:
            folder = os.open(self._directory, _DIRECTORY)
        except FileNotFoundError:
            return None
        try:
            return self._read(folder)
        finally:
            os.close(folder)

    def back_to(self, seq: int) -> bool:
        """Read from this number on; whether it is still there."""
        with contextlib.suppress(OSError, NoFrames):
            folder = os.open(self._directory, _DIRECTORY)
            try:
                before = [number for number in _numbers(folder) if number <= seq]
            finally:
                os.close(folder)
            if before:
                self._file, self._at, self.next_seq = before[-1], 0, before[-1]
                return True
        return False

    def remove_taken(self) -> None:
        """Everything up to where this stands is stored."""
        with contextlib.suppress(OSError, NoFrames):
            folder = os.open(self._directory, _DIRECTORY)
            try:
                for number in _numbers(folder):
                    if self._file is not None and number < self._file:
                        os.unlink(_name(number), dir_fd=folder)
            finally:
                os.close(folder)

    def _read(self, folder: int) -> Run | None:
        there = _numbers(folder)
        if self._file is None:
            if not there:
                return None
            # An older daemon may have posted, and removed, the first ones.
            self._file = self.next_seq = max(there[0], self._first)
            if there[0] != self._file:
                raise NoFrames(f"frames begin with number {there[0]}, not {self._first}")
        while True:
            run = self._from(folder, self._file)
            if run is not None or self.next_seq not in there or self.next_seq == self._file:
                return run
            self._file, self._at = self.next_seq, 0

    def _from(self, folder: int, number: int) -> Run | None:
        fd = os.open(_name(number), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise NoFrames(f"{_name(number)} is not a file")
            size = RUN_BYTES
            while True:
                data = os.pread(fd, size, self._at)
                count, end = whole(data)
                if count or len(data) < size:
                    break
                if size > MAX_FRAME_BYTES:
                    raise NoFrames(f"a frame of more than {MAX_FRAME_BYTES} bytes")
                size *= 4
        finally:
            os.close(fd)
        if not count:
            return None
        run = Run(seq=self.next_seq, frames=data[:end], count=count)
        self._at += end
        self.next_seq += count
        return run


def whole(data: bytes) -> tuple[int, int]:
    """(how many whole frames these bytes begin with, where they end), `RUN_FRAMES` at most. NoFrames."""
    unpacker = msgpack.Unpacker(max_buffer_size=0)
    unpacker.feed(data)
    count = end = 0
    try:
        while end < len(data) and count < RUN_FRAMES:
            if data[end] != _ARRAY_OF_4:
                raise NoFrames("what is among the frames is none: an array of 4 begins otherwise")
            unpacker.skip()
            end = unpacker.tell()
            count += 1
    except msgpack.OutOfData:
        pass
    except (ValueError, msgpack.UnpackException) as error:
        raise NoFrames(f"what is among the frames is no msgpack: {error}") from None
    return count, end


def _numbers(folder: int) -> list[int]:
    names: list[str] = []
    with os.scandir(folder) as entries:
        for looked_at, entry in enumerate(entries):
            if looked_at >= MOST_FILES:
                raise NoFrames(f"more than {MOST_FILES} files lie among the frames")
            names.append(entry.name)
    return sorted(int(name) for name in names if len(name) == _DIGITS and name.isascii() and name.isdecimal())


def _name(number: int) -> str:
    return f"{number:0{_DIGITS}}"
