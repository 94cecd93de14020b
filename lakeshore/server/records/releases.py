"""Rows of nymph releases: which files daemons can be updated to. They belong to the server, not to a namespace.

Reference: S-622, S-647, S-682…S-687.
"""

from __future__ import annotations

import functools
import sqlite3
from dataclasses import dataclass, fields

from .commits import Statement, Write
from .statements import SQL


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseRow:
    """One file, by its content. `version` is None where the file does not say it; `created_at` is Unix seconds."""

    sha256: str
    label: str
    target: str
    version: str | None
    bytes: int
    created_at: float


class ReleaseRows:
    """Every release of a server."""

    def __init__(self, conn: sqlite3.Connection, write: Write) -> None:
        self._write = write
        self._rows: dict[str, ReleaseRow] = {}
        names = [field.name for field in fields(ReleaseRow)]
        for found in conn.execute(SQL.releases).fetchall():
            self._keep(ReleaseRow(**dict(zip(names, found, strict=True))))

    def get(self, sha256: str) -> ReleaseRow | None:
        """The release of that content."""
        return self._rows.get(sha256)

    def all(self) -> list[ReleaseRow]:
        """Every release, newest first."""
        return sorted(self._rows.values(), key=lambda row: (-row.created_at, row.sha256))

    def newest(self, version: str) -> ReleaseRow | None:
        """What `version` names: the newest of that version, else the newest with that label."""
        rows = self.all()
        return next((row for row in rows if row.version == version), None) or next(
            (row for row in rows if row.label == version), None
        )

    async def put(self, row: ReleaseRow, note: Statement) -> None:
        """Add one, or say anew what a known content is called."""
        values = {field.name: getattr(row, field.name) for field in fields(row)}
        await self._write(((SQL.put_release, values), note), functools.partial(self._keep, row))

    def _keep(self, row: ReleaseRow) -> None:
        self._rows[row.sha256] = row
