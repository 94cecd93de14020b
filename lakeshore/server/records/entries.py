"""Tunnels and mounts: a kind and a config under a name, rows of the records, all of them also in memory.

Reference: get-started/tunnels; get-started/mounts; S-565, S-617, S-640.
"""

from __future__ import annotations

import functools
import json
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import trio

from .commits import Statement, Write
from .statements import SQL

Noun = Literal["tunnel", "mount"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryRow:
    """One of them. `config` is as JSON has it; `revision` rises with every change; times are Unix seconds."""

    ns: str
    name: str
    kind: str
    config: dict[str, Any]
    revision: int
    created_at: float
    updated_at: float


class EntryRows:
    """Every tunnel, or every mount, of a server. `turn` is held by whoever looks before it writes."""

    def __init__(self, conn: sqlite3.Connection, write: Write, noun: Noun) -> None:
        self._write, self.noun = write, noun
        self._put, self._drop = getattr(SQL, f"put_{noun}"), getattr(SQL, f"drop_{noun}")
        self.turn = trio.Lock()
        self._rows: dict[tuple[str, str], EntryRow] = {}
        names = [field.name for field in fields(EntryRow)]
        for found in conn.execute(getattr(SQL, f"{noun}s")).fetchall():
            row = EntryRow(**dict(zip(names, found, strict=True)))
            self._keep(replace(row, config=json.loads(found[3])))

    def get(self, ns: str, name: str) -> EntryRow | None:
        """One of them."""
        return self._rows.get((ns, name))

    def of(self, ns: str) -> list[EntryRow]:
        """A namespace's, by name."""
        return [row for _key, row in sorted(self._rows.items(), key=lambda item: item[0]) if row.ns == ns]

    async def put(self, row: EntryRow, *notes: Statement) -> None:
        """Store a new one, or what has become of one; with `turn` held."""
        values = {field.name: getattr(row, field.name) for field in fields(row)} | {"config": json.dumps(row.config)}
        await self._write(((self._put, values), *notes), functools.partial(self._keep, row))

    async def drop(self, row: EntryRow, *notes: Statement) -> None:
        """Forget one; with `turn` held."""
        await self._write(((self._drop, {"ns": row.ns, "name": row.name}), *notes), self._forgetting(row))

    def forget(self, ns: str) -> None:
        """A namespace's are gone from the file."""
        self._rows = {key: row for key, row in self._rows.items() if key[0] != ns}

    def _forgetting(self, row: EntryRow) -> Callable[[], None]:
        def forget() -> None:
            self._rows.pop((row.ns, row.name), None)

        return forget

    def _keep(self, row: EntryRow) -> None:
        self._rows[row.ns, row.name] = row
