"""Workers that said hello, and the ids of those that were removed: rows of the records, all of them also in memory.

When a worker was last heard of, and its state, change in memory at once and are written down now and then, for they
follow from what the worker does next. What a hello says, a person's edits and a removal are on disk before anybody is
told. A removed id is remembered, so that a daemon that polls under it learns of it.
Reference: S-595…S-607.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final

from .commits import Statement, Write
from .statements import SQL

_LISTS: Final = ("lanes", "queues")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRow:
    """A worker that said hello, or was launched and will. Times are Unix seconds.

    `lanes` are the queues that its hello named, `queues` what a person made of them since (None: nothing). `info` is
    JSON of what it told of itself: {capabilities, versions, tags}. `seen_at` is as of when it was written down:
    `WorkerRows.seen_at` knows better.
    """

    ns: str
    id: str
    machine_id: str
    label: str
    lanes: tuple[str, ...]
    info: str
    hello_at: float
    created_at: float
    state: str = "joining"
    seen_at: float | None = None
    queues: tuple[str, ...] | None = None
    hibernate_until: float | None = None
    provider: str | None = None
    host_status: str | None = None
    compose_project: str | None = None

    @property
    def subscriptions(self) -> tuple[str, ...]:
        """The queues that it serves; none is the default queue."""
        return self.lanes if self.queues is None else self.queues


class WorkerRows:
    """Every worker of a server."""

    def __init__(self, conn: sqlite3.Connection, write: Write, *, now: Callable[[], float]) -> None:
        self._write, self._now = write, now
        names = [field.name for field in fields(WorkerRow)]
        self._rows: dict[tuple[str, str], WorkerRow] = {}
        for found in conn.execute(SQL.workers).fetchall():
            values = dict(zip(names, found, strict=True))
            for name in _LISTS:
                values[name] = _split(values[name])
            values["lanes"] = values["lanes"] or ()
            values["created_at"] = values["created_at"] or values["hello_at"]
            row = WorkerRow(**values)
            self._rows[row.ns, row.id] = row
        self.told: Callable[[WorkerRow | None, WorkerRow], None] | None = None
        """Hears of each change in memory, with the row before it."""
        self._seen: dict[tuple[str, str], float] = {}
        self._unsaved: set[tuple[str, str]] = set()
        self._removed: dict[tuple[str, str], float] = {
            (ns, id_): at for ns, id_, at in conn.execute(SQL.removed_workers).fetchall()
        }

    def get(self, ns: str, id_: str) -> WorkerRow | None:
        """One worker."""
        return self._rows.get((ns, id_))

    def of(self, ns: str) -> list[WorkerRow]:
        """A namespace's."""
        return [row for row in self._rows.values() if row.ns == ns]

    def all(self) -> list[WorkerRow]:
        """Every worker of the server."""
        return list(self._rows.values())

    def seen_at(self, row: WorkerRow) -> float | None:
        """When it was last heard of."""
        return self._seen.get((row.ns, row.id), row.seen_at)

    def touch(self, key: tuple[str, str]) -> None:
        """It was just heard of."""
        self._seen[key] = self._now()
        self._unsaved.add(key)

    def greeting(
        self, ns: str, id_: str, *, machine_id: str, label: str, lanes: Sequence[str], info: str, state: str
    ) -> tuple[list[Statement], Callable[[], None]]:
        """What stores a hello, and what to do once that is committed.

        A person's edits of its queues last until it names other lanes than before.
        """
        known, now = self._rows.get((ns, id_)), self._now()
        row = WorkerRow(
            ns=ns,
            id=id_,
            machine_id=machine_id,
            label=label,
            lanes=tuple(lanes),
            info=info,
            hello_at=now,
            created_at=now if known is None else known.created_at,
            state=state,
            seen_at=now,
            queues=None if known is None or known.lanes != tuple(lanes) else known.queues,
        )
        if known is not None:
            kept = {name: getattr(known, name) for name in ("provider", "host_status", "compose_project")}
            row = replace(row, **kept)
        statements: list[Statement] = [
            (SQL.put_worker, _values(row)),
            (SQL.forget_removed_worker, {"ns": ns, "id": id_}),
        ]

        def keep() -> None:
            self._keep(row)
            self._seen[ns, id_] = now
            self._removed.pop((ns, id_), None)

        return statements, keep

    def adding(self, rows: Sequence[WorkerRow]) -> tuple[list[Statement], Callable[[], None]]:
        """What stores workers that have not said hello yet, and what to do once that is committed."""

        def keep() -> None:
            for row in rows:
                self._keep(row)

        return [(SQL.put_worker, _values(row)) for row in rows], keep

    def note(self, row: WorkerRow, **changed: Any) -> WorkerRow:
        """Change it in memory; it is written down with the next `unsaved`."""
        made = replace(self._rows.get((row.ns, row.id), row), **changed)
        if (row.ns, row.id) in self._rows:
            self._keep(made)
            self._unsaved.add((row.ns, row.id))
        return made

    async def change(self, row: WorkerRow, *more: Statement, **changed: Any) -> WorkerRow:
        """Change it on disk, then in memory."""
        made = replace(self._rows.get((row.ns, row.id), row), **changed)
        statements = ((SQL.change_worker, _values(made)), *more)

        def keep() -> None:
            self.note(row, **changed)

        await self._write(statements, keep)
        return made

    async def remove(self, rows: Iterable[WorkerRow], *more: Statement) -> None:
        """Forget these, and remember their ids."""
        now, keys = self._now(), [(row.ns, row.id) for row in rows]
        statements: list[Statement] = []
        for ns, id_ in keys:
            statements.append((SQL.drop_worker, {"ns": ns, "id": id_}))
            statements.append((SQL.add_removed_worker, {"ns": ns, "id": id_, "at": now}))

        def gone() -> None:
            for key in keys:
                self._rows.pop(key, None)
                self._seen.pop(key, None)
                self._removed[key] = now

        await self._write((*statements, *more), gone)

    def is_removed(self, ns: str, id_: str) -> bool:
        """Whether it was removed and has not said hello since."""
        return (ns, id_) in self._removed

    def removed(self) -> dict[tuple[str, str], float]:
        """(namespace, id) of those that were removed, and when."""
        return dict(self._removed)

    async def forget_removed(self, keys: Sequence[tuple[str, str]]) -> None:
        """Remember these ids no longer."""
        statements = [(SQL.forget_removed_worker, {"ns": ns, "id": id_}) for ns, id_ in keys]

        def forgotten() -> None:
            for key in keys:
                self._removed.pop(key, None)

        await self._write(statements, forgotten)

    def unsaved(self) -> tuple[list[Statement], Callable[[], None]]:
        """What writes down the changes that only memory knows; and what to call when that failed."""
        taken, self._unsaved = self._unsaved, set()
        statements: list[Statement] = []
        for key in taken:
            row = self._rows.get(key)
            if row is not None:
                at = self.seen_at(row)
                values = {"ns": row.ns, "id": row.id, "state": row.state, "until": row.hibernate_until, "at": at}
                statements.append((SQL.note_worker, values))
        return statements, lambda: self._unsaved.update(taken)

    def forget(self, ns: str) -> None:
        """The rows of a namespace are gone from the file."""
        for table in (self._rows, self._seen, self._removed):
            for key in [key for key in table if key[0] == ns]:
                del table[key]

    def _keep(self, row: WorkerRow) -> None:
        before = self._rows.get((row.ns, row.id))
        self._rows[row.ns, row.id] = row
        if self.told is not None:
            self.told(before, row)


def _split(text: str | None) -> tuple[str, ...] | None:
    return None if text is None else tuple(text.split("\n")) if text else ()


def _values(row: WorkerRow) -> dict[str, Any]:
    values = {field.name: getattr(row, field.name) for field in fields(row)}
    return {**values, **{name: None if values[name] is None else "\n".join(values[name]) for name in _LISTS}}
