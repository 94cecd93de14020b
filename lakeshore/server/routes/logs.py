"""What bodies print: posted by who runs them, read by operators. Rules of what is kept: `plane/logs`.

A chunk is taken from the claim that runs, and from no other: what an earlier one still has to say is refused as stale.
Below the disk's reserve it is refused with 507; the job goes on without.
"""

from __future__ import annotations

import errno
import time
from functools import partial
from typing import Annotated, Any, Final, TypedDict

import trio

from ...plane.contract import NotHeld, PlaneError, PlaneFull, UnknownInvocation
from ...plane.logs import PAGE_BYTES, STREAMS, Log, Logs, Part
from ...plane.statements import SQL
from ...wire.messages import LogChunk
from ...wire.names import check_invocation_id
from ..app import App
from ..auth import Caller
from ..http import HttpError, Request, Response
from ..render import answer
from ..shapes import one_of, waiting, whole
from ..structure import bad_field, read_map, structure
from .answers import RAW, LogPage, LogStored
from .daemon import check_claim
from .stated import route

_RAW: Final = b"application/octet-stream"
_MOST: Final = 1024 * 1024
_MOST_PARTS: Final = 10_000
_LONGEST_S: Final = 30.0
_LOOK_S: Final = 0.5
_BIG: Final = 2**53
_LAST_OFFSET: Final = 2**51  # so that a position, too, is a number that every client can name


class LogAt(TypedDict, total=False):
    """Of raw bytes: what a map would say."""

    invocation_id: str
    claim: int
    attempt: int
    stream: str
    offset: int


class LogQuery(TypedDict, total=False):
    """Which attempt's log, from which position on, and how long to wait for something."""

    attempt: Annotated[int, whole(0, _LAST_OFFSET)]
    claim: Annotated[int, whole(0, _LAST_OFFSET)]
    offset: Annotated[int, whole(0, _LAST_OFFSET)]
    stream: Annotated[str, one_of(*STREAMS)]
    wait_s: Annotated[float, waiting(_LONGEST_S)]


@route(LogStored, body=(LogChunk, RAW), refuses=(403, 404, 409, 422))
async def log_chunk(app: App, request: Request, caller: Caller) -> Response:
    """POST /v1/daemon/log-chunk"""
    chunk = await _chunk(request)
    check_invocation_id(chunk.invocation_id)
    check_claim(app, caller, chunk.invocation_id, chunk.claim)
    seq, state, claim, attempt = _owner(app, caller.ns, chunk.invocation_id)
    if state != "running" or claim != chunk.claim:
        raise NotHeld(
            f"invocation {chunk.invocation_id} is {state} under claim {claim}; claim {chunk.claim} prints no more"
        )
    if not attempt <= chunk.attempt <= attempt + 1:  # the row does not count one that has not been said to have begun
        raise bad_field("attempt", f"claim {claim} runs attempt {max(attempt, 1)}")
    app.dispatcher.reserve.check(trio.current_time())
    log = Log(attempt=chunk.attempt, claim=chunk.claim)
    try:
        position = _logs(app).append(seq, log, chunk.parts, time.time())
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        message = f"what {chunk.invocation_id} printed could not be kept: {error.strerror}"
        raise (PlaneFull if full else PlaneError)(message) from error
    app.printed.ring(seq)
    return answer(request, {"ok": True, "position": position})


async def _chunk(request: Request) -> LogChunk:
    if request.headers.get(b"content-type", b"").split(b";")[0].strip() != _RAW:
        body, encoding = await read_map(request)
        chunk = structure(body, LogChunk, encoding)
    else:
        query = request.query
        if not query.get("invocation_id"):
            raise bad_field("invocation_id", "is required")
        chunk = LogChunk(
            invocation_id=query["invocation_id"],
            claim=_number(query, "claim", None),
            attempt=_number(query, "attempt", 1),
            parts=((query.get("stream", "stdout"), _number(query, "offset", None), await request.body(_MOST)),),
        )
    if not 0 < chunk.attempt <= _BIG or not 0 <= chunk.claim <= _BIG:
        raise bad_field("attempt" if 0 <= chunk.claim <= _BIG else "claim", "is out of range")
    if len(chunk.parts) > _MOST_PARTS or sum(len(part[2]) for part in chunk.parts) > _MOST:
        raise bad_field("parts", f"must be at most {_MOST_PARTS} with {_MOST} bytes", status=413)
    for place, (stream, offset, _data) in enumerate(chunk.parts):
        if stream not in STREAMS:
            raise bad_field(f"parts[{place}]", f"the stream must be {' or '.join(STREAMS)}")
        if not 0 <= offset <= _LAST_OFFSET:
            raise bad_field(f"parts[{place}]", f"the offset must be from 0 to {_LAST_OFFSET}")
    return chunk


