"""Schedules of periodic jobs: their meaning is in `server/scheduler.py`, their instants in `server/recurrence.py`."""

from __future__ import annotations

import base64
import binascii
import time
from typing import Annotated, Any, Final, Literal, NotRequired, TypedDict

from ...plane import rows
from ...wire.envelope import Envelope
from ...wire.errors import WireError
from ..app import App
from ..auth import Caller
from ..http import HttpError, Request, Response
from ..primitives import Wrong
from ..records import ScheduleRow
from ..recurrence import BadRecurrence, recurrence
from ..render import answer, iso
from ..shapes import LABEL, QUEUE, Time, checked, length
from ..structure import bad_field
from .secrets import Deleted
from .stated import route

_LARGEST: Final = 64 * 1024


def _submits(given: Any) -> bytes:
    """What a schedule submits: a call of a function by reference, which means something when its author is gone."""
    if type(given) is str:
        try:
            given = base64.b64decode(given, validate=True)
        except (binascii.Error, ValueError) as error:
            raise Wrong("must be base64") from error
    if type(given) is not bytes or len(given) > _LARGEST:
        raise Wrong(f"must be an Envelope of at most {_LARGEST // 1024} KiB")
    try:
        envelope = Envelope.from_bytes(given)
    except WireError as error:
        raise Wrong(str(error)) from error
    if envelope.fn.get("kind") != "ref":
        raise Wrong("a schedule calls a function by reference (module:function)")
    return given


class ScheduleAdd(TypedDict):
    """`every` in seconds, or `cron` in the time zone `tz`; `envelope`: the call, by reference."""

    name: Annotated[str, LABEL]
    queue: Annotated[str, QUEUE]
    every: NotRequired[float]
    cron: NotRequired[Annotated[str, length(0, 200)]]
    tz: NotRequired[Annotated[str, length(0, 200)]]
    catchUp: NotRequired[Literal["none", "last", "all"]]
    overlap: NotRequired[Literal["skip", "allow"]]
    envelope: Annotated[Any, checked(_submits, type="string", contentEncoding="base64")]


class ScheduleChange(TypedDict):
    """Instants that pass while it is paused are not missed."""

    paused: bool


class ScheduleShown(TypedDict):
    """A schedule, and what came of its last instant."""

    name: str
    queue: str
    function: str
    every: float | None
    cron: str | None
    tz: str | None
    catchUp: str
    overlap: str
    paused: bool
    createdAt: Time
    nextAt: Time | None
    lastAt: Time | None
    lastId: str | None
    lastState: str | None
    skipped: int
    error: str | None


class ScheduleList(TypedDict):
    """By name."""

    schedules: list[ScheduleShown]


@route(ScheduleList)
async def listing(app: App, request: Request, caller: Caller) -> Response:
    """GET /v1/namespaces/:ns/schedules: by name."""
    return answer(request, {"schedules": [_body(app, row) for row in app.records.schedules.of(caller.ns)]})


@route(ScheduleShown, refuses=(404,))
async def show(app: App, request: Request, caller: Caller) -> Response:
    """GET /v1/namespaces/:ns/schedules/:name"""
    return answer(request, _body(app, _row(app, request, caller)))


@route({200: ScheduleShown, 201: ScheduleShown}, body=ScheduleAdd, refuses=(409,))
async def add(app: App, request: Request, caller: Caller, *, body: ScheduleAdd) -> Response:
    """POST /v1/namespaces/:ns/schedules {name, queue, every | cron, tz?, catchUp?, overlap?, envelope}

    201, or 200 when it is there already and asks for the same.
    """
    row = _asked(caller.ns, body, time.time())
    kept = await app.records.schedules.add(row)
    if kept is row:
        app.scheduler.changed()
        return answer(request, _body(app, row), status=201)
    if not kept.means(row):
        raise HttpError(
            409,
            f"there is a schedule {row.name!r} already, and it asks for something else",
            field="name",
            hint=f"lakeshore schedule rm {row.name}, or take another name",
        )
    return answer(request, _body(app, kept))


@route(ScheduleShown, body=ScheduleChange, refuses=(404,))
async def patch(app: App, request: Request, caller: Caller, *, body: ScheduleChange) -> Response:
    """PATCH /v1/namespaces/:ns/schedules/:name {paused}: instants that pass while it is paused are not missed."""
    paused = body["paused"]
    row: ScheduleRow | None = _row(app, request, caller)
    assert row is not None, "an unknown one was refused"
    if row.paused != paused:
        row = await app.records.schedules.update(row, paused=paused, **({} if paused else {"since": time.time()}))
        app.scheduler.changed()
    if row is None:
        raise _unknown(request)
    return answer(request, _body(app, row))


@route(Deleted, refuses=(404,))
async def remove(app: App, request: Request, caller: Caller) -> Response:
    """DELETE /v1/namespaces/:ns/schedules/:name: what it submitted stays."""
    if not await app.records.schedules.drop(caller.ns, request.params["name"]):
        raise _unknown(request)
    app.scheduler.changed()
    return answer(request, {"name": request.params["name"], "deleted": True})


def _asked(ns: str, body: ScheduleAdd, now: float) -> ScheduleRow:
    catch_up = body.get("catchUp", "last")
    overlap: Literal["skip", "allow"] = body.get("overlap", "allow" if catch_up == "all" else "skip")
    if catch_up == "all" and overlap == "skip":
        raise bad_field("overlap", "skip would leave out most of what catchUp all makes up for: use allow")
    every, cron, tz = body.get("every"), body.get("cron"), body.get("tz")
    try:
        recurrence(every=every, anchor=now, cron=cron, tz=tz)
    except BadRecurrence as error:
        raise bad_field(error.field, str(error)) from error
    return ScheduleRow(
        ns=ns,
        name=body["name"],
        queue=body["queue"],
        every=every,
        cron=cron,
        tz=tz,
        catch_up=catch_up,
        overlap=overlap,
        envelope=body["envelope"],
        created_at=now,
        since=now,
    )


def _body(app: App, row: ScheduleRow) -> ScheduleShown:
    fn = Envelope.from_bytes(row.envelope).fn
    last = None if row.last_id is None else rows.ended(app.dispatcher.rows, row.ns, row.last_id)
    return {
        "name": row.name,
        "queue": row.queue,
        "function": f"{fn.get('module')}:{fn.get('qualname')}",
        "every": row.every,
        "cron": row.cron,
        "tz": row.tz,
        "catchUp": row.catch_up,
        "overlap": row.overlap,
        "paused": row.paused,
        "createdAt": iso(row.created_at),
        "nextAt": _next(app, row),
        "lastAt": iso(row.last_at),
        "lastId": row.last_id,
        "lastState": None if last is None else last.row_state or last.state,
        "skipped": row.skipped,
        "error": app.scheduler.trouble_of(row),
    }


def _next(app: App, row: ScheduleRow) -> str | None:
    try:
        return iso(app.scheduler.next_of(row))
    except BadRecurrence:  # the scheduler has said so
        return None


def _row(app: App, request: Request, caller: Caller) -> ScheduleRow:
    row = app.records.schedules.get(caller.ns, request.params["name"])
    if row is None:
        raise _unknown(request)
    return row


def _unknown(request: Request) -> HttpError:
    return HttpError(
        404, f"no schedule {request.params['name']!r:.80}", field="name", hint="`lakeshore schedule list` shows them"
    )
