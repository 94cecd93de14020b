"""Workers as operators see them, and what they may order. Reference: nymph/daemon-lifecycle; S-284, S-300…S-319."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Final, NotRequired, TypeAlias, TypedDict, get_args

from ...plane.statements import SQL
from ...wire.messages import DEFAULT_QUEUE
from ...wire.verification import Mode
from ..app import App
from ..auth import Caller
from ..http import HttpError, Request, Response
from ..orders import Order
from ..primitives import Wrong, a_str
from ..records import WorkerRow
from ..records.events import EventRow
from ..render import answer, iso
from ..shapes import SUBSCRIPTION, Time, above, checked, one_of, printable
from ..structure import bad_field
from ..workers import SETUP, TooMany
from .stated import route

AUTH_MODES: Final[tuple[str, str]] = get_args(Mode)
"""By its key, and by its bearer alone."""
_LONGEST_H: Final = 168.0
_LATEST_S: Final = 253_402_300_799.0
"""The last instant that ISO 8601 has a year for."""
_LARGEST_SCRIPT: Final = 256 * 1024
_LONGEST_NAME: Final = 200
_OUTCOMES: Final = 20
_SHORT: Final = 12


# --- what is asked for


class WorkerQuery(TypedDict, total=False):
    """Which workers; `state` may name several, by commas or by saying it again."""

    compose_project: str
    state: list[str]
    queue: str


class WorkerRemoval(TypedDict, total=False):
    """Whether its machine stays, where a provider made it."""

    keep_instance: bool


class WorkerCleanup(TypedDict):
    """Those not heard of for so long."""

    olderThanHours: Annotated[float, above(0, _LONGEST_H)]
    dryRun: NotRequired[bool]


def _bash(value: Any) -> str:
    if type(value) is not str or not value.strip() or "\0" in value:
        raise Wrong("must be the text of a bash script")
    if len(a_str(value).encode()) > _LARGEST_SCRIPT:
        raise Wrong(f"must have at most {_LARGEST_SCRIPT // 1024} KiB", status=413)
    return value


class Setup(TypedDict):
    """A script for bash; `refresh_capabilities`: what the worker can do is looked at anew once it has run."""

    script: Annotated[str, checked(_bash, minLength=1)]
    name: NotRequired[Annotated[str, printable(1, _LONGEST_NAME)]]
    sudo: NotRequired[bool]
    refresh_capabilities: NotRequired[bool]
    refreshCapabilities: NotRequired[bool]


def _epoch(value: Any) -> float:
    if type(value) not in (int, float) or not 0 <= value <= _LATEST_S:
        raise Wrong("must be an instant: until_epoch_s in seconds, or until in ISO 8601")
    return float(value)


def _iso(value: Any) -> str:
    try:
        datetime.fromisoformat(value)
    except (TypeError, ValueError):
        raise Wrong("must be an instant: until_epoch_s in seconds, or until in ISO 8601") from None
    return str(value)


class Hibernation(TypedDict):
    """Until when, in either way."""

    until_epoch_s: NotRequired[Annotated[float, checked(_epoch, minimum=0, maximum=_LATEST_S)]]
    until: NotRequired[Annotated[str, checked(_iso, format="date-time")]]


class Draining(TypedDict, total=False):
    """`off`: it takes work again."""

    off: bool


class Nothing(TypedDict):
    """No field is asked for."""


def _subscription(value: Any) -> str:
    if value == DEFAULT_QUEUE:
        raise Wrong(f"{DEFAULT_QUEUE!r} is not joined and not left: it is what a worker without queues serves")
    return str(SUBSCRIPTION.check(value))


_Subscriptions: TypeAlias = list[Annotated[str, checked(_subscription, **SUBSCRIPTION.says)]]


class SubscriptionChange(TypedDict):
    """Queues, or prefixes that end in `*`."""

    add: NotRequired[_Subscriptions]
    remove: NotRequired[_Subscriptions]


# --- what is answered


class WorkerRowShown(TypedDict):
    """A worker as lists show it."""

    id: str
    namespace: str
    label: str | None
    name: str
    state: str
    lastSeenAt: Time | None
    helloAt: Time
    createdAt: Time
    machineId: str
    queues: list[str]
    runners: list[str]
    tags: list[str]
    version: str | None
    capabilities: dict[str, Any]
    versions: dict[str, Any]
    inFlight: int
    maxInvocations: int | None
    hibernateUntil: Time | None
    providerName: str | None
    hostStatus: str | None
    composeProject: str | None
    serverNodeId: str | None


class WorkerList(TypedDict):
    """The one heard of last first."""

    workers: list[WorkerRowShown]
    count: int


class WorkerShown(WorkerRowShown):
    """A worker, what waits for it, and how its last scripts ended. `lastPollSigned`: null before its first poll since
    the server started; `authMode` says the same in the words of whoami. `unsignedRequests`: polls and acks since then.
    """

    lastPollSigned: bool | None
    authMode: Annotated[str, one_of(*AUTH_MODES)] | None
    unsignedRequests: int
    pendingSetupCommands: list[dict[str, Any]]
    orders: list[dict[str, Any]]
    setups: list[dict[str, Any]]


class WorkerGone(TypedDict):
    """`terminated`: its machine went, too; `trouble`: it could not be ended yet."""

    id: str
    label: str | None
    deleted: bool
    terminated: bool
    trouble: NotRequired[str]


class WorkerSilent(TypedDict):
    """One that was not heard of."""

    id: str
    label: str | None
    machineId: str
    lastSeenAt: Time


class WorkersCleaned(TypedDict):
    """Those that went, or would have."""

    count: int
    deleted: list[WorkerSilent]
    dryRun: bool


class SetupOrdered(TypedDict):
    """Its place among the scripts that wait."""

    setup_id: str
    worker_id: str
    name: str | None
    position: int


class Hibernating(TypedDict):
    """Until when it will have been told to be silent."""

    id: str
    worker_id: str
    until_epoch_s: float
    until: Time


class Drained(TypedDict):
    """In which state it is then, and how much it has in hand."""

    id: str
    state: str
    inFlight: int


class Ordered(TypedDict):
    """An order waits for the worker's next poll."""

    id: str
    worker_id: str


