"""What must be told until it is answered: acks, and the results of commands and scripts (K-8; nymph/protocol, "Ack").

Nothing is dropped for a failure: it is sent again after a back-off. An item is in flight at most once at a time.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any, Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
MOST_BYTES: Final = 4 << 20
MOST_ITEMS: Final = 256


class Outbox(Generic[K]):
    """Items by key, in the order in which they came."""

    def __init__(self) -> None:
        self._items: dict[K, dict[str, Any]] = {}
        self._not_before: dict[K, float] = {}
        self._in_flight: set[K] = set()

    def __len__(self) -> int:
        return len(self._items)

    def __contains__(self, key: K) -> bool:
        return key in self._items

    def put(self, key: K, item: dict[str, Any]) -> None:
        """To be told from now on."""
        self._items[key] = item

    def get(self, key: K) -> dict[str, Any]:
        return self._items[key]

    def take_due(self, now: float) -> list[K]:
        """What may be sent now, as much as fits one body; it is in flight from now on."""
        taken: list[K] = []
        room = MOST_BYTES
        for key, item in self._items.items():
            if key in self._in_flight or now < self._not_before.get(key, now):
                continue
            room -= len(item.get("result_blob") or b"")
            if taken and (room < 0 or len(taken) >= MOST_ITEMS):
                break
            taken.append(key)
        self._in_flight.update(taken)
        return taken

    def due_at(self) -> float | None:
        """When the first of those that are not in flight may be sent; 0.0 is at once."""
        waiting = (self._not_before.get(key, 0.0) for key in self._items if key not in self._in_flight)
        return min(waiting, default=None)

    def unanswered(self, keys: Iterable[K], not_before: float) -> None:
        """These are to be sent again, not before that time."""
        for key in keys:
            self._in_flight.discard(key)
            if key in self._items:
                self._not_before[key] = not_before

    def hurry(self) -> None:
        """Send everything at once that waits."""
        self._not_before.clear()

    def answered(self, key: K) -> dict[str, Any] | None:
        """It was told; None when it had been before."""
        self._in_flight.discard(key)
        self._not_before.pop(key, None)
        return self._items.pop(key, None)
