"""Secrets: values go in, and only what is known about them comes out.

Reference: api/auth-and-secrets, "Secrets"; S-090…S-110.
"""

from __future__ import annotations

import base64
import binascii
import functools
import time
from typing import Annotated, Any, Final, NotRequired, TypedDict

from ...wire.errors import NameError_
from ...wire.names import check_slug
from ..app import App
from ..auth import Caller
from ..http import HttpError, Request, Response
from ..records import SecretRow
from ..rekeying import about
from ..render import answer, iso
from ..sealing import Sealed, SealError
from ..shapes import SLUG, Time, one_of, printable
from ..state import StateError, decode_secrets_key
from .stated import route

KINDS: Final = ("ssh_key", "aws_keypair", "gcp_sa_json", "opaque")
LARGEST: Final = 64 * 1024
_DESCRIPTION: Final = 500
_REKEY_S: Final = 5.0


class SecretAdd(TypedDict):
    """A value is sent as `plaintext`, or in base64 as `plaintext_b64`."""

    name: Annotated[str, SLUG]
    kind: Annotated[str, one_of(*KINDS)]
    plaintext: NotRequired[str]
    plaintext_b64: NotRequired[str]
    description: NotRequired[Annotated[str, printable(0, _DESCRIPTION)]]


class SecretValue(TypedDict):
    """One of the two."""

    plaintext: NotRequired[str]
    plaintext_b64: NotRequired[str]


class SecretShown(TypedDict):
    """What is known of a secret, besides its value."""

    name: str
    kind: str
    description: str
    createdAt: Time
    updatedAt: Time


class SecretList(TypedDict):
    """By name."""

    secrets: list[SecretShown]


class Deleted(TypedDict):
    """What is gone."""

    name: str
    deleted: bool


class NewKey(TypedDict):
    """32 bytes, in base64."""

    newKey: NotRequired[str]


class Unopened(TypedDict):
    """A secret that no key of the server opens, or that is damaged."""

    namespace: str
    name: str
    error: str


class Rekeyed(TypedDict):
    """How far it is: `key` is the fingerprint of the new one. `setSecretsKey`: it is done, and the server's SECRETS_KEY
    is to be changed before its next start.
    """

    key: str
    total: int
    resealed: int
    left: int
    failed: list[Unopened]
    done: bool
    setSecretsKey: bool


@route(SecretList)
async def listing(app: App, request: Request, caller: Caller) -> Response:
    """GET /v1/namespaces/:ns/secrets: by name, never a value."""
    return answer(request, {"secrets": [_shown(row) for row in app.records.secrets.of(caller.ns)]})


@route(SecretShown, refuses=(404,))
async def show(app: App, request: Request, caller: Caller) -> Response:
    """GET /v1/namespaces/:ns/secrets/:name: never the value."""
    row = app.records.secrets.get(caller.ns, request.params["name"])
    if row is None:
        raise unknown(request.params["name"])
    return answer(request, _shown(row))


@route({201: SecretShown}, body=SecretAdd, wrong=400, refuses=(409, 413, 501))
async def add(app: App, request: Request, caller: Caller, *, body: SecretAdd) -> Response:
    """POST /v1/namespaces/:ns/secrets {name, kind, plaintext | plaintext_b64, description?}: 201; 409 for a name that
    is taken.
    """
    name, kind, description = body["name"], body["kind"], body.get("description", "")
    plaintext, now = _plaintext(body), time.time()

    def make() -> SecretRow:
        return SecretRow(
            ns=caller.ns,
            name=name,
            kind=kind,
            description=description,
            sealed=_sealed(app, caller.ns, name, plaintext),
            created_at=now,
            updated_at=now,
        )

    note = app.records.note(caller.name, caller.ns, "secret.add", name)
    row = await app.records.secrets.add(caller.ns, name, make, note)
    if row is None:
        raise HttpError(
            409,
            f"there is a secret {name!r} already",
            field="name",
            hint=f"`lakeshore secrets rotate {name}` replaces its value",
        )
    return answer(request, _shown(row), status=201)


