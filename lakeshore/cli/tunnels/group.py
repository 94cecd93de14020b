"""`lakeshore tunnels`: passages to machines, which providers refer to. They are kept; nothing brings them up yet.

Rule: a `.conf` is read here and sent as a map (`wg_quick.py`); what `--conf` says is checked, and sent as it is.
Reference: get-started/tunnels.md; C-143…C-149.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import click

from lakeshore.client.entries import Entries

from ..entries import KEPT_ONLY, named_secrets, removed, shown, told
from ..exits import ExitCode
from ..failures import Failure
from ..groups import Group
from ..listing import Listing, json_option
from ..named import Named
from ..output import age, say
from ..server import connect, server_options
from ..values import of_file
from .wg_quick import NoWgQuick, parsed

WIREGUARD = "wireguard"
_LARGEST = 64 * 1024


@click.group(cls=Group, aliases={"ls": "list", "rm": "remove", "delete": "remove"})
def tunnels() -> None:
    """Passages to machines that are not reached directly."""


@tunnels.command()
@click.argument("name", metavar="<name>")
@click.option("--kind", type=click.Choice((WIREGUARD,)), default=WIREGUARD, show_default=True, help="What it is.")
@click.option(
    "--config-file",
    "file",
    type=click.Path(),
    metavar="<path>",
    help="A wg-quick .conf; or YAML or JSON, sent as it is.",
)
@click.option("--conf", "ini", metavar="<ini>", help="What a wg-quick file says, instead of one.")
@json_option
@server_options
@click.pass_context
def add(ctx: click.Context, name: str, kind: str, file: str | None, ini: str | None, as_json: bool) -> None:
    """Add a tunnel."""
    if (file is None) == (ini is None):
        raise Failure("give --config-file <path> or --conf '<ini>', one of them", code=ExitCode.USAGE)
    config = _of_file(file) if file is not None else _of_text(str(ini))
    with connect(ctx) as server, named_secrets("opaque"):
        row = Entries(server, "tunnels").add(name, kind, config)
    told(row, f"tunnel {name} added  ({kind})", as_json)
    say(KEPT_ONLY)


@tunnels.command("list")
@json_option
@server_options
@click.pass_context
def list_(ctx: click.Context, as_json: bool) -> None:
    """List a namespace's tunnels."""
    with connect(ctx) as server:
        rows = Entries(server, "tunnels").all()
    Listing(
        rows,
        columns=("name", "kind", "endpoint", "providers", "changed"),
        cells=_cells,
        right=("changed",),
        gives=("providers", "endpoint"),
        empty=f"no tunnels in namespace {server.namespace!r}",
        as_json=as_json,
    ).print()


@tunnels.command()
@click.argument("name", metavar="<name>", type=Named("tunnels"))
@json_option
@server_options
@click.pass_context
def show(ctx: click.Context, name: str, as_json: bool) -> None:
    """Show a tunnel's config as YAML; a secret by its name."""
    with connect(ctx) as server:
        row = Entries(server, "tunnels").show(name)
    shown(row, ("name", "kind", "activation", "providers", "config"), as_json)


@tunnels.command()
@click.argument("name", metavar="<name>", type=Named("tunnels"))
@json_option
@server_options
@click.pass_context
def remove(ctx: click.Context, name: str, as_json: bool) -> None:
    """Forget a tunnel; not while a provider refers to it."""
    with connect(ctx) as server:
        Entries(server, "tunnels").remove(name)
    removed(name, as_json)


def _of_file(path: str) -> dict[str, Any]:
    if not path.endswith(".conf"):
        return of_file(path)
    try:
        with Path(path).open(encoding="utf-8") as file:
            return parsed(file.read(_LARGEST))
    except NoWgQuick as error:
        raise Failure(f"{path}: {error}", code=ExitCode.USAGE) from error
    except (OSError, UnicodeDecodeError) as error:
        raise Failure(
            f"cannot read {path}: {getattr(error, 'strerror', None) or error}", code=ExitCode.USAGE
        ) from error


def _of_text(ini: str) -> dict[str, Any]:
    try:
        parsed(ini)
    except NoWgQuick as error:
        raise Failure(f"--conf: {error}", code=ExitCode.USAGE) from error
    return {"conf": ini}


def _cells(row: dict[str, Any], now: datetime) -> tuple[str, ...]:
    peers = (row.get("config") or {}).get("peers")
    ends = [str(peer["endpoint"]) for peer in peers if isinstance(peer, dict) and peer.get("endpoint")] if peers else []
    providers = ", ".join(map(str, row.get("providers") or ()))
    return (
        str(row.get("name")),
        str(row.get("kind")),
        ", ".join(ends) or "—",
        providers or "—",
        age(row["updatedAt"], now),
    )
