"""Storages: buckets of an object store, or directories of buckets, under a name. The keys stay in the server's secrets.

Rules: kind, bucket, prefix and endpoint never change; who needs others adds another storage. One that was removed stays
under another name, which frees its own and its target. What needs the object store itself (presigned URLs, temporary
credentials, buckets made and deleted) is checked, and answered 501: this version does not speak to one.
Reference: get-started/storages; S-221…S-243, S-792, S-831.
"""

from __future__ import annotations

import time
from typing import Annotated, Any, Final, NotRequired, TypedDict
from urllib.parse import urlsplit

from ..app import App
from ..auth import Caller
from ..http import HttpError, Request, Response
from ..records import StorageRow
from ..references import MARKER
from ..render import answer, iso
from ..shapes import Time, one_of, printable, whole
from ..structure import bad_field
from .entries import NAME, EntryRevision, PageQuery, config_of, lookalikes, need_revision, notes_of, page_of, text_of
from .stated import route

KINDS: Final[dict[str, tuple[str, ...]]] = {
    "s3": ("bucket", "region", "endpoint", "creds"),
    "s3-prefix": ("bucket", "prefix", "region", "endpoint", "creds"),
}
"""Kind -> what its config knows."""
IMMUTABLE: Final = ("bucket", "prefix", "endpoint")
SHORTEST_S, LONGEST_S = 900, 129_600
"""How long temporary credentials may last."""
_KEYPAIR: Final = "aws_keypair"
_TEXT: Final = printable(1, 1024)
_DESCRIPTION: Final = printable(0, 1024)
_INSTEAD: Final = "add another storage with it: what refers to this one would break"
_NEAREST: Final = "arguments and results up to 100 MiB travel by themselves"


class StorageAdd(TypedDict):
    """`provision` asks for the bucket to be made, with `s3Options` as the store knows them."""

    name: Annotated[str, *NAME]
    kind: Annotated[str, one_of(*KINDS)]
    config: NotRequired[dict[str, Any]]
    description: NotRequired[Annotated[str, _DESCRIPTION]]
    provision: NotRequired[bool]
    s3Options: NotRequired[dict[str, str]]


class StorageChange(TypedDict, total=False):
    """`config` replaces all of it; null takes creds and region away. The others only as they are."""

    description: Annotated[str, _DESCRIPTION] | None
    creds: dict[str, Any] | None
    region: Annotated[str, _TEXT] | None
    config: dict[str, Any]
    name: str
    kind: str
    bucket: str | None
    prefix: str | None
    endpoint: str | None


class StorageQuery(PageQuery, total=False):
    """Also removed ones?"""

    deleted: bool


class StorageRemoval(TypedDict, total=False):
    """The bucket, too?"""

    purge: bool


class StorageShown(TypedDict):
    """Bucket, prefix and endpoint spelled one way; the name of a removed one says when that was."""

    name: str
    kind: str
    config: dict[str, Any]
    description: str
    bucket: str
    prefix: str | None
    endpoint: str | None
    namespace: str
    revision: int
    createdAt: Time
    updatedAt: Time
    deletedAt: Time | None
    warnings: NotRequired[list[str]]
    deleted: NotRequired[bool]


class StorageList(TypedDict):
    """By name; `next` is the cursor of the following page."""

    storages: list[StorageShown]
    next: str | None


class PresignAsked(TypedDict):
    """A key below the storage's prefix; `get` for an hour unless it says otherwise."""

    key: Annotated[str, _TEXT]
    operation: NotRequired[Annotated[str, one_of("get", "put")]]
    expiresIn: NotRequired[Annotated[int, whole(1, 2**53)]]


class CredentialsAsked(TypedDict, total=False):
    """An hour, unless it says otherwise."""

    durationSeconds: Annotated[int, whole(SHORTEST_S, LONGEST_S)]


@route(StorageList, query=StorageQuery)
async def listing(app: App, request: Request, caller: Caller, *, query: StorageQuery) -> Response:
    """GET /v1/namespaces/:ns/storages?limit&cursor&deleted: by name; with `deleted=true` also removed ones."""
    known = [row for row in app.records.storages.of(caller.ns) if query.get("deleted") or row.deleted_at is None]
    rows, following = page_of(query, known, lambda row: row.name)
    return answer(request, {"storages": [_shown(row) for row in rows], "next": following})


@route(StorageShown, refuses=(404,))
async def show(app: App, request: Request, caller: Caller) -> Response:
    """GET /v1/namespaces/:ns/storages/:name"""
    return answer(request, _shown(_row(app, request, caller)))


