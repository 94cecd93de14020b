"""`lakeshore worker`: supervises `python -u -m dreamlake.lakeshore.daemon` in the foreground.

Rules: a flag that was not given is not on the child's command line, so that the module's own LAKESHORE_* fallbacks
decide; the token travels in the environment, never in arguments; a saved login is never read.
Reference: cli/examples/daemons-and-exec.md, "worker".
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from lakeshore._self import import_path
from lakeshore.net.target import parse_target

from .exits import ExitCode
from .failures import Failure
from .groups import Group
from .named import Named
from .numbers import Seconds, Whole
from .output import print_json, say
from .pairs import pairs_of
from .supervisor import Supervisor

MODULE = "dreamlake.lakeshore.daemon"
FORWARDED = ("queue", "root", "storage", "url", "namespace", "runtime_policy")
F = TypeVar("F", bound=Callable[..., Any])


@click.group(cls=Group)
def worker() -> None:
    """Run workers on this machine: they take the jobs of one queue and run them."""


def _options(command: F) -> F:
    """The flags of both verbs."""
    for option in reversed(
        (
            click.option(
                "--queue",
                type=Named("queues"),
                metavar="<name>",
                help="Queue to drain (LAKESHORE_QUEUE, default `default`).",
            ),
            click.option(
                "--root",
                type=click.Path(file_okay=False),
                metavar="<dir>",
                help="Root of dls.run keys (LAKESHORE_ROOT, default here).",
            ),
            click.option(
                "--storage",
                type=Named("storages"),
                metavar="<name>",
                help="Storage that dls.run reads from and writes to, besides the root.",
            ),
            click.option(
                "--url", metavar="<url>", help="Control plane (LAKESHORE_URL; unset: this machine's own queues)."
            ),
            click.option(
                "--namespace", type=Named("namespaces"), metavar="<slug>", help="Namespace (LAKESHORE_NAMESPACE)."
            ),
            click.option("--token", metavar="<token>", help="Bearer token; better in LAKESHORE_CLIENT_TOKEN."),
            click.option(
                "--runtime-policy",
                type=click.Choice(("strict", "minor", "off")),
                help="How equal Pythons must be (LAKESHORE_RUNTIME_POLICY).",
            ),
            click.option(
                "--python",
                type=click.Path(),
                metavar="<path>",
                help="Interpreter (LAKESHORE_PYTHON, default `python3`).",
            ),
            click.option("--module", metavar="<name>", default=MODULE, help=f"What it runs (default {MODULE})."),
            click.option(
                "--env", "pairs", multiple=True, metavar="K=V", help="For the worker's environment; repeatable."
            ),
            click.option("--allow-pickled", is_flag=True, help="Run functions that were sent by value."),
            click.option(
                "--kill-timeout",
                type=Seconds(min=0),
                default=15.0,
                show_default=True,
                metavar="<s>",
                help="Seconds that a running job has after Ctrl-C or TERM.",
            ),
            click.option("--dry-run", is_flag=True, help="Print the command that would run, and exit."),
            click.option("--json", "as_json", is_flag=True, help="With --dry-run: as JSON."),
        )
    ):
        command = option(command)
    return command


@worker.command()
@_options
@click.option("--procs", type=Whole(1, 1024), default=1, show_default=True, metavar="<n>", help="Processes.")
@click.pass_context
def start(ctx: click.Context, /, procs: int, **given: Any) -> int:
    """Keep workers running: one that dies is replaced."""
    return _run(ctx, given, once=False, procs=procs)


@worker.command()
@_options
@click.pass_context
def once(ctx: click.Context, /, **given: Any) -> int:
    """Run at most one job, then exit, with the worker's own status."""
    return _run(ctx, given, once=True, procs=1)


def _run(ctx: click.Context, given: dict[str, Any], *, once: bool, procs: int) -> int:
    given["namespace"] = given["namespace"] or ctx.find_object(str)
    argv = command_line(given, once=once)
    added = environment(given, argv[0])
    if given["dry_run"]:
        if given["as_json"]:
            print_json({"argv": argv, "env": sorted(added)})
        else:
            click.echo(shlex.join(argv))
        return ExitCode.OK
    env = {**os.environ, **added}
    url = given["url"] or env.get("LAKESHORE_URL")
    if url and given["module"] == MODULE:
        try:
            parse_target(url)
        except ValueError as error:
            raise Failure(str(error), code=ExitCode.USAGE) from error
    supervisor = Supervisor(
        argv=argv,
        env=env,
        procs=procs,
        once=once,
        kill_timeout=given["kill_timeout"],
        say=lambda message: say(f"lakeshore worker: {message}"),
    )
    try:
        return supervisor.run()
    except OSError as error:
        raise Failure(
            f"cannot start {argv[0]}: {error.strerror or error}",
            hint="name an interpreter with --python or LAKESHORE_PYTHON",
            code=ExitCode.USAGE,
        ) from error


def command_line(given: Mapping[str, Any], *, once: bool) -> list[str]:
    """The child's arguments: only what was given."""
    argv = [_python(given["python"]), "-u", "-m", given["module"]]
    for name in FORWARDED:
        if given[name] is not None:
            argv += [f"--{name.replace('_', '-')}", given[name]]
    if given["allow_pickled"]:
        argv.append("--allow-pickled")
    return [*argv, "--once"] if once else argv


def environment(given: Mapping[str, Any], python: str, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """What the child's environment has besides ours: --env, the token, and where our packages are."""
    added = pairs_of(given["pairs"])
    if given["token"] is not None:
        added["LAKESHORE_CLIENT_TOKEN"] = given["token"]
    path = import_path(python, added.get("PYTHONPATH", environ.get("PYTHONPATH", "")))
    if path is not None:
        added["PYTHONPATH"] = path
    return added


def _python(named: str | None) -> str:
    """--python, LAKESHORE_PYTHON, `python3`; our own interpreter where there is no python3."""
    chosen: str | None = named or os.environ.get("LAKESHORE_PYTHON")
    return chosen or ("python3" if shutil.which("python3") else sys.executable)
