"""What the elasticity controller sees of a namespace, by a clock that the test holds."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio
from dispatching import NS, QUEUE, claimed, running

from lakeshore.plane import queues
from lakeshore.plane.contract import Submission
from lakeshore.plane.queues import QueueRow
from lakeshore.server.dispatcher import Dispatcher
from lakeshore.server.elasticity.policy import Signals
from lakeshore.server.elasticity.tracker import LaunchTracker
from lakeshore.server.elasticity.view import AWAY_S, View
from lakeshore.server.execs import Execs, Output, Store
from lakeshore.server.hosts import BOOT_S
from lakeshore.server.records import MachineRow, Records, WorkerRow

T0 = 1_000_000.0
OURS = "q-auto-00000"


class World:
    def __init__(self, records: Records, dispatcher: Dispatcher, execs: Execs) -> None:
        self.records, self.dispatcher, self.execs = records, dispatcher, execs
        self.tracker = LaunchTracker(trio.current_time)
        self.ending: set[tuple[str, str]] = set()

    async def queue(self, name: str = QUEUE) -> None:
        row = QueueRow(ns=NS, name=name, created_at=T0, elasticity={"kind": "fully_elastic"})
        await self.dispatcher.writer.write(lambda tx: queues.add(tx, row) or queues.change(tx, row))

    async def worker(
        self, id_: str, state: str, *, label: str = "", seen: float | None = T0, **capabilities: Any
    ) -> None:
        row = WorkerRow(
            ns=NS,
            id=id_,
            machine_id=id_,
            label=label or id_,
            lanes=(QUEUE,),
            info=json.dumps({"capabilities": capabilities}),
            hello_at=T0,
            created_at=T0,
            state=state,
            seen_at=seen,
            provider="p",
        )
        machine = MachineRow(
            ns=NS,
            worker=id_,
            provider_ns=NS,
            provider="p",
            launcher="EC2",
            capacity={},
            keep_alive_s=-1,
            created_at=T0,
            updated_at=T0,
            state="made",
        )
        await self.records.launch([row], [machine], [], actor="test")

    def view(self, now: float = T0) -> View:
        return View(self.records, self.dispatcher, self.execs, self.tracker, self.ending, NS, now)

    def signals(self, now: float = T0) -> Signals:
        view = self.view(now)
        return view.signals(next(unit for unit in view.units if unit.name == QUEUE))

    def lost(self, now: float) -> list[str]:
        view = self.view(now)
        return [row.id for row in view.lost(next(unit for unit in view.units if unit.name == QUEUE))]


@asynccontextmanager
async def world(directory: Path) -> AsyncIterator[World]:
    records, store = Records(directory / "records.db"), Store(directory / "execs.db")
    try:
        async with running(directory) as dispatcher:
            await records.ensure_namespace(NS, actor="test")
            made = World(records, dispatcher, Execs(store, Output(directory / "logs")))
            await made.queue()
            yield made
    finally:
        store.close()
        records.close()


@pytest.mark.inventory("S-514", "S-821")
def test_who_serves_who_comes_and_who_leaves_are_counted_apart(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as it:
            for state in ("active", "pending", "joining", "setting_up", "draining", "hibernating", "gone"):
                await it.worker(state, state)
            await it.worker("ours", "gone", label=f"{OURS}1")
            assert it.signals() == Signals(daemon_count=1, in_flight=3, leaving=3)
            it.ending.add((NS, "active"))
            assert it.signals() == Signals(daemon_count=0, in_flight=3, leaving=4)
            it.tracker.begin((NS, QUEUE), f"{OURS}2")
            assert it.signals().in_flight == 4
            await it.worker("new", "pending", label=f"{OURS}2", seen=None)
            assert it.signals().in_flight == 4

    trio.run(main)


@pytest.mark.inventory("S-515", "S-516")
def test_utilization_is_of_slots_and_pending_of_what_may_be_claimed_now(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as it:
            await it.worker("w1", "active", max_invocations=4)
            await it.worker("w2", "active")
            assert it.signals().utilization == 0.0
            await claimed(it.dispatcher, "A" * 26)  # by w1
            items = [
                Submission(ns=NS, id=letter * 26, queue=QUEUE, args=b"", hash=b"x", max_attempts=1) for letter in "BCD"
            ]
            await it.dispatcher.submit_many(items)
            assert it.signals() == Signals(daemon_count=2, utilization=1 / 5, pending=3)
            await it.worker("w3", "active", max_invocations=5, current_invocations=4)
            assert it.signals().utilization == 5 / 10

    trio.run(main)


def test_what_never_came_or_is_gone_for_long_or_has_no_machine_any_more_is_lost(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as it:
            await it.worker("boots", "gone", label=f"{OURS}1", seen=None)
            await it.worker("left", "gone", label=f"{OURS}2")
            await it.worker("theirs", "gone")
            await it.worker("reclaimed", "active", label=f"{OURS}3")
            assert (it.lost(T0 + AWAY_S), it.signals(T0 + AWAY_S).in_flight) == ([], 1)
            assert (it.lost(T0 + AWAY_S + 1), it.signals(T0 + AWAY_S + 1).in_flight) == (["left"], 1)
            assert (it.lost(T0 + BOOT_S + 1), it.signals(T0 + BOOT_S + 1).in_flight) == (["boots", "left"], 0)
            machine = it.records.machines.get(NS, "reclaimed")
            assert machine is not None
            await it.records.machines.change(machine, state="ended")
            assert it.lost(T0) == ["reclaimed"]
            it.dispatcher.leases.grant("X" * 26, 1, (NS, "reclaimed", "s"), trio.current_time())
            assert it.lost(T0) == []

    trio.run(main)


@pytest.mark.inventory("S-760")
def test_a_namespace_without_an_elastic_queue_has_nothing_to_decide(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as it:
            assert [unit.is_elastic for unit in it.view().units] == [True]
            row = queues.get(it.dispatcher.rows, NS, QUEUE)
            assert row is not None
            fixed = replace(row, elasticity=None)
            await it.dispatcher.writer.write(lambda tx: queues.change(tx, fixed))
            assert [unit.is_elastic for unit in it.view().units] == [False]

    trio.run(main)
