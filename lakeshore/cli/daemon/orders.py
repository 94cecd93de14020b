"""`lakeshore daemon setup|hibernate|reset`: orders that a daemon gets at its next poll.

Reference: cli/examples/daemons-and-exec.md; nymph/daemon-lifecycle.md.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta

import click

from lakeshore.client.workers import Workers

from ...config.lengths import seconds_of
from ..exits import ExitCode
from ..failures import Failure
from ..listing import json_option
from ..named import Named
from ..output import local_time, plain, print_json, say
from ..server import connect, server_options
from .named import find, tell_of_rest

id_argument = click.argument("id_", metavar="<id>", type=Named("daemons"))


@click.command()
@id_argument
@click.option(
    "--script",
    type=click.Path(allow_dash=True, dir_okay=False),
    required=True,
    metavar="<path|->",
    help="A bash script; its text is sent.",
)
@click.option("--sudo", is_flag=True, help="Run it as root.")
@click.option("--refresh-capabilities", is_flag=True, help="Let the daemon look again at what its host has.")
@click.option("--name", metavar="<label>", help="What the outcome is listed under.")
@json_option
@server_options
@click.pass_context
def setup(
    ctx: click.Context, id_: str, script: str, sudo: bool, refresh_capabilities: bool, name: str | None, as_json: bool
) -> None:
    """Run a script on a daemon, after those that were sent before it."""
    text = _text_of(script)
    with connect(ctx) as server:
        workers = Workers(server)
        one = find(workers, id_)
        answer = workers.setup(one.id, text, sudo=sudo, refresh_capabilities=refresh_capabilities, name=name)
    if as_json:
        print_json(answer)
        return
    ahead = int(answer.get("position") or 1) - 1
    before = f" after {ahead} other{'s' if ahead > 1 else ''}" if ahead else ""
    click.echo(f"queued {plain(name or answer.get('setup_id'))} for {plain(one.label)}{before}")
    tell_of_rest(one)
    say(f"its outcome: `lakeshore daemon show {one.label}`")


@click.command()
@id_argument
@click.option(
    "--until",
    required=True,
    metavar="<t>",
    help="From now, +30s, +5m, +1h or +3d; or an instant, 2026-06-01T00:00:00Z.",
)
@json_option
@server_options
@click.pass_context
def hibernate(ctx: click.Context, id_: str, until: str, as_json: bool) -> None:
    """Let a daemon rest: it polls no more until then."""
    instant = instant_of(until, datetime.now(UTC))
    with connect(ctx) as server:
        workers = Workers(server)
        one = find(workers, id_)
        answer = workers.hibernate(one.id, instant.isoformat())
    if as_json:
        print_json(answer)
        return
    click.echo(f"{plain(one.label)} rests until {local_time(instant.isoformat(), datetime.now(UTC))}")


@click.command()
@id_argument
@json_option
@server_options
@click.pass_context
def reset(ctx: click.Context, id_: str, as_json: bool) -> None:
    """End a daemon's back-off: from its next poll on it polls as usual."""
    with connect(ctx) as server:
        workers = Workers(server)
        one = find(workers, id_)
        answer = workers.reset(one.id)
    if as_json:
        print_json(answer)
        return
    click.echo(f"queued for {plain(one.label)}: polling as usual")
    tell_of_rest(one)


def instant_of(text: str, now: datetime) -> datetime:
    """`+<length>` from now, or an ISO-8601 instant (UTC where it names no zone). click.BadParameter for others.

    What has passed is the server's to refuse: its clock counts.
    """
    if text.startswith("+"):
        length = seconds_of(text[1:])
        if length is not None:
            try:
                return now + timedelta(seconds=length)
            except OverflowError:
                pass
    else:
        try:
            found = datetime.fromisoformat(text)
        except ValueError:
            pass
        else:
            return found if found.tzinfo is not None else found.replace(tzinfo=UTC)
    raise click.BadParameter(
        f"{text!r} is no time: write +30s, +5m, +1h, +3d or an instant such as 2026-06-01T00:00:00Z",
        param_hint="'--until'",
    )


def _text_of(script: str) -> str:
    """The script's text. Failure for what is no text, or not there."""
    try:
        if script == "-":
            return sys.stdin.buffer.read().decode()
        with open(script, encoding="utf-8") as file:
            return file.read()
    except UnicodeDecodeError as error:
        raise Failure(f"{script} is no script: it is not UTF-8 text", code=ExitCode.USAGE) from error
    except OSError as error:
        raise Failure(f"cannot read {script}: {error.strerror}", code=ExitCode.USAGE) from error
