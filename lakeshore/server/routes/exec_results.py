"""What a command on a worker gave back, apart from how it ended and what it printed: published, and waited for.

A result is bytes, or a reference to what was uploaded, and the first one stays. It may be published before the command
ends, by whatever runs in it, or come with its end (`exec_callbacks.py`). Invocations have results of their own.
Reference: get-started/payloads, "Flow 4"; S-267…S-269, S-788, S-801.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, NotRequired, TypedDict

import trio

from ...plane.contract import BlobRef
from ...wire.messages import INLINE_THRESHOLD_BYTES
from ..app import App
from ..auth import Caller
from ..execs.asked import PayloadNamed
from ..execs.job import ExecRow, Result
from ..http import HttpError, Request, Response
from ..payload_io import Outgoing
from ..render import answer
from ..shapes import waiting
from ..structure import bad_field, read_map, structure
from .daemon import check_binding
from .exec_jobs import wait
from .stated import route

_LONGEST_WAIT_S: Final = 25.0
_SPELLINGS: Final = (("resultInline", "result_inline"), ("resultRef", "result_ref"))


@dataclass(frozen=True, slots=True, kw_only=True)
class JobResult:
    """One of the two. `result_inline` up to 256 KiB."""

    result_inline: bytes | None = field(default=None, repr=False)
    result_ref: PayloadNamed | None = None


class JobResultStored(TypedDict):
    """How the command stands; `ignored` where a result was there already."""

    ok: bool
    status: str
    ignored: NotRequired[bool]


class JobResultWait(TypedDict, total=False):
    """How many seconds to wait for it."""

    wait: Annotated[float, waiting(_LONGEST_WAIT_S)]


class JobResultShown(TypedDict):
    """`resultInline` in base64, or `resultRef` with a URL for a while; both null where there is none (yet)."""

    job_id: str
    status: str
    exit_code: int | None
    error: str | None
    resultInline: str | None
    resultRef: dict[str, Any] | None


@route(JobResultStored, body=(JobResult,), refuses=(403, 404, 413, 422))
async def publish(app: App, request: Request, caller: Caller) -> Response:
    """POST /v1/namespaces/:ns/jobs/:id/result {resultInline | resultRef}: what the command :id gave back.

    The first one stays: a later one is `ignored`. How the command ends is told as ever.
    """
    id_ = request.params["id"]
    row = _row(app, caller.ns, id_)
    check_binding(caller, row.worker)
    told = await _read(app, request, caller.ns)
    app.dispatcher.reserve.check(trio.current_time())
    stored = await app.execs.publish(row, told)
    row = app.execs.show(caller.ns, id_) or row
    return answer(request, {"ok": True, "status": row.state, **({} if stored else {"ignored": True})})


@route(JobResultShown, query=JobResultWait, refuses=(404,))
async def result(app: App, request: Request, caller: Caller, *, query: JobResultWait) -> Response:
    """GET /v1/namespaces/:ns/jobs/:id/result?wait=: what it gave back, if it has; with `wait`, up to so many seconds
    (25) until it has, or the command has ended without.
    """
    id_, wait_s = request.params["id"], query.get("wait", 0.0)
    if wait_s > 0:
        await wait(app, request, caller, id_, wait_s, lambda: _is_there(_row(app, caller.ns, id_)))
    return answer(request, _shown(app, _row(app, caller.ns, id_)))


def _is_there(row: ExecRow) -> bool:
    return row.ended or row.result_inline is not None or row.result_ref is not None


def _shown(app: App, row: ExecRow) -> JobResultShown:
    inline, ref = row.result_inline, row.result_ref
    return {
        "job_id": row.id,
        "status": row.state,
        "exit_code": row.exit_code,
        "error": row.error,
        "resultInline": None if inline is None else base64.b64encode(inline).decode(),
        "resultRef": None if ref is None else Outgoing(app).reference(BlobRef(**ref)),
    }


async def _read(app: App, request: Request, ns: str) -> Result:
    body, encoding = await read_map(request)
    for documented, name in _SPELLINGS:
        if body.get(name) is None:
            body[name] = body.get(documented)
    told = structure(body, JobResult, encoding)
    inline, ref = told.result_inline, told.result_ref
    if (inline is None) == (ref is None):
        raise bad_field("resultInline", "send the result as resultInline, or as resultRef")
    return Result(
        exit_code=0, result_inline=inline, result_ref=await kept(app, ns, inline, ref, "resultInline", "resultRef")
    )


async def kept(
    app: App, ns: str, inline: bytes | None, ref: PayloadNamed | None, inline_name: str, ref_name: str
) -> BlobRef | None:
    """The upload that is referred to, if one is; the names are those of the fields. HttpError for one that is not
    there, and 413 for bytes that should have been uploaded.
    """
    if inline is not None and len(inline) > INLINE_THRESHOLD_BYTES:
        raise bad_field(inline_name, "is over 256 KiB", hint=f"upload it and send {ref_name}", status=413)
    return None if ref is None else await app.blobs.check(ns, ref.key, ref.size, ref.sha256, ref_name)


def _row(app: App, ns: str, id_: str) -> ExecRow:
    row = app.execs.show(ns, id_)
    if row is None:
        raise HttpError(
            404,
            f"no command {id_!r:.80} in namespace {ns!r}",
            field="id",
            hint="the result of a call comes with its row: GET …/invocations/:id, or /v1/producer/await",
        )
    return row