class Subscribed(TypedDict):
    """What it polls from now on."""

    id: str
    queues: list[str]


# --- what is shown


@route(WorkerList, query=WorkerQuery)
async def listing(app: App, request: Request, caller: Caller, *, query: WorkerQuery) -> Response:
    """GET /v1/namespaces/:ns/workers?compose_project&state&queue: the one heard of last first."""
    running = _running(app, caller.ns)
    found = [
        row_body(app, row, running)
        for row in app.records.workers.of(caller.ns)
        if query.get("compose_project", row.compose_project) == row.compose_project
    ]
    if "state" in query:
        found = [body for body in found if body["state"] in query["state"]]
    if "queue" in query:
        found = [body for body in found if query["queue"] in (body["queues"] or [DEFAULT_QUEUE])]
    found.sort(key=lambda body: (body["lastSeenAt"] or "", body["id"]), reverse=True)
    return answer(request, {"workers": found, "count": len(found)})


@route(WorkerShown, refuses=(404,))
async def show(app: App, request: Request, caller: Caller) -> Response:
    """GET /v1/namespaces/:ns/workers/:id: also what waits for it, and how its last scripts ended."""
    row = known(app, request, caller)
    ended = await app.records.events.page(caller.ns, worker=row.id, type=SETUP, limit=_OUTCOMES)
    waiting = app.orders.of(caller.ns, row.id)
    delivered = app.orders.delivered(caller.ns, row.id)
    signed = app.workers.last_poll_signed(caller.ns, row.id)
    told: WorkerShown = {
        **row_body(app, row, _running(app, caller.ns)),
        "lastPollSigned": signed,
        "authMode": None if signed is None else AUTH_MODES[not signed],
        "unsignedRequests": app.workers.unsigned(caller.ns, row.id),
        "pendingSetupCommands": [{"id": one.id, **one.body} for one in waiting if one.kind == SETUP],
        "orders": [
            {"id": one.id, "kind": one.kind, "body": dict(one.body), "createdAt": iso(one.at)}
            for one in waiting
            if one.kind != SETUP
        ],
        "setups": [
            *(_script(one.id, one.body, "pending", one.at) for one in reversed(waiting) if one.kind == SETUP),
            *(_script(one.id, one.body, "delivered", one.at) for one in reversed(delivered)),
            *(_outcome(event) for event in ended),
        ],
    }
    return answer(request, told)


def row_body(app: App, row: WorkerRow, running: Mapping[str, int]) -> WorkerRowShown:
    """One row; times in ISO 8601 (S-302…S-305)."""
    info = json.loads(row.info)
    capabilities, versions = info.get("capabilities") or {}, info.get("versions") or {}
    return {
        "id": row.id,
        "namespace": row.ns,
        "label": row.label,
        "name": row.label or row.machine_id[:_SHORT],
        "state": app.workers.shown_state(row),
        "lastSeenAt": iso(app.records.workers.seen_at(row)),
        "helloAt": iso(row.hello_at),
        "createdAt": iso(row.created_at),
        "machineId": row.machine_id,
        "queues": list(row.subscriptions),
        "runners": capabilities.get("runners") or [],
        "tags": info.get("tags") or [],
        "version": versions.get("daemon"),
        "capabilities": {**capabilities, "versions": versions},
        "versions": versions,
        "inFlight": running.get(row.id, 0),
        "maxInvocations": capabilities.get("max_invocations"),
        "hibernateUntil": iso(row.hibernate_until) if row.state == "hibernating" else None,
        "providerName": row.provider,
        "hostStatus": row.host_status,
        "composeProject": row.compose_project,
        "serverNodeId": None,
    }


