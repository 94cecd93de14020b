"""A provider in memory, and one server's launches: what tests of machines and their rows are played in."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import trio
import trio.testing

from lakeshore.plane.plane import Plane
from lakeshore.server.aws import Aws
from lakeshore.server.bootstrap.program import Programs
from lakeshore.server.dispatcher import Dispatcher
from lakeshore.server.google import Google
from lakeshore.server.hosts import Hosts
from lakeshore.server.launchers.contract import (
    Instance,
    Launcher,
    LaunchUnknown,
    Machine,
    Means,
    Resolved,
    Unreachable,
    tags_of,
)
from lakeshore.server.launching import Launching, LaunchSpec
from lakeshore.server.orders import Orders
from lakeshore.server.records import MachineRow, ProviderRow, Records, WorkerRow
from lakeshore.server.releases import Releases
from lakeshore.server.sealing import Keyring, Sealer
from lakeshore.server.workers import Workers

NS = "default"
SPEC = LaunchSpec(provider="cloud", name="gpu", capacity={"image_id": "ami-1"})


@dataclass
class Cloud:
    """A provider in memory. `answers` are what comes of the next launches: None a machine; `lost`: a machine, and no
    answer; an exception. `gate`: launches wait for it, once `asked` is set.
    """

    machines: dict[str, Instance] = field(default_factory=dict)
    answers: list[Any] = field(default_factory=list)
    launched: list[Machine] = field(default_factory=list)
    listed: int = 0
    is_down: bool = False
    hangs_for: str | None = None
    asked_in: Counter[Any] = field(default_factory=Counter)
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    gate: trio.Event | None = None
    asked: trio.Event = field(default_factory=trio.Event)

    def make(self, provider: Resolved, means: Means) -> Launcher:
        self.kwargs = provider.kwargs
        return replace(self, kwargs=provider.kwargs) if self.hangs_for is not None else self

    async def launch(self, machine: Machine) -> str | None:
        if self.gate is not None:
            self.asked.set()
            await self.gate.wait()
        self.launched.append(machine)
        answer = self.answers.pop(0) if self.answers else None
        if isinstance(answer, Exception):
            raise answer
        worker = tags_of(machine)["lakeshore-worker"]
        id_ = f"i-{worker}"
        self.machines[id_] = Instance(id=id_, state="starting", worker=worker)
        if answer == "lost":
            raise LaunchUnknown("no answer within 60 s")
        return id_

    async def instances(self) -> list[Instance]:
        self.listed += 1
        self.asked_in[self.kwargs.get("region")] += 1
        if self.hangs_for is not None and self.kwargs["region"] == self.hangs_for:
            await trio.sleep_forever()
        self._answer()
        return list(self.machines.values())

    async def terminate(self, instance_id: str) -> None:
        self._answer()
        if instance_id in self.machines:
            self.machines[instance_id] = replace(self.machines[instance_id], state="terminated")

    async def console(self, instance_id: str, *, latest: bool = True) -> str:
        return ""

    def _answer(self) -> None:
        if self.is_down:
            raise Unreachable("the endpoint does not answer")

    def live(self) -> list[str]:
        return [id_ for id_, one in self.machines.items() if one.state != "terminated"]

    def become(self, state: str) -> None:
        self.machines = {id_: replace(one, state=state) for id_, one in self.machines.items()}


class World:
    """One server's launches; a second one on the same directory is the next server."""

    def __init__(self, directory: Path, wall: float = 1_000_000.0) -> None:
        self.wall = wall
        self.records = Records(directory / "records.db", now=lambda: self.wall)
        self.plane = Plane(str(directory / "lakeshore.db"), files=directory)
        self.dispatcher = Dispatcher(self.plane)
        self.orders = Orders(self.records.orders, self.dispatcher, clock=lambda: self.wall)
        self.workers = Workers(self.records, self.orders, clock=lambda: self.wall)
        self.releases = Releases(self.records, directory / "releases", public_url=None)
        means = Means(aws=Aws({}), google=Google({}))
        keyring = Keyring(Sealer(b"k" * 32))
        self.hosts = Hosts(self.records, self.workers, keyring, means, clock=lambda: self.wall)
        programs = Programs(self.records, self.releases)
        url = "https://lakeshore.example"
        self.launching = Launching(self.records, self.workers, self.hosts, programs, url=url, clock=lambda: self.wall)

    async def ready(self) -> World:
        async def body() -> AsyncIterator[bytes]:
            yield b"program"

        await self.releases.receive(body(), label="x", target="any", version="1", sha256=None, actor="me")
        await self.records.set_target_version(NS, "1", actor="me")
        row = ProviderRow(
            ns=NS,
            name="cloud",
            launcher="EC2",
            kwargs={"region": "eu-1"},
            dispatch=None,
            hidden=False,
            created_at=1.0,
            updated_at=1.0,
        )
        await self.records.providers.add(row, self.records.note("me", NS, "provider.add", "cloud"))
        return self

    async def hello(self, worker: str) -> None:
        state = self.workers.first_state(NS, worker)
        await self.records.put_worker(NS, worker, machine_id="m", label="gpu", lanes=(), info="{}", state=state)
        await self.workers.greeted(NS, worker, "1")
        self.workers.polled(NS, worker, capacity=1, draining=False, holds=False)

    async def after(self, seconds: float) -> None:
        self.wall += seconds
        await self.hosts.sweep()

    @property
    def rows(self) -> list[WorkerRow]:
        return self.records.workers.of(NS)

    @property
    def row(self) -> WorkerRow:
        (row,) = self.rows
        return row

    @property
    def machine(self) -> MachineRow:
        (row,) = self.records.machines.of(NS)
        return row

    def tokens(self) -> list[str | None]:
        return [token.worker for token in self.records.tokens(NS) if token.revoked_at is None]

    def close(self) -> None:
        self.dispatcher.close()
        self.plane.close()
        self.records.close()


@asynccontextmanager
async def opened(directory: Path, wall: float = 1_000_000.0) -> AsyncIterator[World]:
    world = World(directory, wall)
    try:
        yield world
    finally:
        world.close()
