"""What waits for the next poll of a worker: rows of the records, all of them also in memory, oldest first."""

from __future__ import annotations

import functools
import sqlite3
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgpack

from ...wire.values import value
from .commits import Statements
from .statements import SQL


@value
class OrderRow:
    """One order. `at` is when it was put, Unix seconds; `body` is what the command carries."""

    ns: str
    worker: str
    id: str
    kind: str
    body: Mapping[str, Any]
    at: float


class OrderRows:
    """`write` commits statements and then calls `then`."""

    def __init__(
        self, conn: sqlite3.Connection, write: Callable[[Statements, Callable[[], None]], Awaitable[None]]
    ) -> None:
        self._write = write
        self._rows: dict[tuple[str, str], dict[str, OrderRow]] = {}
        for ns, worker, id_, kind, body, at in conn.execute(SQL.orders).fetchall():
            found = msgpack.unpackb(body, strict_map_key=False)
            self._keep(OrderRow(ns=ns, worker=worker, id=id_, kind=kind, body=found, at=at))

    def of(self, ns: str, worker: str) -> Sequence[OrderRow]:
        """What waits for a worker."""
        rows = self._rows.get((ns, worker))
        return list(rows.values()) if rows else ()

    async def add(self, row: OrderRow) -> None:
        """On disk when it returns. An id that is there already stays as it is."""
        values = {"ns": row.ns, "worker": row.worker, "id": row.id, "kind": row.kind, "at": row.at}
        packed = {**values, "body": msgpack.packb(dict(row.body))}
        await self._write(((SQL.add_order, packed),), functools.partial(self._keep, row))

    async def drop(self, rows: Sequence[OrderRow]) -> None:
        """These are done."""
        statements = [(SQL.drop_order, {"ns": row.ns, "worker": row.worker, "id": row.id}) for row in rows]
        await self._write(statements, functools.partial(self._drop, rows))

    async def drop_worker(self, ns: str, worker: str) -> None:
        """Nothing waits for this worker any more."""
        values = {"ns": ns, "worker": worker}
        await self._write(((SQL.drop_orders_of_worker, values),), functools.partial(self._drop, self.of(ns, worker)))

    def forget(self, ns: str) -> None:
        """The rows of a namespace are gone from the file."""
        for key in [key for key in self._rows if key[0] == ns]:
            del self._rows[key]

    def _keep(self, row: OrderRow) -> None:
        self._rows.setdefault((row.ns, row.worker), {}).setdefault(row.id, row)

    def _drop(self, rows: Sequence[OrderRow]) -> None:
        for row in rows:
            waiting = self._rows.get((row.ns, row.worker))
            if waiting is not None:
                waiting.pop(row.id, None)
                if not waiting:
                    del self._rows[row.ns, row.worker]
