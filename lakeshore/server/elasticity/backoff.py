"""How long after a failure nothing is tried again: 10 s, and twice as long after each further one, up to 10 minutes.

Pure: the clock is given. A launch that the provider accepted lets the next one begin at once, but only a daemon that
serves ends the count: machines that never say hello are failures, too.
Reference: S-822.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from .tracker import Key

FIRST_S: Final = 10.0
MOST_S: Final = 600.0


@dataclass(slots=True)
class Failure:
    """The last one of a queue or pool. `until` by the tracker's clock; `at` is Unix seconds."""

    error: str
    at: float
    until: float
    waits_s: float
    count: int


class Backoff:
    """Failures by queue or pool. `clock` in seconds, monotonic."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._failures: dict[Key, Failure] = {}

    def failed(self, key: Key, error: str, at: float) -> Failure:
        """One more. How long to wait for the next try is in it."""
        known = self._failures.get(key)
        count = 1 if known is None else known.count + 1
        waits_s = min(FIRST_S * 2.0 ** min(count - 1, 16), MOST_S)
        made = Failure(error=error, at=at, until=self._clock() + waits_s, waits_s=waits_s, count=count)
        self._failures[key] = made
        return made

    def waiting(self, key: Key) -> Failure | None:
        """The failure for which nothing is tried now."""
        known = self._failures.get(key)
        return known if known is not None and self._clock() < known.until else None

    def last(self, key: Key) -> Failure | None:
        """The last failure since it worked."""
        return self._failures.get(key)

    def accepted(self, key: Key) -> None:
        """It was done; whether it is worth anything is seen later."""
        known = self._failures.get(key)
        if known is not None:
            known.until = self._clock()

    def worked(self, key: Key) -> None:
        """It came to something: nothing is held against it."""
        self._failures.pop(key, None)

    def keep(self, keys: set[Key]) -> None:
        """Forget all but these."""
        for key in self._failures.keys() - keys:
            del self._failures[key]
