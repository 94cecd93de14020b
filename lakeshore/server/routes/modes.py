"""Modes: named run configs of a namespace. What one may say is in `server/modes.py`.

A provider or a secret that a mode refers to stays a name in every answer. An org's siblings read them.
Reference: api/configuration, "Server-stored modes"; S-181…S-188.
"""

from __future__ import annotations

import time
from typing import Annotated, Any, NotRequired, TypedDict

from ..app import App
from ..auth import Caller
from ..http import HttpError, Request, Response
from ..modes import ModeFields, assembled, changed_meanwhile, warnings_of
from ..records import ModeRow
from ..records.commits import Statement
from ..records.events import EventRow, storing
from ..references import storable
from ..render import answer, iso
from ..shapes import SLUG, Time, longest, open_shape, whole
from ..structure import bad_field
from .secrets import Deleted
from .stated import route


@open_shape
class ModeAdd(ModeFields):
    """Other keys, too, are kept: below `resources.__extras`."""

    name: Annotated[str, SLUG, longest(200)]


@open_shape
class ModeChange(ModeFields, total=False):
    """What is sent is replaced whole, null takes it away."""


class ModeRevision(TypedDict, total=False):
    """Only while the mode has this one."""

    revision: Annotated[int, whole(0, 2**53)]


class ModeShown(TypedDict):
    """References stay references."""

    name: str
    namespace: str
    backend: str
    runner: str
    image: str | None
    tags: list[str]
    resources: dict[str, Any]
    env: dict[str, Any]
    timeout_s: float | None
    provider: str | None
    revision: int
    createdAt: Time
    updatedAt: Time
    warnings: NotRequired[list[str]]


class ModeList(TypedDict):
    """By name."""

    modes: list[ModeShown]


@route(ModeList)
async def listing(app: App, request: Request, caller: Caller) -> Response:
    """GET /v1/namespaces/:ns/modes: by name."""
    return answer(request, {"modes": [_shown(row) for row in app.records.modes.of(caller.ns)]})


@route(ModeShown, refuses=(404,))
async def show(app: App, request: Request, caller: Caller) -> Response:
    """GET /v1/namespaces/:ns/modes/:name"""
    return answer(request, _shown(_row(app, request, caller)))


@route({201: ModeShown}, body=ModeAdd, apart={"name": 400}, refuses=(409,))
async def add(app: App, request: Request, caller: Caller, *, body: ModeAdd) -> Response:
    """POST /v1/namespaces/:ns/modes {name, backend?, runner?, image?, tags?, resources?, env?, timeout_s?, provider?}

    201; 409 for a name that is taken. Other keys, too, are kept below `resources.__extras`.
    """
    name = body["name"]
    config = _checked(app, caller, assembled(None, body))
    now = time.time()
    row = ModeRow(ns=caller.ns, name=name, config=config, revision=1, created_at=now, updated_at=now)
    modes = app.records.modes
    async with modes.turn:
        if modes.get(caller.ns, name) is not None:
            hint = f"`lakeshore modes update {name}` changes it"
            raise HttpError(409, f"there is a mode {name!r} already", field="name", hint=hint)
        await modes.put(row, *_notes(app, caller, "add", name))
    return answer(request, _shown(row) | _warnings(app, row), status=201)


@route(ModeShown, body=ModeChange, query=ModeRevision, refuses=(400, 404, 409))
async def patch(app: App, request: Request, caller: Caller, *, body: dict[str, Any], query: ModeRevision) -> Response:
    """PATCH /v1/namespaces/:ns/modes/:name[?revision=] {…}: a key that is sent is replaced whole, null takes it away.

    With `revision` only while the mode has that one: 409 otherwise.
    """
    name = request.params["name"]
    if body.get("name") not in (None, name):
        raise bad_field("name", "cannot be changed", hint="add a mode of the other name", status=400)
    wanted = query.get("revision")
    modes = app.records.modes
    async with modes.turn:
        before = _row(app, request, caller)
        if wanted and wanted != before.revision:
            raise changed_meanwhile(name, before.revision)
        row = ModeRow(
            ns=before.ns,
            name=name,
            config=_checked(app, caller, assembled(before.config, body)),
            revision=before.revision + 1,
            created_at=before.created_at,
            updated_at=time.time(),
        )
        await modes.put(row, *_notes(app, caller, "change", name))
    return answer(request, _shown(row) | _warnings(app, row))


@route(Deleted, refuses=(404,))
async def remove(app: App, request: Request, caller: Caller) -> Response:
    """DELETE /v1/namespaces/:ns/modes/:name"""
    async with app.records.modes.turn:
        row = _row(app, request, caller)
        await app.records.modes.drop(row, *_notes(app, caller, "remove", row.name))
    return answer(request, {"name": row.name, "deleted": True})


def _checked(app: App, caller: Caller, config: dict[str, Any]) -> dict[str, Any]:
    storable(config, "", knows=lambda name: app.records.secrets.get(caller.ns, name) is not None)
    return config


def _notes(app: App, caller: Caller, verb: str, name: str) -> tuple[Statement, ...]:
    """For the audit, and for who watches the namespace."""
    payload = {"mode": name, "actor": caller.name}
    event = EventRow(ns=caller.ns, kind=f"mode.{verb}", at=time.time(), payload=payload)
    return app.records.note(caller.name, caller.ns, f"mode.{verb}", name), storing(event)


def _warnings(app: App, row: ModeRow) -> dict[str, Any]:
    def has_provider(name: str) -> bool:
        records = app.records
        return any(
            records.providers.get(one.name, name) is not None
            for one in records.namespaces()
            if one.name == row.ns or records.siblings(one.name, row.ns)
        )

    return {"warnings": warnings_of(row.config, has_provider=has_provider)}


def _row(app: App, request: Request, caller: Caller) -> ModeRow:
    name = request.params["name"]
    row = app.records.modes.get(caller.ns, name)
    if row is None:
        raise HttpError(404, f"no mode {name!r:.80}", field="name", hint="`lakeshore modes list` shows them")
    return row


def _shown(row: ModeRow) -> dict[str, Any]:
    return {
        "name": row.name,
        "namespace": row.ns,
        **row.config,
        "revision": row.revision,
        "createdAt": iso(row.created_at),
        "updatedAt": iso(row.updated_at),
    }
