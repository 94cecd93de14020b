"""`lakeshore run <script.py>`: a Python script of this machine, on a daemon.

Rule: its bytes are the standard input of `python3 -` there, and nothing is written to that host's disk. Words after the
script are its arguments.
Reference: cli/examples/daemons-and-exec.md, "run <script.py>".
"""

from __future__ import annotations

import shlex

import click

from lakeshore.client.execs import Asked, Execs
from lakeshore.client.workers import Workers

from ..named import Named
from ..output import say
from ..pairs import pairs_of
from ..server import connect, same_server, server_options
from .following import bytes_of, env_option, follow, started, timeout_option, wait_option
from .target import target_of


@click.command()
@click.argument("script", metavar="<script.py>", type=click.Path(dir_okay=False))
@click.argument("words", metavar="[<argument>…]", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "--daemon",
    "--on",
    "daemon",
    metavar="<d>",
    type=Named("daemons"),
    help="On that daemon (default: you pick one).",
)
@click.option("--queue", metavar="<name>", type=Named("queues"), help="On a member of that queue.")
@env_option
@timeout_option
@click.option("--python", default="python3", show_default=True, metavar="<path>", help="The interpreter there.")
@wait_option
@click.option("--json", "as_json", is_flag=True, help="Print the record when it has ended, as JSON.")
@server_options
@click.pass_context
def run(
    ctx: click.Context,
    script: str,
    words: tuple[str, ...],
    daemon: str | None,
    queue: str | None,
    pairs: tuple[str, ...],
    timeout: float | None,
    python: str,
    wait: float,
    as_json: bool,
) -> int:
    """Run a Python script on a daemon. Arguments of its own that begin with - come after --."""
    if queue is not None and daemon is not None:
        raise click.UsageError("--queue and --daemon exclude each other")
    body = bytes_of(script)
    if not script.endswith(".py"):
        say(f"note: {script} does not end in .py; it is run by {python} all the same")
    asked = Asked(
        command=shlex.join((python, "-", *words)),
        env=pairs_of(pairs),
        stdin=body,
        timeout_s=timeout,
        log=not as_json,
    )
    with connect(ctx) as server:
        execs = Execs(server)
        if queue is not None:
            exec_id = started(lambda: execs.route(queue, asked))
        else:
            target = target_of(Workers(server), daemon, instead="--daemon <d> or --queue <name>")
            exec_id = started(lambda: execs.start(target, asked))
        return follow(execs, exec_id, wait=wait, as_json=as_json, flags=same_server(ctx))
