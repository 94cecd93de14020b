"""Queues as operators see and change them. Reference: get-started/queues; S-272…S-299, S-726, S-747."""

from __future__ import annotations

import json
import math
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final

import trio

from ...plane import queues as rows
from ...plane.contract import DELAYED, KINDS
from ...plane.queues import ON_FULL, STATES, QueueRow
from ...plane.rows import claimable
from ...wire.messages import DEFAULT_QUEUE
from ...wire.names import check_queue, check_slug
from ..app import App
from ..auth import Caller
from ..http import HttpError, Request, Response
from ..pollers import serves
from ..queues import DEFAULT_SAYS
from ..render import answer, iso
from ..structure import bad_field, read_map
from .events import event_body
from .queries import number

ELASTICITIES: Final = ("fixed", "fully_elastic", "pool_with_threshold", "max_count")
_LIMIT: Final = 200
_MOST: Final = 1000
_EVENTS: Final = 50
_MOST_EVENTS: Final = 200
_LONGEST: Final = 1000
_LARGEST: Final = 16 * 1024
_MOST_DEPTH: Final = 2**53
_NOOP: Final = "tick_noop"
_OWN_ROUTES: Final = {"draining": "drain", "archived": "archive"}
_NOT_DEFAULTS: Final = ("queue", "key", "prefix")
"""Of a run config: what belongs to one call."""


# --- what is shown


async def listing(app: App, request: Request, caller: Caller) -> Response:
    """GET /v1/namespaces/:ns/queues?state&limit&cursor: also those of the org's other namespaces, by both names."""
    query = request.query
    state = query.get("state")
    if state is not None and state not in STATES:
        raise bad_field("state", f"must be one of {', '.join(STATES)}")
    limit = number(query, "limit", _LIMIT, 1, _MOST)
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
    members = {ns: _Membership(app, ns) for ns in {row.ns for row in shown}}
    told = [_body(app, row, len(members[row.ns].of(row.name))) for row in shown]
    return answer(
        request,
        {"queues": told, "count": len(told), "next": f"{shown[-1].ns}/{shown[-1].name}" if more else None},
    )


async def show(app: App, request: Request, caller: Caller) -> Response:
    """GET /v1/namespaces/:ns/queues/:name: the row, and who pulls from it."""
    return answer(request, _shown(app, await _known(app, request, caller)))


async def stats(app: App, request: Request, caller: Caller) -> Response:
    """GET /v1/namespaces/:ns/queues/:name/stats: what is there now."""
    row = await _known(app, request, caller)
    ns, name, now = row.ns, row.name, time.time()
    read = app.dispatcher.rows
    members = _Membership(app, ns).of(name)
    counts = _counts(app, row)
    waited = rows.waited_s(read, ns, name, now)
    return answer(
        request,
        {
            "name": name,
            "namespace": ns,
            "state": row.state,
            "daemon_count": len(members),
            "utilization": _utilization(app, ns, members),
            "pending": counts["queued"],
            **counts,
            "oldest_age_s": None if waited is None else round(waited, 3),
            "throughput_per_s": round(app.dispatcher.pollers.per_s(ns, name, trio.current_time()), 3),
            "held_submits": app.admission.held(ns, name),
            "recent_actions": [],
            "controller": {"enabled": False, "tick_s": None, "last_tick_at": None},
        },
    )


async def events(app: App, request: Request, caller: Caller) -> Response:
    """GET /v1/namespaces/:ns/queues/:name/events?verbose&limit: the newest first."""
    row = await _known(app, request, caller)
    limit = number(request.query, "limit", _EVENTS, 1, _MOST_EVENTS)
    verbose = request.query.get("verbose", "").lower() in ("true", "1")
    found = await app.records.events.page(row.ns, queue=row.name, family="queue.", limit=_MOST_EVENTS)
    told = [event_body(event) for event in found if verbose or event.payload.get("action") != _NOOP][:limit]
    return answer(request, {"events": told, "count": len(told)})


# --- what is changed


async def create(app: App, request: Request, caller: Caller) -> Response:
    """POST /v1/namespaces/:ns/queues {name, description?, kind?, kindParams?, elasticity?, admission?, providerRef?,
    daemonTemplate?, runConfig?}: 201; 409 when there is one of that name that is not merely its submits'.
    """
    body, _encoding = await read_map(request)
    name = check_slug(body.get("name"), "name")
    if "state" in body:
        raise bad_field("state", "a new queue is active: drain, archive or pause it afterwards")
    fields = {"kind": "fifo", **_fields(body, None)}
    now = time.time()
    row = QueueRow(ns=caller.ns, name=name, created_at=now, updated_at=now, **fields)
    if not await app.queues.add(row, actor=caller.name):
        raise HttpError(
            409,
            f"there is a queue {name!r} already",
            field="name",
            hint=f"`lakeshore queues patch {name}` changes it",
        )
    return answer(request, _shown(app, row), status=201)


