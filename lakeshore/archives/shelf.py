"""The unpacked commits of a machine, one directory for each archive: `$LAKESHORE_HOME/code/<commit>/<sha256…32>/`.

    tree/          the files
    whole.json     {"files", "bytes"}: there last, and only of one that is whole; locked by who imports from it
    archive.tar.gz where the archive itself is wanted again

What is on the shelf is there under its name at once, with a rename: two workers that bring the same one do no harm, and
what was cut off by a crash has no name. After a power cut files may be empty that had been written: the sum of their
bytes shows it. A commit's directory is named by the archive's digest as well, so that what somebody else calls this
commit is never taken for it. Unused for two weeks, or the longest unused where there is too much: they go, but none
that somebody imports from.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import shutil
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from ..wire.values import value
from .errors import ArchiveError
from .stamp import Stamp
from .unpacking import Unpacked, unpack

UNUSED_S: Final = 14 * 24 * 3600.0
YOUNG_S: Final = 3600.0
"""Nothing that was used so lately goes for want of room."""
MOST_BYTES: Final = 4 << 30
_PARTS_S: Final = 24 * 3600.0
_PART, _GONE = ".part-", ".gone-"
_TREE, _WHOLE, _ARCHIVE = "tree", "whole.json", "archive.tar.gz"
_COMPILED: Final = "__pycache__"


def shelf_directory(environ: Any = os.environ) -> Path:
    """`$LAKESHORE_HOME/code`. ArchiveError for who has no home."""
    try:
        return Path(environ.get("LAKESHORE_HOME") or "~/.lakeshore").expanduser() / "code"
    except RuntimeError as error:
        raise ArchiveError(f"there is no place for code: {error}; set LAKESHORE_HOME to a directory") from error


@value
class Shelved:
    """One unpacked commit. `lock` is a descriptor: while it is open, it stays."""

    directory: Path
    lock: int

    @property
    def tree(self) -> Path:
        """Where its files are."""
        return self.directory / _TREE

    @property
    def archive(self) -> Path:
        """The archive, where it was kept."""
        return self.directory / _ARCHIVE

    def close(self) -> None:
        """It may go."""
        os.close(self.lock)


class Shelf:
    """Those below `root`, which is made when it is needed."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._sound: set[Path] = set()

    def find(self, stamp: Stamp) -> Shelved | None:
        """The commit of a stamp, held, if it is here and whole."""
        directory = self._place(stamp)
        try:
            lock = os.open(directory / _WHOLE, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return None
        found = Shelved(directory=directory, lock=lock)
        try:
            self._check_owner()
            fcntl.flock(lock, fcntl.LOCK_SH)
            went = os.fstat(lock).st_ino != os.stat(directory / _WHOLE).st_ino
            if went or not (directory in self._sound or _is_whole(found)):
                found.close()
                return None
            self._sound.add(directory)
            os.utime(directory / _WHOLE)
        except OSError:
            found.close()
            return None
        except BaseException:
            found.close()
            raise
        return found

    def new_file(self) -> Path:
        """Where an archive is downloaded to; `put` takes it from there, or `drop` it."""
        return self._part() / _ARCHIVE

    def drop(self, archive: Path) -> None:
        """It was nothing."""
        shutil.rmtree(archive.parent, ignore_errors=True)

    def put(self, stamp: Stamp, archive: Path, *, keep: bool = False) -> Shelved:
        """Unpack an archive of `new_file`, whose digest is right, and hold it. ArchiveError. `keep`: the archive stays
        beside its files.
        """
        part = archive.parent
        try:
            (part / _TREE).mkdir(mode=0o755)
            found = unpack(archive, part / _TREE)
            if not keep:
                archive.unlink()
            _write(part / _WHOLE, found)
            place = self._place(stamp)
            place.parent.mkdir(mode=0o700, exist_ok=True)
            try:
                os.rename(part, place)
            except OSError:  # somebody else has brought the same; or what is there is not whole
                there = self.find(stamp)
                if there is not None:
                    if keep and not there.archive.exists():  # who brought it wanted its files alone
                        os.replace(archive, there.archive)
                    there.close()
                else:
                    _remove(place)
                    place.parent.mkdir(mode=0o700, exist_ok=True)
                    os.rename(part, place)
        except OSError as error:
            raise ArchiveError(f"the archive cannot be kept in {self._root}: {error.strerror or error}") from error
        finally:
            shutil.rmtree(part, ignore_errors=True)
        held = self.find(stamp)
        if held is None:
            raise ArchiveError(f"{place} went while it was made; submit again")
        self.prune(time.time())
        return held

    def prune(self, now: float, *, most: int = MOST_BYTES) -> None:
        """Let go of what nobody uses."""
        for path in self._root.glob(".*"):
            with contextlib.suppress(OSError):
                if path.name.startswith(_GONE) or now - path.stat().st_mtime > _PARTS_S:
                    shutil.rmtree(path, ignore_errors=True)
        known = sorted(self._known())
        total = sum(size for _used, size, _path in known)
        for used, size, path in known:
            if now - used > UNUSED_S or (total > most and now - used > YOUNG_S):
                total -= size if _remove(path) else 0

    def _known(self) -> Iterator[tuple[float, int, Path]]:
        for path in self._root.glob(f"[0-9a-f]*/*/{_WHOLE}"):
            with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
                yield path.stat().st_mtime, int(json.loads(path.read_bytes())["bytes"]), path.parent

    def _place(self, stamp: Stamp) -> Path:
        return self._root / stamp.commit / stamp.sha256[:32]

    def _part(self) -> Path:
        part = self._root / f"{_PART}{os.getpid()}-{secrets.token_hex(6)}"
        try:
            self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._check_owner()
            part.mkdir(mode=0o700)
            part.chmod(0o755)  # of use to who runs as somebody else, in a container: the way to it is ours alone
        except OSError as error:
            raise ArchiveError(
                f"{self._root} cannot be used for code: {error.strerror or error}; LAKESHORE_HOME names another place"
            ) from error
        return part

    def _check_owner(self) -> None:
        """What is imported from there must be nobody else's to change. ArchiveError."""
        found = self._root.stat()
        if found.st_uid != os.geteuid() or found.st_mode & 0o022:
            raise ArchiveError(
                f"{self._root} can be written by others than you, so no code is run from it: "
                f"`chmod go-w {self._root}`, or name another LAKESHORE_HOME"
            )


def _write(path: Path, found: Unpacked) -> None:
    with open(path, "x", encoding="ascii") as file:
        json.dump({"files": found.files, "bytes": found.bytes}, file)
        file.flush()
        os.fsync(file.fileno())


def _is_whole(found: Shelved) -> bool:
    """Whether its files have the bytes that were written; more is what bodies left there."""
    files = size = 0
    for place, directories, names in os.walk(found.tree):
        directories[:] = [name for name in directories if name != _COMPILED]
        for name in (*names, *directories):
            status = os.lstat(os.path.join(place, name))
            if not stat.S_ISDIR(status.st_mode):
                files += 1
                size += status.st_size if stat.S_ISREG(status.st_mode) else 0
    try:
        told = json.loads((found.directory / _WHOLE).read_bytes())
        return files >= int(told["files"]) and size >= int(told["bytes"])
    except (ValueError, TypeError, KeyError):
        return False


def _remove(directory: Path) -> bool:
    """Take one away, unless somebody imports from it; whether it is gone."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(FileNotFoundError):
            fd = os.open(directory / _WHOLE, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            stack.callback(os.close, fd)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
        gone = directory.parent.parent / f"{_GONE}{secrets.token_hex(6)}"
        try:
            os.rename(directory, gone)
        except OSError:
            return False
    shutil.rmtree(gone, ignore_errors=True)
    with contextlib.suppress(OSError):  # of another archive of the commit
        directory.parent.rmdir()
    return True
