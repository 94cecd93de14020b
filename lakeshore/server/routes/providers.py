"""Providers: machines, or what makes them, under a name that is unique in an org.

What they refer to as `{"$secret": name}` stays a reference in every answer but `resolve`'s, which is for who drives
the connection from their own machine: an SSH provider's, keys of kind ssh_key alone, with an entry in the audit.
Reference: cli/examples/providers-and-discover; api/auth-and-secrets, "$secret references"; S-123…S-145.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Annotated, Any, Final, NotRequired, TypedDict

from ..app import App
from ..auth import Caller
from ..http import HttpError, Request, Response
from ..launchers.kinds import DISPATCHES, LAUNCHERS, check_kwargs, warnings_of
from ..launchers.resolving import providers_of_org
from ..records import ProviderRow
from ..references import names_in, replaced, storable
from ..rekeying import about
from ..render import answer, iso
from ..sealing import SealError
from ..shapes import SLUG, Time, longest, one_of, refused, whole
from ..structure import bad_field
from .stated import route

_LIMIT: Final = 200
_MOST: Final = 1000
_LONGEST_NAME: Final = 200
_LAUNCHER: Final = one_of(*LAUNCHERS)
_DISPATCH: Final = one_of(*DISPATCHES)


class ProviderAdd(TypedDict):
    """`kwargs` are the launcher's, with `{"$secret": name}` where a value is secret."""

    name: Annotated[str, SLUG, longest(_LONGEST_NAME)]
    launcher: Annotated[str, _LAUNCHER]
    kwargs: NotRequired[dict[str, Any]]
    dispatch: NotRequired[Annotated[str, _DISPATCH] | None]
    tunnel: NotRequired[str | None]
    hidden: NotRequired[bool]


class ProviderChange(TypedDict, total=False):
    """`kwargs` replaces them all; null as `dispatch` is the launcher's usual one; an empty `tunnel` detaches it."""

    kwargs: dict[str, Any]
    dispatch: Annotated[str, _DISPATCH] | None
    tunnel: str | None
    hidden: bool
    launcher: Annotated[
        Any, refused("cannot be changed", hint="remove the provider, and add it again with the other launcher")
    ]


class ProviderQuery(TypedDict, total=False):
    """Which ones are listed besides; of which launcher; how many, and from where on."""

    hidden: bool
    deleted: bool
    all: bool
    launcher: Annotated[str, _LAUNCHER]
    limit: Annotated[int, whole(1, _MOST)]
    cursor: str


class ProviderShown(TypedDict):
    """References stay references; the name of a removed one says when that was."""

    name: str
    namespace: str
    launcher: str
    kwargs: dict[str, Any]
    dispatch: str
    tunnel: str | None
    hidden: bool
    createdAt: Time
    updatedAt: Time
    deletedAt: Time | None


class ProviderWritten(ProviderShown):
    """And what is probably not meant."""

    warnings: list[str]


class ProviderList(TypedDict):
    """Those of every namespace of the org, by name. `next` is the cursor of the following page."""

    providers: list[ProviderShown]
    count: int
    next: str | None


@route(ProviderList, query=ProviderQuery, refuses=(422,))
async def listing(app: App, request: Request, caller: Caller, *, query: ProviderQuery) -> Response:
    """GET /v1/namespaces/:ns/providers?hidden&deleted&all&launcher&limit&cursor: of every namespace of the org."""
    limit, launcher, after = query.get("limit", _LIMIT), query.get("launcher"), _place(query.get("cursor"))
    hidden, deleted = (query.get(name) or query.get("all") for name in ("hidden", "deleted"))
    rows = [
        row
        for row in in_org(app, caller.ns)
        if (hidden or not row.hidden)
        and (deleted or row.deleted_at is None)
        and launcher in (None, row.launcher)
        and (row.name, row.ns) > after
    ]
    rows.sort(key=lambda row: (row.name, row.ns))
    page = rows[:limit]
    following = f"{page[-1].name}/{page[-1].ns}" if len(rows) > limit else None
    return answer(request, {"providers": [_shown(row) for row in page], "count": len(page), "next": following})


@route(ProviderShown, refuses=(404,))
async def show(app: App, request: Request, caller: Caller) -> Response:
    """GET /v1/namespaces/:ns/providers/:name: all of it, references as they are."""
    return answer(request, _shown(row_of(app, caller.ns, request.params["name"])))


