"""Rows of secrets: sealed values of a namespace, by name. What opens them is `server/sealing.py`.

Reference: api/auth-and-secrets, "Secrets"; S-090…S-110.
"""

from __future__ import annotations

import functools
import sqlite3
from collections.abc import Callable, Container, Iterable
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

    def __len__(self) -> int:
        return len(self._rows)

    def not_under(self, key: str, *, but: Container[tuple[str, str]] = ()) -> list[SecretRow]:
        """What a key of another fingerprint sealed, without those of the names in `but`."""
        return [row for name, row in self._rows.items() if row.sealed.key != key and name not in but]

    async def add(self, ns: str, name: str, make: Callable[[], SecretRow], note: Statement) -> SecretRow | None:
        """Add one; None when the name is taken. `make` seals it in its turn: with the key of then."""
        async with self._turn:
            if (ns, name) in self._rows:
                return None
            row = make()
            await self._write(((SQL.add_secret, _values(row)), note), functools.partial(self._keep, row))
            return row

    async def reseal(
        self, ns: str, name: str, seal: Callable[[], Sealed], now: float, note: Statement
    ) -> SecretRow | None:
        """Another value under the same name; None when there is none. `seal` is called in its turn."""
        async with self._turn:
            row = self._rows.get((ns, name))
            if row is None:
                return None
            made = replace(row, sealed=seal(), updated_at=now)
            await self._write(((SQL.reseal_secret, _values(made)), note), functools.partial(self._keep, made))
            return made

    async def reseal_all(self, rows: Iterable[SecretRow], seal: Callable[[SecretRow], Sealed | None]) -> int:
        """The same values under other seals, in one transaction; how many. What changed since `rows` were read, and
        what `seal` has no seal for, stays as it is.
        """
        async with self._turn:
            there = [row for row in rows if self._rows.get((row.ns, row.name)) is row]
            made = [replace(row, sealed=sealed) for row in there if (sealed := seal(row)) is not None]

            def keep() -> None:
                for row in made:
                    self._keep(row)

            if made:
                await self._write([(SQL.reseal_secret, _values(row)) for row in made], keep)
            return len(made)

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