async def patch(app: App, request: Request, caller: Caller) -> Response:
    """PATCH /v1/namespaces/:ns/queues/:name: any of create's fields but the name (null clears; elasticity, admission
    and the like are whole objects), and `state`: paused or active.
    """
    body, _encoding = await read_map(request)
    row = await _known(app, request, caller)
    fields = _fields(body, row)
    if "state" in body:
        state = body["state"]
        if state in _OWN_ROUTES:
            hint = f"POST …/queues/{row.name}/{_OWN_ROUTES[state]} does that"
            raise bad_field("state", "must be paused or active here", hint=hint)
        if state not in ("paused", "active"):
            raise bad_field("state", "must be paused or active")
        fields["state"] = state
    if not fields:
        raise bad_field("description", "name at least one field to change")
    return await _edited(app, request, caller, row, fields)


async def archive(app: App, request: Request, caller: Caller) -> Response:
    """POST /v1/namespaces/:ns/queues/:name/archive: it takes nothing and hands out nothing."""
    row = await _known(app, request, caller)
    _not_the_default(row, "archived")
    return await _edited(app, request, caller, row, {"state": "archived"})


async def unarchive(app: App, request: Request, caller: Caller) -> Response:
    """POST /v1/namespaces/:ns/queues/:name/unarchive: active, whatever it was."""
    return await _edited(app, request, caller, await _known(app, request, caller), {"state": "active"})


async def drain(app: App, request: Request, caller: Caller) -> Response:
    """POST /v1/namespaces/:ns/queues/:name/drain: it takes nothing, and hands out what it has."""
    return await _edited(app, request, caller, await _known(app, request, caller), {"state": "draining"})


async def remove(app: App, request: Request, caller: Caller) -> Response:
    """DELETE /v1/namespaces/:ns/queues/:name?force: 409 while it has members or calls. `force`: the members leave it,
    and what is queued is killed.
    """
    row = await _known(app, request, caller)
    _not_the_default(row, "deleted")
    force = request.query.get("force", "").lower() in ("true", "1")
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


async def _edited(app: App, request: Request, caller: Caller, row: QueueRow, fields: Mapping[str, Any]) -> Response:
    made = await app.queues.edit(row.ns, row.name, fields, actor=caller.name)
    if made is None:
        raise _unknown(row.name)
    return answer(request, _shown(app, made))


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


def _body(app: App, row: QueueRow, members: int) -> dict[str, Any]:
    default = DEFAULT_SAYS if row.name == DEFAULT_QUEUE else None
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
        **_counts(app, row),
        "createdAt": iso(row.created_at),
        "updatedAt": iso(row.updated_at or row.created_at),
    }


def _shown(app: App, row: QueueRow) -> dict[str, Any]:
    members = _Membership(app, row.ns).of(row.name)
    told = []
    for id_ in sorted(members):
        worker = app.records.worker(row.ns, id_)
        state = "active" if worker is None else app.workers.shown_state(worker)
        label = None if worker is None else worker.label
        told.append({"id": id_, "label": label, "state": state, "queues": sorted(members[id_])})
    return {**_body(app, row, len(members)), "members": told}


def _counts(app: App, row: QueueRow) -> dict[str, int]:
    read = app.dispatcher.rows
    queued, delayed, running = (claimable(read, row.ns, row.name, s) for s in ("queued", DELAYED, "running"))
    return {"queued": queued, "delayed": delayed, "running": running}


def _admission_body(row: QueueRow) -> dict[str, Any] | None:
    told = {"max_depth": row.max_depth, "rate_limit": row.rate_limit, "deadline_cutoff_s": row.cutoff_s}
    kept: dict[str, Any] = {name: said for name, said in told.items() if said is not None}
    return {**kept, "on_full": row.on_full or "reject"} if kept or row.on_full else None


def _utilization(app: App, ns: str, members: Iterable[str]) -> float:
    """How much of what the members take at once they have (S-515)."""
    running = Counter(lease.worker for lease in app.dispatcher.leases.all() if lease.ns == ns)
    busy, slots = 0, 0
    for id_ in members:
        worker = app.records.worker(ns, id_)
        told = {} if worker is None else json.loads(worker.info).get("capabilities") or {}
        most = told.get("max_invocations")
        slots += most if type(most) is int and most > 0 else 1
        busy += running[id_]
    return round(min(1.0, busy / slots), 3) if slots else 0.0


class _Membership:
    """Who pulls from which queue of a namespace: daemons by their rows, other workers by what they poll."""

    def __init__(self, app: App, ns: str) -> None:
        self._exact: dict[str, dict[str, Iterable[str]]] = {}
        self._prefixes: list[tuple[str, str, Iterable[str]]] = []
        known = app.records.workers.of(ns)
        for row in known:
            self._note(row.id, row.subscriptions or (DEFAULT_QUEUE,))
        rowed = {row.id for row in known}
        for id_, names in app.dispatcher.pollers.all(ns, trio.current_time()):
            if id_ not in rowed:
                self._note(id_, names)

    def _note(self, id_: str, names: Iterable[str]) -> None:
        for name in names:
            if name.endswith("*"):
                self._prefixes.append((name, id_, names))
            else:
                self._exact.setdefault(name, {})[id_] = names

    def of(self, queue: str) -> dict[str, Iterable[str]]:
        """By id: what each asks for."""
        found = dict(self._exact.get(queue, {}))
        found |= {id_: names for prefix, id_, names in self._prefixes if serves(prefix, queue)}
        return found