@route({201: ProviderWritten}, body=ProviderAdd, wrong=400, refuses=(409, 422))
async def add(app: App, request: Request, caller: Caller, *, body: ProviderAdd) -> Response:
    """POST /v1/namespaces/:ns/providers {name, launcher, kwargs?, dispatch?, tunnel?, hidden?}: 201, with `warnings`;
    409 for a name that is taken in the org.
    """
    name = body["name"]
    now = time.time()
    row = ProviderRow(
        ns=caller.ns,
        name=name,
        launcher=body["launcher"],
        kwargs=_kwargs(app, caller.ns, body["launcher"], body.get("kwargs", {})),
        dispatch=body.get("dispatch"),
        hidden=body.get("hidden", False),
        created_at=now,
        updated_at=now,
        tunnel=body.get("tunnel") or None,
    )
    async with app.records.tunnels.turn, app.records.providers.turn:
        _need_tunnel(app, caller.ns, row.tunnel)
        _need_free(app, caller.ns, name)
        await app.records.providers.add(row, app.records.note(caller.name, caller.ns, "provider.add", name))
    return answer(request, _shown(row) | _warnings(app, row), status=201)


@route(ProviderWritten, body=ProviderChange, wrong=400, refuses=(404, 422))
async def patch(app: App, request: Request, caller: Caller, *, body: ProviderChange) -> Response:
    """PATCH /v1/namespaces/:ns/providers/:name {kwargs?, dispatch?, hidden?, tunnel?}: `kwargs` replaces them all."""
    changed: dict[str, Any] = {"updated_at": time.time()}
    if "dispatch" in body:
        changed["dispatch"] = body["dispatch"]
    if "hidden" in body:
        changed["hidden"] = body["hidden"]
    if "tunnel" in body:
        changed["tunnel"] = body["tunnel"] or None
    async with app.records.tunnels.turn, app.records.providers.turn:
        _need_tunnel(app, caller.ns, changed.get("tunnel"))
        row = row_of(app, caller.ns, request.params["name"])
        if "kwargs" in body:
            changed["kwargs"] = _kwargs(app, caller.ns, row.launcher, body["kwargs"])
        elif len(changed) == 1:
            raise bad_field("kwargs", "name at least one field to change")
        note = app.records.note(caller.name, caller.ns, "provider.change", row.name)
        made = await app.records.providers.change(row, note, **changed)
    return answer(request, _shown(made) | _warnings(app, made))


@route(ProviderShown, refuses=(404,))
async def remove(app: App, request: Request, caller: Caller) -> Response:
    """DELETE /v1/namespaces/:ns/providers/:name: it stays under another name, and can be restored."""
    async with app.records.providers.turn:
        row = row_of(app, caller.ns, request.params["name"])
        if row.deleted_at is None:
            now = time.time()
            note = app.records.note(caller.name, caller.ns, "provider.remove", row.name)
            name = f"{row.name} [deleted {iso(now)}]"
            while app.records.providers.get(caller.ns, name) is not None:  # one that went in the same millisecond
                now += 0.001
                name = f"{row.name} [deleted {iso(now)}]"
            row = await app.records.providers.change(row, note, name=name, deleted_at=now, updated_at=now)
    return answer(request, _shown(row))


@route(ProviderShown, refuses=(404, 409))
async def restore(app: App, request: Request, caller: Caller) -> Response:
    """POST /v1/namespaces/:ns/providers/:name/restore: by its plain name, or by the one that it has now.

    A tunnel that is gone meanwhile is detached.
    """
    name = request.params["name"]
    providers = app.records.providers
    async with app.records.tunnels.turn, providers.turn:
        row = providers.get(caller.ns, name)
        if row is None or row.deleted_at is None:
            row = providers.removed(caller.ns, name) or row
        if row is None:
            raise _unknown(name)
        if row.deleted_at is not None:
            _need_free(app, caller.ns, row.plain_name)
            note = app.records.note(caller.name, caller.ns, "provider.restore", row.plain_name)
            tunnel = row.tunnel if row.tunnel and app.records.tunnels.get(row.ns, row.tunnel) else None
            changed: dict[str, Any] = {"name": row.plain_name, "tunnel": tunnel, "updated_at": time.time()}
            row = await providers.change(row, note, deleted_at=None, **changed)
    return answer(request, _shown(row))


