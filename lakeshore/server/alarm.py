"""An alarm at an instant of the wall clock, for one task that waits for it.

Clocks jump: while one waits, the clock is looked at again at least every second. Nobody asks SQL for the time.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import trio

LOOK_S = 1.0


class Alarm:
    """`await due()` returns once `at` (epoch seconds by `clock`) has passed; `at` may be brought forward meanwhile."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.at = math.inf
        self._clock = clock
        self._news = trio.Event()

    def set(self, at: float | None) -> None:
        """Ring at this instant and no other; None: never."""
        self.at = math.inf if at is None else at
        self._news.set()

    def no_later_than(self, at: float) -> None:
        """Ring at this instant, unless it would ring before."""
        if at < self.at:
            self.set(at)

    async def due(self) -> None:
        """Sleep until the instant has passed."""
        while (left := self.at - self._clock()) > 0:
            self._news = trio.Event()
            with trio.move_on_after(left if left == math.inf else min(left, LOOK_S)):
                await self._news.wait()
