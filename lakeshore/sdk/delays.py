"""When a submit may begin, as callers say it: after a while, or at an instant.

delay   seconds, or a timedelta. A control plane counts from when it has the submit, by its own clock.
at      a datetime with a time zone. Wall-clock time of whoever runs the plane.
"""

from __future__ import annotations

import math
import time
from datetime import datetime, timedelta
from typing import Any

LONGEST_S = 1e9
"""Some thirty years: a longer delay is a mistake in its unit."""
Delay = float | timedelta


def when(delay: Delay | None, at: datetime | None) -> dict[str, float]:
    """The plane's own words: `{"delay": seconds}`, `{"due": epoch seconds}`, or none. Raises TypeError, ValueError."""
    if delay is None:
        return {} if at is None else {"due": _instant(at)}
    if at is not None:
        raise TypeError("_delay and _at exclude each other: give one of them")
    seconds: Any = delay.total_seconds() if isinstance(delay, timedelta) else delay
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise TypeError(f"_delay takes seconds or a timedelta, got {type(delay).__name__}")
    if not (math.isfinite(seconds) and 0 <= seconds <= LONGEST_S):
        raise ValueError(f"_delay must be from 0 to {LONGEST_S:.0f} seconds, got {seconds!r}")
    return {"delay": float(seconds)}


def left(how: dict[str, Any]) -> float:
    """Seconds until a submit in the plane's words may begin."""
    due = how.get("due")
    return float(how.get("delay") or 0.0) if due is None else max(0.0, due - time.time())


def after(timeout: float | None, how: dict[str, Any]) -> float | None:
    """A wait's timeout, counted from when the submit may begin."""
    return None if timeout is None else timeout + left(how)


def _instant(at: Any) -> float:
    if not isinstance(at, datetime):
        raise TypeError(f"_at takes a datetime, got {type(at).__name__}; for a length of time use _delay")
    if at.utcoffset() is None:
        raise ValueError(
            f"_at={at.isoformat()} has no time zone, so nobody knows which instant it is; give it one, as in "
            "datetime.now(UTC) + timedelta(hours=1) or datetime(2030, 1, 1, 8, tzinfo=ZoneInfo('Europe/Oslo'))"
        )
    instant = at.timestamp()
    if instant - time.time() > LONGEST_S:
        raise ValueError(f"_at={at.isoformat()} is more than {LONGEST_S:.0f} seconds away")
    return instant
