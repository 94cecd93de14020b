"""The queues of each namespace, as operators make and change them.

A row lives in the plane, so that it decides from the commit that changed it on. What was changed is an event
(`queue.state`, `queue.created`, `queue.changed`, `queue.removed`) and a line of the audit.
Reference: get-started/queues; S-272…S-299, S-623, S-624, S-744…S-747, S-779.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from ..plane import queues, rows
from ..plane.contract import QueueBusy
from ..plane.queues import QueueRow
from ..plane.rows import claimable
from ..plane.transaction import Transaction
from ..wire.messages import DEFAULT_QUEUE
from .dispatcher import Dispatcher
from .records import Records, WorkerRow
from .records.events import EventRow
from .workers import Workers

DEFAULT_SAYS: Final = "Default queue (auto-created). Cannot be archived or deleted."
STATE_EVENT: Final = "queue.state"


class Queues:
    """Queues of one server. `clock` is Unix time in seconds."""

    def __init__(
        self, dispatcher: Dispatcher, records: Records, workers: Workers, *, clock: Callable[[], float] = time.time
    ) -> None:
        self._dispatcher = dispatcher
        self._records = records
        self._workers = workers
        self._clock = clock

    # --- reads

    def get(self, ns: str, name: str) -> QueueRow | None:
        """One queue."""
        return queues.get(self._dispatcher.rows, ns, name)

    def of(self, ns: str) -> list[QueueRow]:
        """A namespace's queues, by name."""
        return queues.page(self._dispatcher.rows, ns)

    def members(self, row: QueueRow) -> list[WorkerRow]:
        """The daemons that pull from it."""
        return self._workers.members(row.ns, row.name)

    # --- writes

    async def ensure_default(self, ns: str) -> None:
        """The queue that every namespace has."""
        if self.get(ns, DEFAULT_QUEUE) is None:
            now = self._clock()
            await self._dispatcher.writer.write(lambda tx: queues.ensure(tx, ns, DEFAULT_QUEUE, now))

    async def add(self, row: QueueRow, *, actor: str) -> bool:
        """Make one, or decide what one that a submit made is to be. False when somebody has decided that before."""

        def verb(tx: Transaction) -> bool:
            if queues.add(tx, row):
                return True
            there = queues.get(tx.all, row.ns, row.name)
            assert there is not None, "the name is taken"
            if there.updated_at is not None or there.state != "active":
                return False
            self._dispatcher.matcher.reopen(row.ns, row.name)
            return queues.change(tx, row)

        def committed(made: bool) -> None:
            if made:
                self._dispatcher.queues.changed(row)

        made: bool = await self._dispatcher.writer.write(verb, committed)
        if made:
            await self._tell(row.ns, row.name, "queue.created", actor, {"state": row.state})
        return made

    async def edit(self, ns: str, name: str, changed: Mapping[str, Any], *, actor: str) -> QueueRow | None:
        """Change fields of one; the row, or None when there is none. What it holds is looked at anew at once."""
        dispatcher, now = self._dispatcher, self._clock()

        def verb(tx: Transaction) -> tuple[QueueRow, QueueRow] | None:
            before = queues.get(tx.all, ns, name)
            if before is None:
                return None
            after = replace(before, **changed, updated_at=now)
            queues.change(tx, after)
            dispatcher.matcher.reopen(ns, name)
            return before, after

        def committed(found: tuple[QueueRow, QueueRow] | None) -> None:
            if found is not None:
                dispatcher.queues.changed(found[1])

        found = await dispatcher.writer.write(verb, committed)
        if found is None:
            return None
        before, after = found
        if after.state != before.state:
            told = {"from": before.state, "to": after.state}
            await self._tell(ns, name, STATE_EVENT, actor, told)
        if others := sorted(set(changed) - {"state"}):
            await self._tell(ns, name, "queue.changed", actor, {"fields": others})
        return after

    async def remove(self, ns: str, name: str, *, force: bool, actor: str) -> bool:
        """Forget one. `force`: its members leave it, and what is queued is killed. Raises QueueBusy."""
        dispatcher = self._dispatcher
        if force:
            if running := claimable(dispatcher.rows, ns, name, "running"):
                raise QueueBusy(name, rows.count(dispatcher.rows, ns, name, "queued"), running)
            await dispatcher.cancel_queued(ns, name)

        def committed(gone: bool) -> None:
            if gone:
                dispatcher.queues.forget(ns, name)

        gone: bool = await dispatcher.writer.write(lambda tx: queues.drop(tx, ns, name), committed)
        if gone:
            for row in self._workers.members(ns, name) if force else ():
                if name in row.subscriptions:
                    rest = [one for one in row.subscriptions if one != name]
                    await self._workers.set_queues(row, rest, actor=actor)
            await self._tell(ns, name, "queue.removed", actor, {})
        return gone

    async def _tell(self, ns: str, name: str, kind: str, actor: str, payload: Mapping[str, Any]) -> None:
        await self._records.audit(actor, ns, kind, name)
        event = EventRow(ns=ns, kind=kind, queue=name, at=self._clock(), payload={**payload, "actor": actor})
        await self._records.events.add([event])
