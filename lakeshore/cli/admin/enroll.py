"""`lakeshore admin enroll-tokens`: each lets one daemon register a key of its own, once.

Rule: the plaintext is printed once, by `create`, alone on stdout.
Reference: nymph/key-rotation.md.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import click

from lakeshore.client.identity import EnrollTokens

from ..auth import getpass_user, label_for
from ..groups import Group
from ..listing import Listing, json_option
from ..named import Named
from ..numbers import Length
from ..output import age, ahead, local_time, plain, print_json, say
from ..server import connect_admin, namespace_option, url_option


@click.group("enroll-tokens", cls=Group, aliases={"ls": "list"})
def enroll_tokens() -> None:
    """Tokens that let one daemon each register its key."""


@enroll_tokens.command()
@click.argument("label", required=False, metavar="[label]")
@click.option("--ttl", type=Length(min=1), metavar="<length>", help="How long it may be used: 30m, 1d.")
@json_option
@namespace_option
@url_option
@click.pass_context
def create(
    ctx: click.Context, label: str | None, ttl: float | None, as_json: bool, namespace: str | None, url: str | None
) -> None:
    """Make an enroll token (default label: <user>-<date>). It is shown this once."""
    name = label or label_for(getpass_user(), f"{datetime.now():%Y-%m-%d}")
    with connect_admin(ctx, url, namespace) as server:
        row = EnrollTokens(server).create(name, ttl_s=ttl)
    if as_json:
        print_json({"namespace": server.namespace, **row})
        return
    until = local_time(row.get("expiresAt"), datetime.now(UTC))
    say(f"enroll token {row.get('label')} of namespace {server.namespace}, for one daemon, until {until};")
    say("shown this once:")
    click.echo(plain(row["plaintext"]))


@enroll_tokens.command("list")
@json_option
@namespace_option
@url_option
@click.pass_context
def list_(ctx: click.Context, as_json: bool, namespace: str | None, url: str | None) -> None:
    """List a namespace's enroll tokens, spent ones too."""
    with connect_admin(ctx, url, namespace) as server:
        rows = EnrollTokens(server).all()
    Listing(
        rows,
        columns=("id", "label", "state", "prefix", "worker", "expires", "created"),
        cells=_cells,
        right=("expires", "created"),
        gives=("label", "worker"),
        empty=f"no enroll tokens in namespace {server.namespace!r}",
        as_json=as_json,
    ).print()


@enroll_tokens.command()
@click.argument("id_", metavar="<token-id>", type=Named("enroll-tokens"))
@json_option
@namespace_option
@url_option
@click.pass_context
def revoke(ctx: click.Context, id_: str, as_json: bool, namespace: str | None, url: str | None) -> None:
    """Burn an enroll token: nobody enrolls with it any more. It stays listed."""
    with connect_admin(ctx, url, namespace) as server:
        row = EnrollTokens(server).revoke(id_)
    if as_json:
        print_json(row)
    else:
        click.echo(f"revoked {plain(row.get('label'))} ({plain(row.get('id'))})")


def _cells(row: dict[str, Any], now: datetime) -> tuple[str, ...]:
    return (
        str(row.get("id")),
        str(row.get("label")),
        "spent" if row.get("spent") else "open",
        str(row.get("prefix")),
        str(row.get("consumedByWorkerId") or "—"),
        ahead(row.get("expiresAt"), now),
        age(row.get("createdAt"), now),
    )