@route({201: StorageShown}, body=StorageAdd, apart={"name": 400}, refuses=(409, 501))
async def add(app: App, request: Request, caller: Caller, *, body: StorageAdd) -> Response:
    """POST /v1/namespaces/:ns/storages {name, kind, config, description?, provision?, s3Options?}

    201; 409 for a name that is taken, or for another name of a bucket, prefix and endpoint that has one. `provision`
    asks for the bucket to be made: 501.
    """
    name, kind = body["name"], body["kind"]
    config = _config(app, caller, kind, body.get("config", {}))
    bucket, prefix, endpoint = _target(kind, config)
    now = time.time()
    row = StorageRow(
        ns=caller.ns,
        name=name,
        kind=kind,
        description=body.get("description", ""),
        config=config,
        bucket=bucket,
        prefix=prefix,
        endpoint=endpoint,
        revision=1,
        created_at=now,
        updated_at=now,
    )
    storages = app.records.storages
    async with storages.turn:
        if storages.get(caller.ns, name) is not None:
            raise HttpError(409, f"there is a storage {name!r} already", field="name")
        other = storages.at(caller.ns, row.target)
        if other is not None:
            raise HttpError(
                409,
                f"storage {other.name!r} names the same bucket, prefix and endpoint",
                field="config.bucket",
                hint=f"use {other.name}, or remove it first",
                storage=other.name,
            )
        _check_provision(app, row, body)
        await storages.add(row, *notes_of(app, caller, "storage", "add", name))
    return answer(request, _shown(row) | {"warnings": _warnings(app, row)}, status=201)


@route(StorageShown, body=StorageChange, query=EntryRevision, refuses=(404, 409))
async def patch(app: App, request: Request, caller: Caller, *, body: StorageChange, query: EntryRevision) -> Response:
    """PATCH /v1/namespaces/:ns/storages/:name?revision {description?, creds?, region?, config?}

    `config` replaces all of it; null takes creds and region away. 409 for another kind, bucket, prefix or endpoint,
    and, with `revision`, when the storage does not have that one any more.
    """
    storages = app.records.storages
    async with storages.turn:
        before = _row(app, request, caller)
        if before.deleted_at is not None:
            raise HttpError(409, f"storage {before.name!r} was removed", field="name")
        need_revision(query, before.name, before.revision)
        config = _changed(app, caller, before, body)
        description = body.get("description", before.description) or ""
        notes = notes_of(app, caller, "storage", "change", before.name)
        row = await storages.change(before, *notes, config=config, description=description, updated_at=time.time())
    return answer(request, _shown(row) | {"warnings": _warnings(app, row)})


@route(StorageShown, query=StorageRemoval, refuses=(404, 501))
async def remove(app: App, request: Request, caller: Caller, *, query: StorageRemoval) -> Response:
    """DELETE /v1/namespaces/:ns/storages/:name?purge: it stays under another name; `purge=true` asks for the bucket to
    be deleted, too: 501.
    """
    storages = app.records.storages
    async with storages.turn:
        row = _row(app, request, caller)
        if query.get("purge"):
            _need_creds(app, row, "purge")
            raise _not_built("the deletion of a bucket", "remove it without --purge, and delete the bucket yourself")
        if row.deleted_at is None:
            now = time.time()
            name = f"{row.name} [deleted {iso(now)}]"
            notes = notes_of(app, caller, "storage", "remove", row.name)
            row = await storages.change(row, *notes, name=name, deleted_at=now, updated_at=now)
    return answer(request, _shown(row) | {"deleted": True})


@route({}, body=PresignAsked, refuses=(404, 501))
async def presign(app: App, request: Request, caller: Caller, *, body: PresignAsked) -> Response:
    """POST /v1/namespaces/:ns/storages/:name/presign {key, operation?, expiresIn?}: not built yet, 501."""
    _row(app, request, caller)
    raise _not_built("presigned URLs of an object store", _NEAREST)


@route({}, body=CredentialsAsked, optional=True, refuses=(404, 501))
async def credentials(app: App, request: Request, caller: Caller, *, body: CredentialsAsked) -> Response:
    """POST /v1/namespaces/:ns/storages/:name/credentials {durationSeconds?}: not built yet, 501."""
    _need_creds(app, _row(app, request, caller), "temporary credentials")
    raise _not_built("temporary credentials of an object store", _NEAREST)


def _not_built(what: str, hint: str) -> HttpError:
    return HttpError(501, f"not built yet: {what}", hint=hint)


def _row(app: App, request: Request, caller: Caller) -> StorageRow:
    name = request.params["name"]
    row = app.records.storages.get(caller.ns, name)
    if row is None:
        raise HttpError(404, f"no storage {name!r:.80}", field="name", hint="`lakeshore storage list` shows them")
    return row


