"""What daemons tell of commands that they run: output while it comes, and how it ended.

An id in a URL is no credential: who calls speaks for the worker that has the command, as at every other daemon route.
Reference: nymph/protocol, "exec"; S-324, S-461…S-464, S-755, S-783.
"""

from __future__ import annotations

import base64
import errno
import time
from dataclasses import dataclass
from typing import Annotated, Any, Final, TypedDict

import trio

from ...plane.contract import PlaneError, PlaneFull
from ...plane.logs import STREAMS
from ...wire.messages import MSGPACK
from ..app import App
from ..auth import Caller
from ..execs.asked import PayloadNamed
from ..execs.job import ExecRow, Open, Result, state_of
from ..execs.output import CAPTURED_BYTES
from ..http import HttpError, Request, Response
from ..refusals import as_result
from ..render import answer
from ..shapes import one_of, whole
from ..structure import bad_field, read_map, structure
from .answers import RAW, ExecChunkStored, ExecResultsStored, ExecResultStored
from .daemon import check_binding
from .exec_results import kept
from .stated import route

CHUNK_BYTES: Final = 4 * 1024 * 1024
_LAST_OFFSET: Final = 2**51
_LONGEST_ERROR: Final = 2000
_MOST_RESULTS: Final = 256
_MOST_CODE: Final = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecEnded:
    """How a command ended, and the end of what it printed."""

    exit_code: int
    stdout: bytes = b""
    stderr: bytes = b""
    duration_ms: float | None = None
    error: str | None = None
    result_inline: bytes | None = None
    result_ref: PayloadNamed | None = None


class ExecEnds(TypedDict):
    """Each as for one, with its `exec_id`."""

    results: list[dict[str, Any]]


class ExecChunkAt(TypedDict, total=False):
    """Where the bytes belong."""

    offset: Annotated[int, whole(0, _LAST_OFFSET)]
    stream: Annotated[str, one_of(*STREAMS)]


@route(ExecResultStored, body=(ExecEnded,), refuses=(403, 404, 409, 413, 422))
async def result(app: App, request: Request, caller: Caller) -> Response:
    """POST /v1/daemon/exec/:id/result {exit_code, stdout, stderr, duration_ms, error?, result_inline?, result_ref?}

    JSON (bytes in base64) or msgpack. {ok, status}; `ignored: true` when it had ended before: that stays.
    """
    return await _result(app, request, caller, None)


@route(ExecResultStored, body=(ExecEnded,), refuses=(403, 404, 409, 413, 422))
async def result_of(app: App, request: Request, caller: Caller) -> Response:
    """POST /v1/namespaces/:ns/workers/:worker/exec/:id/result: the same, under the worker's name."""
    return await _result(app, request, caller, request.params["worker"])


@route(ExecResultsStored, body=(ExecEnds,), read=False, refuses=(422,))
async def results(app: App, request: Request, caller: Caller) -> Response:
    """POST /v1/daemon/exec/results {results: [{exec_id, …as for one…}]}: several in one commit, an addition.

    {results: [{exec_id, ok, status, …}]} in the same order; one that is refused has `refused: {status, error, …}`
    (status of HTTP) instead, and touches no other.
    """
    body, encoding = await read_map(request)
    items = body.get("results")
    if type(items) is not list or len(items) > _MOST_RESULTS:
        raise bad_field("results", f"must be an array of at most {_MOST_RESULTS}")
    told: list[dict[str, Any]] = []
    ends: list[tuple[Open, Result]] = []
    open_at: list[int] = []
    for item in items:
        id_ = item.pop("exec_id", None) if type(item) is dict else None
        try:
            if type(id_) is not str:
                raise bad_field("exec_id", "must be a string")
            job, row = _found(app, caller, id_, None)
            ended = await _checked(app, caller, _read(item, encoding))
        except HttpError as error:
            told.append({"exec_id": id_, "refused": as_result(error)})
            continue
        if job is not None:
            open_at.append(len(told))
            ends.append((job, ended))
        told.append({"exec_id": id_, **_answered(app, caller, id_, ended, row, done=False)} if job is None else {})
    done = await app.execs.finish_many(ends) if ends else []
    for at, (job, ended), was_open in zip(open_at, ends, done, strict=True):
        told[at] = {"exec_id": job.id, **_answered(app, caller, job.id, ended, None, done=was_open)}
    return answer(request, {"results": told})


