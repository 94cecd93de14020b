"""`lakeshore daemon execs|follow|cancel`: commands on daemons that were started before.

Additions: what `exec` says on Ctrl-C leads here.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import click

from lakeshore.client.execs import Execs

from ..exec.following import follow as follow_to_the_end
from ..exec.following import wait_option
from ..listing import Listing, json_option
from ..named import Named
from ..output import age, plain, print_json
from ..server import connect, same_server, server_options

LINE = 60
id_argument = click.argument("exec_id", metavar="<exec-id>", type=Named("execs"))


@click.command()
@json_option
@server_options
@click.pass_context
def execs(ctx: click.Context, as_json: bool) -> None:
    """List the commands that were run on daemons, newest first."""
    with connect(ctx) as server:
        rows = Execs(server).all()
    Listing(
        rows,
        columns=("id", "state", "exit", "worker", "age", "command"),
        cells=_cells,
        right=("exit", "age"),
        gives=("command", "worker"),
        empty=f"no commands in namespace {server.namespace!r}",
        as_json=as_json,
    ).print()


@click.command()
@id_argument
@wait_option
@click.option("--json", "as_json", is_flag=True, help="Print the record when it has ended, as JSON.")
@server_options
@click.pass_context
def follow(ctx: click.Context, exec_id: str, wait: float, as_json: bool) -> int:
    """Print what a command has printed and prints, and exit as it does."""
    with connect(ctx) as server:
        flags = same_server(ctx)
        return follow_to_the_end(Execs(server), exec_id, wait=wait, as_json=as_json, flags=flags)


@click.command()
@id_argument
@json_option
@server_options
@click.pass_context
def cancel(ctx: click.Context, exec_id: str, as_json: bool) -> None:
    """Stop a command: TERM, and KILL 5 s later."""
    with connect(ctx) as server:
        row = Execs(server).cancel(exec_id)
    if as_json:
        print_json(row)
    else:
        click.echo(f"{plain(exec_id)} {plain(row.get('status') or 'is asked to stop')}")


def _cells(row: dict[str, Any], now: datetime) -> tuple[str, ...]:
    code = row.get("exit_code")
    return (
        str(row.get("exec_id")),
        str(row.get("status")),
        "—" if code is None else str(code),
        str(row.get("worker_id")),
        age(row.get("created_at"), now),
        str(row.get("command") or "").partition("\n")[0][:LINE],
    )
