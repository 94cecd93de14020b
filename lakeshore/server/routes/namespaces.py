"""Namespaces, their tokens, and who one is. Reference: api/auth-and-secrets; S-065…S-083."""

from __future__ import annotations

from typing import Any, Final

from ...plane.contract import DELAYED
from ...plane.statements import SQL
from ...wire.names import check_label, check_namespace
from .. import forgetting
from ..app import App
from ..auth import Caller
from ..execs import keeping
from ..http import HttpError, Request, Response
from ..records import NamespaceRow, Taken, TokenRow
from ..records.store import DEFAULT_NAMESPACE, SCOPES
from ..render import answer, iso
from ..structure import bad_field, read_map

_LONGEST_ORG: Final = 200
_LONGEST_TTL_S: Final = 3653 * 86_400.0
_FORGET_S: Final = 5.0


async def whoami(app: App, request: Request, caller: Caller) -> Response:
    """GET /v1/namespaces/:ns/whoami"""
    token = caller.token
    return answer(
        request,
        {
            "namespace": caller.ns,
            "tokenPrefix": None if token is None else token.prefix,
            "tokenName": f"<{caller.mode}>" if token is None else token.name,
            "lastUsedAt": None if token is None else iso(app.records.last_used(token)),
            "expiresAt": None if token is None else iso(token.expires_at),
            "authMode": caller.mode,
            "scope": caller.scope,
            "orgId": caller.org,
        },
    )


# --- namespaces


async def create(app: App, request: Request, caller: Caller) -> Response:
    """POST /v1/admin/namespaces {name, orgId?}"""
    body, _encoding = await read_map(request)
    name = check_namespace(body.get("name"), "name")
    try:
        row = await app.records.add_namespace(name, _org(body), actor=caller.name)
    except Taken as error:
        raise HttpError(409, str(error), field="name") from error
    return answer(request, _namespace(row), status=201)


async def listing(app: App, request: Request, caller: Caller) -> Response:
    """GET /v1/admin/namespaces"""
    return answer(request, {"namespaces": [_namespace(row) for row in app.records.namespaces()]})


async def show(app: App, request: Request, caller: Caller) -> Response:
    """GET /v1/admin/namespaces/:slug: also the names of those that share its org."""
    row = app.records.namespace(request.params["slug"])
    if row is None:
        raise _unknown(request)
    others = (one.name for one in app.records.namespaces() if one.name != row.name)
    siblings = [name for name in others if app.records.siblings(name, row.name)]
    return answer(request, {**_namespace(row), "siblings": siblings})


async def patch(app: App, request: Request, caller: Caller) -> Response:
    """PATCH /v1/admin/namespaces/:slug {orgId}"""
    body, _encoding = await read_map(request)
    if "orgId" not in body:
        raise bad_field("orgId", "is required (null leaves the org)")
    row = await app.records.set_org(request.params["slug"], _org(body), actor=caller.name)
    if row is None:
        raise _unknown(request)
    return answer(request, _namespace(row))


async def remove(app: App, request: Request, caller: Caller) -> Response:
    """DELETE /v1/admin/namespaces/:slug: with its tokens, topics and what ended in it; refused while it has work.

    `{name, deleted, forgotten}`; 202 and `deleted: false` when much is to be forgotten: ask again.
    """
    name = request.params["slug"]
    if name == DEFAULT_NAMESPACE:
        raise HttpError(409, "the default namespace cannot be deleted")
    if app.records.namespace(name) is None:
        raise _unknown(request)
    tallies = app.dispatcher.rows(SQL.tallies, {})
    open_rows = sum(n for ns, _queue, state, n in tallies if ns == name and state in ("queued", DELAYED, "running"))
    if open_rows:
        raise HttpError(
            409,
            f"namespace {name!r} has {open_rows} queued or running invocations",
            hint=f"cancel the queued ones (lakeshore jobs bulk-cancel --namespace {name}), and let the others end",
        )
    if commands := app.execs.open_in(name):
        raise HttpError(
            409,
            f"namespace {name!r} has {commands} commands that wait or run on daemons",
            hint=f"cancel them (POST /v1/namespaces/{name}/exec/<id>/cancel), or let them end",
        )
    done = await forgetting.forget_namespace(app.dispatcher, app.pages, name, for_s=_FORGET_S)
    gone = done.count
    if done.place is not None:
        return answer(request, {"name": name, "deleted": False, "forgotten": gone}, status=202)
    await app.records.drop_namespace(name, actor=caller.name)
    await keeping.forget_namespace(app.execs, name)
    app.dispatcher.end_polls(name)
    await app.dispatcher.cancel_queued(
        name, None
    )  # of who was let in just before: who comes next of this name sees none
    gone += (await forgetting.forget_namespace(app.dispatcher, app.pages, name, for_s=_FORGET_S)).count
    return answer(request, {"name": name, "deleted": True, "forgotten": gone})


