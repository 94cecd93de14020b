"""Rows of secrets: sealed values of a namespace, by name. What opens them is `server/sealing.py`.

Reference: api/auth-and-secrets, "Secrets"; S-090…S-110.
"""

from __future__ import annotations

import functools
import sqlite3
from dataclasses import dataclass, fields, replace
from typing import Any

import trio

from ..sealing import Sealed
from .commits import Statement, Write
from .statements import SQL

_SEALED = tuple(field.name for field in fields(Sealed))


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretRow:
    """One secret. Times are Unix seconds."""

    ns: str
    name: str
    kind: str
    description: str
    sealed: Sealed
    created_at: float
    updated_at: float

    def __repr__(self) -> str:
        return f"SecretRow(ns={self.ns!r}, name={self.name!r}, kind={self.kind!r})"


class SecretRows:
    """Every secret of a server, sealed."""

    def __init__(self, conn: sqlite3.Connection, write: Write) -> None:
        self._write = write
        self._turn = trio.Lock()
        self._rows: dict[tuple[str, str], SecretRow] = {}
        for ns, name, kind, description, created_at, updated_at, *sealed in conn.execute(SQL.secrets).fetchall():
            row = SecretRow(
                ns=ns,
                name=name,
                kind=kind,
                description=description,
                sealed=Sealed(**dict(zip(_SEALED, sealed, strict=True))),
                created_at=created_at,
                updated_at=updated_at,
            )
            self._keep(row)

    def get(self, ns: str, name: str) -> SecretRow | None:
        """One secret."""
        return self._rows.get((ns, name))

    def of(self, ns: str) -> list[SecretRow]:
        """A namespace's, by name."""
        return [row for _key, row in sorted(self._rows.items()) if row.ns == ns]

    async def add(self, row: SecretRow, note: Statement) -> bool:
        """Add one; False when the name is taken."""
        async with self._turn:
            if (row.ns, row.name) in self._rows:
                return False
            await self._write(((SQL.add_secret, _values(row)), note), functools.partial(self._keep, row))
            return True

    async def reseal(self, ns: str, name: str, sealed: Sealed, now: float, note: Statement) -> SecretRow | None:
        """Another value under the same name; None when there is none."""
        async with self._turn:
            row = self._rows.get((ns, name))
            if row is None:
                return None
            made = replace(row, sealed=sealed, updated_at=now)
            await self._write(((SQL.reseal_secret, _values(made)), note), functools.partial(self._keep, made))
            return made

    async def drop(self, ns: str, name: str, note: Statement) -> bool:
        """Forget one. False when there is none."""
        async with self._turn:
            if (ns, name) not in self._rows:
                return False
            statements = ((SQL.drop_secret, {"ns": ns, "name": name}), note)
            await self._write(statements, lambda: self.forget(ns, name))
            return True

    def forget(self, ns: str, name: str | None = None) -> None:
        """Those rows are gone from the file."""
        for key in [key for key in self._rows if key[0] == ns and name in (None, key[1])]:
            del self._rows[key]

    def _keep(self, row: SecretRow) -> None:
        self._rows[row.ns, row.name] = row


def _values(row: SecretRow) -> dict[str, Any]:
    named = ("ns", "name", "kind", "description", "created_at", "updated_at")
    return {name: getattr(row, name) for name in named} | {name: getattr(row.sealed, name) for name in _SEALED}
