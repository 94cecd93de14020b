"""Which queues keep what they have: a copy, in memory, of the rows that are shut or have a rate. Pure.

The server is the only writer of its plane, so the copy is right after every commit; most namespaces have none.
"""

from __future__ import annotations

from collections.abc import Callable

from ..plane.frames import Rows
from ..plane.queues import QueueRow
from ..plane.statements import SQL

Key = tuple[str, str]
"""Namespace, queue."""


class QueueBook:
    """`paced`: the queues with a rate."""

    def __init__(self) -> None:
        self._shut: set[Key] = set()
        self.paced: set[Key] = set()
        self.told: Callable[[str, str], None] | None = None
        """Hears which row was made, changed or dropped."""

    def load(self, rows: Rows) -> None:
        """Read what an earlier server left."""
        self._shut, self.paced = set(), set()
        for ns, name, state, rate in rows(SQL.queues_that_hold, {}):
            self._note((ns, name), state, rate)

    def is_shut(self, ns: str, name: str) -> bool:
        """Whether a queue hands out nothing, whoever asks."""
        return (ns, name) in self._shut

    def changed(self, row: QueueRow) -> None:
        """A row was committed."""
        self._note((row.ns, row.name), row.state, row.rate_limit)
        if self.told is not None:
            self.told(row.ns, row.name)

    def forget(self, ns: str, name: str | None = None) -> None:
        """A queue, or those of a namespace, are gone."""
        for held in (self._shut, self.paced):
            held -= {key for key in held if key[0] == ns and name in (None, key[1])}
        if name is not None and self.told is not None:
            self.told(ns, name)

    def _note(self, key: Key, state: str, rate: float | None) -> None:
        for held, is_in in ((self._shut, state in ("paused", "archived")), (self.paced, rate is not None)):
            if is_in:
                held.add(key)
            else:
                held.discard(key)
