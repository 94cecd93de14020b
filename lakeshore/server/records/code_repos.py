"""Rows of code repos: where the archive of a commit lies. A remote and a commit have one row in a namespace.

Reference: get-started/architecture, "CodeRepo"; S-618, S-643.
"""

from __future__ import annotations

import functools
import sqlite3
from dataclasses import dataclass, fields

import trio

from .commits import Statement, Write
from .statements import SQL


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeRepoRow:
    """One archive: the object `archive_key` of the storage `storage`, "" for what the server keeps itself. `ref` names
    a snapshot of a tree that had changes (None for a commit's own); `created_at` is Unix seconds.
    """

    ns: str
    id: str
    remote: str
    commit_hash: str
    ref: str | None
    archive_key: str
    storage: str
    created_at: float


class CodeRepoRows:
    """Every archive of a server. `turn` is held by whoever looks before it writes."""

    def __init__(self, conn: sqlite3.Connection, write: Write) -> None:
        self._write = write
        self.turn = trio.Lock()
        self._rows: dict[tuple[str, str, str], CodeRepoRow] = {}
        names = [field.name for field in fields(CodeRepoRow)]
        for found in conn.execute(SQL.code_repos).fetchall():
            self._keep(CodeRepoRow(**dict(zip(names, found, strict=True))))

    def get(self, ns: str, remote: str, commit_hash: str) -> CodeRepoRow | None:
        """The archive of a commit."""
        return self._rows.get((ns, remote, commit_hash))

    def of(self, ns: str, remote: str | None = None) -> list[CodeRepoRow]:
        """A namespace's, newest first; of one remote, where it is named."""
        found = [row for row in self._rows.values() if row.ns == ns and remote in (None, row.remote)]
        return sorted(found, key=lambda row: row.id, reverse=True)

    def all(self) -> list[CodeRepoRow]:
        """Every namespace's."""
        return list(self._rows.values())

    async def add(self, row: CodeRepoRow, *notes: Statement) -> None:
        """Add one, with `turn` held and none there for its commit."""
        values = {field.name: getattr(row, field.name) for field in fields(row)}
        await self._write(((SQL.add_code_repo, values), *notes), functools.partial(self._keep, row))

    async def remove(self, row: CodeRepoRow, *notes: Statement) -> None:
        """Forget one, with `turn` held."""
        await self._write(
            ((SQL.drop_code_repo, {"ns": row.ns, "id": row.id}), *notes), functools.partial(self._drop, row)
        )

    def forget(self, ns: str) -> None:
        """A namespace's are gone from the file."""
        self._rows = {key: row for key, row in self._rows.items() if key[0] != ns}

    def _keep(self, row: CodeRepoRow) -> None:
        self._rows[row.ns, row.remote, row.commit_hash] = row

    def _drop(self, row: CodeRepoRow) -> None:
        self._rows.pop((row.ns, row.remote, row.commit_hash), None)
