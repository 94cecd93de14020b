"""The row of a queue: what it decides for submits and claims, and what it keeps for others (S-566…S-573).

    state   active    takes submits, hands out
            draining  no submits; what is queued still runs
            paused    takes submits, hands nothing out
            archived  neither

A submit makes the row of its queue, with nothing set. Submits look at the admission of `guarded` rows and of those with
a depth alone; claims look at the row in any case.
Reference: get-started/queues.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from typing import Any

import msgpack

from ..wire.values import value
from . import rates
from .contract import DELAYED, QueueBehind, QueueBusy, QueueFull, QueueNotActive
from .delays import queues as names_of
from .frames import Rows
from .rows import claimable
from .runs import runs_of
from .statements import SQL
from .transaction import Transaction

STATES = ("active", "draining", "paused", "archived")
ON_FULL = ("reject", "block")
_SHUT = ("paused", "archived")
_MOST_LEVELS = 32
"""Of priority: the oldest of more is looked for among the most urgent ones."""


@value
class QueueRow:
    """A queue. `kind` None: the order is the claiming worker's. Times are epoch seconds."""

    ns: str
    name: str
    created_at: float
    kind: str | None = None
    state: str = "active"
    max_depth: int | None = None
    on_full: str | None = None
    cutoff_s: float | None = None
    rate_limit: float | None = None
    description: str | None = None
    kind_params: Mapping[str, Any] | None = None
    elasticity: Mapping[str, Any] | None = None
    provider: str | None = None
    template: Mapping[str, Any] | None = None
    run_config: Mapping[str, Any] | None = None
    updated_at: float | None = None


_KEPT = ("description", "kind_params", "elasticity", "provider", "template", "run_config", "updated_at")
"""What is no column of its own."""


# --- reads


def get(rows: Rows, ns: str, name: str) -> QueueRow | None:
    """One queue."""
    found = rows(SQL.queue_row, {"ns": ns, "name": name})
    return _row(found[0]) if found else None


def page(rows: Rows, ns: str, *, after: str = "", limit: int = -1) -> list[QueueRow]:
    """A namespace's queues by name, those behind `after`."""
    return [_row(found) for found in rows(SQL.queue_rows, {"ns": ns, "after": after, "limit": limit})]


def waited_s(rows: Rows, ns: str, name: str, now: float) -> float | None:
    """How long the oldest call that may be claimed has waited; None when there is none."""
    oldest = math.inf
    for run in itertools.islice(runs_of(rows, ns, name), _MOST_LEVELS):
        where, below = {"ns": ns, "queue": name, "needs": run}, math.inf
        for _ in range(_MOST_LEVELS):
            ((priority,),) = rows(SQL.next_priority, {**where, "below": below})
            if priority is None:
                break
            since = rows(SQL.waiting_since, {**where, "priority": priority})
            oldest, below = min(oldest, since[0][0]), priority
    return None if oldest == math.inf else max(0.0, now - oldest)


def opens_at(rows: Rows, ns: str, wish: str, now: float) -> float:
    """When one of the queues that a wish names may hand out what it has: not after `now`, or never (`inf`)."""
    found = math.inf
    for name in names_of(rows, ns, wish):
        row = rows(SQL.queue_of, {"ns": ns, "name": name})
        if row and row[0][2] not in _SHUT and claimable(rows, ns, name) > 0:
            _kind, _temperature, _state, rate, at = row[0]
            found = min(found, now if rate is None else rates.opens_at(rate, at, now))
    return found


# --- writes


def add(tx: Transaction, row: QueueRow) -> bool:
    """Store a new one. False when there is one of that name."""
    return tx.change(SQL.add_queue, _values(row)) > 0


def change(tx: Transaction, row: QueueRow) -> bool:
    """Store what it is from now on. False when there is none of that name."""
    return tx.change(SQL.change_queue, _values(row)) > 0


def drop(tx: Transaction, ns: str, name: str) -> bool:
    """Forget it; what ended there stays. False when there is none. Raises QueueBusy."""
    queued = tx.counted(ns, name, "queued") + tx.counted(ns, name, DELAYED)
    running = tx.counted(ns, name, "running")
    if queued or running:
        raise QueueBusy(name, queued, running)
    return tx.change(SQL.drop_queue, {"ns": ns, "name": name}) > 0


def ensure(tx: Transaction, ns: str, name: str, now: float) -> None:
    """Make the row unless it is there."""
    tx.change(SQL.ensure_queue, {"ns": ns, "name": name, "now": now})


# --- admission


@value
class Defaults:
    """What a queue adds to its calls: a run config, and the name of the field that is their priority."""

    run_config: Mapping[str, Any]
    priority_field: str | None


def admit(rows: Rows, count: Callable[[str, str, str], int], ns: str, name: str, now: float) -> Defaults | None:
    """Let one call in, `count` being of (namespace, queue, state); what it gets from the queue.

    Raises QueueNotActive, QueueFull, QueueBehind.
    """
    found = rows(SQL.admission_of, {"ns": ns, "name": name})
    if not found:
        return None
    state, max_depth, on_full, cutoff_s, guarded, kind, spec = found[0]
    if state in ("draining", "archived"):
        raise QueueNotActive(name, state)
    blocks = on_full == "block"
    if max_depth is not None and count(ns, name, "queued") + count(ns, name, DELAYED) >= max_depth:
        raise QueueFull(name, max_depth, blocks=blocks)
    if cutoff_s is not None:
        waited = waited_s(rows, ns, name, now)
        if waited is not None and waited > cutoff_s:
            raise QueueBehind(name, cutoff_s, waited, blocks=blocks)
    if not guarded or not spec:
        return None
    kept = msgpack.unpackb(spec, strict_map_key=False)
    field = _priority_field(kind, kept.get("kind_params"))
    return Defaults(run_config=kept.get("run_config") or {}, priority_field=field)


# --- inside


def _row(found: tuple[Any, ...]) -> QueueRow:
    ns, name, kind, temperature, state, max_depth, created_at, on_full, cutoff_s, rate_limit, spec = found
    kept = msgpack.unpackb(spec, strict_map_key=False) if spec else {}
    if temperature is not None and not kept.get("kind_params"):
        kept["kind_params"] = {"temperature": temperature}
    return QueueRow(
        ns=ns,
        name=name,
        kind=kind,
        state=state,
        max_depth=max_depth,
        created_at=created_at,
        on_full=on_full,
        cutoff_s=cutoff_s,
        rate_limit=rate_limit,
        **{field: kept.get(field) for field in _KEPT},
    )


def _values(row: QueueRow) -> dict[str, Any]:
    kept = {field: said for field in _KEPT if (said := getattr(row, field)) is not None}
    params = row.kind_params or {}
    return {
        "ns": row.ns,
        "name": row.name,
        "kind": row.kind,
        "temperature": params.get("temperature"),
        "state": row.state,
        "max_depth": row.max_depth,
        "created_at": row.created_at,
        "on_full": row.on_full,
        "cutoff_s": row.cutoff_s,
        "rate_limit": row.rate_limit,
        "guarded": int(bool(row.run_config or row.cutoff_s is not None or _priority_field(row.kind, params))),
        "spec": msgpack.packb(kept) if kept else None,
    }


def _priority_field(kind: str | None, params: Mapping[str, Any] | None) -> str | None:
    found = (params or {}).get("priority_field") if kind == "priority" else None
    return found if isinstance(found, str) else None
