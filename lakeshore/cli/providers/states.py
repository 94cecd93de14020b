"""`lakeshore providers hide|unhide|restore|edit`: which providers are listed, and which were removed.

`edit` is for a terminal: a provider is picked, then what is done with it, and the list is asked for anew each time.
Reference: cli/release-notes; get-started/tutorials/end-to-end; C-101, C-108, C-382, C-1472.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from lakeshore.client.providers import Providers

from ..confirming import somebody_is_there
from ..exits import ExitCode
from ..failures import Failure
from ..listing import json_option
from ..named import Named
from ..output import plain, print_json, say
from ..server import connect, server_options
from ..values import as_yaml

Row = dict[str, Any]


@click.command()
@click.argument("name", metavar="<name>", type=Named("providers"))
@json_option
@server_options
@click.pass_context
def hide(ctx: click.Context, name: str, as_json: bool) -> None:
    """Leave one out of lists. It works as before."""
    with connect(ctx) as server:
        row = Providers(server).change(name, hidden=True)
    _said(row, "hidden", as_json)


@click.command()
@click.argument("name", metavar="<name>", type=Named("providers"))
@json_option
@server_options
@click.pass_context
def unhide(ctx: click.Context, name: str, as_json: bool) -> None:
    """Show a hidden one in lists again."""
    with connect(ctx) as server:
        row = Providers(server).change(name, hidden=False)
    _said(row, "shown again", as_json)


@click.command()
@click.argument("name", metavar="<name>")
@json_option
@server_options
@click.pass_context
def restore(ctx: click.Context, name: str, as_json: bool) -> None:
    """Bring back the one that was removed last under this name."""
    with connect(ctx) as server:
        row = Providers(server).restore(name)
    _said(row, "restored", as_json)


@click.command()
@server_options
@click.pass_context
def edit(ctx: click.Context) -> int:
    """Hide, show, remove and restore providers, on a terminal."""
    if not somebody_is_there():
        hint = "`lakeshore providers hide|unhide|remove|restore <name>` do the same without one"
        raise Failure("providers edit needs a terminal", hint=hint, code=ExitCode.USAGE)
    from ..picker import pick  # wall: termios is for who is asked

    with connect(ctx) as server:
        ours = Providers(server)
        while True:
            rows = [row for row in ours.all(hidden=True, deleted=True) if row.get("namespace") == server.namespace]
            if not rows:
                say(f"no providers in namespace {server.namespace!r}")
                return ExitCode.OK
            lines = [(str(row["name"]), str(row.get("launcher")), _state(row)) for row in rows]
            number = pick("provider", lines, more=[as_yaml(row.get("kwargs") or {}).splitlines() for row in rows])
            if number is None:
                return ExitCode.OK
            actions = _actions(ours, rows[number])
            chosen = pick(str(rows[number]["name"]), [(what,) for what in actions])
            if chosen is not None:
                what = list(actions)[chosen]
                say(f"✓ {what}: {actions[what]().get('name')}")


def _actions(ours: Providers, row: Row) -> dict[str, Callable[[], Row]]:
    """What can be done with one, by the words for it."""
    name, hidden = str(row["name"]), bool(row.get("hidden"))
    if row.get("deletedAt"):
        return {"restore": lambda: ours.restore(name)}
    return {
        "unhide" if hidden else "hide": lambda: ours.change(name, hidden=not hidden),
        "delete": lambda: ours.remove(name),
    }


def _state(row: Row) -> str:
    return "deleted" if row.get("deletedAt") else "hidden" if row.get("hidden") else ""


def _said(row: Row, what: str, as_json: bool) -> None:
    if as_json:
        print_json(row)
    else:
        click.echo(f"provider {plain(row.get('name'))} {what}  ({plain(row.get('launcher'))})")