async def _result(app: App, request: Request, caller: Caller, worker: str | None) -> Response:
    id_ = request.params["id"]
    job, row = _found(app, caller, id_, worker)
    body, encoding = await read_map(request)
    ended = await _checked(app, caller, _read(body, encoding))
    done = job is not None and await app.execs.finish(job, ended)
    return answer(request, _answered(app, caller, id_, ended, row, done=done))


def _answered(app: App, caller: Caller, id_: str, ended: Result, row: ExecRow | None, *, done: bool) -> dict[str, Any]:
    if done:
        return {"ok": True, "status": state_of(ended.exit_code)}
    row = row or app.execs.show(caller.ns, id_)
    assert row is not None, "what has just ended is kept for days"
    return {"ok": True, "status": row.state, "ignored": True, "duplicate": row.exit_code == ended.exit_code}


def _read(body: dict[str, Any], encoding: str) -> ExecEnded:
    for name in ("stdout", "stderr", "result_inline"):
        if type(body.get(name)) is list:  # how a peer that knows no byte strings writes them
            octets = _octets(body[name], name)
            body[name] = octets if encoding == MSGPACK else base64.b64encode(octets).decode()
    return structure(body, ExecEnded, encoding)


async def _checked(app: App, caller: Caller, told: ExecEnded) -> Result:
    if not -2 <= told.exit_code <= _MOST_CODE:
        raise bad_field("exit_code", "must be the exit code, -1 (not run, or cancelled) or -2 (timed out)")
    if told.result_inline is not None and told.result_ref is not None:
        raise bad_field("result_ref", "result_inline and result_ref exclude each other")
    ref = await kept(app, caller.ns, told.result_inline, told.result_ref, "result_inline", "result_ref")
    cut = [name for name in STREAMS if len(getattr(told, name)) > CAPTURED_BYTES]
    error = told.error if told.error or not cut else "; ".join(f"{name} truncated" for name in cut)
    return Result(
        exit_code=told.exit_code,
        stdout=told.stdout[:CAPTURED_BYTES],
        stderr=told.stderr[:CAPTURED_BYTES],
        duration_ms=None if told.duration_ms is None else max(0, round(told.duration_ms)),
        error=None if not error else error[:_LONGEST_ERROR],
        result_inline=told.result_inline,
        result_ref=ref,
    )


@route(ExecChunkStored, body=RAW, query=ExecChunkAt, refuses=(403, 404, 409, 413, 422))
async def chunk(app: App, request: Request, caller: Caller, *, query: ExecChunkAt) -> Response:
    """POST /v1/daemon/exec/:id/chunk?offset&stream: raw bytes of a stream (stdout), from `offset` of it on.

    Without `offset` they follow on what came. What is stored of them already is skipped; an offset beyond the end says
    that bytes between were given up. {ok, offset}: where the stream ends now. 409 once the command has ended.
    """
    id_ = request.params["id"]
    job, _row = _found(app, caller, id_, None)
    stream, offset = query.get("stream", "stdout"), query.get("offset")
    data = await request.body(CHUNK_BYTES)
    if job is None or app.execs.get(caller.ns, id_) is None:
        raise HttpError(409, f"exec {id_} has ended", hint="it prints no more: what comes now is not kept")
    app.dispatcher.reserve.check(trio.current_time())
    try:
        end = app.execs.output.append(job.seq, stream, offset, data, time.time())
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        message = f"what exec {id_} printed could not be kept: {error.strerror}"
        raise (PlaneFull if full else PlaneError)(message) from error
    return answer(request, {"ok": True, "offset": end})


def _found(app: App, caller: Caller, id_: str, worker: str | None) -> tuple[Open | None, ExecRow | None]:
    """It, while it is open; else its row. HttpError 404, 403."""
    job = app.execs.get(caller.ns, id_)
    row = None if job is not None else app.execs.show(caller.ns, id_)
    owner = job.worker if job is not None else None if row is None else row.worker
    if owner is None or worker not in (None, owner):
        raise HttpError(404, f"no exec {id_!r:.80} in namespace {caller.ns!r}", field="exec_id")
    check_binding(caller, owner)
    return job, row


def _octets(values: list[Any], name: str) -> bytes:
    try:
        return bytes(values)
    except (TypeError, ValueError):
        raise bad_field(name, "must be bytes") from None
