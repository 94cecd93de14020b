"""Enroll tokens, for operators. Reference: nymph/key-rotation, "Enroll tokens"; S-084…S-089."""

from __future__ import annotations

from typing import Annotated, NotRequired, TypedDict

from ..app import App
from ..auth import Caller
from ..http import HttpError, Request, Response
from ..records import EnrollTokenRow
from ..records.enroll_tokens import MAX_TTL_S, TTL_S
from ..render import answer, iso
from ..shapes import LABEL, Time, above
from .stated import route


class EnrollTokenAdd(TypedDict):
    """It is spent by the first hello that shows it; `ttl_s` in seconds."""

    label: Annotated[str, LABEL]
    ttl_s: NotRequired[Annotated[float, above(0, MAX_TTL_S, "a number of seconds")]]


class EnrollTokenShown(TypedDict):
    """What is known of an enroll token, besides itself."""

    id: str
    label: str
    prefix: str
    createdAt: Time
    expiresAt: Time
    consumedAt: Time | None
    consumedByWorkerId: str | None
    spent: bool


class EnrollTokenMinted(EnrollTokenShown):
    """The only answer that has the token."""

    plaintext: str


class EnrollTokenList(TypedDict):
    """Spent ones too."""

    enrollTokens: list[EnrollTokenShown]


@route({201: EnrollTokenMinted}, body=EnrollTokenAdd)
async def mint(app: App, request: Request, caller: Caller, *, body: EnrollTokenAdd) -> Response:
    """POST /v1/namespaces/:ns/enroll-tokens {label, ttl_s?}: the only time that the plaintext leaves."""
    label, ttl_s = body["label"], body.get("ttl_s", TTL_S)
    note = app.records.note(caller.name, caller.ns, "enroll_token.mint", label)
    row, plaintext = await app.records.enroll_tokens.mint(caller.ns, label, ttl_s, note)
    minted: EnrollTokenMinted = {**_shown(row), "plaintext": plaintext}
    return answer(request, minted, status=201, headers=(("cache-control", "no-store"),))


@route(EnrollTokenList)
async def listing(app: App, request: Request, caller: Caller) -> Response:
    """GET /v1/namespaces/:ns/enroll-tokens: metadata, spent ones too."""
    return answer(request, {"enrollTokens": [_shown(row) for row in app.records.enroll_tokens.of(caller.ns)]})


@route(EnrollTokenShown, refuses=(404,))
async def burn(app: App, request: Request, caller: Caller) -> Response:
    """DELETE /v1/namespaces/:ns/enroll-tokens/:id: spent, by nobody."""
    id_ = request.params["id"]
    note = app.records.note(caller.name, caller.ns, "enroll_token.burn", id_)
    row = await app.records.enroll_tokens.burn(caller.ns, id_, note)
    if row is None:
        raise HttpError(404, "no such enroll token", field="id")
    return answer(request, _shown(row))


def _shown(row: EnrollTokenRow) -> EnrollTokenShown:
    return {
        "id": row.id,
        "label": row.label,
        "prefix": row.prefix,
        "createdAt": iso(row.created_at),
        "expiresAt": iso(row.expires_at),
        "consumedAt": iso(row.consumed_at),
        "consumedByWorkerId": row.consumed_by,
        "spent": row.consumed_at is not None,
    }
