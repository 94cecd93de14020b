"""Short calls of the disk: made at once where the disk is quick, in a thread where it is not.

A hop to a thread costs more than a file on a local disk; on a disk that has to be waited for, a thread waits, so that
the daemon goes on.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar, TypeVarTuple

import trio

T = TypeVar("T")
Args = TypeVarTuple("Args")

SLOW_S: Final = 0.01
LOOKS_AGAIN: Final = 50
"""Calls that go to a thread after a slow one."""


class Brief:
    """Of one disk."""

    __slots__ = ("_in_threads",)

    def __init__(self) -> None:
        self._in_threads = 0

    async def run(self, call: Callable[[*Args], T], *args: *Args) -> T:
        """`call(*args)`, which touches a few small files. Always a checkpoint."""
        if self._in_threads:
            self._in_threads -= 1
            return await trio.to_thread.run_sync(call, *args)
        await trio.lowlevel.checkpoint()
        began = time.thread_time(), time.perf_counter()
        try:
            return call(*args)
        finally:
            # What it waited for; on a busy host some of that is for a processor.
            waited = time.perf_counter() - began[1] - (time.thread_time() - began[0])
            if waited > SLOW_S:
                self._in_threads = LOOKS_AGAIN
