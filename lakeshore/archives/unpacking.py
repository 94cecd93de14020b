"""The files of an archive, written where nothing of it leads anywhere else.

An archive may be anybody's. Files, directories and links inside it are all there may be: no path and no link that leads
out, no device, no hard link; links are made last, so that nothing is written through one, and followed then, for one
may lead out through another. Files and the directories that they need, bytes, and what headers may take, each and all,
are bounded while it is read, so that a small archive of much never gets far. tarfile's own `data` filter looks at each
member first, where this Python has it; whatever tarfile makes of what is no tar is an ArchiveError.
"""

from __future__ import annotations

import gzip
import os
import posixpath
import tarfile
import zlib
from pathlib import Path
from typing import Final

from ..wire.values import value
from .errors import ArchiveError

MOST_FILES: Final = 100_000
MOST_BYTES: Final = 1 << 30
"""Of all of its files together."""
_HEADERS: Final = 1 << 20
"""What one member's headers may take, in bytes."""
_ALL_HEADERS: Final = 1 << 28
"""What those of all of them may take: a header of a usual file has 512 bytes, one with a long name 1,536."""
_DEEPEST: Final = 100
"""Directories in each other: whoever walks through them, or removes them, calls himself that often."""
_PIECE: Final = 1 << 18
_PLAIN: Final = (tarfile.REGTYPE, tarfile.AREGTYPE)


@value
class Unpacked:
    """How many files there are, and their bytes."""

    files: int
    bytes: int


def unpack(archive: Path, into: Path, *, most_files: int = MOST_FILES, most_bytes: int = MOST_BYTES) -> Unpacked:
    """Write the files of a `.tar.gz` below the empty directory `into`. ArchiveError; then what is there is partial."""
    try:
        with gzip.open(archive, "rb") as file:
            return _Unpacking(file, into, most_files, most_bytes).run()
    except (tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError, UnicodeError) as error:
        raise ArchiveError(f"the archive is damaged, or no archive: {error}") from error
    except OSError as error:
        raise ArchiveError(f"the archive cannot be unpacked: {error.strerror or error}") from error
    except (ValueError, ArithmeticError, LookupError, RecursionError) as error:  # tarfile's, of numbers that are none
        raise ArchiveError(f"the archive is damaged, or no archive: {type(error).__name__}: {error}") from error


class _Bounded:
    """A stream that gives no more than it was allowed to: of one member, and of them all."""

    def __init__(self, file: gzip.GzipFile, most: int) -> None:
        self._file = file
        self._left = most
        self.allowed = _HEADERS

    def read(self, size: int) -> bytes:
        data = self._file.read(size)
        self.allowed -= len(data)
        self._left -= len(data)
        if min(self.allowed, self._left) < 0:
            raise ArchiveError("the archive has headers that are larger than any file's: it is not unpacked")
        return data


class _Unpacking:
    def __init__(self, file: gzip.GzipFile, into: Path, most_files: int, most_bytes: int) -> None:
        self._source = _Bounded(file, most_bytes + _ALL_HEADERS)
        self._into = into
        self._most_files, self._most_bytes = most_files, most_bytes
        self._links: dict[str, str] = {}
        self._made: set[str] = {""}
        self._files = self._entries = self._bytes = 0

    def run(self) -> Unpacked:
        with tarfile.open(fileobj=self._source, mode="r|") as tar:  # type: ignore[call-overload]  # it only reads
            while (member := tar.next()) is not None:
                if member.size < 0:
                    raise ArchiveError(f"the archive is damaged: {member.name!r:.120} has less than no bytes")
                self._bytes += member.size
                if self._bytes > self._most_bytes:
                    raise ArchiveError(f"the archive has more than {self._most_bytes >> 20} MiB: it is not unpacked")
                self._source.allowed = member.size + _HEADERS
                self._add(tar, member)
                tar.members = []  # each is kept otherwise
                self._source.allowed = _HEADERS
        self._link()
        return Unpacked(files=self._files, bytes=self._bytes)

    def _count(self) -> None:
        """One more file, link or directory is about to be made."""
        self._entries += 1
        if self._entries > self._most_files:
            raise ArchiveError(f"the archive has more than {self._most_files} files: it is not unpacked")

    def _link(self) -> None:
        for name, target in self._links.items():
            os.symlink(target, self._into / name)
        top = os.path.realpath(self._into)
        for name, target in self._links.items():
            if os.path.commonpath((top, os.path.realpath(self._into / name))) != top:
                raise _leads_out(f"{name} -> {target}")

    def _add(self, tar: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        if hasattr(tarfile, "data_filter"):
            try:
                tarfile.data_filter(member, str(self._into))
            except tarfile.FilterError as error:
                raise ArchiveError(f"the archive is not unpacked: {error}") from error
        name = _inside(member.name, member.name)
        if member.isdir():
            self._directory(name)
        elif member.issym():
            _inside(posixpath.join(posixpath.dirname(name), member.linkname), f"{name} -> {member.linkname}")
            if member.linkname.startswith("/") or not name or name in self._links:
                raise _leads_out(f"{name} -> {member.linkname}")
            self._directory(posixpath.dirname(name))
            self._count()
            self._links[name] = member.linkname
            self._files += 1
        elif member.type in _PLAIN and name:
            self._directory(posixpath.dirname(name))
            self._write(tar, member, name)
        else:
            raise ArchiveError(f"the archive is not unpacked: {name!r:.120} is no file, directory or link")

    def _directory(self, name: str) -> None:
        missing = []
        while name not in self._made:
            missing.append(name)
            name = posixpath.dirname(name)
        for one in reversed(missing):
            self._count()
            (self._into / one).mkdir(mode=0o755, exist_ok=True)
            self._made.add(one)

    def _write(self, tar: tarfile.TarFile, member: tarfile.TarInfo, name: str) -> None:
        data = tar.extractfile(member)
        if data is None:
            raise ArchiveError(f"the archive is not unpacked: {name!r:.120} cannot be read")
        self._count()
        mode = 0o755 if member.mode & 0o100 else 0o644
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(self._into / name, flags, mode), "wb") as file:
            left = member.size
            while left:
                piece = data.read(min(_PIECE, left))
                if not piece:
                    raise ArchiveError("the archive is damaged: it ends in the middle of a file")
                file.write(piece)
                left -= len(piece)
        self._files += 1


def _inside(path: str, shown: str) -> str:
    """A path as it is named below the directory. ArchiveError for one that leads out of it."""
    if path.startswith("/") or "\0" in path or ("\\" in path and os.sep == "\\"):
        raise _leads_out(shown)
    name = posixpath.normpath(path)
    if name.count("/") >= _DEEPEST:
        raise ArchiveError(f"the archive has more than {_DEEPEST} directories in each other: it is not unpacked")
    if name == ".." or name.startswith("../"):
        raise _leads_out(shown)
    return "" if name == "." else name


def _leads_out(shown: str) -> ArchiveError:
    return ArchiveError(f"the archive is not unpacked: {shown!r:.200} leads out of it")
