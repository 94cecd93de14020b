"""What producers call: submit, await, streams, topics, cancel. Shapes: `wire/messages`, "Producer"."""

from __future__ import annotations

from typing import Annotated, Any, Final, TypedDict

import msgpack

from ...plane import rows
from ...plane.contract import Submission, Submitted
from ...plane.frames import LONGEST_NONCE
from ...plane.statements import SQL
from ...wire.errors import NameError_
from ...wire.messages import (
    DEFAULT_QUEUE,
    MSGPACK_STREAM,
    AwaitOne,
    SubmitBatch,
    SubmitItem,
    TopicAppend,
    TrimRequest,
    WatchSet,
)
from ...wire.names import check_invocation_id, check_queue, check_topic
from ..admission import HOLD_S
from ..admission import LONGEST_S as HELD_S
from ..app import App
from ..auth import Caller
from ..followers import open_frames, open_topic
from ..http import HttpError, Request, Response, StreamResponse
from ..payload_io import Outgoing
from ..refusals import as_result
from ..render import answer
from ..shapes import between, whole
from ..structure import bad_field, read_map, structure
from ..waiting import mounts_warning, warning, why
from .answers import (
    FRAMES,
    Cancelled,
    Counted,
    InvocationEnded,
    Posted,
    ProducerQueues,
    SubmittedMany,
    Trimmed,
    Watched,
)
from .answers import Submitted as SubmittedOne
from .queries import STATE
from .stated import OneOf, route

_LONGEST_WAIT_S: Final = 600.0
_MOST_ITEMS: Final = 10_000
_STREAM_HEADERS: Final = (("content-type", MSGPACK_STREAM), ("cache-control", "no-store"))


class FramesSince(TypedDict, total=False):
    """The number of the last frame that is known."""

    since: Annotated[int, whole(-1, 2**63 - 1)]


class TopicSince(FramesSince, total=False):
    """Ends after so many seconds of silence."""

    timeout_s: Annotated[float, between(0, 1e9, "a number of seconds")]


class CountOf(TypedDict, total=False):
    """Queued ones, unless another state is named."""

    state: Annotated[str, STATE]


@route(OneOf(SubmittedOne, SubmittedMany), body=(SubmitItem, SubmitBatch), refuses=(409, 422, 429))
async def submit(app: App, request: Request, caller: Caller) -> Response:
    """POST /v1/producer/submit: one call, or many."""
    body, encoding = await read_map(request)
    if "invocations" in body:
        return await _submit_many(app, request, caller, body, encoding)
    wait_s = body.get("wait_s") or 0.0
    if type(wait_s) not in (int, float):
        raise bad_field("wait_s", "must be a number of seconds")
    hold_s = body.get("hold_s", HOLD_S)
    if hold_s is None or type(hold_s) not in (int, float):
        raise bad_field("hold_s", "must be a number of seconds")
    wanted, watch, warnings = await app.submissions.read(caller.ns, body, encoding)
    hold_s = min(hold_s, HELD_S)
    done = await app.admission.submit(wanted, watch=watch, hold_s=hold_s, parker=request)
    told = _submitted(done)
    warnings += _warnings(app, caller.ns, body, done, {})
    if warnings:
        told["warnings"] = warnings
    if wait_s > 0:
        ended = await app.dispatcher.results.wait(caller.ns, told["invocation_id"], _wait_of(wait_s), request)
        if ended.terminal:
            told["ended"] = await Outgoing(app).ended(ended)
        elif body.get("why"):
            told |= _why(app, caller.ns, ended.id)
    return answer(request, told)


