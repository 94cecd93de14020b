"""Storages: buckets of an object store, or directories of buckets, under a name. The keys stay in the server's secrets.

Rules: kind, bucket, prefix and endpoint never change; who needs others adds another storage. One that was removed stays
under another name, which frees its own and its target. What asks the store itself is `server/objects`, outside of any
turn: one that hangs holds up nobody else.
Reference: get-started/storages; S-221…S-243, S-792, S-831.
"""

from __future__ import annotations

import time
from typing import Annotated, Any, Final, NotRequired, TypedDict
from urllib.parse import urlsplit

from ..app import App
from ..auth import Caller
from ..aws import KIND
from ..http import HttpError, Request, Response
from ..objects.access import access_to, secret_of
from ..objects.buckets import provision, purge
from ..objects.handing import KEYS_S, LONGEST_KEY, LONGEST_S, SHORTEST_S, URL_S, presigned, temporary
from ..records import StorageRow
from ..references import MARKER
from ..render import answer, iso
from ..shapes import Time, length, one_of, printable, whole
from ..structure import bad_field
from .entries import NAME, EntryRevision, PageQuery, config_of, lookalikes, need_revision, notes_of, page_of, text_of
from .stated import route

KINDS: Final[dict[str, tuple[str, ...]]] = {
    "s3": ("bucket", "region", "endpoint", "creds"),
    "s3-prefix": ("bucket", "prefix", "region", "endpoint", "creds"),
}
"""Kind -> what its config knows."""
IMMUTABLE: Final = ("bucket", "prefix", "endpoint")
_TEXT: Final = printable(1, 1024)
_DESCRIPTION: Final = printable(0, 1024)
_SECRET: Final = (("cache-control", "no-store"),)
_INSTEAD: Final = "add another storage with it: what refers to this one would break"


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
    bucketCreated: NotRequired[bool]
    bucketDeleted: NotRequired[bool]


class StorageList(TypedDict):
    """By name; `next` is the cursor of the following page."""

    storages: list[StorageShown]
    next: str | None


class PresignAsked(TypedDict):
    """A key below the storage's prefix; `get` for an hour unless it says otherwise."""

    key: Annotated[str, length(1, LONGEST_KEY)]
    operation: NotRequired[Annotated[str, one_of("get", "put")]]
    expiresIn: NotRequired[Annotated[int, whole(1, 2**53)]]


class CredentialsAsked(TypedDict, total=False):
    """An hour, unless it says otherwise."""

    durationSeconds: Annotated[int, whole(SHORTEST_S, LONGEST_S)]


class ObjectUrl(TypedDict):
    """The URL is a secret while it lasts; `key` is the one in the bucket."""

    url: str
    key: str
    bucket: str
    operation: str
    expiresIn: int
    expiresAt: Time


class TemporaryKeys(TypedDict):
    """What an S3 client takes; `endpoint` is null on AWS."""

    accessKeyId: str
    secretAccessKey: str
    sessionToken: str
    expiration: Time
    region: str
    endpoint: str | None


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