def bodies(app: App, ns: str, ids: Iterable[str]) -> dict[str, Mapping[str, object]]:
    """The rows of these that there are, by id."""
    running = _running(app, ns)
    found = ((id_, app.records.workers.get(ns, id_)) for id_ in ids)
    return {id_: row_body(app, row, running) for id_, row in found if row is not None}


def looks(app: App, ns: str | None) -> dict[tuple[str, int | str], object]:
    """What of workers changes and is told by nobody: how they are shown, and how much each runs."""
    running = Counter((lease.ns, lease.worker) for lease in app.dispatcher.leases.all())
    rows = app.records.workers.all() if ns is None else app.records.workers.of(ns)
    return {(row.ns, row.id): (app.workers.shown_state(row), running[row.ns, row.id]) for row in rows}


def _running(app: App, ns: str) -> Counter[str]:
    return Counter(lease.worker for lease in app.dispatcher.leases.all() if lease.ns == ns)


def _script(id_: str, body: Mapping[str, Any], state: str, at: float) -> dict[str, Any]:
    return {"id": id_, "name": body.get("name"), "state": state, "sudo": bool(body.get("sudo")), "createdAt": iso(at)}


def _outcome(event: EventRow) -> dict[str, Any]:
    told = event.payload
    code, error = told.get("exit_code"), told.get("error")
    return {
        "id": event.ref,
        "name": told.get("name"),
        "state": "done" if code == 0 and not error else "failed",
        "exitCode": code,
        "error": error,
        "durationMs": told.get("duration_ms"),
        "stdout": _text(told.get("stdout_tail", told.get("stdout"))),
        "stderr": _text(told.get("stderr_tail", told.get("stderr"))),
        "finishedAt": iso(event.at),
    }


def _text(said: Any) -> str | None:
    return said.decode("utf-8", "replace") if isinstance(said, bytes) else said if isinstance(said, str) else None


# --- what is ordered


@route(WorkerGone, query=WorkerRemoval, refuses=(404,))
async def kill(app: App, request: Request, caller: Caller, *, query: WorkerRemoval) -> Response:
    """DELETE /v1/namespaces/:ns/workers/:id?keep_instance: forget it; its next poll is told to leave.

    The machine that it was launched with ends, too, and `terminated` says so; `trouble`: why it is not known to have
    ended, which is tried again until it has. With `keep_instance` it runs on.
    """
    row = known(app, request, caller)
    keep = query.get("keep_instance", False)
    ended = await app.launching.end_worker(caller.ns, row.id, actor=caller.name, keep_instance=keep)
    told: WorkerGone = {
        "id": row.id,
        "label": row.label,
        "deleted": True,
        "terminated": ended.had_machine and ended.trouble is None,
    }
    if ended.trouble is not None:
        told["trouble"] = ended.trouble
    return answer(request, told)


@route(WorkersCleaned, body=WorkerCleanup, wrong=400)
async def cleanup(app: App, request: Request, caller: Caller, *, body: WorkerCleanup) -> Response:
    """POST /v1/namespaces/:ns/workers/cleanup {olderThanHours, dryRun} → {count, deleted}"""
    hours, dry_run = body["olderThanHours"], body.get("dryRun", False)
    rows = app.workers.silent_for(caller.ns, hours * 3600)
    if not dry_run:
        await app.launching.release(rows)
        await app.workers.remove(rows, action="worker.cleanup", actor=caller.name)
    told: list[WorkerSilent] = [
        {"id": row.id, "label": row.label, "machineId": row.machine_id, "lastSeenAt": iso(_seen(app, row))}
        for row in rows
    ]
    return answer(request, {"count": len(told), "deleted": told, "dryRun": dry_run})


