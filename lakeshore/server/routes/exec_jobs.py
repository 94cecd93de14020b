"""Commands on workers, as people run and follow them.

Reference: nymph/daemon-lifecycle, "Run something on a daemon"; get-started/payloads; S-263…S-265, S-320…S-334.
"""

from __future__ import annotations

import base64
import functools
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import Annotated, Any, Final, NotRequired, TypedDict

import trio

from ...plane.logs import STREAMS
from ..app import App
from ..auth import Caller
from ..execs.asked import ExecAsked, read
from ..execs.choosing import choose, pinned
from ..execs.job import CANCELLED, FAILED, STATES, ExecRow, NewExec
from ..http import ClientGone, HttpError, Request, Response, StreamResponse
from ..render import answer, iso
from ..shapes import Time, one_of, waiting, whole
from ..structure import bad_field, read_map
from .answers import RAW
from .stated import route

_LIMIT: Final = 50
_MOST: Final = 200
_BIG: Final = 2**53
_LONGEST_WAIT_S: Final = 25.0
_BYTES: Final = (("content-type", "application/octet-stream"), ("cache-control", "no-store"))


class ExecWait(TypedDict, total=False):
    """How long to wait for its end."""

    wait_s: Annotated[float, waiting(_LONGEST_WAIT_S)]


class ExecPage(TypedDict, total=False):
    """Which commands; `state` may name several, by commas or by saying it again."""

    worker: str
    queue: str
    state: list[Annotated[str, one_of(*STATES)]]
    limit: Annotated[int, whole(1, _MOST)]
    offset: Annotated[int, whole(0, _BIG)]


class ExecStreamFrom(TypedDict, total=False):
    """From which byte on, and of which stream: `all` is both as they came."""

    offset: Annotated[int, whole(0, _BIG)]
    stream: Annotated[str, one_of(*STREAMS, "all")]


class ExecLogFrom(ExecWait, total=False):
    """From which position on."""

    offset: Annotated[int, whole(0, _BIG)]
    stream: Annotated[str, one_of(*STREAMS)]


class ExecAccepted(TypedDict):
    """Who runs it."""

    exec_id: str
    worker_id: str


class ExecRowShown(TypedDict):
    """A command as lists show it, without output."""

    exec_id: str
    worker_id: str
    queue: str | None
    command: str
    workdir: str | None
    timeout_s: float | None
    log: bool
    status: str
    cancelling: bool
    exit_code: int | None
    duration_ms: float | None
    error: str | None
    created_at: Time
    started_at: Time | None
    finished_at: Time | None


class ExecShown(ExecRowShown):
    """A command; with its output once it has ended."""

    stdout_b64: str | None
    stderr_b64: str | None
    stdout_bytes: NotRequired[int]
    stderr_bytes: NotRequired[int]
    result_inline: NotRequired[str | None]
    result_ref: NotRequired[dict[str, Any] | None]


class ExecList(TypedDict):
    """Newest first."""

    execs: list[ExecRowShown]
    limit: int
    offset: int
    count: int


class ExecLogPage(TypedDict):
    """What follows a position, and the position to go on with; `end`: no more will come."""

    exec_id: str
    status: str
    end: bool
    offset: int
    parts: list[dict[str, Any]]


# --- submit and cancel


@route({200: ExecShown, 202: ExecAccepted}, body=ExecAsked, query=ExecWait, refuses=(404, 409, 413, 422, 429))
async def submit(app: App, request: Request, caller: Caller, *, query: ExecWait) -> Response:
    """POST /v1/namespaces/:ns/exec {command, env?, stdin?, workdir?, timeout_s?, log?, queue? | worker_id?, payload…?}

    202 {exec_id, worker_id}. A member of the queue (default: `default`) that is alive is picked, the least busy one.
    With `?wait_s=` (25 s at most) it is 200 and how it ended, where it ends within that time.
    """
    return await _submit(app, request, caller, None, query.get("wait_s", 0.0))


@route({200: ExecShown, 202: ExecAccepted}, body=ExecAsked, query=ExecWait, refuses=(404, 409, 413, 422, 429))
async def submit_to(app: App, request: Request, caller: Caller, *, query: ExecWait) -> Response:
    """POST /v1/namespaces/:ns/workers/:id/exec: the same for one worker."""
    return await _submit(app, request, caller, request.params["id"], query.get("wait_s", 0.0))


