"""Who polls which queues, and how much ends there: what is told of a queue beside its rows. Pure: `now` is given.

Workers of every sort are here, with or without a row of their own. A poll costs one dictionary write.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from .queue_book import Key

HEARD_S: float = 90.0
"""A worker that has been silent for longer serves nothing: a poll is held for a minute at most."""
OVER_S = 60.0
"""What throughput is counted over."""


class Pollers:
    """`heard` at each poll, `sweep` about every second."""

    def __init__(self) -> None:
        self._heard: dict[tuple[str, str], tuple[Sequence[str], float]] = {}
        self._ended: deque[tuple[float, dict[Key, int]]] = deque()
        self._since: float | None = None

    def heard(self, ns: str, worker: str, queues: Sequence[str], now: float) -> None:
        """A worker polls these."""
        self._heard[ns, worker] = (queues, now)

    def left(self, ns: str, worker: str) -> None:
        """It said goodbye."""
        self._heard.pop((ns, worker), None)

    def of(self, ns: str, queue: str, now: float) -> list[str]:
        """The ids of the workers that serve a queue, by name."""
        return sorted(id_ for id_, queues in self.all(ns, now) if any(serves(name, queue) for name in queues))

    def all(self, ns: str, now: float) -> list[tuple[str, Sequence[str]]]:
        """Every worker of a namespace that polls, and what it asks for."""
        return [
            (worker, queues)
            for (owner, worker), (queues, at) in self._heard.items()
            if owner == ns and now - at <= HEARD_S
        ]

    def per_s(self, ns: str, queue: str, now: float) -> float:
        """How many calls ended in a second, over the last minute."""
        total = sum(ended.get((ns, queue), 0) for _at, ended in self._ended)
        over = OVER_S if self._since is None else min(OVER_S, max(now - self._since, 1.0))
        return total / over

    def sweep(self, now: float, ended: dict[Key, int]) -> None:
        """Note what has ended since the last sweep, and forget what is old."""
        if self._since is None:
            self._since = now
        if ended:
            self._ended.append((now, ended))
        while self._ended and now - self._ended[0][0] > OVER_S:
            self._ended.popleft()
        for key in [key for key, (_queues, at) in self._heard.items() if now - at > HEARD_S]:
            del self._heard[key]


def serves(subscription: str, queue: str) -> bool:
    """Whether who asks for this gets what is queued there."""
    return queue.startswith(subscription[:-1]) if subscription.endswith("*") else subscription == queue
