"""`lakeshore admin tokens`: who may call, as what, until when.

Rules: a token's plaintext is printed once, by `create`, and nothing else ever has it. What `create` prints on stdout is
the token and the line that logs in with it; talk goes to stderr. A label that nobody chose is never one that is taken.
`--json` and the flags are additions.
Reference: cli/examples/auth.md, "Minting tokens for other people"; api/auth-and-secrets.md, "Token CRUD".
"""

from __future__ import annotations

import itertools
import shlex
from datetime import UTC, datetime
from typing import Any

import click

from lakeshore.client.api import ApiClient
from lakeshore.client.errors import ApiError

from ..auth import getpass_user, label_for
from ..groups import Group
from ..listing import Listing, json_option
from ..named import Named
from ..numbers import Length
from ..output import age, ahead, local_time, moment, plain, print_json, say
from ..server import connect_admin, namespace_option, url_option

SCOPES = ("full", "submit", "worker", "daemon")


@click.group(cls=Group, aliases={"ls": "list"})
def tokens() -> None:
    """The tokens of a namespace."""


@tokens.command()
@click.argument("label", required=False, metavar="[label]")
@click.option(
    "--scope",
    type=click.Choice(SCOPES),
    default="full",
    show_default=True,
    help="full; submit: producers; worker: takes and ends jobs; daemon: as one machine.",
)
@click.option("--ttl", type=Length(min=1), metavar="<length>", help="It expires after this: 12h, 90d (default: never).")
@json_option
@namespace_option
@url_option
@click.pass_context
def create(
    ctx: click.Context,
    label: str | None,
    scope: str,
    ttl: float | None,
    as_json: bool,
    namespace: str | None,
    url: str | None,
) -> None:
    """Make a token (default label: <user>-<date>, then <user>-<date>-2, …). It is shown this once."""
    with connect_admin(ctx, url, namespace) as server:
        row = server.mint_token(label, scope=scope, ttl_s=ttl) if label else _named_by_the_day(server, scope, ttl)
    if as_json:
        print_json({"namespace": server.namespace, **row})
        return
    plaintext = str(row["plaintext"])
    until = f" until {local_time(row['expiresAt'], datetime.now(UTC))}" if row.get("expiresAt") else ""
    say(f"token {row.get('name')} ({scope}) of namespace {server.namespace}{until}, shown this once; how to log in:")
    click.echo(plain(plaintext))
    flags = ("--server", server.url, "--namespace", server.namespace, "--token", plaintext)
    click.echo(plain(shlex.join(("lakeshore", "auth", "login", *flags))))


@tokens.command("list")
@json_option
@namespace_option
@url_option
@click.pass_context
def list_tokens(ctx: click.Context, as_json: bool, namespace: str | None, url: str | None) -> None:
    """List a namespace's tokens, revoked ones too."""
    with connect_admin(ctx, url, namespace) as server:
        rows = server.tokens()
    Listing(
        rows,
        columns=("id", "name", "state", "scope", "used", "expires", "prefix", "created"),
        cells=_cells,
        right=("used", "expires", "created"),
        gives="name",
        empty=f"no tokens in namespace {server.namespace!r}",
        as_json=as_json,
    ).print()


@tokens.command()
@click.argument("id_", metavar="<token-id>", type=Named("tokens"))
@json_option
@namespace_option
@url_option
@click.pass_context
def revoke(ctx: click.Context, id_: str, as_json: bool, namespace: str | None, url: str | None) -> None:
    """Revoke a token for good, at once. It stays listed."""
    with connect_admin(ctx, url, namespace) as server:
        try:
            row = server.revoke_token(id_)
        except ApiError as error:
            if error.status == 404 and error.field == "id":
                error.hint = f"`lakeshore admin tokens list --namespace {server.namespace}` shows their ids"
            raise
    if as_json:
        print_json(row)
    else:
        click.echo(f"revoked {plain(row.get('name'))} ({plain(row.get('id'))})")


def _named_by_the_day(server: ApiClient, scope: str, ttl: float | None) -> dict[str, Any]:
    """A token of the first label of today's that nobody has; a revoked one keeps its own."""
    base = label_for(getpass_user(), f"{datetime.now():%Y-%m-%d}")
    tried: set[str] = set()
    name = base
    while True:
        try:
            return server.mint_token(name, scope=scope, ttl_s=ttl)
        except ApiError as error:
            if error.status != 409:
                raise
        tried |= {name, *(str(row.get("name")) for row in server.tokens())}
        name = next(free for n in itertools.count(2) if (free := f"{base}-{n}") not in tried)


def _cells(row: dict[str, Any], now: datetime) -> tuple[str, ...]:
    return (
        str(row.get("id")),
        str(row.get("name")),
        _state(row, now),
        str(row.get("scope") or "full"),
        age(row.get("lastUsedAt"), now),
        ahead(row.get("expiresAt"), now),
        str(row.get("prefix")),
        age(row.get("createdAt"), now),
    )


def _state(row: dict[str, Any], now: datetime) -> str:
    if row.get("revokedAt"):
        return "revoked"
    end = moment(row.get("expiresAt"))
    return "expired" if end is not None and end <= now else "active"
