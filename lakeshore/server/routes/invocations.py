"""Invocations as operators see them. Reference: get-started/jobs; S-335…S-348, S-074."""

from __future__ import annotations

import functools
import hashlib
import time
from typing import Annotated, Any, Final, NotRequired, TypedDict

import trio

from ...plane import rows
from ...plane.contract import DELAYED, STATES, TERMINAL, UnknownInvocation
from ...plane.retention import Filter
from ...plane.statements import SQL
from ...wire.names import check_invocation_id
from .. import forgetting
from ..app import App
from ..auth import Caller
from ..http import HttpError, Request, Response
from ..render import answer, iso
from ..shapes import INVOCATION, QUEUE, Time, between, closed_shape, length, one_of, whole
from ..structure import bad_field
from ..waiting import Alike, Why, why
from .queries import STATE
from .stated import route

_LIMIT: Final = 50
_LONGEST_NONCE: Final = 200
_MOST: Final = 200
_PRUNE_S: Final = 5.0


class InvocationPage(TypedDict, total=False):
    """Which calls; `before` is an earlier answer's `next`. `idPrefix` is how an id begins, beside `limit` alone."""

    state: list[Annotated[str, STATE]]
    worker: str
    queue: str
    limit: Annotated[int, whole(1, _MOST)]
    offset: Annotated[int, whole(0, 2**53)]
    before: Annotated[int, whole(0, 2**53)]
    idPrefix: Annotated[str, INVOCATION]


class InvocationShown(TypedDict):
    """A call; a queued one says why it waits."""

    id: str
    namespace: str
    state: str
    cancelling: NotRequired[bool]
    why: NotRequired[str]
    waits: NotRequired[dict[str, Any]]
    workerId: str | None
    worker: str | None
    queueName: str
    queue: str
    functionId: str
    functionQualname: str | None
    function: dict[str, Any] | None
    priority: float
    key: str | None
    claim: int
    attempt: int
    maxAttempts: int
    runConfig: dict[str, Any]
    codeContext: dict[str, Any]
    codeRepoId: str | None
    progress: Any
    error: Any
    submittedAt: Time
    due: Time | None
    claimedAt: Time | None
    startedAt: Time | None
    finishedAt: Time | None
    parentInvocationId: str | None
    rootInvocationId: str | None
    correlationId: str | None
    argsBytes: NotRequired[int | None]
    resultBytes: NotRequired[int | None]
    frames: NotRequired[int]
    leaseLeftS: NotRequired[float]


class InvocationList(TypedDict):
    """Newest first."""

    invocations: list[InvocationShown]
    limit: int
    offset: int
    count: int
    next: NotRequired[int]


class InvocationCancelling(TypedDict):
    """Who was asked to stop."""

    id: str
    state: str
    workerId: str | None


class InvocationRetry(TypedDict):
    """`claim`: only while the row has it. `nonce`: the same one again changes nothing."""

    claim: NotRequired[int]
    nonce: NotRequired[Annotated[str, length(1, _LONGEST_NONCE)]]


@closed_shape
class BulkCancel(TypedDict, total=False):
    """Those of one queue. A slip in its name is refused: it would mean every queue."""

    queue: Annotated[str, QUEUE]


class BulkCancelled(TypedDict):
    """How many were killed."""

    cancelled: int


class Prune(TypedDict):
    """What ended so long ago. "" is nobody's queue, and not every one."""

    olderThanHours: Annotated[float, between(0, 1e9, "a number of hours")]
    states: NotRequired[list[Annotated[str, one_of(*sorted(TERMINAL))]]]
    queue: NotRequired[Annotated[str, length(1, 200)]]
    dryRun: NotRequired[bool]
    cursor: NotRequired[str]


class Pruned(TypedDict):
    """`next` is the cursor of the request that goes on."""

    count: int
    dryRun: bool
    next: str | None


