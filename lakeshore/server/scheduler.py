"""Submits what schedules name, when it is due.

    catch-up  none  an instant that passed more than a minute ago while the server was away is left out
              last  after an outage the last missed instant is made up for; the default
              all   every missed instant is, the oldest first, up to the last thousand
    overlap   skip  an instant is left out while the run before it has not ended; the default
              allow

A clock that is put back by more than a minute does not silence a schedule: it goes on from the clock's new time.

A run is an ordinary submit under the key `schedule:<name>:<instant>`. It is noted after it is on disk, so a crash in
between submits the same key again, which gives the same invocation: no instant is lost, none runs twice.
"""

from __future__ import annotations

import functools
import logging
import math
import os
import time
from collections.abc import Callable
from dataclasses import replace

import trio

from ..plane import rows
from ..plane.contract import PlaneError
from ..wire.envelope import Envelope
from ..wire.errors import NameError_, WireError
from ..wire.messages import MSGPACK
from ..wire.names import Ulids
from .alarm import Alarm
from .dispatcher import Dispatcher
from .http import HttpError
from .records import Records, ScheduleRow
from .recurrence import BadRecurrence, Recurrence, recurrence
from .render import iso
from .submissions import Submissions

log = logging.getLogger(__name__)

LATE_S = 60.0
MOST_MISSED = 1000
AGAIN_S = 5.0
"""After a run was refused."""


class Scheduler:
    """The schedules of one server. `clock` is Unix time in seconds."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        records: Records,
        submissions: Submissions,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._dispatcher = dispatcher
        self._records = records
        self._submissions = submissions
        self._clock = clock
        self._alarm = Alarm(clock)
        self._ids = Ulids(lambda: int(clock() * 1000), os.urandom)
        self._trouble: dict[tuple[str, str], tuple[str, float]] = {}
        """Why a schedule's last run could not be submitted, and when to try again."""
        self._dues: dict[tuple[str, str], tuple[ScheduleRow, float | None]] = {}
        """The next instant of each schedule, as long as its row is this one: thousands are looked at for each run."""

    def changed(self) -> None:
        """Schedules were added, changed or dropped."""
        every = self._records.schedules.all()
        if self._trouble or len(self._dues) > len(every):
            known = {(row.ns, row.name) for row in every}
            self._trouble = {key: found for key, found in self._trouble.items() if key in known}
            self._dues = {key: found for key, found in self._dues.items() if key in known}
        self._alarm.set(min(map(self._wakes_at, every), default=None))

    def next_of(self, row: ScheduleRow) -> float | None:
        """The next instant of a schedule; None while it is paused, or when none comes any more."""
        known = self._dues.get((row.ns, row.name))
        if known is None or known[0] is not row:
            known = row, None if row.paused else _rule(row).next_after(row.since)
            self._dues[row.ns, row.name] = known
        return known[1]

    def trouble_of(self, row: ScheduleRow) -> str | None:
        """Why its last run could not be submitted."""
        return self._trouble.get((row.ns, row.name), (None, 0.0))[0]

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            self.changed()
            with trio.move_on_after(LATE_S):
                await self._alarm.due()
            await self._mind_the_clock()
            for row in self._records.schedules.all():
                if self._wakes_at(row) <= self._clock():
                    await self._fire(row)

    async def _mind_the_clock(self) -> None:
        """What was dealt with lies ahead: the clock was wrong then. What comes again has its key, and runs once."""
        for row in self._records.schedules.all():
            if row.since - self._clock() > LATE_S:
                log.warning(
                    "the clock was put back: schedule %s goes on from now, not from %s", row.name, iso(row.since)
                )
                try:
                    await self._records.schedules.update(row, since=self._clock())
                except PlaneError as error:
                    log.warning("schedule %s: %s", row.name, error)

    def _wakes_at(self, row: ScheduleRow) -> float:
        try:
            due = self.next_of(row)
        except BadRecurrence as error:  # its time zone is not there any more
            self._note_trouble(row, str(error))
            due = self._clock()
        again_at = self._trouble.get((row.ns, row.name), ("", 0.0))[1]
        return math.inf if due is None else max(due, again_at)

    async def _fire(self, row: ScheduleRow) -> None:
        """Deal with every instant of a schedule that has passed."""
        try:
            now = self._clock()
            most = MOST_MISSED if row.catch_up == "all" else 1
            due = _rule(row).newest(row.since, now, most)
            wanted = [at for at in due if row.catch_up != "none" or now - at <= LATE_S]
            for at in wanted:
                found = await self._deal_with(row, at)
                if found is None:
                    return
                row = found
            if due and due[-1] > row.since:
                log.info("schedule %s left out what it missed until %s", row.name, iso(due[-1]))
                await self._records.schedules.update(row, since=due[-1])
        except (PlaneError, HttpError, NameError_, WireError, BadRecurrence) as error:
            self._note_trouble(row, str(error))
        else:
            self._trouble.pop((row.ns, row.name), None)

    async def _deal_with(self, row: ScheduleRow, at: float) -> ScheduleRow | None:
        """Submit the run of one instant, or leave it out; the row then, None when it is another one by now."""
        if row.overlap == "skip" and row.last_id is not None:
            last = rows.ended(self._dispatcher.rows, row.ns, row.last_id)
            if last.state == "pending":
                log.debug("schedule %s left out %s: %s has not ended", row.name, iso(at), row.last_id)
                return await self._records.schedules.update(row, since=at, skipped=row.skipped + 1)
        key = f"schedule:{row.name}:{iso(at)}"
        envelope = replace(Envelope.from_bytes(row.envelope), id=self._ids.new(), key=key)
        body = {
            "invocation_id": envelope.id,
            "queue": row.queue,
            "args_blob": envelope.to_bytes(),
            "run_config": {"queue": row.queue, "key": key},
        }
        wanted, _watch, _warnings = await self._submissions.read(row.ns, body, MSGPACK)
        done = await self._dispatcher.submit(wanted)
        return await self._records.schedules.update(row, since=at, last_at=at, last_id=done.id)

    def _note_trouble(self, row: ScheduleRow, why: str) -> None:
        if self.trouble_of(row) != why:
            log.warning("schedule %s of namespace %s cannot run: %s", row.name, row.ns, why)
        self._trouble[row.ns, row.name] = (why, self._clock() + AGAIN_S)


def _rule(row: ScheduleRow) -> Recurrence:
    return _known_rule(row.every, row.created_at, row.cron, row.tz)


@functools.lru_cache(maxsize=4096)
def _known_rule(every: float | None, anchor: float, cron: str | None, tz: str | None) -> Recurrence:
    return recurrence(every=every, anchor=anchor, cron=cron, tz=tz)
