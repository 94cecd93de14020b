"""What a worker is doing, in memory that its guardian can read while the worker is too busy to speak.

A worker marks each body it begins; the guardian may revoke what has not begun. Both do so under a file lock, so that
a job never begins after it was given back (K-9). 32 bytes:
batch, begun, since (monotonic ns, 0 when idle), revoked batch.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import struct
import tempfile
import time

LONG_S = 0.03
"""A job that runs longer than this is long: what waits behind it goes back."""
_FORM = struct.Struct("<QQQQ")


class Slate:
    """Made by the worker with `create`, opened by its guardian with `attach`."""

    def __init__(self, fd: int, path: str) -> None:
        self._fd = fd
        self.path = path
        self._map = mmap.mmap(fd, _FORM.size)

    @classmethod
    def create(cls) -> Slate:
        fd, path = tempfile.mkstemp(prefix="lakeshore-slate-")
        os.write(fd, b"\0" * _FORM.size)
        return cls(fd, path)

    @classmethod
    def attach(cls, path: str) -> Slate:
        """Open the worker's slate; from then on only the two of them know it."""
        slate = cls(os.open(path, os.O_RDWR | os.O_CLOEXEC), path)
        os.unlink(path)
        return slate

    def new_batch(self, batch: int) -> None:
        """The worker has a fresh list: nothing of it has begun."""
        with _Locked(self._fd):
            _FORM.pack_into(self._map, 0, batch, 0, 0, 0)

    def begin(self) -> bool:
        """The next job of the batch begins. False when it was revoked: then it must not."""
        with _Locked(self._fd):
            batch, begun, _since, revoked = _FORM.unpack_from(self._map)
            if revoked == batch:
                return False
            _FORM.pack_into(self._map, 0, batch, begun + 1, time.monotonic_ns(), revoked)
            return True

    def idle(self) -> None:
        """The running job has ended."""
        struct.pack_into("<Q", self._map, 16, 0)

    def begun(self) -> tuple[int, int]:
        """(batch, how many of it have begun)."""
        batch, begun, _since, _revoked = _FORM.unpack_from(self._map)
        return batch, begun

    def revoke_if_long(self, batch: int, *, longer_than_s: float) -> int | None:
        """Revoke what has not begun when the running job has run so long; how many had begun, or None."""
        now = time.monotonic_ns()
        if not self._is_long(batch, now, longer_than_s):
            return None
        with _Locked(self._fd):
            if not self._is_long(batch, now, longer_than_s):
                return None
            _batch, begun, since, _revoked = _FORM.unpack_from(self._map)
            _FORM.pack_into(self._map, 0, batch, begun, since, batch)
            return int(begun)

    def _is_long(self, batch: int, now: int, longer_than_s: float) -> bool:
        current, _begun, since, revoked = _FORM.unpack_from(self._map)
        return bool(current == batch and revoked != batch and since and now - since > longer_than_s * 1e9)

    def close(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)  # nobody attached to it
        self._map.close()
        os.close(self._fd)


class _Locked:
    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def __enter__(self) -> None:
        fcntl.lockf(self._fd, fcntl.LOCK_EX)

    def __exit__(self, *_: object) -> None:
        fcntl.lockf(self._fd, fcntl.LOCK_UN)
