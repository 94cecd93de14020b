"""Queues as operators see and change them. Reference: get-started/queues; S-272…S-299, S-726, S-747."""

from __future__ import annotations

import functools
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Final, NotRequired, TypedDict

import trio

from ...plane import queues as rows
from ...plane.contract import DELAYED
from ...plane.queues import STATES, QueueRow
from ...plane.rows import claimable, page
from ...wire.messages import DEFAULT_QUEUE
from ...wire.names import check_queue
from ..app import App
from ..auth import Caller
from ..http import HttpError, Request, Response
from ..membership import Membership
from ..queues import DEFAULT_SAYS
from ..records.events import EventRow
from ..render import answer, iso
from ..shapes import Time, one_of, whole
from ..structure import bad_field
from . import elasticity
from .events import EventShown, event_body
from .queue_fields import QueueAdd, QueueChange, columns, unread
from .stated import route

_LIMIT: Final = 200
_MOST: Final = 1000
_EVENTS: Final = 50
_RECENT: Final = 5
_MOST_EVENTS: Final = 200


# --- what is asked for


class QueuePage(TypedDict, total=False):
    """Which queues: of one state; the page after `cursor`."""

    state: Annotated[str, one_of(*STATES)]
    limit: Annotated[int, whole(1, _MOST)]
    cursor: str


class QueueRemoval(TypedDict, total=False):
    """`force`: members leave it, and what is queued is killed."""

    force: bool


class QueueEventPage(TypedDict, total=False):
    """`verbose`: also what changed nothing. `invocations`: also what became of the newest calls."""

    limit: Annotated[int, whole(1, _MOST_EVENTS)]
    verbose: bool
    invocations: bool


# --- what is answered


class QueueRowShown(TypedDict):
    """A queue as lists show it."""

    name: str
    namespace: str
    description: str | None
    kind: str
    kindParams: Mapping[str, Any] | None
    state: str
    memberCount: int
    providerRef: str | None
    elasticity: Mapping[str, Any] | None
    admission: dict[str, Any] | None
    daemonTemplate: Mapping[str, Any] | None
    runConfig: Mapping[str, Any] | None
    queued: int
    delayed: int
    running: int
    createdAt: Time
    updatedAt: Time


class QueueMember(TypedDict):
    """Who pulls from a queue, and what else it pulls from."""

    id: str
    label: str | None
    state: str
    queues: list[str]


class QueueShown(QueueRowShown):
    """A queue and its members. `warnings`, once it was made or changed: what of it nobody reads."""

    members: list[QueueMember]
    warnings: NotRequired[list[str]]


class QueueList(TypedDict):
    """`next` is the cursor of the following page."""

    queues: list[QueueRowShown]
    count: int
    next: str | None


class QueueController(TypedDict):
    """Whether the elasticity controller looks after the queue, how often, and when it last looked at all of them."""

    enabled: bool
    tick_s: float | None
    last_tick_at: Time | None


class QueueLaunchError(TypedDict):
    """Why the controller has no daemon for the queue, or its pool, though it wants one; `failures` in a row."""

    error: str
    at: Time
    failures: int
    next_try_at: Time


class QueueStats(TypedDict):
    """What is there now; ages in seconds."""

    name: str
    namespace: str
    state: str
    daemon_count: int
    utilization: float
    pending: int
    queued: int
    delayed: int
    running: int
    oldest_age_s: float | None
    throughput_per_s: float
    held_submits: int
    recent_actions: list[elasticity.ElasticityShown]
    controller: QueueController
    last_launch_error: QueueLaunchError | None


class QueueEvents(TypedDict):
    """What was changed, and what the elasticity controller decided: the newest first."""

    events: list[dict[str, Any]]
    count: int


class QueueDeleted(TypedDict):
    """How many members left it."""

    name: str
    deleted: bool
    members: int


# --- what is shown


