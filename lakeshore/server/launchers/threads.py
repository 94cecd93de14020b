"""Threads for launchers that block: few of them for each namespace, so that hosts which hang cost their own alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

import trio

T = TypeVar("T")
_EACH: Final = 4


class Threads:
    """Those of one kind of launcher."""

    def __init__(self) -> None:
        self._limits: dict[str, trio.CapacityLimiter] = {}

    async def run(self, ns: str, step: Callable[[], T]) -> T:
        """`step()` in one of the namespace's. Each step has a time limit, so who goes down need not wait for one."""
        limiter = self._limits.setdefault(ns, trio.CapacityLimiter(_EACH))
        try:
            return await trio.to_thread.run_sync(step, limiter=limiter, abandon_on_cancel=True)
        finally:
            if not limiter.borrowed_tokens and not limiter.statistics().tasks_waiting:
                self._limits.pop(ns, None)