def _org(body: dict[str, Any]) -> str | None:
    org = body.get("orgId")
    if org is None:
        return None
    if type(org) is not str or not 0 < len(org) <= _LONGEST_ORG or not org.isprintable():
        raise bad_field("orgId", f"must be 1 to {_LONGEST_ORG} printable characters, or null")
    return org


def _namespace(row: NamespaceRow) -> dict[str, Any]:
    return {
        "name": row.name,
        "orgId": row.org,
        "targetNymphVersion": row.target_version,
        "createdAt": iso(row.created_at),
    }


def _unknown(request: Request) -> HttpError:
    return HttpError(404, f"unknown namespace {request.params['slug']!r:.80}", field="namespace")


# --- tokens


async def mint(app: App, request: Request, caller: Caller) -> Response:
    """POST /v1/namespaces/:ns/tokens {name, scope?, workerId?, ttl_s?}: the only time that the plaintext leaves. It
    expires `ttl_s` from now, and never without.
    """
    body, _encoding = await read_map(request)
    name = check_label(body.get("name"), "name")
    scope = body.get("scope", "full")
    if scope not in SCOPES:
        raise bad_field("scope", f"must be one of {', '.join(SCOPES)}")
    worker = body.get("workerId")
    if worker is not None and (type(worker) is not str or not worker or scope != "daemon"):
        raise bad_field("workerId", "must be the worker of a token of scope daemon")
    ttl_s = body.get("ttl_s")
    if ttl_s is not None and (type(ttl_s) not in (int, float) or not 0 < ttl_s <= _LONGEST_TTL_S):
        raise bad_field("ttl_s", f"must be a number of seconds above 0, at most {_LONGEST_TTL_S:.0f} (ten years)")
    try:
        row, plaintext = await app.records.mint_token(
            caller.ns, name, scope, worker=worker, ttl_s=ttl_s, actor=caller.name
        )
    except Taken as error:
        raise HttpError(409, str(error), field="name") from error
    minted = {**_token(row), "plaintext": plaintext}
    return answer(request, minted, status=201, headers=(("cache-control", "no-store"),))


async def tokens(app: App, request: Request, caller: Caller) -> Response:
    """GET /v1/namespaces/:ns/tokens: metadata, revoked ones too."""
    return answer(request, {"tokens": [_token(row) for row in app.records.tokens(caller.ns)]})


async def revoke(app: App, request: Request, caller: Caller) -> Response:
    """DELETE /v1/namespaces/:ns/tokens/:id"""
    row = await app.records.revoke_token(caller.ns, request.params["id"], actor=caller.name)
    if row is None:
        raise HttpError(404, "no such token", field="id")
    app.dispatcher.end_polls(caller.ns)
    return answer(request, _token(row))


def _token(row: TokenRow) -> dict[str, Any]:
    return {
        "id": row.id,
        "name": row.name,
        "prefix": row.prefix,
        "scope": row.scope,
        "workerId": row.worker,
        "createdAt": iso(row.created_at),
        "expiresAt": iso(row.expires_at),
        "lastUsedAt": iso(row.last_used_at),
        "revokedAt": iso(row.revoked_at),
    }
