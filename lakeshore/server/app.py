"""What the routes work with: the services of one server, and the streams that end when it goes down."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgpack
import trio

from ..plane.database import connect_reader
from ..plane.frames import Rows
from ..plane.statements import Values
from ..wire.names import Ulids
from .admission import Admission
from .auth import Caller, Gate
from .aws import Aws
from .blobs import BlobStore
from .changes import Changes
from .code_archives import CodeArchives
from .dispatcher import Dispatcher
from .elasticity.controller import Controller
from .execs import Execs
from .http import HttpError
from .http.server import HttpServer
from .identity import Identity
from .launching import Launching
from .orders import Orders
from .printed import Printed
from .queues import Queues
from .records import Records
from .rekeying import Rekeying
from .releases import Releases
from .scheduler import Scheduler
from .sealing import Keyring
from .submissions import Submissions
from .workers import Workers

T = TypeVar("T")


def _milliseconds() -> int:
    return time.time_ns() // 1_000_000


class PageReader:
    """Reads that may look at many rows: on a connection and a thread of their own, one at a time."""

    def __init__(self, path: str) -> None:
        self._conn = connect_reader(path)
        self._limiter = trio.CapacityLimiter(1)

    async def run(self, read: Callable[[Rows], T]) -> T:
        """`read(rows)` in the thread."""
        return await trio.to_thread.run_sync(read, self._rows, limiter=self._limiter)

    def close(self) -> None:
        """Close the connection."""
        self._conn.close()

    def _rows(self, statement: str, values: Values) -> list[tuple[Any, ...]]:
        return self._conn.execute(statement, values).fetchall()


@dataclass(frozen=True, slots=True, kw_only=True)
class App:
    """One server's parts. `http` is put in once the router that needs the app exists."""

    dispatcher: Dispatcher
    records: Records
    gate: Gate
    identity: Identity
    releases: Releases
    blobs: BlobStore
    code: CodeArchives
    submissions: Submissions
    scheduler: Scheduler
    orders: Orders
    workers: Workers
    launching: Launching
    queues: Queues
    admission: Admission
    execs: Execs
    sealer: Keyring
    rekeying: Rekeying
    pages: PageReader
    changes: Changes
    elasticity: Controller | None
    lease_s: float
    started_at: float
    version: str
    ids: Ulids = field(default_factory=lambda: Ulids(_milliseconds, os.urandom))
    printed: Printed = field(default_factory=Printed)
    aws: Aws = field(default_factory=Aws)
    http: list[HttpServer] = field(default_factory=list)

    async def need_namespace(self, caller: Caller, *, creates: bool) -> None:
        """The caller's namespace exists from here on. HttpError 404; for an admin `creates` makes it."""
        if self.records.namespace(caller.ns) is not None:
            return
        if creates and caller.is_admin:
            await self.records.ensure_namespace(caller.ns, actor=caller.name)
            return
        raise HttpError(
            404,
            f"unknown namespace {caller.ns!r}",
            field="namespace",
            hint=f"`lakeshore admin namespace create {caller.ns}` makes it (POST /v1/admin/namespaces)",
        )


def unpacked(data: bytes | None) -> Any:
    """A stored map that the plane keeps packed."""
    return msgpack.unpackb(data, strict_map_key=False) if data else None
