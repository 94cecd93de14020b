"""How many invocations there are of each state, and how fast that changes."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, Final

SPAN_S: Final = 60.0
SHOWN: Final = ("queued", "running", "failed")


class Tally:
    """`put` what was answered at a moment (monotonic seconds). Rates are of the last minute, or as far as it goes."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, dict[str, int]]] = deque()

    def put(self, counts: Mapping[str, Any], at: float) -> None:
        """What there is now."""
        told = {name: int(value) for name, value in counts.items() if isinstance(value, int)}
        self._seen.append((at, told))
        while at - self._seen[0][0] > SPAN_S:
            self._seen.popleft()

    def count(self, state: str) -> int | None:
        """How many now; None before any answer, or where the server does not tell."""
        return self._seen[-1][1].get(state) if self._seen else None

    def per_s(self, state: str) -> float:
        """How many more a second; below 0: fewer."""
        (then, first), (now, last) = (self._seen[0], self._seen[-1]) if self._seen else ((0.0, {}), (0.0, {}))
        return (last.get(state, 0) - first.get(state, 0)) / (now - then) if now > then else 0.0
