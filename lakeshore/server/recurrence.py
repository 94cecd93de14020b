"""When a periodic job is due: every so many seconds from an anchor, or by a cron expression in a time zone.

Cron is Debian's (five fields; six begin with seconds). Where the clock is put ahead, a job of a fixed time in the gap
comes right after it; where it is put back, such a job comes once, and one of every few minutes comes in both hours.
Instants are epoch seconds.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from datetime import UTC, datetime, tzinfo
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from ..wire.values import value

SHORTEST_S = 1.0
LONGEST_S = 3660 * 86400.0
_WINDOWS_S = (3600.0, 86400.0, 7 * 86400.0, 366 * 86400.0)


class BadRecurrence(ValueError):
    """It names no instants; `field` says which part is wrong."""

    def __init__(self, message: str, field: str) -> None:
        super().__init__(message)
        self.field = field


@value
class Recurrence:
    """One of `every` (seconds, from `anchor` on) and `cron`. Make one with `recurrence`, which checks it."""

    every: float | None = None
    anchor: float = 0.0
    cron: str | None = None
    tz: str | None = None

    def next_after(self, instant: float) -> float | None:
        """The first instant after this one; None when there is none any more."""
        if self.every is not None:
            return self.anchor + self._place_after(instant, self.every) * self.every
        return next(self._by_cron(instant), None)

    def newest(self, after: float, until: float, most: int) -> list[float]:
        """The last instants, at most `most`, that come after `after` and not after `until`; the oldest first."""
        if self.every is not None:
            end = self._place_after(until, self.every)
            places = range(max(1, end - most), end)
            return [instant for k in places if (instant := self.anchor + k * self.every) > after]
        for window in (*_WINDOWS_S, math.inf):  # the end of a long time, without walking through all of it
            start = max(after, until - window)
            found = []
            for instant in self._by_cron(start):
                if instant > until:
                    break
                found.append(instant)
            if len(found) >= most or start == after:
                return found[-most:]
        raise AssertionError("the last window holds everything")

    def _place_after(self, instant: float, every: float) -> int:
        """The first k whose instant comes after this one; a quotient of floats may be one off."""
        k = max(1, math.floor((instant - self.anchor) / every))
        while self.anchor + k * every <= instant:
            k += 1
        return k

    def _by_cron(self, instant: float) -> Iterator[float]:
        assert self.cron is not None, "it has either"
        for found in CronSim(self.cron, datetime.fromtimestamp(instant, _zone(self.tz))):
            if (at := found.timestamp()) > instant:
                yield at


def recurrence(
    *, every: float | None = None, anchor: float = 0.0, cron: str | None = None, tz: str | None = None
) -> Recurrence:
    """A checked one. Raises BadRecurrence."""
    if (every is None) == (cron is None):
        raise BadRecurrence("give either every (seconds) or cron", "every")
    if every is not None:
        if tz is not None:
            raise BadRecurrence("a time zone is for cron", "tz")
        if not SHORTEST_S <= every <= LONGEST_S:
            raise BadRecurrence(f"must be from {SHORTEST_S:.0f} to {LONGEST_S:.0f} seconds", "every")
        return Recurrence(every=every, anchor=anchor)
    made = Recurrence(cron=cron, tz=tz)
    try:
        if made.next_after(anchor) is None:
            raise BadRecurrence(f"{cron!r} names no instant that will ever come", "cron")
    except CronSimError as error:
        raise BadRecurrence(
            f"{cron!r} is no cron expression ({error}): write minute hour day month weekday, as in */5 * * * *", "cron"
        ) from error
    return made


@functools.lru_cache(maxsize=256)
def _zone(name: str | None) -> tzinfo:
    if name is None or name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (ValueError, OSError) as error:  # ZoneInfoNotFoundError is a KeyError
        raise BadRecurrence(f"{name!r} is no time zone: write one as Europe/Oslo", "tz") from error
    except KeyError as error:
        raise BadRecurrence(
            f"the server's machine knows no time zone {name!r}: write one as Europe/Oslo, or install tzdata there", "tz"
        ) from error