# --- inside: what is asked for


def _fields(body: Mapping[str, Any], row: QueueRow | None) -> dict[str, Any]:
    """The fields of a row that a body names. HttpError 422 names the one that cannot be."""
    made: dict[str, Any] = {}
    if "description" in body:
        made["description"] = _description(body["description"])
    if "kind" in body:
        kind = body["kind"]
        if kind is not None and kind not in KINDS:
            raise bad_field("kind", f"must be one of {', '.join(KINDS)}")
        made["kind"] = kind or "fifo"
    for field, name, check in (
        ("kindParams", "kind_params", _check_kind_params),
        ("elasticity", "elasticity", _check_elasticity),
        ("daemonTemplate", "template", _check_template),
        ("runConfig", "run_config", _check_run_config),
    ):
        if field in body:
            made[name] = _map(body[field], field)
            if made[name] is not None:
                check(made[name])
    if "providerRef" in body:
        made["provider"] = check_slug(body["providerRef"], "providerRef") if body["providerRef"] else None
    if "admission" in body:
        made |= _admission(_map(body["admission"], "admission") or {})
    return made


def _description(said: Any) -> str | None:
    if said is not None and (type(said) is not str or len(said) > _LONGEST or not said.isprintable()):
        raise bad_field("description", f"must be at most {_LONGEST} printable characters")
    return said or None


def _map(said: Any, field: str) -> dict[str, Any] | None:
    if said is None:
        return None
    if type(said) is not dict or not all(type(key) is str for key in said):
        raise bad_field(field, "must be an object")
    try:
        size = len(json.dumps(said))
    except (TypeError, ValueError) as error:
        raise bad_field(field, f"must be what JSON can say: {error}") from error
    if size > _LARGEST:
        raise bad_field(field, f"must have at most {_LARGEST // 1024} KiB", status=413)
    return said


def _check_kind_params(said: Mapping[str, Any]) -> None:
    if "temperature" in said:
        _positive(said["temperature"], "kindParams.temperature")
    if "priority_field" in said and not (type(said["priority_field"]) is str and said["priority_field"]):
        raise bad_field("kindParams.priority_field", "must be the name of a field of run_config")


def _check_elasticity(said: Mapping[str, Any]) -> None:
    if said.get("kind") not in ELASTICITIES:
        raise bad_field("elasticity.kind", f"must be one of {', '.join(ELASTICITIES)}")


def _check_template(said: Mapping[str, Any]) -> None:
    for name in ("instance_type", "image_id", "runner"):
        if said.get(name) is not None and type(said[name]) is not str:
            raise bad_field(f"daemonTemplate.{name}", "must be a string")


def _check_run_config(said: Mapping[str, Any]) -> None:
    for name in _NOT_DEFAULTS:
        if name in said:
            raise bad_field(f"runConfig.{name}", "belongs to one call: a queue has no default of it")
    priority, attempts = said.get("priority"), said.get("max_attempts")
    if priority is not None and not (type(priority) in (int, float) and math.isfinite(priority)):
        raise bad_field("runConfig.priority", "must be a number")
    if attempts is not None and not (type(attempts) is int and 1 <= attempts <= 10_000):
        raise bad_field("runConfig.max_attempts", "must be an integer from 1 to 10000")
    if said.get("timeout_s") is not None:
        _positive(said["timeout_s"], "runConfig.timeout_s")


def _admission(said: Mapping[str, Any]) -> dict[str, Any]:
    unknown = sorted(set(said) - {"max_depth", "on_full", "rate_limit", "deadline_cutoff_s"})
    if unknown:
        raise bad_field(f"admission.{unknown[0]:.80}", "is no field of an admission")
    depth, on_full = said.get("max_depth"), said.get("on_full")
    if depth is not None and not (type(depth) is int and 1 <= depth <= _MOST_DEPTH):
        raise bad_field("admission.max_depth", "must be an integer from 1")
    if on_full is not None and on_full not in ON_FULL:
        raise bad_field("admission.on_full", f"must be one of {', '.join(ON_FULL)}")
    made: dict[str, Any] = {"max_depth": depth, "on_full": on_full}
    for field, name in (("rate_limit", "rate_limit"), ("deadline_cutoff_s", "cutoff_s")):
        limit = said.get(field)
        made[name] = None if limit is None else _positive(limit, f"admission.{field}")
    return made


def _positive(said: Any, field: str) -> float:
    if type(said) not in (int, float) or not 0 < said < 1e9:
        raise bad_field(field, "must be a number above 0")
    return float(said)
