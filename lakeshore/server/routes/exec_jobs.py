"""Commands on workers, as people run and follow them.

Reference: nymph/daemon-lifecycle, "Run something on a daemon"; get-started/payloads; S-263…S-265, S-320…S-334.
"""

from __future__ import annotations

import base64
import functools
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any, Final

import trio

from ...plane.logs import STREAMS
from ..app import App
from ..auth import Caller
from ..execs.asked import read
from ..execs.choosing import choose, pinned
from ..execs.job import CANCELLED, FAILED, STATES, ExecRow, NewExec
from ..http import ClientGone, HttpError, Request, Response, StreamResponse
from ..render import answer, iso
from ..structure import bad_field, read_map
from .queries import number, seconds

_LIMIT: Final = 50
_MOST: Final = 200
_BIG: Final = 2**53
_LONGEST_WAIT_S: Final = 25.0
_RAW: Final = (("content-type", "application/octet-stream"), ("cache-control", "no-store"))


# --- submit and cancel


async def submit(app: App, request: Request, caller: Caller) -> Response:
    """POST /v1/namespaces/:ns/exec {command, env?, stdin?, workdir?, timeout_s?, log?, queue? | worker_id?, payload…?}

    202 {exec_id, worker_id}. A member of the queue (default: `default`) that is alive is picked, the least busy one.
    With `?wait_s=` (25 s at most) it is 200 and how it ended, where it ends within that time.
    """
    return await _submit(app, request, caller, None)


async def submit_to(app: App, request: Request, caller: Caller) -> Response:
    """POST /v1/namespaces/:ns/workers/:id/exec: the same for one worker."""
    return await _submit(app, request, caller, request.params["id"])


async def _submit(app: App, request: Request, caller: Caller, worker: str | None) -> Response:
    wait_s = seconds(request.query, "wait_s", _LONGEST_WAIT_S)
    body, encoding = await read_map(request)
    asked = read(body, encoding)
    if worker is not None and asked.worker_id not in (None, worker):
        raise bad_field("worker_id", "is not the worker of the path")
    worker = worker or asked.worker_id
    if worker is not None and asked.queue is not None:
        raise bad_field("queue", "worker_id and queue exclude each other")
    ref = None
    if asked.payload_ref is not None:
        named = asked.payload_ref
        ref = await app.blobs.check(caller.ns, named.key, named.size, named.sha256, "payloadRef")
    app.dispatcher.reserve.check(trio.current_time())
    chosen, queue = choose(app, caller.ns, asked.queue) if worker is None else (pinned(app, caller.ns, worker), None)
    if caller.sibling:
        await app.records.audit(caller.name, caller.ns, "exec.submit", chosen)
    new = NewExec(
        ns=caller.ns,
        worker=chosen,
        queue=queue,
        command=asked.command,
        env=asked.env,
        stdin=asked.stdin or b"",
        workdir=asked.workdir,
        timeout_s=asked.timeout_s,
        log=asked.log,
        payload_inline=asked.payload_inline,
        payload_ref=ref,
    )
    id_ = await app.execs.submit(new)
    if wait_s > 0:
        await _wait(app, request, caller, id_, wait_s)
        row = app.execs.show(caller.ns, id_)
        if row is not None and row.ended:
            return answer(request, envelope(app, row))
    return answer(request, {"exec_id": id_, "worker_id": chosen}, status=202)


async def cancel(app: App, request: Request, caller: Caller) -> Response:
    """POST /v1/namespaces/:ns/exec/:id/cancel: 200 when that ended it, 202 when its daemon has yet to stop it."""
    job = app.execs.get(caller.ns, request.params["id"])
    if job is not None:
        await app.execs.cancel(job)
    row = _row(app, caller.ns, request)
    if row.ended and not (row.exit_code == FAILED and row.error == CANCELLED):
        raise HttpError(409, f"exec {row.id} has ended already", hint=f"it is {row.state}", state=row.state)
    return answer(request, envelope(app, row), status=200 if row.ended else 202)


# --- read


