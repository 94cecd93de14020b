"""What the elasticity controller decided: a list, newest first.

Decisions that changed nothing are left out unless they are asked for. A pool's stand under `pool:<name>`, and are told
with those of its member queues.
Reference: get-started/architecture, "ElasticityEvent"; S-282, S-676…S-678, S-762.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, TypedDict

from ...plane.queues import QueueRow
from ...wire.names import check_slug
from ..app import App
from ..auth import Caller
from ..elasticity.spec import pool_of
from ..http import Request, Response
from ..records.elasticity import POOL, ElasticityRow
from ..render import answer, iso
from ..shapes import Time, whole
from .stated import route

_LIMIT: Final = 50
_MOST: Final = 200


class ElasticityQuery(TypedDict, total=False):
    """Of a queue, with its pool's, or of a pool (`pool:<name>`); `verbose`: also what changed nothing."""

    queue: str
    verbose: bool
    limit: Annotated[int, whole(1, _MOST)]
    before: Annotated[int, whole(1, 2**53)]


class ElasticityShown(TypedDict):
    """`before` and `after` are what the controller saw, and what it made of it."""

    seq: int
    at: Time
    kind: str
    queueName: str
    action: str
    reason: str
    before: dict[str, Any]
    after: dict[str, Any]


class ElasticityList(TypedDict):
    """The newest first. `next` is the `before` of the following page."""

    events: list[ElasticityShown]
    count: int
    limit: int
    next: int | None


@route(ElasticityList, query=ElasticityQuery)
async def listing(app: App, request: Request, caller: Caller, *, query: ElasticityQuery) -> Response:
    """GET /v1/namespaces/:ns/elasticity-events?queue&verbose&limit&before: `next` is the `before` of the next page."""
    limit = query.get("limit", _LIMIT)
    rows = await app.records.elasticity.page(
        caller.ns,
        None if "queue" not in query else _names(app, caller.ns, query["queue"]),
        noops=query.get("verbose", False),
        before=query.get("before"),
        limit=limit,
    )
    told: dict[str, Any] = {"events": [event_body(row) for row in rows], "count": len(rows), "limit": limit}
    told["next"] = rows[-1].seq if len(rows) == limit else None
    return answer(request, told)


def units(row: QueueRow) -> list[str]:
    """Under which names a queue's decisions stand: its own, and its pool's."""
    pool = pool_of(row.elasticity)
    return [row.name] if pool is None else [row.name, f"{POOL}{pool}"]


def event_body(row: ElasticityRow) -> ElasticityShown:
    """One decision; its time in ISO 8601."""
    return {
        "seq": row.seq,
        "at": iso(row.at),
        "kind": "elasticity",
        "queueName": row.queue,
        "action": row.action,
        "reason": row.reason,
        "before": dict(row.before),
        "after": dict(row.after),
    }


def _names(app: App, ns: str, queue: str) -> list[str]:
    if queue.startswith(POOL):
        return [queue]
    row = app.queues.get(ns, check_slug(queue, "queue"))
    return [queue] if row is None else units(row)
