"""`lakeshore nymph`: the daemon on this host in the foreground, and what belongs to its program.

Bare it is the daemon; also when the file is called `nymph`. Its verbs are imported when they are called.
Reference: nymph/installation.md, "Daemon flags and env vars"; N-001, N-013…N-017.
"""

from __future__ import annotations

from pathlib import Path

import click

from ..groups import LazyGroup
from ..named import Named

VERBS = {
    "push": "lakeshore.cli.nymph.releases:push",
    "list": "lakeshore.cli.nymph.releases:list_",
    "tui": "lakeshore.cli.nymph.tui:tui",
}
"""Name -> "module:attribute" of its click command."""


@click.group(cls=LazyGroup, verbs=VERBS, invoke_without_command=True)
@click.option(
    "--config", type=click.Path(), metavar="<path>", help="The daemon's configuration file (LAKESHORED_CONFIG)."
)
@click.option("--server", metavar="<url>", help="Control plane (LAKESHORE_SERVER).")
@click.option("--token", metavar="<token>", help="Bearer token; better in LAKESHORE_TOKEN or a file.")
@click.option(
    "--queue", type=Named("queues"), metavar="<name>", help="Queue to drain, or a prefix `a*` (DREAMLAKE_QUEUE)."
)
@click.option("--worker-id", metavar="<id>", help="What this daemon is called until the server names it.")
@click.option("--allow-pickled", is_flag=True, help="Run functions that were sent by value ([runtime] allow_pickled).")
@click.option(
    "--record",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="<file>",
    help="Write down what happens, for a report of a defect: no arguments, output or results are in it.",
)
@click.pass_context
def nymph(
    ctx: click.Context,
    config: str | None,
    server: str | None,
    token: str | None,
    queue: str | None,
    worker_id: str | None,
    allow_pickled: bool,
    record: Path | None,
) -> int | None:
    """Run the daemon on this host: it takes jobs, commands and scripts."""
    if ctx.invoked_subcommand is not None:
        return None
    from lakeshore.nymph import start  # wall: only the daemon pays for it
    from lakeshore.nymph.lookup import Flags  # wall: as above

    flags = Flags(
        config=config, server=server, token=token, queue=queue, worker_id=worker_id, allow_pickled=allow_pickled
    )
    return start.run(flags, record=record)
