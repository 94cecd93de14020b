"""What a worker holds and does, in memory that its guardian can read while the worker is too busy to speak.

The worker writes each list that it is given, and marks each body it begins; the guardian may revoke what has not begun.
They do so under a file lock, so that a job never begins after it was given back (K-9), and so that a guardian which
goes to sleep is either woken by the next list or sees it. Reading takes no lock where a torn look does no harm.

A head of 64 bytes, then two places for lists. The head: batch, begun, since (monotonic ns, 0 when idle), revoked
batch, told (monotonic ns), length and place of the list, whether the guardian sleeps. A list is whole before the head
names it: whoever is killed in between leaves the one before.

It is memory without a name, handed over as a file descriptor: it is gone with the last of the two, however they die.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import socket
import struct
import tempfile
import time

LONG_S = 0.03
"""A job that runs longer than this is long: what waits behind it goes back."""
ROOM = 64 * 1024 - 64
"""The longest list that a slate takes."""
_WORD = struct.Struct("<Q")
_STATE = struct.Struct("<QQQQ")
_TOLD = struct.Struct("<QII")
_SINCE_AT, _TOLD_AT, _SLEEPS_AT, _LISTS_AT = 16, 32, 48, 64


class Slate:
    """Made by the worker with `create`; its guardian makes another of the descriptor that `pass_to` gave it."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._map = mmap.mmap(fd, _LISTS_AT + 2 * ROOM)

    @classmethod
    def create(cls) -> Slate:
        fd = _nameless()
        os.truncate(fd, _LISTS_AT + 2 * ROOM)
        return cls(fd)

    def pass_to(self, line: socket.socket) -> None:
        """Give it to who reads the other end of a Unix socket with `received`."""
        socket.send_fds(line, [b"s"], [self._fd])

    @classmethod
    def received(cls, line: socket.socket) -> Slate:
        """The next slate that was passed. Waits for it."""
        _data, fds, _flags, _address = socket.recv_fds(line, 1, 1)
        os.set_inheritable(fds[0], False)
        return cls(fds[0])

    # -- the worker's

    def tell(self, batch: int, what: bytes) -> bool:
        """The worker has a fresh list, of which nothing has begun. True when the guardian sleeps: then wake it."""
        with _Locked(self._fd):
            _told, _length, place = _TOLD.unpack_from(self._map, _TOLD_AT)
            start = _LISTS_AT + (place ^ 1) * ROOM
            self._map[start : start + len(what)] = what
            _TOLD.pack_into(self._map, _TOLD_AT, time.monotonic_ns(), len(what), place ^ 1)
            _STATE.pack_into(self._map, 0, batch, 0, 0, 0)
            return self._map[_SLEEPS_AT] != 0

    def begin(self) -> bool:
        """The next job of the batch begins. False when it was revoked: then it must not."""
        fcntl.lockf(self._fd, fcntl.LOCK_EX)
        try:
            batch, begun, _since, revoked = _STATE.unpack_from(self._map)
            if revoked == batch:
                return False
            _STATE.pack_into(self._map, 0, batch, begun + 1, time.monotonic_ns(), revoked)
            return True
        finally:
            fcntl.lockf(self._fd, fcntl.LOCK_UN)

    def idle(self) -> None:
        """The running job has ended."""
        _WORD.pack_into(self._map, _SINCE_AT, 0)

    # -- the guardian's

    def heard(self, since_ns: int) -> tuple[int, bytes] | None:
        """(when, what) was told last, when that is later than `since_ns` on the monotonic clock."""
        if _TOLD.unpack_from(self._map, _TOLD_AT)[0] <= since_ns:
            return None
        with _Locked(self._fd):
            told, length, place = _TOLD.unpack_from(self._map, _TOLD_AT)
            start = _LISTS_AT + place * ROOM
            return told, self._map[start : start + length]

    def sleep(self, since_ns: int) -> bool:
        """Whoever tells something from now on wakes the guardian. False when something was told after `since_ns`."""
        with _Locked(self._fd):
            news = _TOLD.unpack_from(self._map, _TOLD_AT)[0] > since_ns
            self._map[_SLEEPS_AT] = not news
            return not news

    def wake(self) -> None:
        """The guardian looks by itself."""
        self._map[_SLEEPS_AT] = 0

    def begun(self) -> tuple[int, int]:
        """(batch, how many of it have begun)."""
        batch, begun, _since, _revoked = _STATE.unpack_from(self._map)
        return batch, begun

    def revoke_if_long(self, batch: int, *, longer_than_s: float) -> int | None:
        """Revoke what has not begun when the running job has run so long; how many had begun, or None."""
        now = time.monotonic_ns()
        if not self._is_long(batch, now, longer_than_s):
            return None
        with _Locked(self._fd):
            if not self._is_long(batch, now, longer_than_s):
                return None
            _batch, begun, since, _revoked = _STATE.unpack_from(self._map)
            _STATE.pack_into(self._map, 0, batch, begun, since, batch)
            return int(begun)

    def _is_long(self, batch: int, now: int, longer_than_s: float) -> bool:
        current, _begun, since, revoked = _STATE.unpack_from(self._map)
        return bool(current == batch and revoked != batch and since and now - since > longer_than_s * 1e9)

    def close(self) -> None:
        self._map.close()
        os.close(self._fd)


def _nameless() -> int:
    """A file that no directory names, from its birth where the system has such files."""
    try:
        return os.memfd_create("lakeshore-slate")
    except (AttributeError, OSError):
        with tempfile.TemporaryFile(buffering=0) as file:
            return os.dup(file.fileno())


class _Locked:
    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def __enter__(self) -> None:
        fcntl.lockf(self._fd, fcntl.LOCK_EX)

    def __exit__(self, *_: object) -> None:
        fcntl.lockf(self._fd, fcntl.LOCK_UN)