def row_body(app: App, row: dict[str, Any], whys: dict[Alike, Why] | None = None) -> dict[str, Any]:
    """One row as JSON can say it (S-346): times in ISO 8601, bytes absent. A queued one says why it waits."""
    waits = why(app, row, whys)
    function = row["function"] or {}
    named = (str(function.get("module", "")), str(function.get("qualname", "")), str(function.get("version", "")))
    shown = str(function.get("name") or named[1])
    worker = row["worker"]
    known = None if worker is None else app.records.worker(row["ns"], worker)
    cancelling = bool(row["cancel_requested"]) and row["state"] == "running"
    return {
        "id": row["id"],
        "namespace": row["ns"],
        "state": row["state"],
        **({"cancelling": True} if cancelling else {}),
        **({} if waits is None else {"why": waits.says, "waits": waits.as_body()}),
        "workerId": worker,
        "worker": worker if known is None else known.label or worker,
        "queueName": row["queue"],
        "queue": row["queue"],
        "functionId": _function_id(named[0], shown, named[2]),
        "functionQualname": shown or None,
        "function": {name: said for name, said in function.items() if name != "source"} or None,
        "priority": row["priority"],
        "key": row["key"],
        "claim": row["claim"],
        "attempt": row["attempt"],
        "maxAttempts": row["max_attempts"],
        "runConfig": row["run_config"] or {},
        "codeContext": row["code"] or {},
        "codeRepoId": _code_repo(app, row["ns"], row["code"] or {}),
        "progress": None,
        "error": row["error"],
        "submittedAt": iso(row["submitted_at"]),
        "due": iso(row["due"]),
        "claimedAt": iso(row["claimed_at"]),
        "startedAt": iso(row["started_at"]),
        "finishedAt": iso(row["finished_at"]),
        "parentInvocationId": row["parent"],
        "rootInvocationId": row["root"],
        "correlationId": row["root"],
    }


def _code_repo(app: App, ns: str, code: dict[str, Any]) -> str | None:
    """The archive of the commit that a call was made in, once there is one (S-751)."""
    remote, commit = code.get("remote"), code.get("commit")
    if type(remote) is not str or type(commit) is not str:
        return None
    repo = app.records.code_repos.get(ns, remote, commit)
    return None if repo is None else repo.id


def _of_one(app: App, row: dict[str, Any]) -> dict[str, Any]:
    """What a list would be too slow with, or too long: the sizes in bytes (null: there is none), how many frames were
    posted, the source of the function where its producer sent it, and, of one that runs, what its daemon told of it
    last and for how many seconds its worker may still be silent.
    """
    args, result = app.dispatcher.rows(SQL.sizes, {"seq": row["seq"]})[0]
    told = {"argsBytes": args, "resultBytes": result, "frames": row["last_frame"] + 1}
    if row["function"] and "source" in row["function"]:
        told["function"] = row["function"]
    if row["state"] == "running" and row["worker"] is not None:
        told["progress"] = app.workers.progress(row["ns"], row["worker"], row["id"])
    lease = app.dispatcher.leases.holder(row["id"])
    if lease is not None and row["state"] == "running":
        told["leaseLeftS"] = round(max(lease.until - trio.current_time(), 0.0), 1)
    return told


@functools.lru_cache(maxsize=4096)
def _function_id(*named: str) -> str:
    """An id for what names a function, of the shape that ids of documents have."""
    return hashlib.sha256("\0".join(named).encode("utf-8", "replace")).hexdigest()[:24]


@route(InvocationList, query=InvocationPage)
async def listing(app: App, request: Request, caller: Caller, *, query: InvocationPage) -> Response:
    """GET /v1/namespaces/:ns/invocations?state&worker&queue&limit&offset: newest first.

    `?idPrefix=` instead of the others: those whose id begins so.
    """
    states, limit, offset = query.get("state", []), query.get("limit", _LIMIT), query.get("offset", 0)
    before, begins = query.get("before") or None, query.get("idPrefix")
    if begins is not None and (beside := sorted(query.keys() - {"idPrefix", "limit"})):
        raise bad_field("idPrefix", f"stands beside limit alone: leave {', '.join(beside)} out")
    page = await app.pages.run(
        functools.partial(rows.beginning, ns=caller.ns, beginning=begins, limit=limit)
        if begins is not None
        else functools.partial(
            rows.page,
            ns=caller.ns,
            states=states,
            queue=query.get("queue") or None,
            worker=query.get("worker") or None,
            limit=limit,
            offset=offset,
            before=before,
        )
    )
    whys: dict[Alike, Why] = {}
    found = [row_body(app, row, whys) for row in page]
    told: dict[str, Any] = {"invocations": found, "limit": limit, "offset": offset, "count": len(found)}
    if len(page) == limit and begins is None:
        told["next"] = page[-1]["seq"]
    return answer(request, told)


class StateCounts(TypedDict):
    """`delayed` is a part of `queued`."""

    queued: int
    running: int
    succeeded: int
    failed: int
    killed: int
    timeout: int
    delayed: int


class InNamespace(TypedDict, total=False):
    """The namespace, where it is not the caller's."""

    namespace: str


@route(StateCounts)
async def counts(app: App, request: Request, caller: Caller) -> Response:
    """GET /v1/namespaces/:ns/invocations/counts: how many there are of each state; `delayed` is a part of `queued`."""
    told = dict.fromkeys((*STATES, DELAYED), 0)
    for ns, _queue, state, n in app.dispatcher.rows(SQL.tallies, {}):
        if ns == caller.ns:
            told[rows.shown(state)] += n
            if state == DELAYED:
                told[DELAYED] += n
    return answer(request, told)


