"""Rows that wait for an instant: `delayed` in the file until `due`, then queued like any other.

The instant is wall-clock time. A clock that jumps ahead lets rows through early by the jump, one that jumps back keeps
them no longer than the jump. A row keeps its place by priority and age: what was submitted first comes first.
"""

from __future__ import annotations

from collections import Counter

from .frames import Rows
from .statements import SQL
from .transaction import Transaction

AT_ONCE = 500
"""Rows that one transaction lets through: others wait for the same writer."""


def promote(
    tx: Transaction, now: float, *, ns: str | None = None, queue: str | None = None
) -> Counter[tuple[str, str]]:
    """Let through what is due, the earliest first and at most `AT_ONCE`: how many rows of which (namespace, queue).

    With `ns` and `queue`, of that queue alone, or of those with that prefix (`gpu-*`).
    """
    found: list[tuple[str, str, int]] = []
    if ns is None or queue is None:
        found += tx.all(SQL.promote_due, {"now": now, "limit": AT_ONCE})
    else:
        for name in queues(tx.all, ns, queue):
            values = {"ns": ns, "queue": name, "now": now, "limit": AT_ONCE}
            found += tx.all(SQL.promote_due_of_queue, values)
    for owner, name, seq in found:
        tx.moved(owner, name, "delayed", "queued", seq)
    return Counter((owner, name) for owner, name, _seq in found)


def next_due(rows: Rows, ns: str | None = None, queue: str | None = None) -> float | None:
    """The earliest instant that a row waits for, in epoch seconds; None when none waits."""
    if ns is None or queue is None:
        found = rows(SQL.next_due, {})
        return None if not found else float(found[0][0])
    dues = [rows(SQL.next_due_of_queue, {"ns": ns, "queue": name}) for name in queues(rows, ns, queue)]
    return min((float(due[0][0]) for due in dues if due), default=None)


def queues(rows: Rows, ns: str, wish: str) -> list[str]:
    """The queues that a wish names: one, or those with its prefix."""
    if not wish.endswith("*"):
        return [wish]
    low = wish[:-1]
    return [name for (name,) in rows(SQL.queues_by_prefix, {"ns": ns, "low": low, "high": low + "\U0010ffff"})]
