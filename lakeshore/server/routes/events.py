"""Events: what daemons tell besides acks, and the log of a namespace. Reference: S-452, S-619, S-673…S-675, S-780."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, NotRequired, TypedDict

import msgpack

from ...wire.messages import EventBatch, EventItem
from ...wire.names import check_invocation_id, check_queue
from ..app import App
from ..auth import Caller
from ..http import Request, Response
from ..records.events import EventRow
from ..render import answer, iso
from ..shapes import Time, waiting, whole
from ..structure import bad_field, read_map, structure
from ..workers import SETUP
from .daemon import check_binding
from .stated import route

_KINDS: Final = ("invocation.progress", "invocation.log", "invocation.event")
_MOST: Final = 500
_LARGEST: Final = 64 * 1024
_TAIL: Final = 16 * 1024
_LONGEST: Final = 200
_LIMIT: Final = 50
_LONGEST_PAGE: Final = 200
_LONGEST_HOLD_S: Final = 60.0


class EventPage(TypedDict, total=False):
    """Which events; `before` the newest first, `after` the oldest first. `hold_s`: with `after`, seconds to wait for
    one, 60 at most.
    """

    kind: str
    type: str
    worker: str
    queue: str
    invocation: str
    limit: Annotated[int, whole(1, _LONGEST_PAGE)]
    before: Annotated[int, whole(1, 2**53)]
    after: Annotated[int, whole(0, 2**53)]
    hold_s: Annotated[float, waiting(_LONGEST_HOLD_S)]


class EventShown(TypedDict):
    """One event."""

    seq: int
    at: Time
    kind: str
    type: str | None
    workerId: str | None
    queueName: str | None
    invocationId: str | None
    ref: str | None
    payload: Mapping[str, Any]


class EventList(TypedDict):
    """`next` is where the following page begins."""

    events: list[EventShown]
    count: int
    limit: int
    next: NotRequired[int]


class EventTold(TypedDict):
    """It is on disk."""

    ok: bool
    events: NotRequired[list[dict[str, bool]]]


@route(EventTold, body=(EventItem, EventBatch), refuses=(403, 409))
async def tell(app: App, request: Request, caller: Caller) -> Response:
    """POST /v1/daemon/event: one, or `events: […]`; on disk when it is answered."""
    body, encoding = await read_map(request)
    if "events" not in body:
        await _store(app, caller, [structure(body, EventItem, encoding)])
        return answer(request, {"ok": True})
    items = structure(body, EventBatch, encoding).events
    if len(items) > _MOST:
        raise bad_field("events", f"must have at most {_MOST} items", status=413)
    await _store(app, caller, items)
    return answer(request, {"ok": True, "events": [{"ok": True} for _ in items]})


async def _store(app: App, caller: Caller, items: Sequence[EventItem]) -> None:
    now = time.time()
    rows = [_row(caller, item, now) for item in items]
    if plain := [row for row in rows if row.type != SETUP or row.ref is None]:
        await app.records.events.add(plain)
    for item, row in zip(items, rows, strict=True):
        if row.type == SETUP and row.ref is not None:
            await app.workers.setup_ended(row.ns, item.worker_id, row.ref, row.payload)


def _row(caller: Caller, item: EventItem, now: float) -> EventRow:
    check_binding(caller, item.worker_id)
    if item.kind not in _KINDS:
        raise bad_field("kind", f"must be one of {', '.join(_KINDS)}")
    type_ = item.payload.get("type") if item.type is None else item.type
    ref = item.payload.get("setup_id") if item.id is None and type_ == SETUP else item.id
    for field, said in (("worker_id", item.worker_id), ("type", type_), ("id", ref)):
        if said is not None and (type(said) is not str or not 0 < len(said) <= _LONGEST or not said.isprintable()):
            raise bad_field(field, f"must have 1 to {_LONGEST} printable characters")
    payload = {key: _end(said) for key, said in item.payload.items()}
    try:
        size = len(msgpack.packb(payload))
    except (ValueError, OverflowError) as error:
        raise bad_field("payload", f"must be what msgpack can say: {error}"[:200]) from error
    if size > _LARGEST:
        raise bad_field("payload", f"must have at most {_LARGEST // 1024} KiB", status=413)
    return EventRow(
        ns=caller.ns,
        kind=item.kind,
        type=type_,
        worker=item.worker_id,
        queue=None if item.queue is None else check_queue(item.queue),
        invocation=None if item.invocation_id is None else check_invocation_id(item.invocation_id),
        ref=ref,
        at=now,
        payload=payload,
    )


def _end(said: Any) -> Any:
    """What was printed, by its end: an event is no place for a long log."""
    return said[-_TAIL:] if type(said) in (bytes, str) else said


@route(EventList, query=EventPage)
async def listing(app: App, request: Request, caller: Caller, *, query: EventPage) -> Response:
    """GET /v1/namespaces/:ns/events?kind&type&worker&queue&invocation&limit&before&after&hold_s, newest first.

    `next` is the `before` of the following page. With `after` the oldest first from there on, and `next` is the `after`
    of what comes later: so a log is followed, and `hold_s` waits for the next one.
    """
    limit, after = query.get("limit", _LIMIT), query.get("after")

    async def page() -> list[EventRow]:
        app.gate.caller(request, caller.ns)  # a token may have been revoked while it waited
        return await app.records.events.page(
            caller.ns,
            kind=query.get("kind") or None,
            type=query.get("type") or None,
            worker=query.get("worker") or None,
            queue=query.get("queue") or None,
            invocation=query.get("invocation") or None,
            before=query.get("before"),
            after=after,
            limit=limit,
        )

    hold_s = 0.0 if after is None else query.get("hold_s", 0.0)
    rows = await app.changes.until(caller.ns, "events", request, hold_s, page)
    told: dict[str, Any] = {"events": [event_body(row) for row in rows], "count": len(rows), "limit": limit}
    if after is not None:
        told["next"] = rows[-1].seq if rows else after
    elif len(rows) == limit:
        told["next"] = rows[-1].seq
    return answer(request, told)


def event_body(row: EventRow) -> EventShown:
    """One event; its time in ISO 8601."""
    return {
        "seq": row.seq,
        "at": iso(row.at),
        "kind": row.kind,
        "type": row.type,
        "workerId": row.worker,
        "queueName": row.queue,
        "invocationId": row.invocation,
        "ref": row.ref,
        "payload": row.payload,
    }
