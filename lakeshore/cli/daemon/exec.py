"""`lakeshore daemon exec <daemon> <command…>`: a command on one daemon, as if it ran here.

Reference: cli/examples/daemons-and-exec.md, "daemon exec"; nymph/daemon-lifecycle.md, "Run something on a daemon".
"""

from __future__ import annotations

import click

from lakeshore.client.execs import Execs
from lakeshore.client.workers import Workers

from ..exec.following import PASS_THROUGH, asked_of, exec_options, follow, started
from ..named import Named
from ..server import connect, same_server, server_options
from .named import find, tell_of_rest


@click.command("exec", context_settings=PASS_THROUGH)
@click.argument("daemon", metavar="<daemon>", type=Named("daemons"))
@click.argument("words", metavar="<command>…", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option("--id", "literal", is_flag=True, help="<daemon> is a worker id: do not look it up.")
@exec_options
@server_options
@click.pass_context
def exec_(
    ctx: click.Context,
    daemon: str,
    words: tuple[str, ...],
    literal: bool,
    timeout: float | None,
    pairs: tuple[str, ...],
    workdir: str | None,
    stdin: str | None,
    wait: float,
    as_json: bool,
) -> int:
    """Run a command on a daemon (bash -c). Options come first; what follows <daemon> is the command's."""
    asked = asked_of(words, pairs=pairs, timeout=timeout, workdir=workdir, stdin=stdin, as_json=as_json)
    with connect(ctx) as server:
        execs = Execs(server)
        target = find(Workers(server), daemon, literal=literal)
        exec_id = started(lambda: execs.start(target.id, asked))
        tell_of_rest(target)
        return follow(execs, exec_id, wait=wait, as_json=as_json, flags=same_server(ctx))
