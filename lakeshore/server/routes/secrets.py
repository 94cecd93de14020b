"""Secrets: values go in, and only what is known about them comes out.

Reference: api/auth-and-secrets, "Secrets"; S-090…S-110.
"""

from __future__ import annotations

import base64
import binascii
import time
from typing import Any, Final

from ...wire.errors import NameError_
from ...wire.names import check_slug
from ..app import App
from ..auth import Caller
from ..http import HttpError, Request, Response
from ..records import SecretRow
from ..render import answer, iso
from ..sealing import Sealed, SealError
from ..structure import read_map

KINDS: Final = ("ssh_key", "aws_keypair", "gcp_sa_json", "opaque")
LARGEST: Final = 64 * 1024
_DESCRIPTION: Final = 500


async def listing(app: App, request: Request, caller: Caller) -> Response:
    """GET /v1/namespaces/:ns/secrets: by name, never a value."""
    return answer(request, {"secrets": [_shown(row) for row in app.records.secrets.of(caller.ns)]})


async def show(app: App, request: Request, caller: Caller) -> Response:
    """GET /v1/namespaces/:ns/secrets/:name: never the value."""
    row = app.records.secrets.get(caller.ns, request.params["name"])
    if row is None:
        raise unknown(request.params["name"])
    return answer(request, _shown(row))


async def add(app: App, request: Request, caller: Caller) -> Response:
    """POST /v1/namespaces/:ns/secrets {name, kind, plaintext | plaintext_b64, description?}: 201; 409 for a name that
    is taken.
    """
    body, _encoding = await read_map(request)
    name = slug(body.get("name"))
    kind, description = body.get("kind"), body.get("description") or ""
    if kind not in KINDS:
        raise HttpError(400, f"kind: must be one of {', '.join(KINDS)}", field="kind")
    if type(description) is not str or len(description) > _DESCRIPTION or not description.isprintable():
        raise HttpError(400, f"description: must be one line of at most {_DESCRIPTION} characters", field="description")
    sealed = _sealed(app, caller.ns, name, _plaintext(body))
    now = time.time()
    row = SecretRow(
        ns=caller.ns, name=name, kind=kind, description=description, sealed=sealed, created_at=now, updated_at=now
    )
    if not await app.records.secrets.add(row, app.records.note(caller.name, caller.ns, "secret.add", name)):
        raise HttpError(
            409,
            f"there is a secret {name!r} already",
            field="name",
            hint=f"`lakeshore secrets rotate {name}` replaces its value",
        )
    return answer(request, _shown(row), status=201)


async def rotate(app: App, request: Request, caller: Caller) -> Response:
    """PUT /v1/namespaces/:ns/secrets/:name {plaintext | plaintext_b64}: another value under the same name."""
    body, _encoding = await read_map(request)
    name = request.params["name"]
    if app.records.secrets.get(caller.ns, name) is None:
        raise unknown(name)
    sealed = _sealed(app, caller.ns, name, _plaintext(body))
    note = app.records.note(caller.name, caller.ns, "secret.rotate", name)
    row = await app.records.secrets.reseal(caller.ns, name, sealed, time.time(), note)
    if row is None:
        raise unknown(name)
    return answer(request, _shown(row))


async def remove(app: App, request: Request, caller: Caller) -> Response:
    """DELETE /v1/namespaces/:ns/secrets/:name: what refers to it says so when it is used."""
    name = request.params["name"]
    note = app.records.note(caller.name, caller.ns, "secret.remove", name[:200])
    if not await app.records.secrets.drop(caller.ns, name, note):
        raise unknown(name)
    return answer(request, {"name": name, "deleted": True})


def about(ns: str, name: str) -> bytes:
    """What the seal of a secret is bound to."""
    return f"{ns}/{name}".encode()


def slug(value: Any) -> str:
    """A resource's name. HttpError 400."""
    try:
        return check_slug(value)
    except NameError_ as error:
        raise HttpError(400, str(error), field="name") from error


def unknown(name: str) -> HttpError:
    """There is no such secret."""
    return HttpError(404, f"no secret {name!r:.80}", field="name", hint="`lakeshore secrets list` shows them")


def _plaintext(body: dict[str, Any]) -> bytes:
    text, packed = body.get("plaintext"), body.get("plaintext_b64")
    if (text is None) == (packed is None):
        raise HttpError(400, "plaintext: send the value as plaintext, or as plaintext_b64", field="plaintext")
    field = "plaintext" if packed is None else "plaintext_b64"
    given = text if packed is None else packed
    if type(given) is not str:
        raise HttpError(400, f"{field}: must be a string", field=field)
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


def _shown(row: SecretRow) -> dict[str, Any]:
    return {
        "name": row.name,
        "kind": row.kind,
        "description": row.description,
        "createdAt": iso(row.created_at),
        "updatedAt": iso(row.updated_at),
    }
