"""`lakeshore daemon launch-log`: what the machine of a launched daemon printed while it started.

Reference: cli/examples/daemons-and-exec, "launch-log"; C-225, C-736…C-739, C-1451.
"""

from __future__ import annotations

import click

from lakeshore.client.launches import Launches
from lakeshore.client.workers import Workers

from ..listing import json_option
from ..named import Named
from ..numbers import Whole
from ..output import plain, print_json, say
from ..server import connect, server_options
from .named import find


@click.command("launch-log")
@click.argument("id_", metavar="<id>", type=Named("daemons"))
@click.option("--tail", type=Whole(min=1), metavar="<n>", help="The last lines alone.")
@click.option("--no-latest", is_flag=True, help="What the provider has kept, instead of asking for the newest.")
@json_option
@server_options
@click.pass_context
def launch_log(ctx: click.Context, id_: str, tail: int | None, no_latest: bool, as_json: bool) -> None:
    """Show the serial console of a daemon's machine: why it never came up."""
    with connect(ctx) as server:
        one = find(Workers(server), id_)
        told = Launches(server).log(one.id, tail=tail, latest=not no_latest)
    if as_json:
        print_json(told)
        return
    text = str(told.get("output") or "")
    if text:
        click.echo(plain(text).rstrip("\n"))
    else:
        say(f"the machine of {one.label} has said nothing yet; try again in a minute")
