"""`lakeshore admin namespace`: namespaces, and the org that some share.

Rule: on a terminal `delete` asks first; a script's line deletes as it is documented, and what has work is refused.
Reference: cli/examples/auth.md; api/auth-and-secrets.md, "Organizations".
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import click

from lakeshore.client.namespaces import Namespaces
from lakeshore.client.rounds import Rounds

from ..confirming import confirmed, somebody_is_there
from ..exits import ExitCode
from ..groups import Group
from ..listing import Listing, json_option
from ..named import Named
from ..output import age, local_time, plain, print_json, say
from ..server import connect_admin, url_option

name_argument = click.argument("name", metavar="<name>", type=Named("namespaces"))


@click.group(cls=Group, aliases={"ls": "list", "rm": "delete", "remove": "delete"})
def namespace() -> None:
    """Namespaces: what is in one is not seen from another, unless they share an org."""


@namespace.command()
@click.argument("name", metavar="<name>")
@click.option("--org", metavar="<org>", help="Those of the same org see each other's queues and providers.")
@json_option
@url_option
@click.pass_context
def create(ctx: click.Context, name: str, org: str | None, as_json: bool, url: str | None) -> None:
    """Make a namespace."""
    with connect_admin(ctx, url) as server:
        row = Namespaces(server).create(name, org=org)
    if as_json:
        print_json(row)
    else:
        click.echo(f"created namespace {plain(row.get('name'))}{_in_org(row)}")


@namespace.command("list")
@json_option
@url_option
@click.pass_context
def list_(ctx: click.Context, as_json: bool, url: str | None) -> None:
    """List the namespaces."""
    with connect_admin(ctx, url) as server:
        rows = Namespaces(server).all()
    Listing(
        rows,
        columns=("name", "org", "created"),
        cells=lambda row, now: (str(row.get("name")), str(row.get("orgId") or "—"), age(row.get("createdAt"), now)),
        right=("created",),
        gives="org",
        empty="no namespaces",
        as_json=as_json,
    ).print()


@namespace.command()
@name_argument
@json_option
@url_option
@click.pass_context
def show(ctx: click.Context, name: str, as_json: bool, url: str | None) -> None:
    """Show a namespace: its org, who shares that, the version its daemons follow."""
    with connect_admin(ctx, url) as server:
        row = Namespaces(server).show(name)
    if as_json:
        print_json(row)
        return
    siblings = [str(one) for one in row.get("siblings") or ()]
    lines = {
        "name": row.get("name"),
        "org": row.get("orgId") or "—",
        "siblings": ", ".join(siblings) or "—",
        "target version": row.get("targetNymphVersion") or "—",
        "created": local_time(row.get("createdAt"), datetime.now(UTC)),
    }
    for label, value in lines.items():
        click.echo(f"{label + ':':<16}{plain(value)}")


@namespace.command("set-org")
@name_argument
@click.argument("org", metavar="<org>")
@json_option
@url_option
@click.pass_context
def set_org(ctx: click.Context, name: str, org: str, as_json: bool, url: str | None) -> None:
    """Put a namespace into an org. Those of one org see each other's queues and providers, and submit to each other."""
    _org(ctx, name, org, as_json, url)


@namespace.command("unset-org")
@name_argument
@json_option
@url_option
@click.pass_context
def unset_org(ctx: click.Context, name: str, as_json: bool, url: str | None) -> None:
    """Take a namespace out of its org: from then on it is seen by its own tokens alone."""
    _org(ctx, name, None, as_json, url)


@namespace.command()
@name_argument
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
@url_option
@click.pass_context
def delete(ctx: click.Context, name: str, yes: bool, as_json: bool, url: str | None) -> int:
    """Delete a namespace with its tokens and everything that ended in it. Refused while jobs wait or run in it."""
    with connect_admin(ctx, url) as server:
        said = f"delete namespace {name} for good, with its tokens, results and frames?"
        if not confirmed(said, yes=yes or as_json or not somebody_is_there()):
            say("nothing was deleted")
            return ExitCode.FAILED
        forgotten, rounds = 0, Rounds(f"the deletion of namespace {name}")
        while True:
            answer = Namespaces(server).delete(name)
            forgotten += (some := int(answer.get("forgotten", 0)))
            if answer.get("deleted"):
                break
            rounds.did(some > 0)
            say(f"{forgotten:,} invocations deleted so far")
    if as_json:
        print_json({**answer, "forgotten": forgotten})
    else:
        also = f" and {forgotten:,} invocations that had ended" if forgotten else ""
        click.echo(f"deleted namespace {plain(name)}{also}")
    return ExitCode.OK


def _org(ctx: click.Context, name: str, org: str | None, as_json: bool, url: str | None) -> None:
    with connect_admin(ctx, url) as server:
        row = Namespaces(server).set_org(name, org)
    if as_json:
        print_json(row)
    else:
        click.echo(f"namespace {plain(row.get('name'))} is {'in no org' if org is None else 'in org ' + plain(org)}")


def _in_org(row: dict[str, Any]) -> str:
    return f" in org {plain(row['orgId'])}" if row.get("orgId") else ""
