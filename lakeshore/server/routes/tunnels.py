"""Tunnels: passages to machines, under a name that providers refer to. They are kept; nothing brings them up yet.

Rules: a config is opaque, what is no wg-quick is warned of. One that a provider refers to cannot be removed; who makes
a provider refer to one holds the tunnels' turn.
Reference: get-started/tunnels; S-189…S-198, S-766, S-791.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import time
from typing import Annotated, Any, Final, NotRequired, TypedDict

from ..app import App
from ..auth import Caller
from ..http import HttpError, Request, Response
from ..records import EntryRow
from ..references import MARKER
from ..render import answer
from ..shapes import one_of
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
from .entries import shown as _entry
from .secrets import Deleted
from .stated import route

WIREGUARD: Final = "wireguard"
_KEY_BYTES: Final = 32


class TunnelAdd(TypedDict):
    """`config` is `{interface, peers}` or `{conf}`; a secret is `{"$secret": name}` there."""

    name: Annotated[str, *NAME]
    kind: NotRequired[Annotated[str, one_of(WIREGUARD)]]
    config: dict[str, Any]


class TunnelShown(EntryShown):
    """`providers` refer to it; `activation` says who brings it up: nobody yet."""

    activation: str
    providers: list[str]


class TunnelList(TypedDict):
    """By name; `next` is the cursor of the following page."""

    tunnels: list[TunnelShown]
    next: str | None


@route(TunnelList, query=PageQuery)
async def listing(app: App, request: Request, caller: Caller, *, query: PageQuery) -> Response:
    """GET /v1/namespaces/:ns/tunnels?limit&cursor: by name."""
    rows, following = page_of(query, app.records.tunnels.of(caller.ns), lambda row: row.name)
    return answer(request, {"tunnels": [_shown(app, row) for row in rows], "next": following})


@route(TunnelShown, refuses=(404,))
async def show(app: App, request: Request, caller: Caller) -> Response:
    """GET /v1/namespaces/:ns/tunnels/:name: with the providers that refer to it."""
    return answer(request, _shown(app, entry_of(app.records.tunnels, request, caller)))


@route({201: TunnelShown}, body=TunnelAdd, apart={"name": 400}, refuses=(409,))
async def add(app: App, request: Request, caller: Caller, *, body: TunnelAdd) -> Response:
    """POST /v1/namespaces/:ns/tunnels {name, kind?, config}: 201; 409 for a name that is taken."""
    name, kind = body["name"], body.get("kind", WIREGUARD)
    config = config_of(app, caller.ns, body["config"])
    now = time.time()
    row = EntryRow(ns=caller.ns, name=name, kind=kind, config=config, revision=1, created_at=now, updated_at=now)
    tunnels = app.records.tunnels
    async with tunnels.turn:
        need_free(tunnels, caller.ns, name)
        await tunnels.put(row, *notes_of(app, caller, "tunnel", "add", name))
    return answer(request, _shown(app, row) | {"warnings": _warnings(config)}, status=201)


@route(TunnelShown, body=EntryChange, query=EntryRevision, refuses=(404, 409))
async def patch(app: App, request: Request, caller: Caller, *, body: EntryChange, query: EntryRevision) -> Response:
    """PATCH /v1/namespaces/:ns/tunnels/:name?revision {config}: it replaces all of the config.

    With `revision` only while the tunnel has that one: 409 otherwise.
    """
    tunnels = app.records.tunnels
    async with tunnels.turn:
        before = entry_of(tunnels, request, caller)
        need_same(body, before.name, before.kind)
        need_revision(query, before.name, before.revision)
        config = config_of(app, caller.ns, body.get("config", before.config))
        row = dataclasses.replace(before, config=config, revision=before.revision + 1, updated_at=time.time())
        await tunnels.put(row, *notes_of(app, caller, "tunnel", "change", row.name))
    return answer(request, _shown(app, row) | {"warnings": _warnings(config)})


@route(Deleted, refuses=(404, 409))
async def remove(app: App, request: Request, caller: Caller) -> Response:
    """DELETE /v1/namespaces/:ns/tunnels/:name: 409 while a provider refers to it."""
    tunnels = app.records.tunnels
    async with tunnels.turn:
        row = entry_of(tunnels, request, caller)
        users = _users(app, row)
        if users:
            raise HttpError(
                409,
                f"tunnel {row.name!r} is used by {', '.join(users)}",
                hint=f'`lakeshore providers update {users[0]} --tunnel ""` detaches it',
                providers=users,
            )
        await tunnels.drop(row, *notes_of(app, caller, "tunnel", "remove", row.name))
    return answer(request, {"name": row.name, "deleted": True})


def _users(app: App, row: EntryRow) -> list[str]:
    providers = app.records.providers.of(row.ns)
    return [one.name for one in providers if one.tunnel == row.name and one.deleted_at is None]


def _shown(app: App, row: EntryRow) -> dict[str, Any]:
    return _entry(row) | {"activation": "not-supported", "providers": _users(app, row)}


def _warnings(config: dict[str, Any]) -> list[str]:
    """What wg-quick would not take, and what should not lie about."""
    found = lookalikes(config)
    text, interface, peers = config.get("conf"), config.get("interface"), config.get("peers")
    if text is not None:
        if type(text) is not str or "[interface]" not in text.lower():
            found.append("config.conf: is no text with a section [Interface]")
        elif "privatekey" in text.lower():
            found.append("config.conf: has a private key, which everybody of the namespace reads; see `secrets add`")
        return found
    if type(interface) is not dict:
        found.append("config.interface: is missing, or no map")
    else:
        found += _key_warnings(interface.get("privateKey"), "config.interface.privateKey", secret=True)
    if type(peers) is not list or not peers:
        return [*found, "config.peers: is missing, or no list"]
    for index, peer in enumerate(peers):
        at = f"config.peers[{index}]"
        said = peer.get("publicKey") if type(peer) is dict else None
        found += _key_warnings(said, f"{at}.publicKey", secret=False)
    return found


def _key_warnings(value: Any, at: str, *, secret: bool) -> list[str]:
    if type(value) is dict and MARKER in value:
        return []
    if not _is_key(value):
        return [f"{at}: is no WireGuard key, which is base64 of {_KEY_BYTES} bytes"]
    return [f"{at}: is a key that everybody of the namespace reads; see `secrets add`"] if secret else []


def _is_key(value: Any) -> bool:
    try:
        return type(value) is str and len(base64.b64decode(value, validate=True)) == _KEY_BYTES
    except (binascii.Error, ValueError):
        return False
