"""Runs: the queued rows of a queue that ask the same of a worker. They lie together in the index of what is queued.

A run is named by what its rows ask (`wire/run_configs.needs_of`); None is the one that asks for nothing. Whatever looks
through a queue by priority or age does so run by run, with a seek for each.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

from .frames import Rows
from .statements import SQL

MOST_RUNS: Final = 512
"""Of a queue: each costs every claim a seek (10 µs), of workers that fit none of them, too."""


def runs_of(rows: Rows, ns: str, queue: str) -> Iterator[str | None]:
    """What may be in a queue: None first, always, then each other run that has rows."""
    yield None
    after = ""
    while (found := rows(SQL.next_needs, {"ns": ns, "queue": queue, "after": after})[0][0]) is not None:
        yield found
        after = found


def has_queued(rows: Rows, ns: str, queue: str) -> bool:
    """Whether a queue has a row to claim, whoever is fit for it."""
    return bool(rows(SQL.any_queued, {"ns": ns, "queue": queue}))


class Room:
    """What may join the runs of queues within a transaction: the runs of a queue are counted once, and only for an ask
    that none of its rows has. Nearly always rows ask for nothing, or what others ask.
    """

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._left: dict[tuple[str, str], int] = {}
        self._granted: set[tuple[str, str, str]] = set()

    def has(self, ns: str, queue: str, ask: str | None) -> bool:
        """Whether a row that asks this may be queued there; what was granted is counted."""
        if ask is None or (ns, queue, ask) in self._granted:
            return True
        if not self._rows(SQL.run_there, {"ns": ns, "queue": queue, "needs": ask}):
            left = self._left.get((ns, queue))
            if left is None:
                left = MOST_RUNS - sum(1 for _ in islice(runs_of(self._rows, ns, queue), MOST_RUNS))
            if left == 0:
                self._left[ns, queue] = 0
                return False
            self._left[ns, queue] = left - 1
        self._granted.add((ns, queue, ask))
        return True
