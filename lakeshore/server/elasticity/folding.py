"""Decisions on their way into the records. Looks that change nothing and say the same are one row. Pure.

A look each five seconds that says the same would be 17,280 rows a day for each queue. So a row of `tick_noop` stands
for all of its kind that followed each other: its time is the last of them, `after` has `ticks` and `since`. It is
written at the first one, brought up to date once a minute, and when something else is decided.
Reference: S-512, S-620, S-676.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from ..records.elasticity import NOOP, ElasticityRow
from ..render import iso
from .tracker import Key

FRESHEN_S: Final = 60.0


@dataclass(slots=True)
class _Run:
    """What was decided last of a queue or pool, and how often in a row."""

    row: ElasticityRow
    first_at: float
    stored_at: float
    stored: int = 1
    ticks: int = 1

    def up_to_date(self) -> ElasticityRow:
        after = {**self.row.after, "ticks": self.ticks, "since": iso(self.first_at)}
        return replace(self.row, after=after)


class Folding:
    """Of one controller."""

    def __init__(self) -> None:
        self._runs: dict[Key, _Run] = {}

    def take(self, row: ElasticityRow) -> list[tuple[ElasticityRow, float | None]]:
        """What is to be written for this decision: rows, each with the time of the row that it takes the place of."""
        key = row.ns, row.queue
        run = self._runs.get(key)
        if run is not None and row.action == NOOP and (run.row.action, run.row.reason) == (NOOP, row.reason):
            run.ticks += 1
            run.row = replace(row, before=run.row.before)
            if row.at - run.stored_at < FRESHEN_S:
                return []
            return self._stored(run)
        due = [] if run is None or run.stored == run.ticks else self._stored(run)
        self._runs[key] = _Run(row=row, first_at=row.at, stored_at=row.at)
        return [*due, (row, None)]

    def keep(self, keys: set[Key]) -> None:
        """Nothing is decided of any others now: what comes of them later is new."""
        for key in self._runs.keys() - keys:
            del self._runs[key]

    def _stored(self, run: _Run) -> list[tuple[ElasticityRow, float | None]]:
        was, run.stored_at, run.stored = run.stored_at, run.row.at, run.ticks
        return [(run.up_to_date(), was)]