@route(SecretShown, body=SecretValue, wrong=400, refuses=(404, 413, 501))
async def rotate(app: App, request: Request, caller: Caller, *, body: SecretValue) -> Response:
    """PUT /v1/namespaces/:ns/secrets/:name {plaintext | plaintext_b64}: another value under the same name."""
    name = request.params["name"]
    if app.records.secrets.get(caller.ns, name) is None:
        raise unknown(name)
    plaintext = _plaintext(body)
    note = app.records.note(caller.name, caller.ns, "secret.rotate", name)
    seal = functools.partial(_sealed, app, caller.ns, name, plaintext)
    row = await app.records.secrets.reseal(caller.ns, name, seal, time.time(), note)
    if row is None:
        raise unknown(name)
    return answer(request, _shown(row))


@route(Deleted, refuses=(404,))
async def remove(app: App, request: Request, caller: Caller) -> Response:
    """DELETE /v1/namespaces/:ns/secrets/:name: what refers to it says so when it is used."""
    name = request.params["name"]
    note = app.records.note(caller.name, caller.ns, "secret.remove", name[:200])
    if not await app.records.secrets.drop(caller.ns, name, note):
        raise unknown(name)
    return answer(request, {"name": name, "deleted": True})


@route({200: Rekeyed, 202: Rekeyed}, body=NewKey, refuses=(409,), optional=True)
async def rekey(app: App, request: Request, caller: Caller, *, body: NewKey) -> Response:
    """POST /v1/admin/secrets/rekey {newKey?}: seal every secret of the server anew, for a few seconds; 202 when more
    is to be done. Without a key one is made, or the move that is under way goes on.
    """
    asked = body.get("newKey")
    try:
        key = None if asked is None else decode_secrets_key(asked, "newKey")
    except StateError as error:
        raise HttpError(422, str(error), field="newKey") from error
    try:
        done = await app.rekeying.run(key, actor=caller.name, for_s=_REKEY_S)
    except StateError as error:
        raise HttpError(507, str(error)) from error
    told = {
        "key": done.key,
        "total": done.total,
        "resealed": done.resealed,
        "left": done.left,
        "failed": [{"namespace": ns, "name": name, "error": why} for (ns, name), why in sorted(done.failed.items())],
        "done": done.is_done,
        "setSecretsKey": done.names_environment,
    }
    return answer(request, told, status=202 if done.left else 200)


def slug(value: Any) -> str:
    """A resource's name. HttpError 400."""
    try:
        return check_slug(value)
    except NameError_ as error:
        raise HttpError(400, str(error), field="name") from error


def unknown(name: str) -> HttpError:
    """There is no such secret."""
    return HttpError(404, f"no secret {name!r:.80}", field="name", hint="`lakeshore secrets list` shows them")


def _plaintext(body: SecretAdd | SecretValue) -> bytes:
    text, packed = body.get("plaintext"), body.get("plaintext_b64")
    if (text is None) == (packed is None):
        raise HttpError(400, "plaintext: send the value as plaintext, or as plaintext_b64", field="plaintext")
    field = "plaintext" if packed is None else "plaintext_b64"
    given = text or "" if packed is None else packed
    try:
        data = given.encode() if packed is None else base64.b64decode(given, validate=True)
    except (UnicodeError, binascii.Error, ValueError):
        raise HttpError(400, f"{field}: is not {'UTF-8' if packed is None else 'base64'}", field=field) from None
    if not data:
        raise HttpError(400, f"{field}: is empty", field=field)
    if len(data) > LARGEST:
        raise HttpError(413, f"a secret has at most {LARGEST // 1024} KiB", field=field)
    return data


def _sealed(app: App, ns: str, name: str, plaintext: bytes) -> Sealed:
    try:
        return app.sealer.seal(plaintext, about=about(ns, name))
    except SealError as error:
        raise HttpError(501, str(error)) from error


def _shown(row: SecretRow) -> SecretShown:
    return {
        "name": row.name,
        "kind": row.kind,
        "description": row.description,
        "createdAt": iso(row.created_at),
        "updatedAt": iso(row.updated_at),
    }