@route({201: StorageShown}, body=StorageAdd, apart={"name": 400}, refuses=(409, 501, 502))
async def add(app: App, request: Request, caller: Caller, *, body: StorageAdd) -> Response:
    """POST /v1/namespaces/:ns/storages {name, kind, config, description?, provision?, s3Options?}

    201; 409 for a name that is taken, or for another name of a bucket, prefix and endpoint that has one. `provision`
    makes the bucket, with `s3Options` as CreateBucket knows them, or adopts it where it is there (`bucketCreated`
    false); 502 when the store refuses.
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
    made = await _provisioned(app, caller, row, body)
    if made:
        await app.need_namespace(caller, creates=False)  # it may be gone by now
    storages = app.records.storages
    async with storages.turn:
        _need_free(app, row)
        await storages.add(row, *notes_of(app, caller, "storage", "add", name))
    return answer(request, _shown(row) | made | {"warnings": _warnings(app, row)}, status=201)


@route(StorageShown, body=StorageChange, query=EntryRevision, refuses=(404, 409))
async def patch(app: App, request: Request, caller: Caller, *, body: StorageChange, query: EntryRevision) -> Response:
    """PATCH /v1/namespaces/:ns/storages/:name?revision {description?, creds?, region?, config?}

    `config` replaces all of it; null takes creds and region away. 409 for another kind, bucket, prefix or endpoint,
    and, with `revision`, when the storage does not have that one any more.
    """
    storages = app.records.storages
    async with storages.turn:
        before = _live(_row(app, request, caller))
        need_revision(query, before.name, before.revision)
        config = _changed(app, caller, before, body)
        description = body.get("description", before.description) or ""
        notes = notes_of(app, caller, "storage", "change", before.name)
        row = await storages.change(before, *notes, config=config, description=description, updated_at=time.time())
    return answer(request, _shown(row) | {"warnings": _warnings(app, row)})


@route(StorageShown, query=StorageRemoval, refuses=(404, 409, 501, 502))
async def remove(app: App, request: Request, caller: Caller, *, query: StorageRemoval) -> Response:
    """DELETE /v1/namespaces/:ns/storages/:name?purge: it stays under another name; `purge=true` deletes its bucket
    before (`bucketDeleted` false where there was none): 409 while that has objects, 502 when the store refuses.
    """
    storages = app.records.storages
    before = _row(app, request, caller)
    purged = await _purged(app, caller, before) if query.get("purge") else {}
    async with storages.turn:
        row = _row(app, request, caller)
        if row.created_at != before.created_at:
            raise HttpError(409, f"{row.name!r} was removed and added again meanwhile", field="name")
        if row.deleted_at is None:
            now = time.time()
            name = f"{row.name} [deleted {iso(now)}]"
            notes = notes_of(app, caller, "storage", "remove", row.name)
            row = await storages.change(row, *notes, name=name, deleted_at=now, updated_at=now)
    return answer(request, _shown(row) | purged | {"deleted": True})


@route(ObjectUrl, body=PresignAsked, refuses=(404, 409, 501))
async def presign(app: App, request: Request, caller: Caller, *, body: PresignAsked) -> Response:
    """POST /v1/namespaces/:ns/storages/:name/presign {key, operation?, expiresIn?}: a URL for one object below the
    storage's prefix, for an hour, at most a day (more is cut down). No store is asked.
    """
    access = access_to(app, _live(_row(app, request, caller)), "a presigned URL")
    told = await presigned(access, body["key"], body.get("operation", "get"), body.get("expiresIn", URL_S))
    return answer(request, told, headers=_SECRET)


@route(TemporaryKeys, body=CredentialsAsked, optional=True, refuses=(404, 409, 501, 502))
async def credentials(app: App, request: Request, caller: Caller, *, body: CredentialsAsked) -> Response:
    """POST /v1/namespaces/:ns/storages/:name/credentials {durationSeconds?}: keys of STS for an hour, 15 minutes to 36
    hours, which may do what the storage's own may do; 502 when the store refuses.
    """
    row = _live(_row(app, request, caller))
    access = access_to(app, row, "temporary credentials")
    told = await temporary(access, body.get("durationSeconds", KEYS_S))
    await app.records.audit(caller.name, caller.ns, "storage.credentials", row.name)
    return answer(request, told, headers=_SECRET)


async def _provisioned(app: App, caller: Caller, row: StorageRow, body: StorageAdd) -> dict[str, bool]:
    """With `provision`: its bucket is there, before anything is written down."""
    options = body.get("s3Options") or {}
    if not body.get("provision"):
        if options:
            raise bad_field("s3Options", "go with provision")
        return {}
    if row.kind != "s3":
        raise bad_field("provision", "makes whole buckets only: kind s3")
    access = access_to(app, row, "provision")
    _need_free(app, row)
    created = await provision(access, options)
    if created:
        await app.records.audit(caller.name, caller.ns, "bucket.create", row.bucket)
    return {"bucketCreated": created}


async def _purged(app: App, caller: Caller, row: StorageRow) -> dict[str, bool]:
    """Its bucket is gone, and it is not yet. HttpError 409 while others of the namespace are in that bucket."""
    if _live(row).kind != "s3":
        raise bad_field("purge", f"deletes whole buckets, and {row.name} is a directory of one: remove it without")
    access = access_to(app, row, "purge")
    others = [one.name for one in app.records.storages.of(row.ns) if _is_within(one, row)]
    if others:
        shown = ", ".join(others[:5])
        raise HttpError(
            409, f"{shown} is in that bucket, too", "purge", "remove it first, or remove this without purge"
        )
    deleted = await purge(access)
    if deleted:
        await app.records.audit(caller.name, caller.ns, "bucket.delete", row.bucket)
    return {"bucketDeleted": deleted}


def _is_within(row: StorageRow, whole: StorageRow) -> bool:
    is_other = row.name != whole.name and row.deleted_at is None
    return is_other and (row.bucket, row.endpoint) == (whole.bucket, whole.endpoint)


def _live(row: StorageRow) -> StorageRow:
    """HttpError 409 for one that was removed."""
    if row.deleted_at is not None:
        raise HttpError(
            409, f"storage {row.name!r} was removed", field="name", hint="`lakeshore storage list` has others"
        )
    return row


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
    if kind == "s3-prefix" and not {".", ".."}.isdisjoint(config["prefix"].split("/")):
        raise bad_field("config.prefix", "must not have a part that is . or ..")
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


def _need_free(app: App, row: StorageRow) -> None:
    """Neither its name nor its target is taken. HttpError 409."""
    if app.records.storages.get(row.ns, row.name) is not None:
        raise HttpError(409, f"there is a storage {row.name!r} already", field="name")
    other = app.records.storages.at(row.ns, row.target)
    if other is not None:
        raise HttpError(
            409,
            f"storage {other.name!r} names the same bucket, prefix and endpoint",
            field="config.bucket",
            hint=f"use {other.name}, or remove it first",
            storage=other.name,
        )


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
    secret = secret_of(row)
    if secret is not None and _kind_of(app, row.ns, secret) != KIND:
        found.append(f"config.creds: secret {secret!r} is of kind {_kind_of(app, row.ns, secret)}, not {KIND}")
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