@route(QueueList, query=QueuePage)
async def listing(app: App, request: Request, caller: Caller, *, query: QueuePage) -> Response:
    """GET /v1/namespaces/:ns/queues?state&limit&cursor: also those of the org's other namespaces, by both names."""
    state = query.get("state")
    limit = query.get("limit", _LIMIT)
    after_ns, after = _place(query.get("cursor"))
    await app.queues.ensure_default(caller.ns)
    found: list[QueueRow] = []
    for ns in _namespaces(app, caller):
        if ns >= after_ns and len(found) <= limit:
            behind = after if ns == after_ns else ""
            # A state is rare or common: then a page of the namespace is read, and what is not asked for is left out.
            page = rows.page(app.dispatcher.rows, ns, after=behind, limit=-1 if state else limit + 1)
            found += [row for row in page if state in (None, row.state)]
    shown, more = found[:limit], len(found) > limit
    members = {ns: Membership(app.records, app.dispatcher, ns) for ns in {row.ns for row in shown}}
    told = [_body(app, row, len(members[row.ns].of(row.name))) for row in shown]
    return answer(
        request,
        {"queues": told, "count": len(told), "next": f"{shown[-1].ns}/{shown[-1].name}" if more else None},
    )


@route(QueueShown, refuses=(404, 422))
async def show(app: App, request: Request, caller: Caller) -> Response:
    """GET /v1/namespaces/:ns/queues/:name: the row, and who pulls from it."""
    return answer(request, _shown(app, await _known(app, request, caller)))


@route(QueueStats, refuses=(404, 422))
async def stats(app: App, request: Request, caller: Caller) -> Response:
    """GET /v1/namespaces/:ns/queues/:name/stats: what is there now."""
    row = await _known(app, request, caller)
    ns, name, now = row.ns, row.name, time.time()
    read = app.dispatcher.rows
    membership = Membership(app.records, app.dispatcher, ns)
    members = membership.of(name)
    counts = _counts(app, row)
    waited = rows.waited_s(read, ns, name, now)
    recent = await app.records.elasticity.page(ns, elasticity.units(row), noops=False, limit=_RECENT)
    return answer(
        request,
        {
            "name": name,
            "namespace": ns,
            "state": row.state,
            "daemon_count": len(members),
            "utilization": round(membership.utilization(members), 3),
            "pending": counts["queued"],
            **counts,
            "oldest_age_s": None if waited is None else round(waited, 3),
            "throughput_per_s": round(app.dispatcher.pollers.per_s(ns, name, trio.current_time()), 3),
            "held_submits": app.admission.held(ns, name),
            "recent_actions": [elasticity.event_body(one) for one in recent],
            "controller": _controller(app, ns),
            "last_launch_error": _launch_error(app, row),
        },
    )


@route(QueueEvents, query=QueueEventPage, refuses=(404,))
async def events(app: App, request: Request, caller: Caller, *, query: QueueEventPage) -> Response:
    """GET /v1/namespaces/:ns/queues/:name/events?verbose&invocations&limit: the newest first.

    With `invocations` also when each of the newest calls (`limit` of them) was queued, began and ended, as their
    rows say: no event is written for a call.
    """
    row = await _known(app, request, caller)
    limit, verbose = query.get("limit", _EVENTS), query.get("verbose", False)
    changes = await app.records.events.page(row.ns, queue=row.name, family="queue.", limit=limit)
    decisions = await app.records.elasticity.page(row.ns, elasticity.units(row), noops=verbose, limit=limit)
    dated = [(one.at, event_body(one)) for one in changes] + [(one.at, elasticity.event_body(one)) for one in decisions]
    if query.get("invocations", False):
        newest = await app.pages.run(functools.partial(page, ns=row.ns, queue=row.name, limit=limit))
        dated += [one for call in newest for one in _became(call)]
    told = [body for _at, body in sorted(dated, key=lambda pair: pair[0], reverse=True)[:limit]]
    return answer(request, {"events": told, "count": len(told)})


def _became(call: Mapping[str, Any]) -> Iterator[tuple[float, EventShown]]:
    """What became of a call and when, as events: (Unix seconds, its body)."""
    steps = (("queued", "submitted_at"), ("running", "started_at"), (call["state"], "finished_at"))
    for state, at in steps:
        if call[at] is not None:
            yield (
                call[at],
                event_body(
                    EventRow(
                        ns=call["ns"],
                        kind=f"invocation.{state}",
                        at=call[at],
                        worker=None if state == "queued" else call["worker"],
                        queue=call["queue"],
                        invocation=call["id"],
                        payload={"state": state, "attempt": call["attempt"]},
                    )
                ),
            )


