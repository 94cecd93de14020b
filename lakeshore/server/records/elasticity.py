"""Rows of the elasticity controller: what it decided about a queue or a pool, and what it saw.

A pool's rows stand under `pool:<name>`. Most say that nothing was done: those have a short life, and never push others
out. Rows stay in the file, as events do.
Reference: get-started/architecture, "ElasticityEvent"; S-620, S-676…S-678.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final

from ...wire.values import value
from .commits import Statement, Write
from .statements import SQL

ACTIONS: Final = ("scale_up", "scale_down", "tick_noop")
NOOP: Final = "tick_noop"
POOL: Final = "pool:"
KEEP_S: Final = 30 * 86_400.0
KEEP_NOOPS_S: Final = 86_400.0

Read = Callable[[str, Mapping[str, Any]], Awaitable[list[tuple[Any, ...]]]]


@value
class ElasticityRow:
    """One decision. `at` is Unix seconds; `before` and `after` are the signals; `seq` is 0 before it is stored."""

    ns: str
    queue: str
    action: str
    reason: str
    before: Mapping[str, Any]
    after: Mapping[str, Any]
    at: float
    seq: int = 0


class ElasticityEvents:
    """Every decision of a server."""

    def __init__(self, write: Write, read: Read) -> None:
        self._write, self._read = write, read

    async def put(self, rows: Iterable[tuple[ElasticityRow, float | None]]) -> None:
        """On disk when it returns. One with the time of its queue's newest row, a noop, takes the place of that."""
        await self._write([_storing(row) if was is None else _freshening(row, was) for row, was in rows])

    async def page(
        self, ns: str, queues: Iterable[str] | None = None, *, noops: bool, before: int | None = None, limit: int
    ) -> list[ElasticityRow]:
        """The newest first, of these queues and pools, or of all. `before`: only what has a lower `seq`."""
        names = None if queues is None else json.dumps(list(queues))
        values = {"ns": ns, "queues": names, "noops": noops, "before": before, "limit": limit}
        return [_row(found) for found in await self._read(SQL.elasticity_events, values)]

    async def forget_old(self, now: float) -> int:
        """Keep a month, and a day of what did nothing. How many went is not counted: 0."""
        values = {"before": now - KEEP_S, "noops_before": now - KEEP_NOOPS_S}
        await self._write(((SQL.drop_elasticity_events_before, values),))
        return 0


def _storing(row: ElasticityRow) -> Statement:
    return SQL.add_elasticity_event, {
        "ns": row.ns,
        "queue": row.queue,
        "action": row.action,
        "reason": row.reason,
        "before": json.dumps(dict(row.before)),
        "after": json.dumps(dict(row.after)),
        "at": row.at,
    }


def _freshening(row: ElasticityRow, was: float) -> Statement:
    after = json.dumps(dict(row.after))
    return SQL.freshen_elasticity_event, {"ns": row.ns, "queue": row.queue, "after": after, "at": row.at, "was": was}


def _row(found: tuple[Any, ...]) -> ElasticityRow:
    seq, ns, queue, action, reason, before, after, at = found
    return ElasticityRow(
        seq=seq,
        ns=ns,
        queue=queue,
        action=action,
        reason=reason,
        before=json.loads(before),
        after=json.loads(after),
        at=at,
    )
