"""Mounts: file systems that are to be in a job's directory, of ten kinds. They are kept; nothing mounts them yet.

Rules: each kind asks for some fields; what else a config says is stored as it is, and warned of when the kind does not
know it. Credentials are never asked for: much is public.
Reference: get-started/mounts; S-199…S-220, S-764, S-765.
"""

from __future__ import annotations

import dataclasses
import time
from typing import Annotated, Any, Final, NotRequired, TypedDict

from ..app import App
from ..auth import Caller
from ..http import Request, Response
from ..primitives import Wrong, a_str
from ..records import EntryRow
from ..references import MARKER
from ..render import answer
from ..shapes import checked
from ..structure import bad_field
from .entries import (
    NAME,
    EntryChange,
    EntryRevision,
    EntryShown,
    PageQuery,
    config_of,
    entry_of,
    lookalikes,
    need_free,
    need_revision,
    need_same,
    notes_of,
    page_of,
)
from .entries import shown as _shown
from .secrets import Deleted
from .stated import route

KINDS: Final[dict[str, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    "nfs": (("server", "path"), ("options",)),
    "samba": (("server", "share"), ("options", "creds", "path")),
    "ftp": (("server",), ("path", "port", "creds")),
    "sftp": (("server",), ("path", "port", "creds", "key")),
    "s3": (("bucket",), ("endpoint", "region", "prefix", "creds")),
    "s3fs": (("bucket",), ("endpoint", "region", "prefix", "creds", "options")),
    "google_drive": (("folderId",), ("creds",)),
    "dropbox": (("path",), ("creds",)),
    "bind": (("hostPath",), ("readOnly",)),
    "configmap": (("kubeNamespace", "name"), ("items",)),
}
"""Kind -> the fields that its config must have, and those that it may."""


def _kind(value: Any) -> str:
    if a_str(value) not in KINDS:
        hint = "`lakeshore code push` sends a working tree" if value == "git" else None
        raise Wrong(f"must be one of {', '.join(KINDS)}", hint=hint)
    return str(value)


class MountAdd(TypedDict):
    """What the kind asks for is in `config`; a secret is `{"$secret": name}` there."""

    name: Annotated[str, *NAME]
    kind: Annotated[str, checked(_kind, enum=list(KINDS))]
    config: NotRequired[dict[str, Any]]


class MountList(TypedDict):
    """By name; `next` is the cursor of the following page."""

    mounts: list[EntryShown]
    next: str | None


@route(MountList, query=PageQuery)
async def listing(app: App, request: Request, caller: Caller, *, query: PageQuery) -> Response:
    """GET /v1/namespaces/:ns/mounts?limit&cursor: by name."""
    rows, following = page_of(query, app.records.mounts.of(caller.ns), lambda row: row.name)
    return answer(request, {"mounts": [_shown(row) for row in rows], "next": following})


@route(EntryShown, refuses=(404,))
async def show(app: App, request: Request, caller: Caller) -> Response:
    """GET /v1/namespaces/:ns/mounts/:name"""
    return answer(request, _shown(entry_of(app.records.mounts, request, caller)))


@route({201: EntryShown}, body=MountAdd, apart={"name": 400}, refuses=(409,))
async def add(app: App, request: Request, caller: Caller, *, body: MountAdd) -> Response:
    """POST /v1/namespaces/:ns/mounts {name, kind, config}: 201; 409 for a name that is taken."""
    name, kind = body["name"], body["kind"]
    config = _config(app, caller, kind, body.get("config", {}))
    now = time.time()
    row = EntryRow(ns=caller.ns, name=name, kind=kind, config=config, revision=1, created_at=now, updated_at=now)
    mounts = app.records.mounts
    async with mounts.turn:
        need_free(mounts, caller.ns, name)
        await mounts.put(row, *notes_of(app, caller, "mount", "add", name))
    return answer(request, _shown(row) | {"warnings": _warnings(row)}, status=201)


@route(EntryShown, body=EntryChange, query=EntryRevision, refuses=(404, 409))
async def patch(app: App, request: Request, caller: Caller, *, body: EntryChange, query: EntryRevision) -> Response:
    """PATCH /v1/namespaces/:ns/mounts/:name?revision {config}: it replaces all of the config.

    With `revision` only while the mount has that one: 409 otherwise.
    """
    mounts = app.records.mounts
    async with mounts.turn:
        before = entry_of(mounts, request, caller)
        need_same(body, before.name, before.kind)
        need_revision(query, before.name, before.revision)
        config = _config(app, caller, before.kind, body.get("config", before.config))
        row = dataclasses.replace(before, config=config, revision=before.revision + 1, updated_at=time.time())
        await mounts.put(row, *notes_of(app, caller, "mount", "change", row.name))
    return answer(request, _shown(row) | {"warnings": _warnings(row)})


@route(Deleted, refuses=(404,))
async def remove(app: App, request: Request, caller: Caller) -> Response:
    """DELETE /v1/namespaces/:ns/mounts/:name"""
    mounts = app.records.mounts
    async with mounts.turn:
        row = entry_of(mounts, request, caller)
        await mounts.drop(row, *notes_of(app, caller, "mount", "remove", row.name))
    return answer(request, {"name": row.name, "deleted": True})


def _config(app: App, caller: Caller, kind: str, value: dict[str, Any]) -> dict[str, Any]:
    config = config_of(app, caller.ns, value)
    for key in KINDS[kind][0]:
        said = config.get(key)
        if said is None or said == "":
            raise bad_field(f"config.{key}", f"a mount of kind {kind} needs it")
        if type(said) is not str and not (type(said) is dict and MARKER in said):
            raise bad_field(f"config.{key}", "must be a string")
    return config


def _warnings(row: EntryRow) -> list[str]:
    required, optional = KINDS[row.kind]
    known = ", ".join((*required, *optional))
    return [
        *(
            f"config.{key}: kind {row.kind} knows {known}; it is stored as it is"
            for key in row.config
            if key not in required and key not in optional
        ),
        *lookalikes(row.config),
    ]