def bodies(app: App, ns: str, names: Iterable[str]) -> dict[str, Mapping[str, object]]:
    """The rows of these that there are, by name."""
    membership = Membership(app.records, app.dispatcher, ns)
    found: dict[str, Mapping[str, object]] = {}
    for name in names:
        row = app.queues.get(ns, name)
        if row is not None:
            found[name] = _body(app, row, len(membership.of(name)))
    return found


# --- what is changed


@route({201: QueueShown}, body=QueueAdd, refuses=(409,))
async def create(app: App, request: Request, caller: Caller, *, body: QueueAdd) -> Response:
    """POST /v1/namespaces/:ns/queues {name, description?, kind?, kindParams?, elasticity?, admission?, providerRef?,
    daemonTemplate?, runConfig?}: 201; 409 when there is one of that name that is not merely its submits'.
    """
    name = body["name"]
    fields = {"kind": "fifo", **columns(body)}
    now = time.time()
    row = QueueRow(ns=caller.ns, name=name, created_at=now, updated_at=now, **fields)
    if not await app.queues.add(row, actor=caller.name):
        raise HttpError(
            409,
            f"there is a queue {name!r} already",
            field="name",
            hint=f"`lakeshore queues patch {name}` changes it",
        )
    return answer(request, _shown(app, row, unread(body)), status=201)


@route(QueueShown, body=QueueChange, refuses=(404, 409))
async def patch(app: App, request: Request, caller: Caller, *, body: QueueChange) -> Response:
    """PATCH /v1/namespaces/:ns/queues/:name: any of create's fields but the name (null clears; elasticity, admission
    and the like are whole objects), and `state`: paused or active.
    """
    row = await _known(app, request, caller)
    fields = columns(body)
    if "state" in body:
        fields["state"] = body["state"]
    if not fields:
        raise bad_field("description", "name at least one field to change")
    return await _edited(app, request, caller, row, fields, unread(body))


@route(QueueShown, refuses=(404, 409, 422))
async def archive(app: App, request: Request, caller: Caller) -> Response:
    """POST /v1/namespaces/:ns/queues/:name/archive: it takes nothing and hands out nothing."""
    row = await _known(app, request, caller)
    _not_the_default(row, "archived")
    return await _edited(app, request, caller, row, {"state": "archived"})


@route(QueueShown, refuses=(404, 422))
async def unarchive(app: App, request: Request, caller: Caller) -> Response:
    """POST /v1/namespaces/:ns/queues/:name/unarchive: active, whatever it was."""
    return await _edited(app, request, caller, await _known(app, request, caller), {"state": "active"})


@route(QueueShown, refuses=(404, 422))
async def drain(app: App, request: Request, caller: Caller) -> Response:
    """POST /v1/namespaces/:ns/queues/:name/drain: it takes nothing, and hands out what it has."""
    return await _edited(app, request, caller, await _known(app, request, caller), {"state": "draining"})


@route(QueueDeleted, query=QueueRemoval, refuses=(404, 409))
async def remove(app: App, request: Request, caller: Caller, *, query: QueueRemoval) -> Response:
    """DELETE /v1/namespaces/:ns/queues/:name?force: 409 while it has members or calls. `force`: the members leave it,
    and what is queued is killed.
    """
    row = await _known(app, request, caller)
    _not_the_default(row, "deleted")
    force = query.get("force", False)
    members = app.queues.members(row)
    if members and not force:
        names = ", ".join(member.label or member.id for member in members[:5])
        raise HttpError(
            409,
            f"queue {row.name!r} has {len(members)} members ({names})",
            hint=f"`lakeshore queues rm {row.name} --force` takes them out of it",
            members=len(members),
        )
    if not await app.queues.remove(row.ns, row.name, force=force, actor=caller.name):
        raise _unknown(row.name)
    return answer(request, {"name": row.name, "deleted": True, "members": len(members)})


async def _edited(
    app: App,
    request: Request,
    caller: Caller,
    row: QueueRow,
    fields: Mapping[str, Any],
    warnings: Sequence[str] = (),
) -> Response:
    made = await app.queues.edit(row.ns, row.name, fields, actor=caller.name)
    if made is None:
        raise _unknown(row.name)
    return answer(request, _shown(app, made, warnings))


