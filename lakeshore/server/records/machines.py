"""Machines that launches asked for: rows of the records, all of them also in memory.

Rule: a row is on disk before its machine is asked for, and stays until that has ended; so there is no machine without a
row, whatever is killed in between.

    asked      its provider was asked, or is about to be; which instance it is may not be known yet
    made       it is there: `instance`
    ending     it is to end, and is not known to have
    ended      the provider says so, or it never came to be
    released   it is left running by who removed its worker, and is nobody's business any more
Reference: nymph/daemon-lifecycle, "Launch through a provider" and "Kill"; S-161, S-170, S-177.
"""

from __future__ import annotations

import functools
import json
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final

import trio

from ...wire.states import LAUNCHED
from .commits import Statement, Write
from .statements import SQL

LIVE: Final = frozenset({"asked", "made", "ending"})


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineRow:
    """One machine of the worker with this id. `provider_ns` and `provider` say whose it is; `capacity` what the launch
    said of it, by which it is found again (its region, its zone); times are Unix seconds.
    """

    ns: str
    worker: str
    provider_ns: str
    provider: str
    launcher: str
    capacity: dict[str, Any]
    keep_alive_s: int
    created_at: float
    updated_at: float
    state: str = "asked"
    instance: str | None = None

    @property
    def is_live(self) -> bool:
        """Whether its provider may still run it for us."""
        return self.state in LIVE


class MachineRows:
    """Every machine of a server."""

    def __init__(self, conn: sqlite3.Connection, write: Write, *, now: Callable[[], float]) -> None:
        self._write, self._now = write, now
        self._turn = trio.Lock()
        self._rows: dict[tuple[str, str], MachineRow] = {}
        names = [field.name for field in fields(MachineRow)]
        for found in conn.execute(SQL.machines).fetchall():
            values = dict(zip(names, found, strict=True))
            self._keep(MachineRow(**{**values, "capacity": json.loads(values["capacity"])}))

    def get(self, ns: str, worker: str) -> MachineRow | None:
        """The one that a worker was launched with."""
        return self._rows.get((ns, worker))

    def of(self, ns: str) -> list[MachineRow]:
        """A namespace's."""
        return [row for row in self._rows.values() if row.ns == ns]

    def all(self) -> list[MachineRow]:
        """Every one."""
        return list(self._rows.values())

    def adding(self, rows: Sequence[MachineRow]) -> tuple[list[Statement], Callable[[], None]]:
        """What stores these, and what to do once that is committed."""

        def keep() -> None:
            for row in rows:
                self._keep(row)

        return [(SQL.add_machine, _values(row)) for row in rows], keep

    async def change(self, row: MachineRow, *more: Statement, **changed: Any) -> MachineRow | None:
        """Change it on disk, then in memory; None when it is gone, or has moved on to where `state` does not follow."""
        async with self._turn:
            known = self._rows.get((row.ns, row.worker))
            if known is None:
                return None
            made = replace(known, updated_at=self._now(), **changed)
            if made.state != known.state and not LAUNCHED.leads(known.state, made.state):
                return None
            await self._write(((SQL.change_machine, _values(made)), *more), functools.partial(self._keep, made))
            return made

    async def drop(self, rows: Sequence[MachineRow]) -> None:
        """Forget these."""

        def gone() -> None:
            for row in rows:
                self._rows.pop((row.ns, row.worker), None)

        await self._write([(SQL.drop_machine, {"ns": row.ns, "worker": row.worker}) for row in rows], gone)

    def forget(self, ns: str) -> None:
        """The rows of a namespace are gone from the file."""
        self._rows = {key: row for key, row in self._rows.items() if key[0] != ns}

    def _keep(self, row: MachineRow) -> None:
        self._rows[row.ns, row.worker] = row


def _values(row: MachineRow) -> dict[str, Any]:
    values = {field.name: getattr(row, field.name) for field in fields(row)}
    return values | {"capacity": json.dumps(row.capacity)}