@route(InvocationShown, refuses=(404, 422))
async def show(app: App, request: Request, caller: Caller) -> Response:
    """GET /v1/namespaces/:ns/invocations/:id: the row, and what is asked of one alone."""
    row = _row(app, caller.ns, request)
    return answer(request, row_body(app, row) | _of_one(app, row))


@route({200: InvocationShown, 202: InvocationCancelling}, refuses=(404, 409, 422))
async def cancel(app: App, request: Request, caller: Caller) -> Response:
    """DELETE /v1/namespaces/:ns/invocations/:id: killed now, or asked to stop."""
    row = _row(app, caller.ns, request)
    if row["state"] == "running":
        lease = app.dispatcher.leases.holder(row["id"])
        if lease is None or not lease.session:
            raise HttpError(
                409,
                f"invocation is running on worker {row['worker']}, which cannot be told to stop",
                hint="stop it on that worker, or wait for it",
                state="running",
                workerId=row["worker"],
            )
    done = await app.dispatcher.cancel(caller.ns, row["id"])
    if done.cancelling:
        return answer(request, {"id": done.id, "state": "cancelling", "workerId": done.worker}, status=202)
    if not done.cancelled:
        raise HttpError(409, f"invocation is already {done.state}", state=done.state)
    return answer(request, row_body(app, _row(app, caller.ns, request)))


@route(InvocationShown, body=InvocationRetry, optional=True, refuses=(404, 409, 429))
async def retry(app: App, request: Request, caller: Caller, *, body: InvocationRetry) -> Response:
    """POST /v1/namespaces/:ns/invocations/:id/retry {claim?, nonce?}

    A failed, killed or timed-out one is queued again. A copy of a retry that was applied, by its nonce, is a success
    that changes nothing (K-17). 429 while what is queued asks too many different things of workers.
    """
    await app.dispatcher.retry(caller.ns, _id_of(request), body.get("claim"), body.get("nonce"))
    return answer(request, row_body(app, _row(app, caller.ns, request)))


@route(BulkCancelled, body=BulkCancel, query=BulkCancel, optional=True)
async def bulk_cancel(app: App, request: Request, caller: Caller, *, body: BulkCancel, query: BulkCancel) -> Response:
    """POST /v1/namespaces/:ns/invocations/bulk-cancel?queue= (or {queue}): every queued one is killed."""
    queue = query.get("queue", body.get("queue"))
    if body.get("queue", queue) != queue:
        raise bad_field("queue", "is another one in the query than in the body")
    return answer(request, {"cancelled": await app.dispatcher.cancel_queued(caller.ns, queue)})


@route(Pruned, body=Prune)
async def prune(app: App, request: Request, caller: Caller, *, body: Prune) -> Response:
    """POST /v1/namespaces/:ns/invocations/prune {olderThanHours, states?, queue?, dryRun?, cursor?}

    Ended rows are forgotten, oldest first, in slices that nobody waits for: `{count, dryRun, next}` after a few seconds
    at the latest. `next` is the cursor of the request that goes on, null when that was all.
    """
    dry_run, before = body.get("dryRun", False), time.time() - body["olderThanHours"] * 3600
    wanted = Filter(ns=caller.ns, before=before, states=frozenset(body.get("states", ())), queue=body.get("queue"))
    done = await forgetting.prune(
        app.dispatcher, app.pages, wanted, _place(body.get("cursor")), dry_run=dry_run, for_s=_PRUNE_S
    )
    following = None if done.place is None else f"{done.place[0]!r}/{done.place[1]}"
    return answer(request, {"count": done.count, "dryRun": dry_run, "next": following})


def _place(cursor: str | None) -> tuple[float, int]:
    if cursor is None:
        return forgetting.FROM_THE_OLDEST
    try:
        at, seq = cursor.split("/")
        return float(at), max(0, min(int(seq), 2**63 - 1))
    except ValueError:
        raise bad_field("cursor", "must be what an earlier answer gave as `next`") from None


@route(InvocationShown, query=InNamespace, refuses=(404, 422))
async def admin_show(app: App, request: Request, caller: Caller, *, query: InNamespace) -> Response:
    """GET /v1/admin/invocations/:id?namespace="""
    return answer(request, row_body(app, _row(app, query.get("namespace", caller.ns), request)))


def _row(app: App, ns: str, request: Request) -> dict[str, Any]:
    id_ = _id_of(request)
    row = rows.get(app.dispatcher.rows, ns, id_)
    if row is None:
        raise UnknownInvocation(f"no invocation {id_} in namespace {ns!r}")
    return row


def _id_of(request: Request) -> str:
    return check_invocation_id(request.params["id"])