async def listing(app: App, request: Request, caller: Caller) -> Response:
    """GET /v1/namespaces/:ns/exec?worker&queue&state&limit&offset: newest first, without output."""
    query = request.query
    states = [part for value in request.query_values("state") for part in value.split(",") if part]
    for state in states:
        if state not in STATES:
            raise bad_field("state", f"{state!r:.40} is no state: use {', '.join(STATES)}")
    limit = number(query, "limit", _LIMIT, 1, _MOST)
    offset = number(query, "offset", 0, 0, _BIG)
    rows = app.execs.store.listing(
        caller.ns,
        worker=query.get("worker") or None,
        queue=query.get("queue") or None,
        states=states,
        limit=limit,
        offset=offset,
    )
    found = [summary(row) for row in rows]
    return answer(request, {"execs": found, "limit": limit, "offset": offset, "count": len(found)})


async def show(app: App, request: Request, caller: Caller) -> Response:
    """GET /v1/namespaces/:ns/exec/:id?wait_s=: how it is; with `wait_s`, up to so long (25 s) until it has ended."""
    wait_s = seconds(request.query, "wait_s", _LONGEST_WAIT_S)
    id_ = request.params["id"]
    if wait_s > 0:
        await _wait(app, request, caller, id_, wait_s)
    return answer(request, envelope(app, _row(app, caller.ns, request)))


async def _wait(app: App, request: Request, caller: Caller, id_: str, wait_s: float) -> None:
    """Until it has ended, or so long."""
    if app.execs.get(caller.ns, id_) is None:
        return
    app.execs.waiters.on(id_, request.wake)
    try:
        await request.park(wait_s)
    finally:
        app.execs.waiters.off(id_, request.wake)
    app.gate.caller(request, caller.ns)  # a token may have been revoked while it waited


def envelope(app: App, row: ExecRow) -> dict[str, Any]:
    """One with its output, as a client is told of it (S-331)."""
    told = summary(row)
    if row.ended:
        out, err, out_bytes, err_bytes = app.execs.output.whole(row)
        told["stdout_b64"], told["stderr_b64"] = base64.b64encode(out).decode(), base64.b64encode(err).decode()
        cut = [name for name, data, n in (("stdout", out, out_bytes), ("stderr", err, err_bytes)) if len(data) < n]
        if cut and told["error"] is None:
            told["error"] = "; ".join(f"{name} truncated" for name in cut)
        told["stdout_bytes"], told["stderr_bytes"] = out_bytes, err_bytes
        told["result_inline"] = None if row.result_inline is None else base64.b64encode(row.result_inline).decode()
        told["result_ref"] = row.result_ref
    else:
        told["stdout_b64"] = told["stderr_b64"] = None
    return told


def bodies(app: App, ns: str, ids: Iterable[str]) -> dict[str, Mapping[str, object]]:
    """The rows of these that there are, without output, by id."""
    found = ((id_, app.execs.show(ns, id_)) for id_ in ids)
    return {id_: summary(row) for id_, row in found if row is not None}


def summary(row: ExecRow) -> dict[str, Any]:
    """One without its output, as lists show it."""
    return {
        "exec_id": row.id,
        "worker_id": row.worker,
        "queue": row.queue,
        "command": row.command,
        "workdir": row.workdir,
        "timeout_s": row.timeout_s,
        "log": row.log,
        "status": row.state,
        "cancelling": row.cancelled_at is not None and not row.ended,
        "exit_code": row.exit_code,
        "duration_ms": row.duration_ms,
        "error": row.error,
        "created_at": iso(row.created_at),
        "started_at": iso(row.started_at),
        "finished_at": iso(row.finished_at),
    }


def _row(app: App, ns: str, request: Request) -> ExecRow:
    row = app.execs.show(ns, request.params["id"])
    if row is None:
        raise HttpError(
            404,
            f"no exec {request.params['id']!r:.80} in namespace {ns!r}",
            field="exec_id",
            hint="what ended is kept for 7 days; GET …/exec lists what there is",
        )
    return row


# --- output


