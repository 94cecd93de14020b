"""Namespaces, their tokens, and who one is. Reference: api/auth-and-secrets; S-065…S-083."""

from __future__ import annotations

from typing import Annotated, Final, NotRequired, TypedDict

from ...plane.contract import DELAYED
from ...plane.statements import SQL
from .. import forgetting
from ..app import App
from ..auth import Caller
from ..execs import keeping
from ..http import HttpError, Request, Response
from ..records import NamespaceRow, Taken, TokenRow
from ..records.store import DEFAULT_NAMESPACE, SCOPES
from ..render import answer, iso
from ..shapes import LABEL, NAMESPACE, Time, above, one_of, printable
from ..structure import bad_field
from .stated import route

_LONGEST_ORG: Final = 200
_LONGEST_TTL_S: Final = 3653 * 86_400.0
_FORGET_S: Final = 5.0


class WhoAmI(TypedDict):
    """`authMode` is token, admin or open."""

    namespace: str
    tokenPrefix: str | None
    tokenName: str
    lastUsedAt: Time | None
    expiresAt: Time | None
    authMode: str
    scope: str
    orgId: str | None


class NamespaceAdd(TypedDict):
    """Namespaces of one org see each other's queues, modes and providers."""

    name: Annotated[str, NAMESPACE]
    orgId: NotRequired[Annotated[str, printable(1, _LONGEST_ORG)] | None]


class NamespaceChange(TypedDict):
    """Null leaves the org."""

    orgId: Annotated[str, printable(1, _LONGEST_ORG)] | None


class NamespaceShown(TypedDict):
    """A namespace."""

    name: str
    orgId: str | None
    targetNymphVersion: str | None
    createdAt: Time


class NamespaceDetail(NamespaceShown):
    """A namespace, and the names of those that share its org."""

    siblings: list[str]


class NamespaceList(TypedDict):
    """Every namespace."""

    namespaces: list[NamespaceShown]


class NamespaceDeleted(TypedDict):
    """`forgotten` counts calls; not `deleted` yet where there is much: ask again."""

    name: str
    deleted: bool
    forgotten: int


class TokenAdd(TypedDict):
    """`workerId` binds a token of scope daemon to one worker. It never expires without `ttl_s`."""

    name: Annotated[str, LABEL]
    scope: NotRequired[Annotated[str, one_of(*SCOPES)]]
    workerId: NotRequired[Annotated[str, printable(1, 200)]]
    ttl_s: NotRequired[Annotated[float, above(0, _LONGEST_TTL_S, "a number of seconds")]]


class TokenShown(TypedDict):
    """What is known of a token, besides itself."""

    id: str
    name: str
    prefix: str
    scope: str
    workerId: str | None
    createdAt: Time
    expiresAt: Time | None
    lastUsedAt: Time | None
    revokedAt: Time | None


class TokenMinted(TokenShown):
    """The only answer that has the token."""

    plaintext: str


class TokenList(TypedDict):
    """Revoked ones too."""

    tokens: list[TokenShown]


@route(WhoAmI)
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


@route({201: NamespaceShown}, body=NamespaceAdd, refuses=(409,))
async def create(app: App, request: Request, caller: Caller, *, body: NamespaceAdd) -> Response:
    """POST /v1/admin/namespaces {name, orgId?}"""
    try:
        row = await app.records.add_namespace(body["name"], body.get("orgId"), actor=caller.name)
    except Taken as error:
        raise HttpError(409, str(error), field="name") from error
    return answer(request, _namespace(row), status=201)


@route(NamespaceList)
async def listing(app: App, request: Request, caller: Caller) -> Response:
    """GET /v1/admin/namespaces"""
    return answer(request, {"namespaces": [_namespace(row) for row in app.records.namespaces()]})


@route(NamespaceDetail, refuses=(404,))
async def show(app: App, request: Request, caller: Caller) -> Response:
    """GET /v1/admin/namespaces/:slug: also the names of those that share its org."""
    row = app.records.namespace(request.params["slug"])
    if row is None:
        raise _unknown(request)
    others = (one.name for one in app.records.namespaces() if one.name != row.name)
    siblings = [name for name in others if app.records.siblings(name, row.name)]
    return answer(request, {**_namespace(row), "siblings": siblings})


@route(NamespaceShown, body=NamespaceChange, refuses=(404,))
async def patch(app: App, request: Request, caller: Caller, *, body: NamespaceChange) -> Response:
    """PATCH /v1/admin/namespaces/:slug {orgId}"""
    row = await app.records.set_org(request.params["slug"], body["orgId"], actor=caller.name)
    if row is None:
        raise _unknown(request)
    return answer(request, _namespace(row))


@route({200: NamespaceDeleted, 202: NamespaceDeleted}, refuses=(404, 409))
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
    if machines := app.launching.machines_of(name):
        raise HttpError(
            409,
            f"machines run that daemons of namespace {name!r}, or its providers, were launched on: {machines}",
            hint="`lakeshore daemon kill <id>` ends each, or leaves it running with --no-terminate",
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


def _namespace(row: NamespaceRow) -> NamespaceShown:
    return {
        "name": row.name,
        "orgId": row.org,
        "targetNymphVersion": row.target_version,
        "createdAt": iso(row.created_at),
    }


def _unknown(request: Request) -> HttpError:
    return HttpError(404, f"unknown namespace {request.params['slug']!r:.80}", field="namespace")


# --- tokens


@route({201: TokenMinted}, body=TokenAdd, refuses=(409,))
async def mint(app: App, request: Request, caller: Caller, *, body: TokenAdd) -> Response:
    """POST /v1/namespaces/:ns/tokens {name, scope?, workerId?, ttl_s?}: the only time that the plaintext leaves. It
    expires `ttl_s` from now, and never without.
    """
    name, scope, worker = body["name"], body.get("scope", "full"), body.get("workerId")
    if worker is not None and scope != "daemon":
        raise bad_field("workerId", "must be the worker of a token of scope daemon")
    try:
        row, plaintext = await app.records.mint_token(
            caller.ns, name, scope, worker=worker, ttl_s=body.get("ttl_s"), actor=caller.name
        )
    except Taken as error:
        raise HttpError(409, str(error), field="name") from error
    minted: TokenMinted = {**_token(row), "plaintext": plaintext}
    return answer(request, minted, status=201, headers=(("cache-control", "no-store"),))


@route(TokenList)
async def tokens(app: App, request: Request, caller: Caller) -> Response:
    """GET /v1/namespaces/:ns/tokens: metadata, revoked ones too."""
    return answer(request, {"tokens": [_token(row) for row in app.records.tokens(caller.ns)]})


@route(TokenShown, refuses=(404,))
async def revoke(app: App, request: Request, caller: Caller) -> Response:
    """DELETE /v1/namespaces/:ns/tokens/:id"""
    row = await app.records.revoke_token(caller.ns, request.params["id"], actor=caller.name)
    if row is None:
        raise HttpError(404, "no such token", field="id")
    app.dispatcher.end_polls(caller.ns)
    return answer(request, _token(row))


def _token(row: TokenRow) -> TokenShown:
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
