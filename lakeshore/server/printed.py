"""Who waits for what a body prints: one bell an invocation, rung by every chunk."""

from __future__ import annotations

import trio


class Printed:
    """Bells by the invocation's number; one that nobody waits for is not kept."""

    def __init__(self) -> None:
        self._bells: dict[int, trio.Event] = {}

    def bell(self, seq: int) -> trio.Event:
        """Set by the next chunk of this invocation."""
        return self._bells.setdefault(seq, trio.Event())

    def ring(self, seq: int) -> None:
        """A chunk has come."""
        bell = self._bells.pop(seq, None)
        if bell is not None:
            bell.set()
