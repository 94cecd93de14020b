"""What has become of each key lately, so that an illegal transition can be read like a story."""

from __future__ import annotations

from collections import deque
from typing import Final

from lakeshore.wire.states import IllegalTransition, Machine

KEPT: Final = 16
"""Of each key, so many steps are remembered."""
OVER_KEPT: Final = 256
"""Of so many keys that have come to their end, the story is still known."""


class Story:
    """The last steps of each key."""

    def __init__(self) -> None:
        self._steps: dict[str, deque[str]] = {}
        self._over: dict[str, deque[str]] = {}

    def born(self, machine: Machine, key: str, state: str, now: float) -> str:
        """A key's first state. Raises IllegalTransition when no such row is born so."""
        if state not in machine.initial:
            raise IllegalTransition(machine.name, key, "nowhere", state)
        self._steps[key] = deque([f"{state} at {now:.3f}"], maxlen=KEPT)
        return state

    def step(self, machine: Machine, key: str, state: str, event: str, now: float) -> str:
        """The state after `event`. Raises IllegalTransition with the key's history."""
        to = machine.after(state, event, key=key, history=self.of(key))
        if to != state:
            self._steps[key].append(f"{to} by {event} at {now:.3f}")
        if to in machine.terminal:
            self._over[key] = self._steps.pop(key)
            if len(self._over) > OVER_KEPT:
                del self._over[next(iter(self._over))]
        return to

    def of(self, key: str) -> tuple[str, ...]:
        """Its steps, oldest first."""
        return tuple(self._steps.get(key) or self._over.get(key) or ())

    def nowhere(self, machine: Machine, key: str, event: str) -> IllegalTransition:
        """The error about a key that is not there, or not any more."""
        return IllegalTransition(machine.name, key, "nowhere", "anything", event=event, history=self.of(key))
