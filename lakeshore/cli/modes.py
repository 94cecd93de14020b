"""`lakeshore modes`: named run configs of a control plane.

Rules: `add` says what it was told, `backend` and `runner` also when it was not; `update` fetches, merges here and sends
what came of it, and a change of somebody else's in between is not lost. A secret is shown by its name only.
Reference: cli/examples/secrets-modes-tunnels-config-nymph.md, "Modes"; api/configuration.md.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import click

from lakeshore.client.modes import Modes
from lakeshore.config.served import flat

from .entries import file_option, removed, told
from .exits import ExitCode
from .failures import Failure
from .groups import Group
from .listing import Listing, json_option
from .named import Named
from .output import age, print_json
from .server import connect, server_options
from .values import as_yaml, fields_of, merged, of_file

field_option = click.option(
    "--field",
    "--kwarg",
    "fields",
    multiple=True,
    metavar="k=v",
    help="A key; a dot nests, null takes it away; repeatable.",
)
USUAL = {"backend": "fabric", "runner": "process"}


@click.group(cls=Group, aliases={"ls": "list", "rm": "remove", "delete": "remove"})
def modes() -> None:
    """Named run configs: where and how calls run."""


@modes.command()
@click.argument("name", metavar="<name>")
@field_option
@file_option("all of it; --field goes over it")
@json_option
@server_options
@click.pass_context
def add(ctx: click.Context, name: str, fields: tuple[str, ...], file: str | None, as_json: bool) -> None:
    """Add a mode."""
    given = merged(of_file(file) if file else {}, fields_of(fields, "--field"))
    with connect(ctx) as server:
        row = Modes(server).add(name, {**USUAL, **given})
    told(row, f"{name} added", as_json)


@modes.command()
@click.argument("name", metavar="<name>", type=Named("modes"))
@field_option
@file_option("what the mode says from now on, whole")
@json_option
@server_options
@click.pass_context
def update(ctx: click.Context, name: str, fields: tuple[str, ...], file: str | None, as_json: bool) -> None:
    """Change what a mode says, key by key or all of it."""
    if not fields and file is None:
        raise Failure("say what is to change: --field k=v, or --config-file <path>", code=ExitCode.USAGE)
    change = fields_of(fields, "--field")
    whole = of_file(file) if file else None

    def changed(row: dict[str, Any]) -> dict[str, Any]:
        before = flat(row)
        after = merged(before if whole is None else whole, change)
        return {**dict.fromkeys(before), **after}

    with connect(ctx) as server:
        row = Modes(server).change(name, changed)
    told(row, f"{name} changed", as_json)


@modes.command("list")
@json_option
@server_options
@click.pass_context
def list_(ctx: click.Context, as_json: bool) -> None:
    """List a namespace's modes."""
    with connect(ctx) as server:
        rows = Modes(server).all()
    Listing(
        rows,
        columns=("name", "backend", "runner", "provider", "image", "resources", "tags", "changed"),
        cells=_cells,
        right=("changed",),
        gives=("image", "resources", "tags", "provider"),
        empty=f"no modes in namespace {server.namespace!r}",
        as_json=as_json,
    ).print()


@modes.command()
@click.argument("name", metavar="<name>", type=Named("modes"))
@json_option
@server_options
@click.pass_context
def show(ctx: click.Context, name: str, as_json: bool) -> None:
    """Print what a mode says, as YAML; a secret by its name."""
    with connect(ctx) as server:
        row = Modes(server).show(name)
    if as_json:
        print_json(row)
    else:
        click.echo(as_yaml({"name": row.get("name"), **flat(row)}), nl=False)


@modes.command()
@click.argument("name", metavar="<name>", type=Named("modes"))
@json_option
@server_options
@click.pass_context
def remove(ctx: click.Context, name: str, as_json: bool) -> None:
    """Remove a mode. What was submitted with it stays as it is."""
    with connect(ctx) as server:
        Modes(server).remove(name)
    removed(name, as_json)


def _cells(row: dict[str, Any], now: datetime) -> tuple[str, ...]:
    said = flat(row)
    resources = said.get("resources", {})
    return (
        str(row.get("name")),
        str(said.get("backend", "—")),
        str(said.get("runner", "—")),
        str(said.get("provider", "—")),
        str(said.get("image", "—")),
        ", ".join(f"{key}={value}" for key, value in resources.items()) or "—",
        ", ".join(map(str, said.get("tags", ()))) or "—",
        age(row.get("updatedAt"), now),
    )
