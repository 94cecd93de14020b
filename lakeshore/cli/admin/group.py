"""`lakeshore admin`: namespaces and their tokens, for who has the admin token.

Rules: a token's plaintext is printed once, by `create`, and nothing else ever has it. What `create` prints on stdout is
the token and the line that logs in with it; talk goes to stderr. `--json` and the flags are additions.
Reference: cli/examples/auth.md, "Minting tokens for other people"; api/auth-and-secrets.md, "Token CRUD".
"""

from __future__ import annotations

import shlex
import sys
from datetime import datetime
from typing import Any

import click

from lakeshore.client.errors import ApiError

from ..auth import getpass_user, label_for
from ..exits import ExitCode
from ..groups import Group
from ..listing import json_option, listed
from ..named import Named
from ..output import age, plain, print_json, say
from ..server import connect_admin, namespace_option, url_option
from .enroll import enroll_tokens

SCOPES = ("full", "submit", "worker", "daemon")


@click.group(cls=Group, aliases={"ns": "namespace", "namespaces": "namespace", "token": "tokens"})
def admin() -> None:
    """Tokens and namespaces. Needs LAKESHORE_ADMIN_TOKEN, or to run on the machine that serves, as its user."""


@admin.group(cls=Group, aliases={"ls": "list"})
def tokens() -> None:
    """The tokens of a namespace."""


@admin.group(cls=Group, aliases={"ls": "list", "rm": "delete"})
def namespace() -> None:
    """Namespaces: what is in one is not seen from another."""


admin.add_command(enroll_tokens)


# --- tokens


@tokens.command()
@click.argument("label", required=False, metavar="[label]")
@click.option(
    "--scope",
    type=click.Choice(SCOPES),
    default="full",
    show_default=True,
    help="full; submit: producers; worker: takes and ends jobs; daemon: as one machine.",
)
@json_option
@namespace_option
@url_option
@click.pass_context
def create(
    ctx: click.Context, label: str | None, scope: str, as_json: bool, namespace: str | None, url: str | None
) -> None:
    """Make a token (default label: <user>-<date>). It is shown this once."""
    name = label or label_for(getpass_user(), f"{datetime.now():%Y-%m-%d}")
    with connect_admin(ctx, url, namespace) as server:
        try:
            row = server.mint_token(name, scope=scope)
        except ApiError as error:
            if error.status == 409 and label is None and error.hint is None:
                error.hint = "give it a label of its own: lakeshore admin tokens create <label>"
            raise
    if as_json:
        print_json({"namespace": server.namespace, **row})
        return
    plaintext = str(row["plaintext"])
    say(f"token {plain(row.get('name'))} ({scope}) of namespace {server.namespace}, shown this once; how to log in:")
    click.echo(plaintext)
    flags = ("--server", server.url, "--namespace", server.namespace, "--token", plaintext)
    click.echo(shlex.join(("lakeshore", "auth", "login", *flags)))


@tokens.command("list")
@json_option
@namespace_option
@url_option
@click.pass_context
def list_tokens(ctx: click.Context, as_json: bool, namespace: str | None, url: str | None) -> None:
    """List a namespace's tokens, revoked ones too."""
    with connect_admin(ctx, url, namespace) as server:
        rows = server.tokens()
    listed(
        rows,
        columns=("id", "name", "state", "scope", "prefix", "used", "created"),
        cells=_token_cells,
        right=("used", "created"),
        gives="name",
        empty=f"no tokens in namespace {server.namespace!r}",
        as_json=as_json,
    )


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


def _token_cells(row: dict[str, Any], now: datetime) -> tuple[str, ...]:
    return (
        str(row.get("id")),
        str(row.get("name")),
        "revoked" if row.get("revokedAt") else "active",
        str(row.get("scope") or "full"),
        str(row.get("prefix")),
        age(row.get("lastUsedAt"), now),
        age(row.get("createdAt"), now),
    )


# --- namespaces


@namespace.command("create")
@click.argument("name", metavar="<name>")
@json_option
@url_option
@click.pass_context
def create_namespace(ctx: click.Context, name: str, as_json: bool, url: str | None) -> None:
    """Make a namespace."""
    with connect_admin(ctx, url) as server:
        row = server.create_namespace(name)
    if as_json:
        print_json(row)
    else:
        click.echo(f"created namespace {plain(row.get('name'))}")


@namespace.command("list")
@json_option
@url_option
@click.pass_context
def list_namespaces(ctx: click.Context, as_json: bool, url: str | None) -> None:
    """List the namespaces."""
    with connect_admin(ctx, url) as server:
        rows = server.namespaces()
    listed(
        rows,
        columns=("name", "org", "created"),
        cells=lambda row, now: (str(row.get("name")), str(row.get("orgId") or "—"), age(row.get("createdAt"), now)),
        right=("created",),
        gives="org",
        empty="no namespaces",
        as_json=as_json,
    )


@namespace.command()
@click.argument("name", metavar="<name>", type=Named("namespaces"))
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
@url_option
@click.pass_context
def delete(ctx: click.Context, name: str, yes: bool, as_json: bool, url: str | None) -> int:
    """Delete a namespace with its tokens and everything that ended in it. Refused while jobs wait or run in it."""
    with connect_admin(ctx, url) as server:
        if not yes and not as_json and sys.stdin.isatty():
            said = f"delete namespace {name} for good, with its tokens, results and frames?"
            if not click.confirm(said, err=True):
                say("nothing was deleted")
                return ExitCode.FAILED
        forgotten = 0
        while True:
            answer = server.delete_namespace(name)
            forgotten += int(answer.get("forgotten", 0))
            if answer.get("deleted"):
                break
            say(f"{forgotten:,} invocations deleted so far")
    if as_json:
        print_json({**answer, "forgotten": forgotten})
    else:
        also = f" and {forgotten:,} invocations that had ended" if forgotten else ""
        click.echo(f"deleted namespace {plain(name)}{also}")
    return ExitCode.OK