async def log(app: App, request: Request, caller: Caller) -> Response:
    """GET /v1/namespaces/:ns/exec/:id/log?offset&stream&wait_s

    {status, end, offset, parts: [{stream, offset, position, at, bytes}]}: what is kept from the position `offset` on,
    a page of it, and where to go on. A part beyond the position asked for says that the bytes between are not kept.
    `wait_s`: up to so long until there is something. `end`: no more will come.
    """
    query = request.query
    position = number(query, "offset", 0, 0, _BIG)
    stream = _stream(query)
    until = trio.current_time() + seconds(query, "wait_s", _LONGEST_WAIT_S)
    while True:
        row = _row(app, caller.ns, request)
        with app.execs.output.bell(row.seq) as rung:  # before it is read: what comes meanwhile is not missed
            parts, is_all = await trio.to_thread.run_sync(app.execs.output.page, row, position)
            following = max([position, *(part.position + len(part.data) for part in parts)])
            shown = [part for part in parts if stream in (None, part.stream)]
            end = is_all and row.ended
            if shown or end or trio.current_time() >= until or app.execs.output.broken:
                break
            position = following
            if is_all:
                with trio.move_on_at(until):
                    await rung.wait()
        app.gate.caller(request, caller.ns)  # a token may have been revoked while it waited
    told = {
        "exec_id": row.id,
        "status": row.state,
        "end": end,
        "offset": following,
        "parts": [
            {"stream": p.stream, "offset": p.offset, "position": p.position, "at": p.at, "bytes": p.data} for p in shown
        ],
    }
    return answer(request, told)


async def log_stream(app: App, request: Request, caller: Caller) -> StreamResponse:
    """GET /v1/namespaces/:ns/exec/:id/log/stream?offset&stream: raw bytes as they come, until it has ended.

    `stream` is stdout (the default), stderr, or all: both, in the order in which they came. `offset` counts its bytes.
    `X-LS-Offset` says where the first byte is: further on than was asked for where the bytes between are not kept.
    Where some are missing later, it ends before them: ask again from there, as after a line that broke.
    """
    query = request.query
    offset = number(query, "offset", 0, 0, _BIG)
    stream = None if query.get("stream") == "all" else _stream(query) or "stdout"
    reader = _Reader(app, caller.ns, request.params["id"], stream, offset)
    await reader.begin(_row(app, caller.ns, request))
    may = functools.partial(app.gate.caller, request, caller.ns)
    return StreamResponse(headers=(*_RAW, ("x-ls-offset", str(reader.offset))), chunks=reader.pieces(may))


class _Reader:
    """One reader of raw output: `offset` is where its next byte is, in what it reads."""

    def __init__(self, app: App, ns: str, id_: str, stream: str | None, offset: int) -> None:
        self._output = app.execs.output
        self._show = functools.partial(app.execs.show, ns, id_)
        self._stream = stream
        self._position = self._next = offset if stream is None else 0
        self.offset = offset

    async def begin(self, row: ExecRow) -> None:
        """Skip what is not kept."""
        found: list[tuple[int, bytes]] = []
        is_all = False
        while not found and not is_all:
            self._position = self._next
            found, is_all = await self._page(row)
        if found:
            self.offset = max(self.offset, found[0][0])

    async def pieces(self, may: Any) -> AsyncIterator[bytes]:
        """What there is, then what comes, until the end. ClientGone where it breaks off without an end."""
        while True:
            row = self._show()
            if row is None:
                return
            with self._output.bell(row.seq) as rung:
                found, is_all = await self._page(row)
                for at, data in found:
                    if at > self.offset:
                        return
                    yield data[self.offset - at :]
                    self.offset = at + len(data)
                self._position = self._next
                if self._output.broken:
                    raise ClientGone
                if is_all and not found:
                    if row.ended:
                        return
                    await rung.wait()
            try:
                may()
            except HttpError:
                raise ClientGone from None  # its token was revoked meanwhile

    async def _page(self, row: ExecRow) -> tuple[list[tuple[int, bytes]], bool]:
        parts, is_all = await trio.to_thread.run_sync(self._output.page, row, self._position)
        self._next = max([self._position, *(part.position + len(part.data) for part in parts)])
        found = []
        for part in parts:
            at = part.position if self._stream is None else part.offset
            if self._stream in (None, part.stream) and at + len(part.data) > self.offset:
                found.append((at, part.data))
        return found, is_all


def _stream(query: dict[str, str]) -> str | None:
    stream = query.get("stream")
    if stream is not None and stream not in STREAMS:
        raise bad_field("stream", f"must be {' or '.join(STREAMS)}")
    return stream
