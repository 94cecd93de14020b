"""Schedules: rows of the records, all of them also in memory."""

from __future__ import annotations

import functools
import sqlite3
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import trio

from .statements import SQL

CatchUp = Literal["none", "last", "all"]
Overlap = Literal["skip", "allow"]
Statements = Sequence[tuple[str, Mapping[str, Any]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleRow:
    """One schedule. Instants up to `since` are dealt with; `last_at` is the last one that was submitted, as `last_id`.

    `envelope` is what is submitted, but for its id. Times are Unix seconds.
    """

    ns: str
    name: str
    queue: str
    every: float | None
    cron: str | None
    tz: str | None
    catch_up: CatchUp
    overlap: Overlap
    envelope: bytes
    created_at: float
    since: float
    paused: bool = False
    last_at: float | None = None
    last_id: str | None = None
    skipped: int = 0

    def means(self, other: ScheduleRow) -> bool:
        """Whether two rows ask for the same."""
        return all(getattr(self, name) == getattr(other, name) for name in _ASKED)


_ASKED = ("ns", "name", "queue", "every", "cron", "tz", "catch_up", "overlap", "envelope")


class Schedules:
    """`write` commits statements, one writer at a time, and then calls `then`."""

    def __init__(
        self, conn: sqlite3.Connection, write: Callable[[Statements, Callable[[], None]], Awaitable[None]]
    ) -> None:
        self._write = write
        self._turn = trio.Lock()
        self._rows: dict[tuple[str, str], ScheduleRow] = {}
        for found in conn.execute(SQL.schedules).fetchall():
            row = ScheduleRow(**dict(zip((field.name for field in fields(ScheduleRow)), found, strict=True)))
            self._rows[row.ns, row.name] = replace(row, paused=bool(row.paused))

    def get(self, ns: str, name: str) -> ScheduleRow | None:
        """One schedule."""
        return self._rows.get((ns, name))

    def of(self, ns: str) -> list[ScheduleRow]:
        """A namespace's, by name."""
        return [row for _key, row in sorted(self._rows.items()) if row.ns == ns]

    def all(self) -> list[ScheduleRow]:
        """Every schedule of the server."""
        return list(self._rows.values())

    async def add(self, row: ScheduleRow) -> ScheduleRow:
        """Add one, unless the name is taken; who has the name then."""
        async with self._turn:
            if (row.ns, row.name) not in self._rows:
                keep = functools.partial(self._rows.__setitem__, (row.ns, row.name), row)
                await self._write(((SQL.add_schedule, _values(row)),), keep)
            return self._rows.get((row.ns, row.name), row)

    async def update(self, row: ScheduleRow, **changed: Any) -> ScheduleRow | None:
        """Change a row that is still the one that was seen; None when it is gone."""
        key = (row.ns, row.name)

        def keep() -> None:
            if key in self._rows:
                self._rows[key] = made

        async with self._turn:
            current = self._rows.get(key)
            if current is None or current.created_at != row.created_at:
                return None
            made = replace(current, **changed)
            await self._write(((SQL.change_schedule, _values(made)),), keep)
            return self._rows.get(key)

    async def drop(self, ns: str, name: str) -> bool:
        """Forget one. False when there is none."""
        async with self._turn:
            if (ns, name) not in self._rows:
                return False
            await self._write(((SQL.drop_schedule, {"ns": ns, "name": name}),), lambda: self.forget(ns, name))
            return True

    def forget(self, ns: str, name: str | None = None) -> None:
        """Those rows are gone from the file."""
        for key in [key for key in self._rows if key[0] == ns and name in (None, key[1])]:
            del self._rows[key]


def _values(row: ScheduleRow) -> dict[str, Any]:
    return {field.name: getattr(row, field.name) for field in fields(ScheduleRow)}
