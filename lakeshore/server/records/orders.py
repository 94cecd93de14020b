"""What waits for the next poll of a worker: rows of the records, all of them also in memory, oldest first."""

from __future__ import annotations

import functools
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgpack

from ...wire.values import value
from .commits import Statement, Write
from .statements import SQL


@value
class OrderRow:
    """One order. `at` is when it was put, `delivered_at` when the worker was known to have it; Unix seconds.

    `body` is what the command carries. Only what is told about later is kept after its delivery.
    """

    ns: str
    worker: str
    id: str
    kind: str
    body: Mapping[str, Any]
    at: float
    delivered_at: float | None = None


class OrderRows:
    """`write` commits statements and then calls `then`."""

    def __init__(self, conn: sqlite3.Connection, write: Write) -> None:
        self._write = write
        self._rows: dict[tuple[str, str], dict[str, OrderRow]] = {}
        self._delivered: dict[tuple[str, str], dict[str, OrderRow]] = {}
        for ns, worker, id_, kind, body, at, delivered_at in conn.execute(SQL.orders).fetchall():
            found = msgpack.unpackb(body, strict_map_key=False)
            self._keep(OrderRow(ns=ns, worker=worker, id=id_, kind=kind, body=found, at=at, delivered_at=delivered_at))

    def of(self, ns: str, worker: str) -> Sequence[OrderRow]:
        """What waits for a worker."""
        rows = self._rows.get((ns, worker))
        return list(rows.values()) if rows else ()

    def delivered(self, ns: str, worker: str) -> Sequence[OrderRow]:
        """What a worker has, and has told nothing of."""
        rows = self._delivered.get((ns, worker))
        return list(rows.values()) if rows else ()

    async def add(self, row: OrderRow, *more: Statement) -> None:
        """On disk when it returns. An id that is there already stays as it is."""
        statements, keep = self.adding([row])
        await self._write((*statements, *more), keep)

    def adding(self, rows: Sequence[OrderRow]) -> tuple[list[Statement], Callable[[], None]]:
        """What stores these, and what to do once that is committed."""

        def keep() -> None:
            for row in rows:
                self._keep(row)

        return [(SQL.add_order, _packed(row)) for row in rows], keep

    async def deliver(self, rows: Sequence[OrderRow], at: float) -> None:
        """The worker has these."""
        made = [replace(row, delivered_at=at) for row in rows]
        statements = [(SQL.deliver_order, {"ns": r.ns, "worker": r.worker, "id": r.id, "at": at}) for r in made]

        def keep() -> None:
            self._drop(rows)
            for row in made:
                self._keep(row)

        await self._write(statements, keep)

    async def drop(self, rows: Sequence[OrderRow]) -> None:
        """These are done."""
        statements = [(SQL.drop_order, {"ns": row.ns, "worker": row.worker, "id": row.id}) for row in rows]
        await self._write(statements, functools.partial(self._drop, rows))

    async def drop_worker(self, ns: str, worker: str) -> None:
        """Nothing waits for this worker any more."""
        rows = [*self.of(ns, worker), *self.delivered(ns, worker)]
        values = {"ns": ns, "worker": worker}
        await self._write(((SQL.drop_orders_of_worker, values),), functools.partial(self._drop, rows))

    def forget(self, ns: str) -> None:
        """The rows of a namespace are gone from the file."""
        for table in (self._rows, self._delivered):
            for key in [key for key in table if key[0] == ns]:
                del table[key]

    def _keep(self, row: OrderRow) -> None:
        table = self._rows if row.delivered_at is None else self._delivered
        table.setdefault((row.ns, row.worker), {}).setdefault(row.id, row)

    def _drop(self, rows: Sequence[OrderRow]) -> None:
        for row in rows:
            for table in (self._rows, self._delivered):
                found = table.get((row.ns, row.worker))
                if found is not None:
                    found.pop(row.id, None)
                    if not found:
                        del table[row.ns, row.worker]


def _packed(row: OrderRow) -> dict[str, Any]:
    values = {"ns": row.ns, "worker": row.worker, "id": row.id, "kind": row.kind, "at": row.at}
    return {**values, "body": msgpack.packb(dict(row.body))}
