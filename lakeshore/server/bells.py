"""Calls back whoever waits for something to happen to a name."""

from __future__ import annotations

from collections.abc import Callable


class Bells:
    """Calls by name."""

    def __init__(self) -> None:
        self._calls: dict[str, set[Callable[[], None]]] = {}

    def on(self, name: str, call: Callable[[], None]) -> None:
        """Call back at each `ring(name)`, until `off`."""
        self._calls.setdefault(name, set()).add(call)

    def off(self, name: str, call: Callable[[], None]) -> None:
        calls = self._calls.get(name)
        if calls is not None:
            calls.discard(call)
            if not calls:
                del self._calls[name]

    def ring(self, name: str) -> None:
        """Something happened to `name`."""
        for call in list(self._calls.get(name, ())):
            call()
