"""`lakeshore daemon keys list|revoke`: the keys that a daemon signs with.

Reference: nymph/key-rotation.md.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import click

from lakeshore.client.workers import Workers

from ..groups import Group
from ..listing import Listing, json_option
from ..named import Named
from ..output import age, ahead, plain, print_json
from ..server import connect, server_options
from .named import find

id_argument = click.argument("id_", metavar="<id>", type=Named("daemons"))


@click.group(cls=Group, aliases={"ls": "list"})
def keys() -> None:
    """The keys that a daemon signs its requests with."""


@keys.command("list")
@id_argument
@json_option
@server_options
@click.pass_context
def list_(ctx: click.Context, id_: str, as_json: bool) -> None:
    """List a daemon's keys, revoked ones too."""
    with connect(ctx) as server:
        workers = Workers(server)
        one = find(workers, id_)
        rows = workers.keys(one.id)
    Listing(
        rows,
        columns=("key id", "status", "created", "expires"),
        cells=_cells,
        right=("created", "expires"),
        gives="status",
        empty=f"{one.label} has no keys: it does not sign its requests",
        as_json=as_json,
    ).print()


@keys.command()
@id_argument
@click.argument("key_id", metavar="<key-id>")
@json_option
@server_options
@click.pass_context
def revoke(ctx: click.Context, id_: str, key_id: str, as_json: bool) -> None:
    """Revoke a key for good, at once. It stays listed."""
    with connect(ctx) as server:
        workers = Workers(server)
        one = find(workers, id_)
        answer = workers.revoke_key(one.id, key_id)
    if as_json:
        print_json(answer)
        return
    was = answer.get("alreadyRevoked")
    click.echo(f"{plain(key_id)} of {plain(one.label)} {'was revoked before' if was else 'is revoked'}")


def _cells(row: dict[str, Any], now: datetime) -> tuple[str, ...]:
    return (
        str(row.get("keyId")),
        str(row.get("status")),
        age(row.get("createdAt"), now),
        ahead(row.get("expiresAt"), now),
    )
