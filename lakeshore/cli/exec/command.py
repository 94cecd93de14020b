"""`lakeshore exec <command…>`: a command on a daemon that is picked, or on a member of a queue.

Reference: cli/examples/daemons-and-exec.md, "exec"; release notes 0.1.15 (freshest first). `--on` is an addition.
"""

from __future__ import annotations

import click

from lakeshore.client.execs import Execs
from lakeshore.client.workers import Workers

from ..named import Named
from ..server import connect, same_server, server_options
from .following import PASS_THROUGH, asked_of, exec_options, follow, started
from .target import target_of


@click.command("exec", context_settings=PASS_THROUGH)
@click.argument("words", metavar="<command>…", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option("--queue", metavar="<name>", type=Named("queues"), help="On a member of that queue.")
@click.option("--on", "--daemon", "daemon", metavar="<daemon>", type=Named("daemons"), help="On that daemon.")
@exec_options
@server_options
@click.pass_context
def exec_(
    ctx: click.Context,
    words: tuple[str, ...],
    queue: str | None,
    daemon: str | None,
    timeout: float | None,
    pairs: tuple[str, ...],
    workdir: str | None,
    stdin: str | None,
    wait: float,
    as_json: bool,
) -> int:
    """Run a command on a daemon that you pick. Options come first; the rest is the command."""
    if queue is not None and daemon is not None:
        raise click.UsageError("--queue and --on exclude each other")
    asked = asked_of(words, pairs=pairs, timeout=timeout, workdir=workdir, stdin=stdin, as_json=as_json)
    with connect(ctx) as server:
        execs = Execs(server)
        if queue is not None:
            exec_id = started(lambda: execs.route(queue, asked))
        else:
            target = target_of(Workers(server), daemon, instead="--on <daemon> or --queue <name>")
            exec_id = started(lambda: execs.start(target, asked))
        return follow(execs, exec_id, wait=wait, as_json=as_json, flags=same_server(ctx))
