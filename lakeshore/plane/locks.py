"""Who is alive on one machine: each process that holds claims keeps an OS lock, and whoever can take it knows (K-14).

No clock, no renewal: the kernel gives the lock back when the process ends, however it ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import weakref
from collections.abc import Iterator
from pathlib import Path

_SUFFIX = ".lock"
_open_locks: weakref.WeakSet[Holder] = weakref.WeakSet()


class Holder:
    """This process's lock file `workers/<id>.lock`, held until `release` or the process's end."""

    def __init__(self, directory: Path, holder_id: str) -> None:
        directory.mkdir(mode=0o700, exist_ok=True)
        self.id = holder_id
        self.path = directory / f"{holder_id}{_SUFFIX}"
        self._fd = _lock_own(self.path)
        _open_locks.add(self)

    def release(self) -> None:
        """Give the lock back: what this holder still claims counts as lost from now on."""
        if self._fd >= 0:
            with contextlib.suppress(FileNotFoundError):
                self.path.unlink()
            os.close(self._fd)
            self._fd = -1

    def _forget(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)  # the parent's descriptor still holds the lock
            self._fd = -1


def _lock_own(path: Path) -> int:
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(fd, fcntl.LOCK_EX)
        # A sweep may have taken the file for a dead one's between the two calls.
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.stat(path), os.fstat(fd)):
                return fd
        os.close(fd)


def sweep(directory: Path) -> None:
    """Remove the lock files of holders that are dead; their claims are found dead without them too."""
    for path in directory.glob(f"*{_SUFFIX}"):
        is_dead(directory, path.name.removesuffix(_SUFFIX))


def anybody(directory: Path) -> bool:
    """Whether any holder is alive."""
    sweep(directory)
    return any(directory.glob(f"*{_SUFFIX}"))


def is_dead(directory: Path, holder_id: str) -> bool:
    """Whether nobody holds this lock any more."""
    path = directory / f"{holder_id}{_SUFFIX}"
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    else:
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
        return True
    finally:
        os.close(fd)


@contextlib.contextmanager
def try_lock(path: Path) -> Iterator[bool]:
    """Hold `path` for the block; yields False at once when another process has it."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(fd)


@contextlib.contextmanager
def files_lock(directory: Path, *, shared: bool = False) -> Iterator[bool]:
    """Who copies files of a plane holds this `shared`, and waits for it; who deletes any takes it alone, and is told
    False when somebody copies.
    """
    path = directory / "files.lock"
    if not shared:
        with try_lock(path) as mine:
            yield mine
        return
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_SH)
        yield True
    finally:
        os.close(fd)


def _after_fork() -> None:
    # A child that kept the descriptor would keep a dead parent's claims alive.
    for lock in list(_open_locks):
        lock._forget()


os.register_at_fork(after_in_child=_after_fork)
