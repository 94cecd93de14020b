"""Runs: the queued rows of a queue that ask the same of a worker. They lie together in the index of what is queued.

A run is named by what its rows ask (`wire/run_configs.needs_of`); None is the one that asks for nothing. Whatever looks
through a queue by priority or age does so run by run, with a seek for each.
"""

from __future__ import annotations

from collections.abc import Iterator

from .frames import Rows
from .statements import SQL


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
