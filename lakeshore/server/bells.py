"""Calls back whoever waits for something to happen to a name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, ParamSpec

Said = ParamSpec("Said")


class Bells(Generic[Said]):
    """Calls by name, each with what is said when it rings."""

    def __init__(self) -> None:
        self._calls: dict[str, set[Callable[Said, None]]] = {}

    def __len__(self) -> int:
        """Names that somebody waits for."""
        return len(self._calls)

    def __contains__(self, name: str) -> bool:
        return name in self._calls

    def on(self, name: str, call: Callable[Said, None]) -> None:
        """Call back at each `ring(name)`, until `off`."""
        self._calls.setdefault(name, set()).add(call)

    def off(self, name: str, call: Callable[Said, None]) -> None:
        calls = self._calls.get(name)
        if calls is not None:
            calls.discard(call)
            if not calls:
                del self._calls[name]

    def ring(self, name: str, *said: Said.args, **named: Said.kwargs) -> None:
        """Something happened to `name`."""
        for call in list(self._calls.get(name, ())):
            call(*said, **named)
