"""Enroll tokens, for operators. Reference: nymph/key-rotation, "Enroll tokens"; S-084…S-089."""

from __future__ import annotations

from typing import Any

from ...wire.names import check_label
from ..app import App
from ..auth import Caller
from ..http import HttpError, Request, Response
from ..records import EnrollTokenRow
from ..records.enroll_tokens import MAX_TTL_S, TTL_S
from ..render import answer, iso
from ..structure import bad_field, read_map


async def mint(app: App, request: Request, caller: Caller) -> Response:
    """POST /v1/namespaces/:ns/enroll-tokens {label, ttl_s?}: the only time that the plaintext leaves."""
    body, _encoding = await read_map(request)
    label = check_label(body.get("label"), "label")
    ttl_s = body.get("ttl_s", TTL_S)
    if type(ttl_s) not in (int, float) or not 0 < ttl_s <= MAX_TTL_S:
        raise bad_field("ttl_s", f"must be a number of seconds above 0, at most {MAX_TTL_S:.0f} (30 days)")
    note = app.records.note(caller.name, caller.ns, "enroll_token.mint", label)
    row, plaintext = await app.records.enroll_tokens.mint(caller.ns, label, ttl_s, note)
    minted = {**_shown(row), "plaintext": plaintext}
    return answer(request, minted, status=201, headers=(("cache-control", "no-store"),))


async def listing(app: App, request: Request, caller: Caller) -> Response:
    """GET /v1/namespaces/:ns/enroll-tokens: metadata, spent ones too."""
    return answer(request, {"enrollTokens": [_shown(row) for row in app.records.enroll_tokens.of(caller.ns)]})


async def burn(app: App, request: Request, caller: Caller) -> Response:
    """DELETE /v1/namespaces/:ns/enroll-tokens/:id: spent, by nobody."""
    id_ = request.params["id"]
    note = app.records.note(caller.name, caller.ns, "enroll_token.burn", id_)
    row = await app.records.enroll_tokens.burn(caller.ns, id_, note)
    if row is None:
        raise HttpError(404, "no such enroll token", field="id")
    return answer(request, _shown(row))


def _shown(row: EnrollTokenRow) -> dict[str, Any]:
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
