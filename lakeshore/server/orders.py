"""What rides on a worker's poll besides runs: orders of people, and what other services have for that worker.

The server never calls a worker: whatever concerns it waits here, on disk, and a poll that it has parked is answered at
once. An order that was handed out in poll `n` is done when a later poll of that session says `seen >= n`; until then
each poll brings it again, with the same id. A peer that says no `seen` has read the answer before its next poll.
Scripts (`setup`) leave one at a time, in the order in which they came. In an answer the kinds stand in the order of
`ORDER`. Who drains gets what its sources have for no slot (cancels), and no orders.

Other services keep their own rows and offer them as a `Source`.
Reference: nymph/protocol, "Commands"; S-022, S-425…S-438, S-781, S-799.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, Protocol

from ..wire.values import value
from .dispatcher import Dispatcher
from .records.commits import Statement
from .records.orders import OrderRow, OrderRows

ORDER: Final = ("cancel", "setup", "exec", "ota_update", "reset_backoff", "rotate_key", "run", "hibernate")
_PLACE: Final = {kind: place for place, kind in enumerate(ORDER)}
_FOR_ONE_PROCESS: Final = frozenset({"hibernate", "ota_update", "reset_backoff"})
"""What was handed out means nothing to the daemon's next process."""


@value
class Order:
    """One command. `id` is unique for its worker and stays the same when it is handed out again."""

    id: str
    kind: str
    body: Mapping[str, Any]


class Source(Protocol):
    """A service that has commands for workers, and keeps them itself. It calls `Orders.rouse` when it has a new one.

    `session` and `n` are the poll's that the command rides on: "" and 0 for a peer that knows no sessions. The order of
    the calls within a poll is acknowledge, waiting (maybe often, it must be cheap), take.
    """

    def waiting(self, ns: str, worker: str, capacity: int) -> bool:
        """Whether `take` with this capacity would give anything. No SQL: it is asked at every poll."""
        ...

    async def take(self, ns: str, worker: str, n: int, session: str, capacity: int) -> Sequence[Order]:
        """What goes with this poll, at most `capacity` of what needs a slot (cancels need none); noted durably."""
        ...

    async def acknowledge(self, ns: str, worker: str, session: str, seen: int | None) -> None:
        """The session has read the answers of its polls up to `seen`; None: of all polls before this one."""
        ...

    async def superseded(self, ns: str, worker: str, session: str) -> None:
        """The worker has a new process: what an older session than this one took and did not report is lost."""
        ...

    async def abandoned(self, ns: str, worker: str, why: str) -> None:
        """Nobody works for this worker any more; `why` is "daemon gone" or "daemon killed"."""
        ...