# --- inside: rows


async def _known(app: App, request: Request, caller: Caller) -> QueueRow:
    name = check_queue(request.params["name"], "name")
    if name == DEFAULT_QUEUE:
        await app.queues.ensure_default(caller.ns)
    row = app.queues.get(caller.ns, name)
    if row is None:
        raise _unknown(name)
    return row


def _unknown(name: str) -> HttpError:
    return HttpError(404, f"no queue {name!r:.80}", field="name", hint="`lakeshore queues ls` shows them")


def _not_the_default(row: QueueRow, what: str) -> None:
    if row.name == DEFAULT_QUEUE:
        raise HttpError(409, f"the default queue cannot be {what}", field="name")


def _namespaces(app: App, caller: Caller) -> list[str]:
    names = {caller.ns}
    names |= {row.name for row in app.records.namespaces() if caller.org is not None and row.org == caller.org}
    return sorted(names)


def _place(cursor: str | None) -> tuple[str, str]:
    if cursor is None:
        return "", ""
    ns, slash, name = cursor.partition("/")
    if not slash:
        raise bad_field("cursor", "must be what an earlier answer gave as `next`")
    return ns, name


def _body(app: App, row: QueueRow, members: int) -> QueueRowShown:
    default = DEFAULT_SAYS if row.name == DEFAULT_QUEUE else None
    counts = _counts(app, row)
    return {
        "name": row.name,
        "namespace": row.ns,
        "description": row.description or default,
        "kind": row.kind or "fifo",
        "kindParams": row.kind_params,
        "state": row.state,
        "memberCount": members,
        "providerRef": row.provider,
        "elasticity": row.elasticity,
        "admission": _admission_body(row),
        "daemonTemplate": row.template,
        "runConfig": row.run_config,
        "queued": counts["queued"],
        "delayed": counts["delayed"],
        "running": counts["running"],
        "createdAt": iso(row.created_at),
        "updatedAt": iso(row.updated_at or row.created_at),
    }


def _shown(app: App, row: QueueRow, warnings: Sequence[str] = ()) -> QueueShown:
    members = Membership(app.records, app.dispatcher, row.ns).of(row.name)
    told: list[QueueMember] = []
    for id_ in sorted(members):
        worker = app.records.worker(row.ns, id_)
        state = "active" if worker is None else app.workers.shown_state(worker)
        label = None if worker is None else worker.label
        told.append({"id": id_, "label": label, "state": state, "queues": sorted(members[id_])})
    shown: QueueShown = {**_body(app, row, len(members)), "members": told}  # type: ignore[typeddict-item]  # a row has no warnings
    if warnings:
        shown["warnings"] = list(warnings)
    return shown


def _counts(app: App, row: QueueRow) -> dict[str, int]:
    read = app.dispatcher.rows
    queued, delayed, running = (claimable(read, row.ns, row.name, s) for s in ("queued", DELAYED, "running"))
    return {"queued": queued, "delayed": delayed, "running": running}


def _controller(app: App, ns: str) -> QueueController:
    controller = app.elasticity
    if controller is None or not controller.settings.covers(ns):
        return {"enabled": False, "tick_s": None, "last_tick_at": None}
    return {"enabled": True, "tick_s": controller.settings.tick_s, "last_tick_at": iso(controller.last_tick_at)}


def _launch_error(app: App, row: QueueRow) -> QueueLaunchError | None:
    failure = None if app.elasticity is None else app.elasticity.last_launch_failure(row.ns, elasticity.units(row))
    if failure is None:
        return None
    again_at = iso(failure.at + failure.waits_s)
    return {"error": failure.error, "at": iso(failure.at), "failures": failure.count, "next_try_at": again_at}


def _admission_body(row: QueueRow) -> dict[str, Any] | None:
    told = {"max_depth": row.max_depth, "rate_limit": row.rate_limit, "deadline_cutoff_s": row.cutoff_s}
    kept: dict[str, Any] = {name: said for name, said in told.items() if said is not None}
    return {**kept, "on_full": row.on_full or "reject"} if kept or row.on_full else None