async def _submit_many(app: App, request: Request, caller: Caller, body: dict[str, Any], encoding: str) -> Response:
    items = body["invocations"]
    if type(items) is not list:
        raise bad_field("invocations", "must be an array")
    if len(items) > _MOST_ITEMS:
        raise bad_field("invocations", f"must have at most {_MOST_ITEMS} items", status=413)
    watch = body.get("watch")
    if watch is not None and type(watch) is not str:
        raise bad_field("watch", "must be a string")
    read, known = app.submissions.read, app.submissions.known
    results: list[dict[str, Any]] = [{}] * len(items)
    by_watch: dict[str | None, list[tuple[int, Submission]]] = {}
    warned: dict[int, list[str]] = {}
    unfit: dict[tuple[str, str], str | None] = {}
    for place, raw in enumerate(items):
        try:
            wanted = known(caller.ns, raw)
            if wanted is not None:
                own = raw.get("watch")
            else:
                wanted, own, warnings = await read(caller.ns, raw, encoding)
                if warnings:
                    warned[place] = warnings
        except (HttpError, NameError_) as error:
            results[place] = as_result(error)
        else:
            by_watch.setdefault(own or watch, []).append((place, wanted))
    for session, group in by_watch.items():
        try:
            answers = await app.dispatcher.submit_many([wanted for _, wanted in group], watch=session)
        except Exception as error:  # noqa: BLE001 - refusal_of raises again what is not the plane's
            refused = as_result(error)
            for place, _ in group:
                results[place] = dict(refused)
            continue
        for (place, _), done in zip(group, answers, strict=True):
            if not isinstance(done, Submitted):
                results[place] = as_result(done)
                continue
            results[place] = {"status": 200, **_submitted(done)}
            if warnings := _warnings(app, caller.ns, items[place], done, unfit):
                warned[place] = [*warned.get(place, ()), *warnings]
    for place, warnings in warned.items():
        results[place]["warnings"] = warnings
    return answer(request, {"results": results})


def _warnings(app: App, ns: str, raw: Any, done: Submitted, unfit: dict[tuple[str, str], str | None]) -> list[str]:
    """What no known worker can do of a new call. A few calls ask for something; nothing is looked up for the others.

    `unfit` keeps what was found for calls that ask the same.
    """
    found: list[str | None] = []
    if done.needs is not None:
        asked = (done.queue, done.needs)
        if asked not in unfit:
            unfit[asked] = warning(app, ns, *asked)
        found.append(unfit[asked])
    config = raw.get("run_config")
    if config and "mounts" in config:
        found.append(mounts_warning(app, ns, done.queue, config))
    return [said for said in found if said is not None]


def _submitted(done: Submitted) -> dict[str, Any]:
    told: dict[str, Any] = {"invocation_id": done.id, "queue": done.queue}
    if done.existing:
        told["existing"] = True
    if done.due is not None:
        told["due"] = done.due
    return told


@route(OneOf(InvocationEnded, Watched), body=(AwaitOne, WatchSet), refuses=(422,))
async def wait(app: App, request: Request, caller: Caller) -> Response:
    """POST /v1/producer/await: one id, or a watched set."""
    body, encoding = await read_map(request)
    if body.get("watch") is not None:
        return await _watch(app, request, caller, structure(body, WatchSet, encoding))
    wanted = structure(body, AwaitOne, encoding)
    check_invocation_id(wanted.invocation_id)
    timeout_s = 0.0 if wanted.get else _wait_of(wanted.timeout_s)
    ended = await app.dispatcher.results.wait(caller.ns, wanted.invocation_id, timeout_s, request)
    told = await Outgoing(app).ended(ended)
    if wanted.why and not ended.terminal:
        told |= _why(app, caller.ns, ended.id)
    if wanted.get:
        row = rows.get(app.dispatcher.rows, caller.ns, wanted.invocation_id)
        told["invocation"] = None if row is None else {name: row[name] for name in row if name != "hash"}
    return answer(request, told)


async def _watch(app: App, request: Request, caller: Caller, wanted: WatchSet) -> Response:
    if not wanted.watch:
        raise bad_field("watch", "must not be empty")
    found = await app.dispatcher.results.watch(
        caller.ns,
        wanted.watch,
        wanted.add,
        wanted.drop,
        _wait_of(wanted.timeout_s),
        request,
        waiting=wanted.waiting,
    )
    outgoing = Outgoing(app)
    results = [{"invocation_id": one.id, **await outgoing.ended(one)} for one in found.ended]
    told: dict[str, Any] = {"results": results, "more": found.more}
    if found.resync:
        told["resync"] = True
    if wanted.why and not results and found.waits is not None:
        told |= _why(app, caller.ns, found.waits)
    return answer(request, told)


def _why(app: App, ns: str, id_: str) -> dict[str, Any]:
    """For what a queued call waits; nothing for any other."""
    row = rows.get(app.dispatcher.rows, ns, id_)
    waits = None if row is None else why(app, row)
    return {} if waits is None else {"why": {"reason": waits.reason, "message": waits.says}}


