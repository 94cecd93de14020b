"""Reads of what a writer has committed: where it was just written, for another connection reads those pages from the
file again after each commit. While a batch is on its way in a thread, another connection it is.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import Any

from ..plane.database import connect_reader
from .writer import Writer


class Committed:
    """For the loop that the writer runs on. `conn` is what `writer` writes through, to the file `path`."""

    __slots__ = ("_beside", "_conn", "_writer")

    def __init__(self, path: str, conn: sqlite3.Connection, writer: Writer[Any]) -> None:
        self._conn = conn
        self._writer = writer
        self._beside = connect_reader(path)

    def rows(self, statement: str, values: Mapping[str, Any] | tuple[Any, ...]) -> list[tuple[Any, ...]]:
        """Every row of a statement that reads."""
        conn = self._beside if self._writer.is_away else self._conn
        return conn.execute(statement, values).fetchall()

    def close(self) -> None:
        """Close the connection of its own."""
        self._beside.close()
