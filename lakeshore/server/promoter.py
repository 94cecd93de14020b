"""Lets rows through when their instant has come: one alarm at the next instant, and no look at SQL before it rings."""

from __future__ import annotations

import logging
from collections.abc import Callable

import trio

from ..plane import delays
from ..plane.contract import PlaneFailed
from ..plane.frames import Rows
from ..plane.transaction import Transaction
from .alarm import Alarm
from .writer import Writer

log = logging.getLogger(__name__)

AGAIN_S = 1.0


class Promoter:
    """`freshen(ns, queue, n)` is told in the transaction of rows that may be claimed from now on. `pace(tx)` does the
    same for queues with a rate, and says when their next turn is.
    """

    def __init__(
        self,
        writer: Writer[Transaction],
        clock: Callable[[], float],
        freshen: Callable[[str, str, int], None],
        pace: Callable[[Transaction], float | None],
    ) -> None:
        self._writer = writer
        self._clock = clock
        self._freshen = freshen
        self._pace = pace
        self._alarm = Alarm(clock)

    def expect(self, due: float) -> None:
        """A row that waits for this instant was committed, or a queue's turn comes then."""
        self._alarm.no_later_than(due)

    def begin(self, rows: Rows) -> None:
        """Ask the rows of an earlier server for the next instant."""
        self._alarm.set(delays.next_due(rows))

    async def run(self) -> None:
        """Until cancelled; some rows in a batch, so that others are not kept waiting."""
        while True:
            await self._alarm.due()
            try:
                await self._writer.write(self._promote, self._alarm.set)
            except PlaneFailed as exc:  # a full disk, say: it is tried again
                log.warning("rows that are due must wait: %s", exc)
                await trio.sleep(AGAIN_S)

    def _promote(self, tx: Transaction) -> float | None:
        for (ns, queue), n in delays.promote(tx, self._clock()).items():
            self._freshen(ns, queue, n)
        instants = [at for at in (delays.next_due(tx.all), self._pace(tx)) if at is not None]
        return min(instants, default=None)
