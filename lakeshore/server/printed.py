"""Who waits for what a body (or a command) prints: one bell a row, rung by every chunk."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import trio


class Printed:
    """Bells by the row's number; one that nobody waits for is not kept."""

    def __init__(self) -> None:
        self._bells: dict[int, set[trio.Event]] = {}

    @contextlib.contextmanager
    def bell(self, seq: int) -> Iterator[trio.Event]:
        """Set by the next chunk of this row."""
        bell = trio.Event()
        self._bells.setdefault(seq, set()).add(bell)
        try:
            yield bell
        finally:
            waiting = self._bells[seq]
            waiting.remove(bell)
            if not waiting:
                del self._bells[seq]

    def ring(self, seq: int) -> None:
        """A chunk has come."""
        for bell in self._bells.get(seq, ()):
            bell.set()

    def ring_all(self) -> None:
        """Wake everybody, to look for themselves."""
        for seq in list(self._bells):
            self.ring(seq)

    def __len__(self) -> int:
        """Rows that somebody waits for."""
        return len(self._bells)
