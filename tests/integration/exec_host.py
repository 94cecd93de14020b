"""A keeper and its commands for the tests, as a daemon has them, and what there is of them afterwards."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import kept as k

from lakeshore.net.target import parse_target
from lakeshore.nymph.execs import Execs
from lakeshore.nymph.keeping import processes
from lakeshore.nymph.keeping.client import KeeperClient
from lakeshore.nymph.transport import Transport

ENVIRON = {"PATH": os.environ["PATH"], "FROM_DAEMON": "yes", "LAKESHORE_TOKEN": "secret", "DREAMLAKE_TOKEN": "secret"}


class Host:
    """A keeper and its commands."""

    def __init__(self, base: Path, url: str = "http://127.0.0.1:9") -> None:
        self.place, self.inputs = base / "keeper", base / "execs"
        self.transport = Transport(parse_target(url), token="t")
        self.keeper: KeeperClient
        self.execs: Execs
        self.payloads: Any = None

    @asynccontextmanager
    async def open(self, *, end: bool = True) -> AsyncIterator[Execs]:
        async with k.keeper(self.place, end=end) as self.keeper:
            self.execs = Execs(self.keeper, self.transport, self.inputs, ENVIRON, payloads=self.payloads)
            yield self.execs
        self.transport.close()

    def left(self) -> list[str]:
        """What there is of all commands: processes, records, inputs."""
        guard = k.parent(self.keeper.pid)
        running = processes.below([guard], processes.table()) - {guard, self.keeper.pid}
        return [*map(str, running), *k.kept(self.place), *os.listdir(self.inputs)]

    async def result(self, exec_id: str = "x", **body: Any) -> dict[str, Any]:
        """Of one command, of which nothing is left afterwards."""
        told = await self.execs.run(exec_id, body)
        await self.execs.release(exec_id)
        assert self.left() == []
        assert told["duration_ms"] >= 0
        return told
