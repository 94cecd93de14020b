"""New invocation ids: one ULID source a process, rebuilt after fork so that no two processes share its state."""

from __future__ import annotations

import os
import threading
import time

from lakeshore.wire.names import Ulids

_lock = threading.Lock()
_source: Ulids | None = None


def _milliseconds() -> int:
    return time.time_ns() // 1_000_000


def new_id() -> str:
    """A ULID that sorts after every earlier one of this process."""
    global _source  # noqa: PLW0603  # one source a process is the point
    with _lock:
        if _source is None:
            _source = Ulids(_milliseconds, os.urandom)
        return _source.new()


def _after_fork() -> None:
    global _lock, _source  # noqa: PLW0603  # the child starts afresh
    _lock = threading.Lock()
    _source = None


os.register_at_fork(after_in_child=_after_fork)
