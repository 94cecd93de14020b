"""Runs: the queued rows of a queue that ask the same of a worker. They lie together in the index of what is queued.

A run is named by what its rows ask (`wire/run_configs.needs_of`); None is the one that asks for nothing. Whatever looks
through a queue by priority or age does so run by run, with a seek for each.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
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


def has_room_for(rows: Rows, ns: str, queue: str, asks: Collection[str | None]) -> bool:
    """Whether rows that ask these may join those of a queue. Nearly always they ask for nothing, or what others ask."""
    where = {"ns": ns, "queue": queue}
    fresh = sum(ask is not None and not rows(SQL.run_there, {**where, "needs": ask}) for ask in asks)
    return fresh == 0 or sum(1 for _ in islice(runs_of(rows, ns, queue), MOST_RUNS)) + fresh <= MOST_RUNS
