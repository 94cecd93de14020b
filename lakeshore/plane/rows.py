"""Reads: one row, a page of rows, what a waiter is told, counts. They never write."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgpack

from . import listing
from .contract import DELAYED, TERMINAL, Ended
from .frames import Rows
from .statements import SQL, among
from .transaction import payload_of

_COLUMNS = (
    "seq", "id", "ns", "queue", "state", "priority", "key", "hash", "function", "run_config", "code", "prefix",
    "parent", "root", "max_attempts", "claim", "attempt", "started", "worker", "last_frame", "cancel_requested",
    "error", "submitted_at", "claimed_at", "started_at", "finished_at", "due",
)  # fmt: skip
_PACKED = ("function", "run_config", "code", "error")


def get(rows: Rows, ns: str, invocation_id: str) -> dict[str, Any] | None:
    """The whole row as a map, times in epoch seconds; None when this namespace has no such row. `delayed` is whether
    it waits for the instant `due`.
    """
    found = rows(SQL.row, {"id": invocation_id, "ns": ns})
    return _as_map(found[0]) if found else None


def page(
    rows: Rows,
    ns: str,
    *,
    states: Iterable[str] = (),
    queue: str | None = None,
    worker: str | None = None,
    limit: int = 50,
    offset: int = 0,
    before: int | None = None,
) -> list[dict[str, Any]]:
    """Newest first. `before` is the `seq` of the last row seen: a cursor that stays flat however deep."""
    found = listing.page(rows, ns, states=states, queue=queue, worker=worker, limit=limit, offset=offset, before=before)
    return [_as_map(row) for row in found]


def some(rows: Rows, ns: str, seqs: Iterable[int], ids: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Those of these rows that the namespace has, by `seq` or by id; each once, in no order. Some hundred at a time."""
    return [_as_map(row) for row in _those(rows, SQL.listed, ns, seqs, ids)]


def named(rows: Rows, ns: str, seqs: Iterable[int], ids: Sequence[str] = ()) -> list[dict[str, Any]]:
    """The same, of each only `seq` and `id`."""
    return [{"seq": seq, "id": id_} for seq, id_ in _those(rows, SQL.listed_names, ns, seqs, ids)]


MOST_LOOKED_AT = 10_000
_BEHIND_IDS = "~"
"""Greater than all that an id may be made of."""


def beginning(rows: Rows, ns: str, beginning: str, *, limit: int) -> list[dict[str, Any]]:
    """The rows whose id begins so, newest first: a walk down the index of ids, that looks at so many of all namespaces
    and no further.
    """
    names = {"ns": ns, "from": beginning, "behind": beginning + _BEHIND_IDS, "most": MOST_LOOKED_AT, "limit": limit}
    found = some(rows, ns, [seq for (seq,) in rows(SQL.ids_beginning, names)])
    return sorted(found, key=lambda row: int(row["seq"]), reverse=True)


def _those(rows: Rows, select: str, ns: str, seqs: Iterable[int], ids: Sequence[str]) -> Iterable[tuple[Any, ...]]:
    found: dict[int, tuple[Any, ...]] = {}
    if listed := ",".join(map(str, seqs)):
        found |= {row[0]: row for row in rows(f"{select}\nWHERE seq IN ({listed}) AND +ns = :ns", {"ns": ns})}
    if ids:
        text, values = among(f"{select}\nWHERE id IN (:those) AND +ns = ?", ids)
        found |= {row[0]: row for row in rows(text, (*values, ns))}
    return found.values()


def ended(rows: Rows, ns: str, invocation_id: str) -> Ended:
    """What a waiter is told: terminal with its result or error, `pending`, `unknown` or `purged` (K-22)."""
    (one,) = ended_many(rows, ns, [invocation_id])
    return one


def ended_many(rows: Rows, ns: str, ids: Sequence[str]) -> list[Ended]:
    """The same of each, in order."""
    if not ids:
        return []
    found = {row[0]: _ended(ns, *row) for row in rows(*among(SQL.ended, ids))}
    return [found.get(id_) or _gone(rows, ns, id_) for id_ in ids]


def _ended(ns: str, id_: str, owner: str, state: str, attempt: int, error: bytes | None, *result: Any) -> Ended:
    if owner != ns:
        return Ended(id=id_, state="unknown")
    if state not in TERMINAL:
        return Ended(id=id_, state="pending", row_state=shown(state), attempt=attempt)
    return Ended(
        id=id_,
        state=state,
        row_state=state,
        result=b"" if result[2] is None else payload_of(result),
        error=error,
        attempt=attempt,
    )


def _gone(rows: Rows, ns: str, id_: str) -> Ended:
    grave = rows(SQL.tombstone, {"id": id_})
    return Ended(id=id_, state="purged" if grave and grave[0][0] == ns else "unknown")


def shown(state: str) -> str:
    """A row's state as the file has it, as everybody is told."""
    return "queued" if state == DELAYED else state


def count(rows: Rows, ns: str, queue: str, state: str) -> int:
    """How many rows of a queue are in one state; kept in the same commit as the rows. Those that wait for an instant
    are queued, too, and can be counted alone as `delayed`.
    """
    return claimable(rows, ns, queue, state) + (claimable(rows, ns, queue, DELAYED) if state == "queued" else 0)


def claimable(rows: Rows, ns: str, queue: str, state: str = "queued") -> int:
    """How many rows of a queue may be claimed now."""
    found = rows(SQL.count, {"ns": ns, "queue": queue, "state": state})
    return int(found[0][0]) if found else 0


def channel_of(rows: Rows, ns: str, invocation_id: str) -> tuple[int, str] | None:
    """(frame channel, state) of an invocation."""
    found = rows(SQL.channel_of, {"id": invocation_id})
    return (found[0][0], found[0][2]) if found and found[0][1] == ns else None


def topic_channel(rows: Rows, ns: str, queue: str, name: str) -> int | None:
    """The frame channel of a topic, None before its first post."""
    found = rows(SQL.topic_of, {"ns": ns, "queue": queue, "name": name})
    return -int(found[0][0]) if found else None


def _as_map(row: tuple[Any, ...]) -> dict[str, Any]:
    record = dict(zip(_COLUMNS, row, strict=True))
    for name in _PACKED:
        record[name] = msgpack.unpackb(record[name], strict_map_key=False) if record[name] else None
    record["delayed"], record["state"] = record["state"] == DELAYED, shown(record["state"])
    return record
