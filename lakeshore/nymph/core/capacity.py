"""How many may run at once: runs and commands share `max_invocations` slots, 0 is no bound (nymph/daemons).

A body holds its slot until its whole process group has ended, whoever its claim belongs to by then.
"""

from __future__ import annotations

from lakeshore.wire.messages import MAX_PREFETCH


class Capacity:
    """The slots of a host. What takes one is counted by whoever holds it."""

    def __init__(self, max_invocations: int) -> None:
        self._limit = max_invocations if max_invocations > 0 else None

    def free(self, taken: int) -> int:
        """Slots that are left."""
        return MAX_PREFETCH if self._limit is None else max(0, self._limit - taken)

    def wish(self, taken: int) -> int:
        """How many runs a poll may bring: free slots only, so that nothing is claimed that cannot begin (K-9)."""
        return min(self.free(taken), MAX_PREFETCH)