@route(ProviderShown, refuses=(403, 404, 409, 422))
async def resolve(app: App, request: Request, caller: Caller) -> Response:
    """POST /v1/namespaces/:ns/providers/:name/resolve: an SSH or SLURM provider with its key, to connect with."""
    row = row_of(app, caller.ns, request.params["name"])
    if row.launcher not in ("SSH", "SLURM") or _dispatch_of(row) != "direct" or row.deleted_at is not None:
        raise HttpError(
            422, f"{row.name}: only a directly dispatched SSH or SLURM provider is driven from your machine", "name"
        )
    if caller.mode == "open" and app.gate.is_wide:
        raise HttpError(
            403,
            "open mode lets others in, and so gives no key away",
            hint="start the server with LAKESHORE_ADMIN_TOKEN, and send a token of scope full",
        )
    names = names_in(row.kwargs, "kwargs")
    kwargs = replaced(row.kwargs, lambda name: _key(app, row, name), "kwargs")
    if names:
        subject = f"{row.name}: {', '.join(sorted(names))}"
        await app.records.audit(caller.name, caller.ns, "secret.read", subject)
    return answer(request, {**_shown(row), "kwargs": kwargs}, headers=(("cache-control", "no-store"),))


def _key(app: App, row: ProviderRow, name: str) -> str:
    secret = app.records.secrets.get(row.ns, name)
    if secret is None:
        raise HttpError(
            422,
            f"secret {name!r} not found in namespace {row.ns!r}",
            field="kwargs",
            hint=f"`lakeshore secrets add {name} --kind ssh_key` there, or name another one",
        )
    if secret.kind != "ssh_key":
        raise HttpError(
            422, f"secret {name!r} is of kind {secret.kind}: only an ssh_key is given to who connects", "kwargs"
        )
    try:
        return app.sealer.open(secret.sealed, about=about(row.ns, name)).decode()
    except (SealError, UnicodeDecodeError) as error:
        why = str(error) if isinstance(error, SealError) else "it is not text"
        raise HttpError(409, f"secret {name!r} cannot be used: {why}") from error


def _kwargs(app: App, ns: str, launcher: str, value: dict[str, Any]) -> dict[str, Any]:
    """What may be written down. HttpError 400; 422 for a secret that is not there, or what the launcher cannot use."""
    storable(value, "kwargs", knows=lambda name: app.records.secrets.get(ns, name) is not None)
    check_kwargs(launcher, value)
    return value


def _need_tunnel(app: App, ns: str, name: str | None) -> None:
    """With the tunnels' turn held: one that is referred to is not removed."""
    if name is not None and app.records.tunnels.get(ns, name) is None:
        raise HttpError(422, f"tunnel: no tunnel {name!r:.80}", "tunnel", "`lakeshore tunnels list` shows them")


def _warnings(app: App, row: ProviderRow) -> dict[str, list[str]]:
    def kind_of(name: str) -> str | None:
        secret = app.records.secrets.get(row.ns, name)
        return None if secret is None else secret.kind

    return {"warnings": warnings_of(row.launcher, row.kwargs, kind_of=kind_of)}


def _place(cursor: str | None) -> tuple[str, str]:
    if cursor is None:
        return "", ""
    name, slash, ns = cursor.rpartition("/")
    if not slash:
        raise bad_field("cursor", "must be what an earlier answer gave as `next`")
    return name, ns


def _dispatch_of(row: ProviderRow) -> str:
    said = row.kwargs.get("dispatch")
    return said if said in DISPATCHES else row.dispatch or LAUNCHERS[row.launcher].dispatch


def in_org(app: App, ns: str) -> Iterable[ProviderRow]:
    """Every provider of the namespace and of its siblings, removed ones too."""
    return providers_of_org(app.records, ns)


def _need_free(app: App, ns: str, name: str) -> None:
    taken = next((row for row in in_org(app, ns) if row.name == name), None)
    if taken is not None:
        where = "" if taken.ns == ns else f" in namespace {taken.ns!r} of the same org"
        raise HttpError(409, f"there is a provider {name!r} already{where}", field="name")


def row_of(app: App, ns: str, name: str) -> ProviderRow:
    """One of this namespace. HttpError 404."""
    row = app.records.providers.get(ns, name)
    if row is None:
        raise _unknown(name)
    return row


def _unknown(name: str) -> HttpError:
    return HttpError(404, f"no provider {name!r:.80}", field="name", hint="`lakeshore providers list` shows them")


def _shown(row: ProviderRow) -> ProviderShown:
    return {
        "name": row.name,
        "namespace": row.ns,
        "launcher": row.launcher,
        "kwargs": row.kwargs,
        "dispatch": _dispatch_of(row),
        "tunnel": row.tunnel,
        "hidden": row.hidden,
        "createdAt": iso(row.created_at),
        "updatedAt": iso(row.updated_at),
        "deletedAt": iso(row.deleted_at),
    }
