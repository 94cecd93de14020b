"""Workers as operators see them, and what they may order. Reference: nymph/daemon-lifecycle; S-284, S-300…S-319."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from ...plane.statements import SQL
from ...wire.messages import DEFAULT_QUEUE
from ...wire.names import check_subscription
from ..app import App
from ..auth import Caller
from ..http import HttpError, Request, Response
from ..orders import Order
from ..records import WorkerRow
from ..records.events import EventRow
from ..render import answer, iso
from ..structure import bad_field, read_map
from ..workers import SETUP, TooMany

_LONGEST_H: Final = 168.0
_LATEST_S: Final = 253_402_300_799.0
"""The last instant that ISO 8601 has a year for."""
_LARGEST_SCRIPT: Final = 256 * 1024
_LONGEST_NAME: Final = 200
_OUTCOMES: Final = 20
_SHORT: Final = 12


# --- what is shown


async def listing(app: App, request: Request, caller: Caller) -> Response:
    """GET /v1/namespaces/:ns/workers?compose_project&state&queue: the one heard of last first."""
    query = request.query
    running = _running(app, caller.ns)
    found = [
        row_body(app, row, running)
        for row in app.records.workers.of(caller.ns)
        if query.get("compose_project", row.compose_project) == row.compose_project
    ]
    if "state" in query:
        wanted = {state for said in request.query_values("state") for state in said.split(",")}
        found = [body for body in found if body["state"] in wanted]
    if "queue" in query:
        found = [body for body in found if query["queue"] in (body["queues"] or [DEFAULT_QUEUE])]
    found.sort(key=lambda body: (body["lastSeenAt"] or "", body["id"]), reverse=True)
    return answer(request, {"workers": found, "count": len(found)})


async def show(app: App, request: Request, caller: Caller) -> Response:
    """GET /v1/namespaces/:ns/workers/:id: also what waits for it, and how its last scripts ended."""
    row = known(app, request, caller)
    ended = await app.records.events.page(caller.ns, worker=row.id, type=SETUP, limit=_OUTCOMES)
    waiting = app.orders.of(caller.ns, row.id)
    delivered = app.orders.delivered(caller.ns, row.id)
    body = row_body(app, row, _running(app, caller.ns))
    body["pendingSetupCommands"] = [{"id": one.id, **one.body} for one in waiting if one.kind == SETUP]
    body["orders"] = [
        {"id": one.id, "kind": one.kind, "body": dict(one.body), "createdAt": iso(one.at)}
        for one in waiting
        if one.kind != SETUP
    ]
    body["setups"] = [
        *(_script(one.id, one.body, "pending", one.at) for one in reversed(waiting) if one.kind == SETUP),
        *(_script(one.id, one.body, "delivered", one.at) for one in reversed(delivered)),
        *(_outcome(event) for event in ended),
    ]
    return answer(request, body)


def row_body(app: App, row: WorkerRow, running: Mapping[str, int]) -> dict[str, Any]:
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
        "stdout": _text(told.get("stdout")),
        "stderr": _text(told.get("stderr")),
        "finishedAt": iso(event.at),
    }


def _text(said: Any) -> str | None:
    return said.decode("utf-8", "replace") if isinstance(said, bytes) else said if isinstance(said, str) else None


# --- what is ordered


async def kill(app: App, request: Request, caller: Caller) -> Response:
    """DELETE /v1/namespaces/:ns/workers/:id?keep_instance: forget it; its next poll is told to leave.

    `terminated` says whether an instance went too. No provider is attached to a worker yet, so none does.
    """
    row = known(app, request, caller)
    await app.workers.remove([row], action="worker.kill", actor=caller.name)
    return answer(request, {"id": row.id, "label": row.label, "deleted": True, "terminated": False})


async def cleanup(app: App, request: Request, caller: Caller) -> Response:
    """POST /v1/namespaces/:ns/workers/cleanup {olderThanHours, dryRun} → {count, deleted}"""
    body, _encoding = await read_map(request)
    hours, dry_run = body.get("olderThanHours"), body.get("dryRun", False)
    if not isinstance(hours, int | float) or isinstance(hours, bool) or not 0 < hours <= _LONGEST_H:
        raise bad_field("olderThanHours", f"must be a number above 0 and at most {_LONGEST_H:g}", status=400)
    if type(dry_run) is not bool:
        raise bad_field("dryRun", "must be true or false", status=400)
    rows = app.workers.silent_for(caller.ns, hours * 3600)
    if not dry_run:
        await app.workers.remove(rows, action="worker.cleanup", actor=caller.name)
    told = [
        {"id": row.id, "label": row.label, "machineId": row.machine_id, "lastSeenAt": iso(_seen(app, row))}
        for row in rows
    ]
    return answer(request, {"count": len(told), "deleted": told, "dryRun": dry_run})


async def setup(app: App, request: Request, caller: Caller) -> Response:
    """POST /v1/namespaces/:ns/workers/:id/setup {script, sudo?, refresh_capabilities?, name?}: 202, in its turn."""
    body, _encoding = await read_map(request)
    row = known(app, request, caller)
    script, name = body.get("script"), body.get("name")
    if type(script) is not str or not script.strip() or "\0" in script:
        raise bad_field("script", "must be the text of a bash script")
    if len(script.encode("utf-8", "surrogateescape")) > _LARGEST_SCRIPT:
        raise bad_field("script", f"must have at most {_LARGEST_SCRIPT // 1024} KiB", status=413)
    if name is not None and (type(name) is not str or not 0 < len(name) <= _LONGEST_NAME or not name.isprintable()):
        raise bad_field("name", f"must be 1 to {_LONGEST_NAME} printable characters")
    wanted: dict[str, Any] = {"script": script}
    for field, spelt in (("sudo", "sudo"), ("refresh_capabilities", "refreshCapabilities")):
        said = next((body[key] for key in (field, spelt) if body.get(key) is not None), False)
        if type(said) is not bool:
            raise bad_field(field, "must be true or false")
        if said:
            wanted[field] = True
    if name is not None:
        wanted["name"] = name
    order = await _order(app, caller, row, SETUP, wanted)
    ahead = sum(one.kind == SETUP for one in app.orders.of(row.ns, row.id))
    told = {"setup_id": order.id, "worker_id": row.id, "name": name, "position": max(ahead, 1)}
    return answer(request, told, status=202)


async def hibernate(app: App, request: Request, caller: Caller) -> Response:
    """POST /v1/namespaces/:ns/workers/:id/hibernate {until_epoch_s} or {until: ISO 8601}; 400 when it is over."""
    body, _encoding = await read_map(request)
    row = known(app, request, caller)
    until = _instant(body)
    if until <= time.time():
        raise bad_field("until", "is in the past", status=400, hint="name a later instant")
    order = await _order(app, caller, row, "hibernate", {"until_epoch_s": until})
    told = {"id": order.id, "worker_id": row.id, "until_epoch_s": until, "until": iso(until)}
    return answer(request, told, status=202)


async def reset(app: App, request: Request, caller: Caller) -> Response:
    """POST /v1/namespaces/:ns/workers/:id/reset: its back-off begins anew with its next poll."""
    await read_map(request, optional=True)
    row = known(app, request, caller)
    order = await _order(app, caller, row, "reset_backoff", {})
    return answer(request, {"id": order.id, "worker_id": row.id}, status=202)


async def queues(app: App, request: Request, caller: Caller) -> Response:
    """POST /v1/namespaces/:ns/workers/:id/queues {add: […], remove: […]}: from its next poll on."""
    body, _encoding = await read_map(request)
    row = known(app, request, caller)
    add, remove = _names(body, "add"), _names(body, "remove")
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


def _names(body: Mapping[str, Any], field: str) -> list[str]:
    said = body.get(field) or []
    if type(said) is not list:
        raise bad_field(field, "must be an array of queue names")
    if DEFAULT_QUEUE in said:
        why = f"{DEFAULT_QUEUE!r} is not joined and not left: it is what a worker without queues serves"
        raise bad_field(field, why)
    return [check_subscription(name, field) for name in said]


def _instant(body: Mapping[str, Any]) -> float:
    epoch, text = body.get("until_epoch_s"), body.get("until")
    if isinstance(epoch, int | float) and not isinstance(epoch, bool) and 0 <= epoch <= _LATEST_S:
        return float(epoch)
    if type(text) is str:
        try:
            at = datetime.fromisoformat(text)
            return (at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp()
        except (ValueError, OverflowError):
            pass
    raise bad_field("until", "must be an instant: until_epoch_s in seconds, or until in ISO 8601", status=400)
