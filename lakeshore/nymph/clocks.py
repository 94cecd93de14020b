"""The clock of the core, and noticing that it jumped.

`now` counts while the host sleeps and is never set. The host slept when it went on and the clock that stands still
meanwhile did not; the wall's clock was set when it went another way than `now`. Both are looked for before any event.
Reference: DESIGN, "Time"; CONTRACT K-12, K-13.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from .core.events import ClockJumped

NOTICED_S: Final = 1.0
"""A difference below this is the scheduler's."""
_SUSPEND_TOO: Final[int] = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # macOS: monotonic counts sleep


def now() -> float:
    """Seconds since the host was booted, sleep included."""
    return time.clock_gettime(_SUSPEND_TOO)


class Watch:
    """Compares three clocks since the last look."""

    def __init__(
        self,
        now: Callable[[], float] = now,
        awake: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._now, self._awake, self._wall = now, awake, wall
        self._slept, self._set = self._differences()

    def look(self) -> ClockJumped | None:
        """What to tell before anything else; None when nothing happened."""
        slept, moved = self._differences()
        asleep_s = slept - self._slept
        if asleep_s < NOTICED_S and abs(moved - self._set) < NOTICED_S:
            return None
        self._slept, self._set = slept, moved
        return ClockJumped(slept_s=asleep_s if asleep_s >= NOTICED_S else 0.0, epoch=self._wall())

    def _differences(self) -> tuple[float, float]:
        at = self._now()
        return at - self._awake(), self._wall() - at