@route({202: SetupOrdered}, body=Setup, refuses=(404, 429))
async def setup(app: App, request: Request, caller: Caller, *, body: Setup) -> Response:
    """POST /v1/namespaces/:ns/workers/:id/setup {script, sudo?, refresh_capabilities?, name?}: 202, in its turn."""
    row = known(app, request, caller)
    name = body.get("name")
    wanted: dict[str, Any] = {"script": body["script"]}
    if body.get("sudo"):
        wanted["sudo"] = True
    if body.get("refresh_capabilities", body.get("refreshCapabilities")):
        wanted["refresh_capabilities"] = True
    if name is not None:
        wanted["name"] = name
    order = await _order(app, caller, row, SETUP, wanted)
    ahead = sum(one.kind == SETUP for one in app.orders.of(row.ns, row.id))
    told: SetupOrdered = {"setup_id": order.id, "worker_id": row.id, "name": name, "position": max(ahead, 1)}
    return answer(request, told, status=202)


@route({202: Hibernating}, body=Hibernation, wrong=400, refuses=(404, 429))
async def hibernate(app: App, request: Request, caller: Caller, *, body: Hibernation) -> Response:
    """POST /v1/namespaces/:ns/workers/:id/hibernate {until_epoch_s} or {until: ISO 8601}; 400 when it is over."""
    row = known(app, request, caller)
    until = _instant(body)
    if until <= time.time():
        raise bad_field("until", "is in the past", status=400, hint="name a later instant")
    order = await _order(app, caller, row, "hibernate", {"until_epoch_s": until})
    told: Hibernating = {"id": order.id, "worker_id": row.id, "until_epoch_s": until, "until": iso(until)}
    return answer(request, told, status=202)


@route({202: Ordered}, body=Nothing, optional=True, refuses=(404, 429))
async def reset(app: App, request: Request, caller: Caller, *, body: Nothing) -> Response:
    """POST /v1/namespaces/:ns/workers/:id/reset: its back-off begins anew with its next poll."""
    row = known(app, request, caller)
    order = await _order(app, caller, row, "reset_backoff", {})
    return answer(request, {"id": order.id, "worker_id": row.id}, status=202)


@route(Drained, body=Draining, refuses=(404,), optional=True)
async def drain(app: App, request: Request, caller: Caller, *, body: Draining) -> Response:
    """POST /v1/namespaces/:ns/workers/:id/drain {off?}: it gets no more work, and ends what it has in hand; it stays.

    A daemon that greets anew, in a new process say, gets work again.
    """
    row = await app.workers.drain(known(app, request, caller), off=body.get("off", False), actor=caller.name)
    held = _running(app, caller.ns)[row.id]
    return answer(request, {"id": row.id, "state": app.workers.shown_state(row), "inFlight": held})


@route(Subscribed, body=SubscriptionChange, refuses=(404,))
async def queues(app: App, request: Request, caller: Caller, *, body: SubscriptionChange) -> Response:
    """POST /v1/namespaces/:ns/workers/:id/queues {add: […], remove: […]}: from its next poll on."""
    row = known(app, request, caller)
    add, remove = body.get("add", []), body.get("remove", [])
    if not add and not remove:
        raise bad_field("add", "name at least one queue to add or to remove")
    exist = {name for name, *_ in app.dispatcher.rows(SQL.queues, {"ns": caller.ns})}
    for name in add:
        if not name.endswith("*") and name not in exist:
            hint = f"`lakeshore queues add {name}` makes it; so does its first submit"
            raise HttpError(404, f"no queue {name!r}", field="add", hint=hint)
    gone = {*remove, DEFAULT_QUEUE}  # some have it by hand (S-797)
    made = [name for name in dict.fromkeys((*row.subscriptions, *add)) if name not in gone]
    row = await app.workers.set_queues(row, made, actor=caller.name)
    return answer(request, {"id": row.id, "queues": list(row.subscriptions)})


async def _order(app: App, caller: Caller, row: WorkerRow, kind: str, body: Mapping[str, Any]) -> Order:
    order = Order(id=app.ids.new(), kind=kind, body=body)
    try:
        await app.workers.order(row, order, actor=caller.name)
    except TooMany as error:
        raise HttpError(
            429, str(error), hint="is it alive? lakeshore daemon show says when it was last seen"
        ) from error
    return order


def known(app: App, request: Request, caller: Caller) -> WorkerRow:
    """The worker that the path names. HttpError 404."""
    row = app.records.worker(caller.ns, request.params["id"])
    if row is None:
        named = request.params["id"]
        raise HttpError(404, f"no worker {named!r:.80}", field="id", hint="`lakeshore daemon list` shows them")
    return row


def _seen(app: App, row: WorkerRow) -> float:
    return app.records.workers.seen_at(row) or row.hello_at


def _instant(body: Hibernation) -> float:
    if "until_epoch_s" in body:
        return body["until_epoch_s"]
    if "until" not in body:
        raise bad_field("until", "is required, or until_epoch_s", status=400)
    at = datetime.fromisoformat(body["until"])
    try:
        return (at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        raise bad_field("until", "is no instant", status=400) from None
