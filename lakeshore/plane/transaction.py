"""One open transaction: the connection and the files that commit with it.

Every transition tells the transaction which count it moves, so that the kept counters change in the same commit as the
rows they count.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .blobs import Blobs
from .contract import BlobRef, Payload
from .journal import Journal
from .statements import SQL, Values, in_order

Count = tuple[str, str, str]
"""Namespace, queue, state: what rows are counted by."""

Noted = tuple[str, str | None, int | str]
"""Namespace, queue (None: it has as many as before), and a row's `seq` or id."""


class Transaction:
    """What a verb writes through."""

    __slots__ = ("_moves", "_queued", "blobs", "conn", "journal", "noted")

    def __init__(
        self,
        conn: sqlite3.Connection,
        journal: Journal,
        blobs: Blobs,
        queued: Mapping[tuple[str, str], int] | None,
        noted: list[Noted] | None = None,
    ) -> None:
        self.conn = conn
        self.journal = journal
        self.blobs = blobs
        self._queued = queued
        self._moves: dict[Count, int] = {}
        self.noted = noted
        """Which rows it changes, in order; None while nobody wants to know."""

    def one(self, statement: str, values: Values) -> tuple[Any, ...] | None:
        """The first row of a statement; the statement has run to its end."""
        rows = self.conn.execute(statement, values).fetchall()
        return rows[0] if rows else None

    def all(self, statement: str, values: Values) -> list[tuple[Any, ...]]:
        """Every row of a statement."""
        return self.conn.execute(statement, values).fetchall()

    def change(self, statement: str, values: Values) -> int:
        """Run a guarded write; how many rows it changed."""
        return self.conn.execute(statement, values).rowcount

    def change_many(self, statement: str, rows: Iterable[Values]) -> int:
        """Run a write for each row of values, by name or in the order of its `?`; how many rows it changed."""
        return self.conn.executemany(statement, rows).rowcount

    def moved(self, ns: str, queue: str, old: str | None, new: str | None, *rows: int | str) -> None:
        """Rows of this queue went from one state to another (None: they were born, or are gone). A row is its `seq`; of
        one that is gone its id.
        """
        moves = self._moves
        if self.noted is not None:
            self.noted += [(ns, queue, row) for row in rows]
        if old is not None:
            moves[ns, queue, old] = moves.get((ns, queue, old), 0) - len(rows)
        if new is not None:
            moves[ns, queue, new] = moves.get((ns, queue, new), 0) + len(rows)

    def touched(self, ns: str, queue: str | None, row: int | str) -> None:
        """A row changed, and not its state. None: nor what its queue has."""
        if self.noted is not None:
            self.noted.append((ns, queue, row))

    def counted(self, ns: str, queue: str, state: str) -> int:
        """How many rows of a queue are in one state, with what this transaction moved."""
        kept = self.one(SQL.count, {"ns": ns, "queue": queue, "state": state})
        return (kept[0] if kept is not None else 0) + self._moves.get((ns, queue, state), 0)

    def has_none_queued(self, ns: str, queue: str) -> bool:
        """Whether it is known without a look that a queue has nothing to claim."""
        if self._queued is None:
            return False
        return self._queued.get((ns, queue), 0) + self._moves.get((ns, queue, "queued"), 0) <= 0

    def flush(self) -> Mapping[Count, int]:
        """Write the moved counts; the last thing before COMMIT. What they are."""
        if self._moves:
            self.conn.executemany(
                SQL.move_tally,
                [{"ns": ns, "queue": q, "state": s, "n": n} for (ns, q, s), n in self._moves.items() if n],
            )
        return self._moves


def grouped(rows: Iterable[tuple[str, str, int]]) -> dict[tuple[str, str], list[int]]:
    """Rows (namespace, queue, `seq`) by their queue, in order."""
    found: dict[tuple[str, str], list[int]] = {}
    for ns, queue, seq in rows:
        found.setdefault((ns, queue), []).append(seq)
    return found


PAYLOAD = "seq data blob size sha256"
"""The columns of a payload, in the order of `payload_row`."""
PUT_ARGS, PUT_RESULT = in_order(SQL.put_args, PAYLOAD), in_order(SQL.put_result, PAYLOAD)


def payload_row(seq: int, payload: Payload) -> tuple[Any, ...]:
    """The columns of a payload row."""
    if isinstance(payload, BlobRef):
        return seq, None, payload.key, payload.size, payload.sha256
    return seq, payload, None, len(payload), None


def payload_of(row: Sequence[Any] | None) -> Payload:
    """A payload from its columns `data, blob, size, sha256`; empty when there is none."""
    if row is None:
        return b""
    data, blob, size, sha256 = row
    return data if blob is None else BlobRef(key=blob, size=size, sha256=sha256)
