"""Launches that were begun and have no row yet, so that none is begun twice. Pure: the clock is given.

A launch makes its rows first, and from then on they are what is on its way (S-821): a token counts until a row bears
its name, until the launch is over, and for a quarter of a minute at most.
Reference: get-started/scaling-rules, "Launch tracking"; S-533, S-670.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, TypeAlias

TTL_S: Final = 15.0

Key: TypeAlias = tuple[str, str]
"""Namespace, and the name of a queue or pool."""


class LaunchTracker:
    """Tokens by queue or pool. `clock` in seconds, monotonic."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._tokens: dict[Key, dict[str, float]] = {}

    def begin(self, key: Key, name: str) -> None:
        """A launch of this name begins."""
        self._tokens.setdefault(key, {})[name] = self._clock() + TTL_S

    def resolve(self, key: Key, name: str) -> None:
        """It is over, whatever came of it."""
        tokens = self._tokens.get(key, {})
        tokens.pop(name, None)
        if not tokens:
            self._tokens.pop(key, None)

    def in_flight(self, key: Key, labels: Iterable[str]) -> int:
        """How many launches are under way that none of these rows belongs to."""
        tokens = self._tokens.get(key)
        if not tokens:
            return 0
        now, known = self._clock(), set(labels)
        return sum(until > now and name not in known for name, until in tokens.items())