def _wait_of(seconds: float) -> float:
    return min(max(seconds, 0.0), _LONGEST_WAIT_S)


@route(FRAMES, query=FramesSince, refuses=(404, 422))
async def stream(app: App, request: Request, caller: Caller, *, query: FramesSince) -> StreamResponse:
    """GET /v1/producer/invocations/:id/result/stream?since="""
    await request.body()  # unread, it would hide that a reader has gone
    follower = open_frames(app.dispatcher, caller.ns, _id_of(request), query.get("since", -1))
    return StreamResponse(headers=_STREAM_HEADERS, chunks=follower.pieces(app.records.holds(caller.token)))


@route(Cancelled, refuses=(404, 422))
async def cancel(app: App, request: Request, caller: Caller) -> Response:
    """POST /v1/producer/invocations/:id/cancel"""
    done = await app.dispatcher.cancel(caller.ns, _id_of(request))
    told: dict[str, Any] = {"cancelled": done.cancelled, "state": done.state}
    if done.cancelling:
        told["cancelling"] = True
    return answer(request, told)


@route(Trimmed, body=TrimRequest, optional=True, refuses=(404, 409, 422))
async def trim(app: App, request: Request, caller: Caller) -> Response:
    """POST /v1/producer/invocations/:id/trim"""
    body, encoding = await read_map(request, optional=True)
    wanted = structure(body, TrimRequest, encoding)
    if wanted.keep_last < 0:
        raise bad_field("keep_last", "must be 0 or more")
    return answer(request, {"trimmed": await app.dispatcher.trim(caller.ns, _id_of(request), wanted.keep_last)})


@route(ProducerQueues)
async def queues(app: App, request: Request, caller: Caller) -> Response:
    """GET /v1/producer/queues"""
    found = {
        name: {"name": name, "kind": kind or "fifo", "state": state}
        for name, kind, _temperature, state, _depth in app.dispatcher.rows(SQL.queues, {"ns": caller.ns})
    }
    found.setdefault(DEFAULT_QUEUE, {"name": DEFAULT_QUEUE, "kind": "fifo", "state": "active"})
    return answer(request, {"queues": [found[name] for name in sorted(found)]})


@route(Counted, query=CountOf)
async def count(app: App, request: Request, caller: Caller, *, query: CountOf) -> Response:
    """GET /v1/producer/queues/:name/count?state="""
    queue = check_queue(request.params["name"])
    state = query.get("state", "queued")
    return answer(request, {"count": rows.count(app.dispatcher.rows, caller.ns, queue, state)})


@route(Posted, body=TopicAppend, refuses=(409, 422))
async def topic_post(app: App, request: Request, caller: Caller) -> Response:
    """POST /v1/producer/queues/:queue/topics/:name"""
    queue, name = check_queue(request.params["queue"]), check_topic(request.params["name"])
    body, encoding = await read_map(request)
    wanted = structure(body, TopicAppend, encoding)
    if not wanted.final:
        check_one_value(wanted.bytes, "bytes")
    if not 0 <= wanted.nonce <= LONGEST_NONCE:
        raise bad_field("nonce", f"must be an integer from 1 to {LONGEST_NONCE}")
    seq = await app.dispatcher.topic_post(
        caller.ns, queue, name, wanted.bytes, wanted.final, nonce=wanted.nonce, again=wanted.again
    )
    return answer(request, {"seq": seq})


@route(FRAMES, query=TopicSince)
async def topic_stream(app: App, request: Request, caller: Caller, *, query: TopicSince) -> StreamResponse:
    """GET /v1/producer/queues/:queue/topics/:name/stream?since=&timeout_s="""
    await request.body()  # as above
    queue, name = check_queue(request.params["queue"]), check_topic(request.params["name"])
    silence_s = query.get("timeout_s", float("inf"))
    follower = open_topic(app.dispatcher, caller.ns, queue, name, query.get("since", -1), silence_s)
    return StreamResponse(headers=_STREAM_HEADERS, chunks=follower.pieces(app.records.holds(caller.token)))


def check_one_value(data: bytes, field: str) -> None:
    """HttpError 422 unless `data` is exactly one msgpack value: a stream of frames is undelimited."""
    try:
        msgpack.unpackb(data, strict_map_key=False)
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise bad_field(field, "must be one msgpack value") from error


def _id_of(request: Request) -> str:
    return check_invocation_id(request.params["id"])
