"""Rows of providers: machines, or what makes them, that were registered under a name.

One that was removed stays under its name and ` [deleted <time>]`, which frees the name, until it is restored.
Reference: cli/examples/providers-and-discover; S-123…S-148.
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
class ProviderRow:
    """One provider. `dispatch` is None where its launcher's usual way holds, `tunnel` the name of the one that it is
    reached through; times are Unix seconds.
    """

    ns: str
    name: str
    launcher: str
    kwargs: dict[str, Any]
    dispatch: str | None
    hidden: bool
    created_at: float
    updated_at: float
    deleted_at: float | None = None
    tunnel: str | None = None

    @property
    def plain_name(self) -> str:
        """The name without what a removal added."""
        return self.name.partition(" ")[0]


class ProviderRows:
    """Every provider of a server. `turn` is held by whoever looks for a free name and takes it."""

    def __init__(self, conn: sqlite3.Connection, write: Write) -> None:
        self._write = write
        self.turn = trio.Lock()
        self._rows: dict[tuple[str, str], ProviderRow] = {}
        names = [field.name for field in fields(ProviderRow)]
        for found in conn.execute(SQL.providers).fetchall():
            row = ProviderRow(**dict(zip(names, found, strict=True)))
            self._keep(replace(row, kwargs=json.loads(found[3]), hidden=bool(row.hidden)))

    def get(self, ns: str, name: str) -> ProviderRow | None:
        """One provider, a removed one by the name that it has now."""
        return self._rows.get((ns, name))

    def removed(self, ns: str, name: str) -> ProviderRow | None:
        """The one that was removed last under this name."""
        found = [row for row in self.of(ns) if row.deleted_at is not None and row.plain_name == name]
        return max(found, key=lambda row: row.deleted_at or 0.0, default=None)

    def of(self, ns: str) -> list[ProviderRow]:
        """A namespace's, removed ones too, by name."""
        return [row for _key, row in sorted(self._rows.items()) if row.ns == ns]

    async def add(self, row: ProviderRow, note: Statement) -> None:
        """Add one, with `turn` held and its name free."""
        await self._write(((SQL.add_provider, _values(row)), note), functools.partial(self._keep, row))

    async def change(self, row: ProviderRow, note: Statement, **changed: Any) -> ProviderRow:
        """Change one, with `turn` held; also its name."""
        made = replace(row, **changed)
        values = _values(made) | {"before": row.name}
        await self._write(((SQL.change_provider, values), note), self._moving(row, made))
        return made

    def forget(self, ns: str) -> None:
        """A namespace's are gone from the file."""
        self._rows = {key: row for key, row in self._rows.items() if key[0] != ns}

    def _moving(self, before: ProviderRow, after: ProviderRow) -> Callable[[], None]:
        def keep() -> None:
            self._rows.pop((before.ns, before.name), None)
            self._keep(after)

        return keep

    def _keep(self, row: ProviderRow) -> None:
        self._rows[row.ns, row.name] = row


def _values(row: ProviderRow) -> dict[str, Any]:
    values = {field.name: getattr(row, field.name) for field in fields(row)}
    return values | {"kwargs": json.dumps(row.kwargs)}
