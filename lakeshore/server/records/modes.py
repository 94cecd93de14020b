"""Modes: named run configs of a namespace, rows of the records, all of them also in memory.

Reference: get-started/architecture, "Mode"; S-610…S-612, S-638.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeRow:
    """One mode. `config` is what it says, whole, as JSON has it; `revision` rises with every change; times are Unix
    seconds.
    """

    ns: str
    name: str
    config: dict[str, Any]
    revision: int
    created_at: float
    updated_at: float


class ModeRows:
    """Every mode of a server. `turn` is held by whoever looks before it writes."""

    def __init__(self, conn: sqlite3.Connection, write: Write) -> None:
        self._write = write
        self.turn = trio.Lock()
        self._rows: dict[tuple[str, str], ModeRow] = {}
        names = [field.name for field in fields(ModeRow)]
        for found in conn.execute(SQL.modes).fetchall():
            row = ModeRow(**dict(zip(names, found, strict=True)))
            self._keep(replace(row, config=json.loads(found[2])))

    def get(self, ns: str, name: str) -> ModeRow | None:
        """One mode."""
        return self._rows.get((ns, name))

    def of(self, ns: str) -> list[ModeRow]:
        """A namespace's, by name."""
        return [row for _key, row in sorted(self._rows.items(), key=lambda item: item[0]) if row.ns == ns]

    async def put(self, row: ModeRow, *notes: Statement) -> None:
        """Store a new one, or what has become of one; with `turn` held."""
        values = {field.name: getattr(row, field.name) for field in fields(row)} | {"config": json.dumps(row.config)}
        await self._write(((SQL.put_mode, values), *notes), functools.partial(self._keep, row))

    async def drop(self, row: ModeRow, *notes: Statement) -> None:
        """Forget one; with `turn` held."""
        await self._write(((SQL.drop_mode, {"ns": row.ns, "name": row.name}), *notes), self._forgetting(row))

    def forget(self, ns: str) -> None:
        """A namespace's are gone from the file."""
        self._rows = {key: row for key, row in self._rows.items() if key[0] != ns}

    def _forgetting(self, row: ModeRow) -> Callable[[], None]:
        def forget() -> None:
            self._rows.pop((row.ns, row.name), None)

        return forget

    def _keep(self, row: ModeRow) -> None:
        self._rows[row.ns, row.name] = row