def _config(app: App, caller: Caller, kind: str, value: dict[str, Any]) -> dict[str, Any]:
    config = config_of(app, caller.ns, value)
    for key in ("bucket", "prefix") if kind == "s3-prefix" else ("bucket",):
        text_of(config.get(key), f"config.{key}")
    if not (kind == "s3" or config["prefix"].strip("/")):
        raise bad_field("config.prefix", "must be more than slashes; kind s3 is a whole bucket")
    if "/" in config["bucket"]:
        raise bad_field("config.bucket", "must have no slash; kind s3-prefix is a directory of a bucket")
    for key in ("region", "endpoint"):
        if config.get(key) is not None:
            text_of(config[key], f"config.{key}")
    endpoint = config.get("endpoint")
    if endpoint is not None and not _is_url(endpoint):
        raise bad_field("config.endpoint", "must be an http or https URL", hint="without one it is AWS")
    if config.get("creds") is not None and type(config["creds"]) is not dict:
        raise bad_field("config.creds", f'must be {{"{MARKER}": "<name>"}}')
    return config


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.netloc)


def _target(kind: str, config: dict[str, Any]) -> tuple[str, str, str]:
    """Bucket, prefix and endpoint, spelled one way."""
    prefix = config["prefix"].strip("/") if kind == "s3-prefix" else ""
    return config["bucket"], prefix, (config.get("endpoint") or "").rstrip("/").lower()


def _changed(app: App, caller: Caller, row: StorageRow, body: StorageChange) -> dict[str, Any]:
    """The config after a PATCH."""
    sent: dict[str, Any] = {**body}
    for field, now in (("name", row.name), ("kind", row.kind)):
        if sent.get(field, now) != now:
            raise _immutable(field)
    config = dict(body.get("config", row.config))
    for field in ("creds", "region"):
        if field in sent:
            config[field] = sent[field]
            if sent[field] is None:
                del config[field]
    for field in IMMUTABLE:
        kept = row.config.get(field)
        if sent.get(field, kept) != kept or config.get(field) != kept:
            raise _immutable(field)
    return _config(app, caller, row.kind, config)


def _immutable(field: str) -> HttpError:
    return HttpError(409, "immutable field", field=field, hint=_INSTEAD)


def _check_provision(app: App, row: StorageRow, body: StorageAdd) -> None:
    wanted, options = body.get("provision", False), body.get("s3Options")
    if not wanted:
        if options:
            raise bad_field("s3Options", "go with provision")
        return
    if row.kind != "s3":
        raise bad_field("provision", "makes whole buckets only: kind s3")
    _need_creds(app, row, "provision")
    raise _not_built(
        "the making of a bucket", "make it with your provider's own tools, then add it without --provision"
    )


def _need_creds(app: App, row: StorageRow, what: str) -> None:
    """HttpError 422 unless the storage has a pair of keys."""
    secret = _secret_of(row)
    kind = None if secret is None else _kind_of(app, row.ns, secret)
    if kind != _KEYPAIR:
        why = "has none" if secret is None else f"secret {secret!r} is {'gone' if kind is None else f'of kind {kind}'}"
        raise bad_field("config.creds", f"{what} needs a secret of kind {_KEYPAIR}, and {row.name} {why}")


def _secret_of(row: StorageRow) -> str | None:
    creds = row.config.get("creds")
    return creds.get(MARKER) if isinstance(creds, dict) else None


def _kind_of(app: App, ns: str, secret: str) -> str | None:
    found = app.records.secrets.get(ns, secret)
    return None if found is None else found.kind


def _warnings(app: App, row: StorageRow) -> list[str]:
    known = KINDS[row.kind]
    found = [
        f"config.{key}: kind {row.kind} knows {', '.join(known)}; it is stored as it is"
        for key in row.config
        if key not in known
    ]
    secret = _secret_of(row)
    if secret is not None and _kind_of(app, row.ns, secret) != _KEYPAIR:
        found.append(f"config.creds: secret {secret!r} is of kind {_kind_of(app, row.ns, secret)}, not {_KEYPAIR}")
    if row.config.get("creds") and secret is None:
        found.append("config.creds: are keys that everybody of the namespace reads; see `secrets add`")
    return found + lookalikes(row.config)


def _shown(row: StorageRow) -> dict[str, Any]:
    return {
        "name": row.name,
        "kind": row.kind,
        "config": row.config,
        "description": row.description,
        "bucket": row.bucket,
        "prefix": row.prefix or None,
        "endpoint": row.endpoint or None,
        "namespace": row.ns,
        "revision": row.revision,
        "createdAt": iso(row.created_at),
        "updatedAt": iso(row.updated_at),
        "deletedAt": iso(row.deleted_at),
    }
