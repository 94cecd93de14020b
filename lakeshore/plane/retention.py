"""Forgetting: ended rows leave a tombstone, and files that nothing points to are removed (K-16)."""

from __future__ import annotations

from dataclasses import dataclass

from .statements import SQL
from .transaction import Transaction

TOMBSTONE_S = 7 * 24 * 3600.0
"""A purged id is remembered at least so long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Purge:
    """What one purge removed: rows, and the blob keys that may be deleted after the commit."""

    rows: int
    blobs: tuple[str, ...]


def purge(tx: Transaction, *, before: float, now: float, limit: int = 500) -> Purge:
    """Remove up to `limit` rows that ended before `before`, with arguments, results and frames."""
    blobs: list[str] = []
    expired = tx.all(SQL.expired_rows, {"before": before, "limit": limit})
    for seq, id_, ns, queue, state, hash_ in expired:
        tx.change(SQL.bury, {"id": id_, "ns": ns, "hash": hash_, "now": now})
        for statement in (SQL.drop_args, SQL.drop_result):
            blobs += [key for (key,) in tx.all(statement, {"seq": seq}) if key is not None]
        tx.change(SQL.drop_frames, {"channel": seq})
        tx.change(SQL.drop_row, {"seq": seq})
        tx.moved(ns, queue, state, None)
    for (channel,) in tx.all(SQL.old_topics, {"before": before, "limit": limit}):
        tx.change(SQL.drop_frames, {"channel": -channel})
        tx.change(SQL.drop_topic, {"channel": channel})
    tx.change(SQL.drop_old_tombstones, {"before": now - TOMBSTONE_S})
    free = tuple(key for key in dict.fromkeys(blobs) if not tx.all(SQL.blob_in_use, {"key": key})[0][0])
    return Purge(rows=len(expired), blobs=free)
