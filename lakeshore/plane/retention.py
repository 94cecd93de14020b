"""Forgetting: ended rows leave a tombstone, and files that nothing points to are removed (K-16).

A slice ends when its time is up, so that whoever waits for the same writer waits no longer. What a slice did is whole:
a row is gone with everything it had, or it is still there (of many frames the first may be gone by then).
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from .frames import Rows
from .statements import SQL
from .transaction import Transaction

TOMBSTONE_S = 7 * 24 * 3600.0
"""A purged id is remembered at least so long."""
FRAMES_AT_ONCE = 1000
ROWS_AT_LEAST = 16
"""In a slice, however busy the machine is."""
TOMBSTONES_AT_ONCE = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Purge:
    """What one slice removed: rows by number, and the blob keys that nothing names now. `more`: its time was up."""

    seqs: tuple[int, ...]
    blobs: tuple[str, ...]
    more: bool = False

    @property
    def rows(self) -> int:
        """How many."""
        return len(self.seqs)


class _Slice:
    """One slice of forgetting in one transaction."""

    def __init__(self, tx: Transaction, now: float, budget_s: float) -> None:
        self.tx = tx
        self.now = now
        self.seqs: list[int] = []
        self.blobs: list[str] = []
        self._deadline = time.perf_counter() + budget_s

    @property
    def is_over(self) -> bool:
        return time.perf_counter() >= self._deadline

    def row(self, seq: int, id_: str, ns: str, queue: str, state: str, hash_: bytes) -> bool:
        """Forget one ended row; of one with very many frames perhaps some of them only. False: the slice is over."""
        tx = self.tx
        if not self.frames(seq):
            return False
        tx.change(SQL.bury, {"id": id_, "ns": ns, "hash": hash_, "now": self.now})
        for statement in (SQL.drop_args, SQL.drop_result):
            self.blobs += [key for (key,) in tx.all(statement, {"seq": seq}) if key is not None]
        tx.change(SQL.drop_row, {"seq": seq})
        tx.moved(ns, queue, state, None, id_)
        self.seqs.append(seq)
        return len(self.seqs) % ROWS_AT_LEAST != 0 or not self.is_over

    def frames(self, channel: int) -> bool:
        """Drop the frames of a channel; whether all are gone."""
        while self.tx.change(SQL.drop_some_frames, {"channel": channel, "limit": FRAMES_AT_ONCE}) == FRAMES_AT_ONCE:
            if self.is_over:
                return False
        return True

    def done(self, *, more: bool) -> Purge:
        free = [key for key in dict.fromkeys(self.blobs) if not self.tx.all(SQL.blob_in_use, {"key": key})[0][0]]
        return Purge(seqs=tuple(self.seqs), blobs=tuple(free), more=more)


def purge(tx: Transaction, *, before: float, now: float, limit: int = 500, budget_s: float = 3600.0) -> Purge:
    """Forget rows that ended before `before`, the oldest first: at most `limit`, and for about `budget_s`.

    Tombstones whose time is over go too, and count for `more`.
    """
    part = _Slice(tx, now, budget_s)
    old = {"before": now - TOMBSTONE_S, "limit": TOMBSTONES_AT_ONCE}
    more = tx.change(SQL.drop_old_tombstones, old) == TOMBSTONES_AT_ONCE
    expired = tx.all(SQL.expired_rows, {"before": before, "limit": limit})
    for row in expired:
        if not part.row(*row):
            return part.done(more=True)
    return part.done(more=more or len(expired) == limit)


def purge_rows(tx: Transaction, seqs: Iterable[int], *, before: float, now: float, budget_s: float) -> Purge:
    """Forget these rows, where they have still ended before `before`. `more`: call again with the same ones."""
    part = _Slice(tx, now, budget_s)
    for seq in seqs:
        row = tx.one(SQL.expired_row, {"seq": seq, "before": before})
        if row is not None and not part.row(*row):
            return part.done(more=True)
    return part.done(more=False)


def purge_topic(tx: Transaction, channel: int, *, before: float, budget_s: float) -> bool:
    """Forget a topic that got its last post before `before`; False when there is more of it to forget."""
    part = _Slice(tx, 0.0, budget_s)
    if tx.one(SQL.topic_is_old, {"channel": channel, "before": before}) is None:
        return True
    if not part.frames(-channel):
        return False
    tx.change(SQL.drop_topic, {"channel": channel})
    return True


def purge_queues(tx: Transaction, ns: str) -> None:
    """Forget the queues of a namespace that have no rows any more."""
    tx.change(SQL.drop_queues_of, {"ns": ns})
    tx.change(SQL.drop_tallies_of, {"ns": ns})


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which ended rows: of one namespace, that ended before `before`, and have one of `states` (or any) and `queue`."""

    ns: str
    before: float
    states: frozenset[str] = frozenset()
    queue: str | None = None


def ended_rows(
    rows: Rows, wanted: Filter, after: tuple[float, int], *, limit: int = 2000
) -> tuple[list[int], tuple[float, int] | None]:
    """Look at the next `limit` ended rows after the place `after`, oldest first.

    The `seq` of those that are wanted, and where to go on (None: that was all).
    """
    values: dict[str, Any] = {"before": wanted.before, "after": after[0], "after_seq": after[1], "limit": limit}
    seen = rows(SQL.ended_after, values)
    found = [
        seq
        for seq, ns, queue, state, _at in seen
        if ns == wanted.ns and wanted.queue in (None, queue) and (not wanted.states or state in wanted.states)
    ]
    return found, (seen[-1][4], seen[-1][0]) if len(seen) == limit else None
