"""Rows of storages: buckets, or directories of buckets, under a name.

Rules: bucket, prefix and endpoint stand beside the config, and never change. Of those that were not removed no two of a
namespace have the same three. One that was removed stays under its name and ` [deleted <time>]`.
Reference: get-started/storages; S-614…S-616, S-641, S-642, S-826.
"""

from __future__ import annotations

import functools
import json
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import trio

from .commits import Statement, Write
from .statements import SQL

Target = tuple[str, str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageRow:
    """One storage. `prefix` and `endpoint` are empty where it has none; times are Unix seconds."""

    ns: str
    name: str
    kind: str
    description: str
    config: dict[str, Any]
    bucket: str
    prefix: str
    endpoint: str
    revision: int
    created_at: float
    updated_at: float
    deleted_at: float | None = None

    @property
    def target(self) -> Target:
        """Bucket, prefix and endpoint."""
        return self.bucket, self.prefix, self.endpoint


class StorageRows:
    """Every storage of a server. `turn` is held by whoever looks before it writes."""

    def __init__(self, conn: sqlite3.Connection, write: Write) -> None:
        self._write = write
        self.turn = trio.Lock()
        self._rows: dict[tuple[str, str], StorageRow] = {}
        names = [field.name for field in fields(StorageRow)]
        for found in conn.execute(SQL.storages).fetchall():
            row = StorageRow(**dict(zip(names, found, strict=True)))
            self._keep(replace(row, config=json.loads(found[4])))

    def get(self, ns: str, name: str) -> StorageRow | None:
        """One storage, a removed one by the name that it has now."""
        return self._rows.get((ns, name))

    def at(self, ns: str, target: Target) -> StorageRow | None:
        """The one that names this target and was not removed."""
        return next((row for row in self.of(ns) if row.target == target and row.deleted_at is None), None)

    def of(self, ns: str) -> list[StorageRow]:
        """A namespace's, removed ones too, by name."""
        return [row for _key, row in sorted(self._rows.items(), key=lambda item: item[0]) if row.ns == ns]

    async def add(self, row: StorageRow, *notes: Statement) -> None:
        """Add one, with `turn` held, its name and its target free."""
        await self._write(((SQL.add_storage, _values(row)), *notes), functools.partial(self._keep, row))

    async def change(self, row: StorageRow, *notes: Statement, **changed: Any) -> StorageRow:
        """Change one, with `turn` held; also its name."""
        made = replace(row, revision=row.revision + 1, **changed)
        values = _values(made) | {"before": row.name}
        await self._write(((SQL.change_storage, values), *notes), self._moving(row, made))
        return made

    def forget(self, ns: str) -> None:
        """A namespace's are gone from the file."""
        self._rows = {key: row for key, row in self._rows.items() if key[0] != ns}

    def _moving(self, before: StorageRow, after: StorageRow) -> Callable[[], None]:
        def keep() -> None:
            self._rows.pop((before.ns, before.name), None)
            self._keep(after)

        return keep

    def _keep(self, row: StorageRow) -> None:
        self._rows[row.ns, row.name] = row


def _values(row: StorageRow) -> dict[str, Any]:
    return {field.name: getattr(row, field.name) for field in fields(row)} | {"config": json.dumps(row.config)}
