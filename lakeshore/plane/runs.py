"""Runs: the queued rows of a queue that ask the same of a worker. They lie together in the index of what is queued.

A run is named by what its rows ask (`wire/run_configs.needs_of`); None is the one that asks for nothing. Whatever looks
through a queue by priority or age does so run by run, with a seek for each.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

from .contract import QueueFull
from .frames import Rows
from .statements import SQL

MOST_RUNS: Final = 512
"""Of a queue, with those of calls for later: each costs every claim a seek (10 µs), of workers that fit none, too."""


def runs_of(rows: Rows, ns: str, queue: str) -> Iterator[str | None]:
    """What may be in a queue: None first, always, then each other run that has rows."""
    yield None
    yield from _each(SQL.next_needs, rows, ns, queue)


def has_queued(rows: Rows, ns: str, queue: str) -> bool:
    """Whether a queue has a row to claim, whoever is fit for it."""
    return bool(rows(SQL.any_queued, {"ns": ns, "queue": queue}))


def asks_of(rows: Rows, ns: str, queue: str) -> Iterator[str]:
    """What the rows of a queue ask, those for later too: each is a run now, or will be."""
    return _each(SQL.next_ask, rows, ns, queue)


def _each(statement: str, rows: Rows, ns: str, queue: str) -> Iterator[str]:
    """By a seek for each."""
    after = ""
    while (found := rows(statement, {"ns": ns, "queue": queue, "after": after})[0][0]) is not None:
        yield found
        after = found


class Room:
    """What may join a queue within a transaction: its asks are counted once, and only for one that none of its rows
    has. Nearly always rows ask for nothing, or what others ask.

    Whoever adds a row asks: a submit, also one for later, and a retry by hand. A claim that is given back is not asked
    about: those are as many as workers hold.
    """

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._left: dict[tuple[str, str], int] = {}
        self._granted: set[tuple[str, str, str]] = set()

    def has(self, ns: str, queue: str, ask: str | None) -> bool:
        """Whether a row that asks this may be added there; what was granted is counted."""
        if ask is None or (ns, queue, ask) in self._granted:
            return True
        if not self._rows(SQL.ask_there, {"ns": ns, "queue": queue, "needs": ask}):
            left = self._left.get((ns, queue))
            if left is None:
                most = MOST_RUNS - 1  # what asks for nothing is a run, too
                left = most - sum(1 for _ in islice(asks_of(self._rows, ns, queue), most))
            if left == 0:
                self._left[ns, queue] = 0
                return False
            self._left[ns, queue] = left - 1
        self._granted.add((ns, queue, ask))
        return True

    def check(self, ns: str, queue: str, ask: str | None) -> None:
        """Raises QueueFull where there is none."""
        if not self.has(ns, queue, ask):
            says = f"queue {queue!r} has calls that ask {MOST_RUNS} different things of a worker (tags, runner, match)"
            raise QueueFull(queue, None, says=f"{says}; try again later, or with tags that others name")
