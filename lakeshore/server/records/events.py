"""Events: a log by namespace that workers append to, and people read in pages.

An event that names itself (`ref`) is stored once, however often it comes. Rows stay in the file: they are read by a
connection of their own, in a thread, so that a long page keeps nobody waiting.
Reference: get-started/architecture, "Event"; S-619, S-673…S-675.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgpack
import trio

from ...wire.values import value
from .commits import Statement, Write
from .statements import SQL

KEEP_S: Final = 30 * 86_400.0
KEEP_ROWS: Final = 20_000
"""Of a namespace."""


@value
class EventRow:
    """One event. `at` is when the server got it, Unix seconds; `seq` rises, and is 0 before it is stored."""

    ns: str
    kind: str
    at: float
    type: str | None = None
    worker: str | None = None
    queue: str | None = None
    invocation: str | None = None
    ref: str | None = None
    payload: Mapping[str, Any]
    seq: int = 0


class Events:
    """Every event of a server."""

    def __init__(self, path: Path, write: Write) -> None:
        self._write = write
        self._reader = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=10.0)
        self._reader.execute("PRAGMA query_only = 1")
        self._limiter = trio.CapacityLimiter(1)

    def close(self) -> None:
        """Close the reading connection."""
        self._reader.close()

    async def add(self, rows: list[EventRow]) -> None:
        """On disk when it returns. What is there already is left as it is."""
        await self._write([storing(row) for row in rows])

    async def page(
        self,
        ns: str,
        *,
        kind: str | None = None,
        family: str | None = None,
        type: str | None = None,
        worker: str | None = None,
        queue: str | None = None,
        invocation: str | None = None,
        before: int | None = None,
        after: int | None = None,
        limit: int = 50,
    ) -> list[EventRow]:
        """The newest first; with `after` the oldest first, from there on. `family`: what kinds begin with."""
        values = {
            "ns": ns,
            "kind": kind,
            "family": family,
            "type": type,
            "worker": worker,
            "queue": queue,
            "invocation": invocation,
            "before": before,
            "after": after,
            "limit": limit,
        }
        statement = SQL.events if after is None else SQL.events_after
        return [_row(row) for row in await self.read(statement, values)]

    async def forget_old(self, now: float) -> int:
        """Keep a month, and so many of each namespace. How many went is not counted: 0."""
        statements: list[Statement] = [(SQL.drop_events_before, {"at": now - KEEP_S})]
        for (ns,) in await self.read(SQL.namespaces_with_events, {}):
            statements.append((SQL.drop_events_over, {"ns": ns, "most": KEEP_ROWS}))
        await self._write(statements)
        return 0

    async def read(self, statement: str, values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        """What a statement finds in the file, read in a thread."""
        return await trio.to_thread.run_sync(self._rows, statement, values, limiter=self._limiter)

    def _rows(self, statement: str, values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        return self._reader.execute(statement, values).fetchall()


def storing(row: EventRow) -> Statement:
    """The statement that stores one."""
    return SQL.add_event, {
        "ns": row.ns,
        "kind": row.kind,
        "type": row.type,
        "worker": row.worker,
        "queue": row.queue,
        "invocation": row.invocation,
        "ref": row.ref,
        "at": row.at,
        "payload": msgpack.packb(dict(row.payload)),
    }


def _row(found: tuple[Any, ...]) -> EventRow:
    seq, ns, kind, type_, worker, queue, invocation, ref, at, payload = found
    return EventRow(
        seq=seq,
        ns=ns,
        kind=kind,
        type=type_,
        worker=worker,
        queue=queue,
        invocation=invocation,
        ref=ref,
        at=at,
        payload=msgpack.unpackb(payload, strict_map_key=False),
    )
