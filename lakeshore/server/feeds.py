"""Tells who follows frames what has just been committed, with the bytes, so that live readers cost no read of the disk.

A name is `frames/<id>` or `topic/<ns>/<queue>/<name>`. A tap may ignore the bytes it is given: they are stored.
"""

from __future__ import annotations

from typing import Protocol


class Tap(Protocol):
    """One follower's end."""

    def take(self, first: int, last: int, data: bytes) -> None:
        """The frames `first` to `last`, concatenated, are committed."""

    def look(self) -> None:
        """Something else has happened: look into the store."""

    def break_off(self) -> None:
        """The server goes down: end without an end, so that the reader comes back."""


class Feeds:
    """Who follows what."""

    def __init__(self) -> None:
        self._taps: dict[str, list[Tap]] = {}
        self._broken = False

    def __len__(self) -> int:
        return len(self._taps)

    def on(self, name: str, tap: Tap) -> None:
        """Tell this tap, until `off`."""
        self._taps.setdefault(name, []).append(tap)
        if self._broken:
            tap.break_off()

    def off(self, name: str, tap: Tap) -> None:
        taps = self._taps.get(name, [])
        if tap in taps:
            taps.remove(tap)
        if not taps:
            self._taps.pop(name, None)

    def tell(self, name: str, first: int, last: int, data: bytes) -> None:
        """Frames were committed."""
        for tap in self._taps.get(name, ()):
            tap.take(first, last, data)

    def ring(self, name: str) -> None:
        """Something happened that is told without bytes."""
        for tap in self._taps.get(name, ()):
            tap.look()

    def break_off(self) -> None:
        """The server goes down: every stream breaks off, and each that comes yet."""
        self._broken = True
        for taps in self._taps.values():
            for tap in taps:
                tap.break_off()