@route(LogPage, query=LogQuery, refuses=(404, 422))
async def read(app: App, request: Request, caller: Caller, *, query: LogQuery) -> Response:
    """GET /v1/namespaces/:ns/invocations/:id/logs?attempt&claim&offset&stream&wait_s

    {attempt, claim, attempts, state, end, offset, parts: [{stream, offset, position, at, bytes}]}: what follows the
    position `offset`, and the one to go on with. Without `attempt` it is the latest. `wait_s`: up to so long until
    there is something. `end`: no more will come.
    """
    id_ = check_invocation_id(request.params["id"])
    position, wanted, claim = query.get("offset", 0), query.get("attempt", 0), query.get("claim", 0)
    stream = query.get("stream")
    until = trio.current_time() + query.get("wait_s", 0.0)
    while True:
        seq, state, running, attempt = _owner(app, caller.ns, id_)
        with app.printed.bell(seq) as rung:  # before it is read: what comes meanwhile is not missed
            logs, log, parts, is_all = await trio.to_thread.run_sync(
                partial(_page, _logs(app), seq, wanted, claim, position, running if state == "running" else 0)
            )
            following = parts[-1].position + len(parts[-1].data) if parts else position
            shown = [part for part in parts if stream in (None, part.stream)]
            ended = is_all and not (state == "running" and (log is None or log.claim == running))
            waits_for_a_first = log is None and state in ("queued", "delayed", "running")
            if shown or (ended and not waits_for_a_first) or trio.current_time() >= until:
                break
            if parts:
                position = following
                continue
            with trio.move_on_at(min(until, trio.current_time() + _LOOK_S)):
                await rung.wait()
        app.gate.caller(request, caller.ns)  # a token may have been revoked while it waited
    told: dict[str, Any] = {
        "attempt": log.attempt if log is not None else wanted or max(attempt, 1),
        "claim": None if log is None else log.claim,
        "attempts": list(dict.fromkeys(found.attempt for found in logs)),
        "state": state,
        "end": ended and not waits_for_a_first,
        "offset": following,
        "parts": [
            {
                "stream": part.stream,
                "offset": part.offset,
                "position": part.position,
                "at": part.at,
                "bytes": part.data,
            }
            for part in shown
        ],
    }
    return answer(request, told)


def _page(
    logs: Logs, seq: int, attempt: int, claim: int, position: int, running: int
) -> tuple[list[Log], Log | None, list[Part], bool]:
    found = logs.of(seq)
    fitting = [log for log in found if attempt in (0, log.attempt) and claim in (0, log.claim)]
    if running and not attempt and not claim and (not fitting or fitting[-1].claim != running):
        return found, None, [], True  # the latest attempt has printed nothing yet
    log = fitting[-1] if fitting else None
    return found, log, *(([], True) if log is None else logs.read(seq, log, position, most=PAGE_BYTES))


def _owner(app: App, ns: str, id_: str) -> tuple[int, str, int, int]:
    found = app.dispatcher.rows(SQL.log_owner, {"ns": ns, "id": id_})
    if not found:
        raise UnknownInvocation(f"no invocation {id_} in namespace {ns!r}")
    seq, state, claim, attempt = found[0]
    return seq, state, claim, attempt


def _logs(app: App) -> Logs:
    logs = app.dispatcher.plane.logs
    assert logs is not None, "a server's plane has files"
    return logs


def _number(query: dict[str, str], name: str, default: int | None) -> int:
    text = query.get(name)
    if text is None and default is not None:
        return default
    try:
        value = int(text or "")
    except ValueError:
        value = -1
    if not 0 <= value <= _BIG:
        raise HttpError(422, f"{name}: must be a whole number of 0 or more", field=name)
    return value
