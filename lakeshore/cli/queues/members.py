"""`lakeshore queues members`: who pulls from a queue, and who shall.

Reference: cli/examples/queues-and-jobs.md; get-started/queues.md.
"""

from __future__ import annotations

import click

from lakeshore.client.queues import Queues
from lakeshore.client.workers import Workers

from ..daemon.named import find
from ..listing import Listing, json_option
from ..named import Named
from ..server import connect, server_options
from .shown import member, name_argument


@click.command()
@name_argument
@click.option("--add", multiple=True, metavar="<daemon>", type=Named("daemons"), help="Let it join; repeatable.")
@click.option("--remove", multiple=True, metavar="<daemon>", type=Named("daemons"), help="Let it leave; repeatable.")
@json_option
@server_options
@click.pass_context
def members(ctx: click.Context, name: str, add: tuple[str, ...], remove: tuple[str, ...], as_json: bool) -> None:
    """Who pulls from a queue. Daemons join and leave with their next poll; other workers are told where they start."""
    with connect(ctx) as server:
        workers = Workers(server)
        for words, how in ((add, "add"), (remove, "remove")):
            for word in words:
                workers.queues(
                    find(workers, word).id,
                    add=[name] if how == "add" else [],
                    remove=[name] if how == "remove" else [],
                )
        found = Queues(server).members(name)
    Listing(
        found,
        columns=("id", "label", "state", "queues"),
        cells=lambda one, _now: member(one),
        gives=("queues", "label"),
        empty=f"nobody pulls from queue {name}; `lakeshore worker start --queue {name}` starts a worker",
        as_json=as_json,
    ).print()
