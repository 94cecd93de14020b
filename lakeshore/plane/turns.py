"""Whose turn it is to write into a plane that processes share (K-33).

SQLite's own wait for its lock looks again after 1, 2, 5 and more milliseconds, while a commit takes a fraction of one:
the lock lies idle, and work waits for it. Writers that take turns go on as soon as the one before is done. It is a
courtesy, and the database's lock alone decides: whoever does not get its turn soon, as behind a process that was
stopped, goes to that one.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
import weakref
from collections.abc import Iterator
from pathlib import Path

SHORTEST_S, LONGEST_S = 0.00005, 0.001
"""Bounds of the pace at which a writer looks whether it is its turn."""
PATIENCE_S = 0.05
_open_turns: weakref.WeakSet[Turn] = weakref.WeakSet()


class Turn:
    """One writer's place at the file that they share. Raises OSError."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        _open_turns.add(self)

    @contextlib.contextmanager
    def taken(self, commit_s: float) -> Iterator[None]:
        """Have the turn, or go on without after PATIENCE_S. A look costs less than a commit, which takes `commit_s`."""
        fd = self._fd
        try:
            if fd >= 0:  # in here: who is interrupted when he has it lets go of it
                _wait(fd, min(max(3 * commit_s, SHORTEST_S), LONGEST_S))
            yield
        finally:
            if fd == self._fd >= 0:
                fcntl.flock(fd, fcntl.LOCK_UN)

    def close(self) -> None:
        """Let go of the file, which stays."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _wait(fd: int, pace_s: float) -> None:
    until = 0.0
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            now = time.monotonic()
            until = until or now + PATIENCE_S
            if now >= until:
                return
            time.sleep(pace_s)
        else:
            return


def _after_fork() -> None:
    # A child that kept the descriptor would keep the turn of a parent that was killed in it.
    for turn in list(_open_turns):
        turn.close()


os.register_at_fork(after_in_child=_after_fork)
