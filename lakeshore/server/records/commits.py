"""Group commit of the records: whoever has the file's lock writes for all that wait for it.

A write is a few statements and what memory is told after them. Those that arrive while a commit is under way wait for
the lock; the first of them commits them all in one transaction, and the others find theirs done. An error rolls the
batch back, and its writes are done one by one, so that each answers for itself alone.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, Protocol, TypeAlias

import trio

from ...plane.plane import failure_of

Statement: TypeAlias = tuple[str, Mapping[str, Any]]
Statements: TypeAlias = Sequence[Statement]

MOST: Final = 256
"""Writes in one transaction."""


class Write(Protocol):
    """`Commits.write`, for who keeps rows."""

    def __call__(self, statements: Statements, then: Callable[[], None] | None = None) -> Awaitable[None]: ...


class _Write:
    __slots__ = ("error", "is_taken", "statements", "then")

    def __init__(self, statements: Statements, then: Callable[[], None] | None) -> None:
        self.statements = statements
        self.then = then
        self.is_taken = False
        self.error: Exception | None = None


class Commits:
    """Commits what many tasks write to one connection."""

    def __init__(self, conn: sqlite3.Connection) -> None:
        self._conn = conn
        self._lock = trio.Lock()
        self._waiting: list[_Write] = []
        self.commits = 0
        self.writes = 0

    async def write(self, statements: Statements, then: Callable[[], None] | None = None) -> None:
        """On disk when it returns; `then()` was called right after the commit, before anybody else heard of it.

        A caller that is cancelled before its turn has written nothing; later, what it wrote stays. Raises PlaneError
        for what SQLite refuses.
        """
        mine = _Write(statements, then)
        self._waiting.append(mine)
        try:
            async with self._lock:
                if not mine.is_taken:
                    with trio.CancelScope(shield=True):  # memory and file change together, or neither does
                        await self._commit_some()
        finally:
            if not mine.is_taken:
                self._waiting.remove(mine)
        if mine.error is not None:
            raise mine.error

    async def _commit_some(self) -> None:
        batch, self._waiting = self._waiting[:MOST], self._waiting[MOST:]
        for one in batch:
            one.is_taken = True
        try:
            await trio.to_thread.run_sync(self._write_all, batch)
        except BaseException as error:
            for one in batch:
                one.error = one.error or RuntimeError(f"the records could not be written: {error}")
            raise
        self.commits += 1
        self.writes += len(batch)
        for one in batch:
            if one.then is not None and one.error is None:
                one.then()

    def _write_all(self, batch: Sequence[_Write]) -> None:
        try:
            self.write_now([statement for one in batch for statement in one.statements])
        except sqlite3.Error:
            for one in batch:
                try:
                    self.write_now(one.statements)
                except sqlite3.Error as error:
                    one.error = failure_of(error)

    def write_now(self, statements: Statements) -> None:
        """In this thread, while nobody else writes. Raises sqlite3.Error."""
        self._conn.execute("BEGIN IMMEDIATE")
        try:
            for statement, values in statements:
                self._conn.execute(statement, values)
            self._conn.execute("COMMIT")
        except BaseException:
            if self._conn.in_transaction:
                self._conn.execute("ROLLBACK")
            raise
