"""Numbers of the whole server that only rise, each by its name: how far each may have been given out."""

from __future__ import annotations

import sqlite3

from .commits import Write
from .statements import SQL


class Marks:
    """Every mark of a server."""

    def __init__(self, conn: sqlite3.Connection, write: Write) -> None:
        self._write = write
        self._values: dict[str, int] = dict(conn.execute(SQL.marks).fetchall())

    def get(self, name: str) -> int:
        """How far it has been raised; 0 for one that never was."""
        return self._values.get(name, 0)

    async def lift(self, name: str, value: int) -> None:
        """Raise it to this value at least: on disk when it returns."""

        def keep() -> None:
            self._values[name] = max(value, self.get(name))

        await self._write(((SQL.raise_mark, {"mark": name, "value": value}),), keep)
