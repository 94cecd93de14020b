"""Invocations as operators see them. Reference: get-started/jobs; S-335…S-348, S-074."""

from __future__ import annotations

import functools
import hashlib
import time
from typing import Any, Final

from ...plane import rows
from ...plane.contract import DELAYED, STATES, TERMINAL, UnknownInvocation
from ...plane.retention import Filter
from ...plane.statements import SQL
from ...wire.names import check_invocation_id
from ...wire.states import row_state
from .. import forgetting
from ..app import App
from ..auth import Caller
from ..http import HttpError, Request, Response
from ..render import answer, iso
from ..structure import bad_field, read_map
from ..waiting import Why, why
from .queries import number

_LIMIT: Final = 50
_LONGEST_NONCE: Final = 200
_MOST: Final = 200
_PRUNE_S: Final = 5.0


def row_body(app: App, row: dict[str, Any], whys: dict[tuple[str, str], Why] | None = None) -> dict[str, Any]:
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
        "function": function or None,
        "priority": row["priority"],
        "key": row["key"],
        "claim": row["claim"],
        "attempt": row["attempt"],
        "maxAttempts": row["max_attempts"],
        "runConfig": row["run_config"] or {},
        "codeContext": row["code"] or {},
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


@functools.lru_cache(maxsize=4096)
def _function_id(*named: str) -> str:
    """An id for what names a function, of the shape that ids of documents have."""
    return hashlib.sha256("\0".join(named).encode("utf-8", "replace")).hexdigest()[:24]


async def listing(app: App, request: Request, caller: Caller) -> Response:
    """GET /v1/namespaces/:ns/invocations?state&worker&queue&limit&offset: newest first."""
    query = request.query
    states = [row_state(part) for value in request.query_values("state") for part in value.split(",") if part]
    for state in states:
        if state not in (*STATES, DELAYED):
            raise bad_field("state", f"{state!r:.40} is no state: use {', '.join(STATES)}, or {DELAYED}")
    limit = number(query, "limit", _LIMIT, 1, _MOST)
    offset = number(query, "offset", 0, 0, 2**53)
    before = number(query, "before", 0, 0, 2**53) or None
    page = await app.pages.run(
        functools.partial(
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
    whys: dict[tuple[str, str], Why] = {}
    found = [row_body(app, row, whys) for row in page]
    told: dict[str, Any] = {"invocations": found, "limit": limit, "offset": offset, "count": len(found)}
    if len(page) == limit:
        told["next"] = page[-1]["seq"]
    return answer(request, told)


async def counts(app: App, request: Request, caller: Caller) -> Response:
    """GET /v1/namespaces/:ns/invocations/counts: how many there are of each state; `delayed` is a part of `queued`."""
    told = dict.fromkeys((*STATES, DELAYED), 0)
    for ns, _queue, state, n in app.dispatcher.rows(SQL.tallies, {}):
        if ns == caller.ns:
            told[rows.shown(state)] += n
            if state == DELAYED:
                told[DELAYED] += n
    return answer(request, told)


async def show(app: App, request: Request, caller: Caller) -> Response:
    """GET /v1/namespaces/:ns/invocations/:id"""
    return answer(request, row_body(app, _row(app, caller.ns, request)))


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


async def retry(app: App, request: Request, caller: Caller) -> Response:
    """POST /v1/namespaces/:ns/invocations/:id/retry {claim?, nonce?}

    A failed, killed or timed-out one is queued again. A copy of a retry that was applied, by its nonce, is a success
    that changes nothing (K-17).
    """
    body, _encoding = await read_map(request, optional=True)
    claim = body.get("claim")
    if claim is not None and type(claim) is not int:
        raise bad_field("claim", "must be an integer")
    nonce = body.get("nonce")
    if nonce is not None and not (type(nonce) is str and 0 < len(nonce) <= _LONGEST_NONCE):
        raise bad_field("nonce", f"must be 1 to {_LONGEST_NONCE} characters")
    await app.dispatcher.retry(caller.ns, _id_of(request), claim, nonce)
    return answer(request, row_body(app, _row(app, caller.ns, request)))


async def bulk_cancel(app: App, request: Request, caller: Caller) -> Response:
    """POST /v1/namespaces/:ns/invocations/bulk-cancel?queue=: every queued one is killed."""
    queue = request.query.get("queue") or None
    return answer(request, {"cancelled": await app.dispatcher.cancel_queued(caller.ns, queue)})


async def prune(app: App, request: Request, caller: Caller) -> Response:
    """POST /v1/namespaces/:ns/invocations/prune {olderThanHours, states?, queue?, dryRun?, cursor?}

    Ended rows are forgotten, oldest first, in slices that nobody waits for: `{count, dryRun, next}` after a few seconds
    at the latest. `next` is the cursor of the request that goes on, null when that was all.
    """
    body, _encoding = await read_map(request)
    hours, states, queue = body.get("olderThanHours"), body.get("states") or [], body.get("queue")
    if isinstance(hours, bool) or not isinstance(hours, int | float) or not 0 <= hours < 10**9:
        raise bad_field("olderThanHours", "must be a number of hours, 0 or more")
    if not isinstance(states, list) or not all(isinstance(state, str) and state in TERMINAL for state in states):
        raise bad_field("states", f"use {', '.join(sorted(TERMINAL))}")
    if queue is not None and not (isinstance(queue, str) and queue):  # "" is nobody's queue, and not every one
        raise bad_field("queue", "must be a name")
    dry_run = body.get("dryRun", False)
    if type(dry_run) is not bool:
        raise bad_field("dryRun", "must be true or false")
    wanted = Filter(ns=caller.ns, before=time.time() - hours * 3600, states=frozenset(states), queue=queue)
    done = await forgetting.prune(
        app.dispatcher, app.pages, wanted, _place(body.get("cursor")), dry_run=dry_run, for_s=_PRUNE_S
    )
    following = None if done.place is None else f"{done.place[0]!r}/{done.place[1]}"
    return answer(request, {"count": done.count, "dryRun": dry_run, "next": following})


def _place(cursor: Any) -> tuple[float, int]:
    if cursor is None:
        return forgetting.FROM_THE_OLDEST
    try:
        at, seq = str(cursor).split("/")
        return float(at), max(0, min(int(seq), 2**63 - 1))
    except ValueError:
        raise bad_field("cursor", "must be what an earlier answer gave as `next`") from None


async def admin_show(app: App, request: Request, caller: Caller) -> Response:
    """GET /v1/admin/invocations/:id?namespace="""
    return answer(request, row_body(app, _row(app, request.query.get("namespace", caller.ns), request)))


def _row(app: App, ns: str, request: Request) -> dict[str, Any]:
    id_ = _id_of(request)
    row = rows.get(app.dispatcher.rows, ns, id_)
    if row is None:
        raise UnknownInvocation(f"no invocation {id_} in namespace {ns!r}")
    return row


def _id_of(request: Request) -> str:
    return check_invocation_id(request.params["id"])
