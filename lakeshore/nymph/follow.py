"""What a job has printed since: bytes after an offset, of a file that grows and whose head may be gone.

Offsets count what was printed, from the beginning, for ever: the keeper gives the head of a flood back to the disk, and
what is read there would be zeros, so that part is named as skipped. Nothing is kept between two calls.
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass

CHUNK = 64 << 10
TAIL = 8 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """`data` stands at `offset`; `skipped` bytes before it are lost. The next call asks for `next`."""

    offset: int
    data: bytes
    skipped: int = 0

    @property
    def next(self) -> int:
        """Where to go on."""
        return self.offset + len(self.data)


def read_on(path: str | os.PathLike[str], offset: int, *, most: int = CHUNK) -> Chunk:
    """At most `most` bytes from `offset` on; none when nothing new is there, or the file is not (yet, or any more)."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return Chunk(offset=offset, data=b"")
    try:
        start = _data_at(fd, offset)
        return Chunk(offset=start, data=os.pread(fd, most, start), skipped=start - offset)
    finally:
        os.close(fd)


def tail(path: str | os.PathLike[str], *, most: int = TAIL) -> bytes:
    """The last bytes that were printed."""
    try:
        size = os.lstat(path).st_size
    except OSError:
        return b""
    return read_on(path, max(0, size - most), most=most).data


def _data_at(fd: int, offset: int) -> int:
    """The first offset at or after this one that is not in a hole."""
    if not hasattr(os, "SEEK_DATA"):
        return offset
    try:
        return os.lseek(fd, offset, os.SEEK_DATA)
    except OSError as error:
        if error.errno == errno.ENXIO:  # at the end, or past it
            return offset
        return offset  # a file system without holes