class Orders:
    """The orders of one server."""

    def __init__(self, rows: OrderRows, dispatcher: Dispatcher, *, clock: Callable[[], float] = time.time) -> None:
        self._rows = rows
        self._dispatcher = dispatcher
        self._clock = clock
        self._sources: list[Source] = []
        self._sent: dict[tuple[str, str], dict[str, tuple[str, int]]] = {}
        """What was handed out: in which session, with which poll."""

    def add_source(self, source: Source) -> None:
        """Ask this service too, at each poll."""
        self._sources.append(source)

    async def put(self, ns: str, worker: str, order: Order, *more: Statement) -> None:
        """Leave an order for a worker: on disk when it returns, with `more`, and its parked poll is answered."""
        row = OrderRow(ns=ns, worker=worker, id=order.id, kind=order.kind, body=order.body, at=self._clock())
        await self._rows.add(row, *more)
        self.rouse(ns, worker)

    def rouse(self, ns: str, worker: str) -> None:
        """There is something for this worker: answer what it has parked."""
        self._dispatcher.parking.rouse(ns, worker)

    def of(self, ns: str, worker: str) -> Sequence[OrderRow]:
        """What waits, the oldest first; without what sources have."""
        return self._rows.of(ns, worker)

    def delivered(self, ns: str, worker: str) -> Sequence[OrderRow]:
        """The scripts that the worker has, and whose end it has not told."""
        return self._rows.delivered(ns, worker)

    def setting_up(self, ns: str, worker: str) -> bool:
        """Whether scripts wait that the worker does not have yet."""
        return any(row.kind == "setup" for row in self._rows.of(ns, worker))

    async def ended(self, ns: str, worker: str, ids: Collection[str]) -> None:
        """The worker told how these scripts ended."""
        await self._drop([row for row in (*self.of(ns, worker), *self.delivered(ns, worker)) if row.id in ids])

    def waiting(self, ns: str, worker: str, capacity: int, *, draining: bool = False) -> bool:
        """Whether a poll with so many free slots gets anything."""
        if not draining and self._rows.of(ns, worker):
            return True
        return any(source.waiting(ns, worker, capacity) for source in self._sources)

    async def acknowledge(self, ns: str, worker: str, session: str, seen: int | None) -> None:
        """A poll of this session came: what it had read is done. None: it has read all there was."""
        sent = self._sent.get((ns, worker))
        if sent:
            read = {id_ for id_, (whose, n) in sent.items() if whose == session and (seen is None or n <= seen)}
            await self._done(ns, worker, read)
        for source in self._sources:
            await source.acknowledge(ns, worker, session, seen)

    async def take(
        self, ns: str, worker: str, *, n: int, session: str, capacity: int, draining: bool = False
    ) -> list[Order]:
        """What goes with this poll, in the order of an answer. Call `acknowledge` before."""
        given: list[Order] = []
        waiting = () if draining else self._rows.of(ns, worker)
        if waiting:
            over = {row.id for row in waiting if self._is_over(row)}
            await self._done(ns, worker, over)
            setups = 0
            sent = self._sent.setdefault((ns, worker), {})
            for row in waiting:
                setups += row.kind == "setup"
                if row.id not in over and (row.kind != "setup" or setups == 1):
                    given.append(Order(id=row.id, kind=row.kind, body=row.body))
                    sent[row.id] = (session, n)
        for source in self._sources:
            if source.waiting(ns, worker, capacity):
                given += await source.take(ns, worker, n, session, capacity)
        given.sort(key=lambda order: _PLACE[order.kind])  # stable: of one kind, as they came
        return given

    async def superseded(self, ns: str, worker: str, session: str) -> None:
        """A new process of the worker said hello. A script that was under way is sent to it again."""
        sent = self._sent.pop((ns, worker), {})
        old = {id_ for id_, (whose, _n) in sent.items() if whose != session}
        one_time = {row.id for row in self._rows.of(ns, worker) if row.kind in _FOR_ONE_PROCESS}
        await self._done(ns, worker, old & one_time)
        if kept := {id_: at for id_, at in sent.items() if id_ not in old}:
            self._sent[ns, worker] = kept
        for source in self._sources:
            await source.superseded(ns, worker, session)

    async def abandoned(self, ns: str, worker: str, why: str, *, for_good: bool) -> None:
        """The worker is gone; with `for_good` nothing waits for it any more either."""
        if for_good:
            self._sent.pop((ns, worker), None)
            await self._rows.drop_worker(ns, worker)
        for source in self._sources:
            await source.abandoned(ns, worker, why)

    async def _done(self, ns: str, worker: str, ids: set[str]) -> None:
        if not ids:
            return
        done = [row for row in self._rows.of(ns, worker) if row.id in ids]
        if scripts := [row for row in done if row.kind == "setup"]:
            await self._rows.deliver(scripts, self._clock())
        await self._drop([row for row in done if row.kind != "setup"])
        self._forget_sent(ns, worker, ids)

    async def _drop(self, rows: Sequence[OrderRow]) -> None:
        if rows:
            await self._rows.drop(rows)
            self._forget_sent(rows[0].ns, rows[0].worker, {row.id for row in rows})

    def _forget_sent(self, ns: str, worker: str, ids: Collection[str]) -> None:
        sent = self._sent.get((ns, worker), {})
        for id_ in ids:
            sent.pop(id_, None)
        if not sent:
            self._sent.pop((ns, worker), None)

    def _is_over(self, row: OrderRow) -> bool:
        return row.kind == "hibernate" and float(row.body.get("until_epoch_s", 0.0)) <= self._clock()