async def _submit(app: App, request: Request, caller: Caller, worker: str | None, wait_s: float) -> Response:
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
        await wait(app, request, caller, id_, wait_s, lambda: app.execs.get(caller.ns, id_) is None)
        row = app.execs.show(caller.ns, id_)
        if row is not None and row.ended:
            return answer(request, envelope(app, row))
    return answer(request, {"exec_id": id_, "worker_id": chosen}, status=202)


@route({200: ExecShown, 202: ExecShown}, refuses=(404, 409))
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


@route(ExecList, query=ExecPage)
async def listing(app: App, request: Request, caller: Caller, *, query: ExecPage) -> Response:
    """GET /v1/namespaces/:ns/exec?worker&queue&state&limit&offset: newest first, without output."""
    states = query.get("state", [])
    limit, offset = query.get("limit", _LIMIT), query.get("offset", 0)
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


@route(ExecShown, query=ExecWait, refuses=(404,))
async def show(app: App, request: Request, caller: Caller, *, query: ExecWait) -> Response:
    """GET /v1/namespaces/:ns/exec/:id?wait_s=: how it is; with `wait_s`, up to so long (25 s) until it has ended."""
    wait_s = query.get("wait_s", 0.0)
    id_ = request.params["id"]
    if wait_s > 0:
        await wait(app, request, caller, id_, wait_s, lambda: app.execs.get(caller.ns, id_) is None)
    return answer(request, envelope(app, _row(app, caller.ns, request)))


async def wait(
    app: App, request: Request, caller: Caller, id_: str, wait_s: float, is_over: Callable[[], bool]
) -> None:
    """Until that is so, or so long. Who waits is woken by whatever comes of the command: its result, its end."""
    if is_over():
        return
    until = trio.current_time() + wait_s
    app.execs.waiters.on(id_, request.wake)
    try:
        while not is_over() and await request.park(until - trio.current_time()) == "woken":
            pass
    finally:
        app.execs.waiters.off(id_, request.wake)
    app.gate.caller(request, caller.ns)  # a token may have been revoked while it waited


def envelope(app: App, row: ExecRow) -> dict[str, Any]:
    """One with its output, as a client is told of it (S-331)."""
    told: dict[str, Any] = {**summary(row)}
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


def summary(row: ExecRow) -> ExecRowShown:
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


@route(ExecLogPage, query=ExecLogFrom, refuses=(404,))
async def log(app: App, request: Request, caller: Caller, *, query: ExecLogFrom) -> Response:
    """GET /v1/namespaces/:ns/exec/:id/log?offset&stream&wait_s

    {status, end, offset, parts: [{stream, offset, position, at, bytes}]}: what is kept from the position `offset` on,
    a page of it, and where to go on. A part beyond the position asked for says that the bytes between are not kept.
    `wait_s`: up to so long until there is something. `end`: no more will come.
    """
    position, stream = query.get("offset", 0), query.get("stream")
    until = trio.current_time() + query.get("wait_s", 0.0)
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


@route(RAW, query=ExecStreamFrom, refuses=(404,))
async def log_stream(app: App, request: Request, caller: Caller, *, query: ExecStreamFrom) -> StreamResponse:
    """GET /v1/namespaces/:ns/exec/:id/log/stream?offset&stream: raw bytes as they come, until it has ended.

    `stream` is stdout (the default), stderr, or all: both, in the order in which they came. `offset` counts its bytes.
    `X-LS-Offset` says where the first byte is: further on than was asked for where the bytes between are not kept.
    Where some are missing later, it ends before them: ask again from there, as after a line that broke.
    """
    offset, named = query.get("offset", 0), query.get("stream", "stdout")
    stream = None if named == "all" else named
    reader = _Reader(app, caller.ns, request.params["id"], stream, offset)
    await reader.begin(_row(app, caller.ns, request))
    may = functools.partial(app.gate.caller, request, caller.ns)
    return StreamResponse(headers=(*_BYTES, ("x-ls-offset", str(reader.offset))), chunks=reader.pieces(may))


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
