"""`lakeshore schedule`: periodic jobs of a control plane.

What is sent is a call of a function by reference, packed here; neither this program nor the server imports it. The
worker runs whatever source it has: a schedule outlives versions.
"""

from __future__ import annotations

import base64
import json
import re
from datetime import UTC, datetime
from typing import Any

import click

from lakeshore.wire.envelope import Envelope
from lakeshore.wire.names import ANY_SOURCE

from .entries import removed
from .exits import ExitCode
from .failures import Failure
from .groups import Group
from .listing import Listing, json_option
from .named import Named
from .numbers import Length
from .output import age, ahead, plain, print_json, say
from .server import connect, server_options

_DOTTED = r"[^\W\d]\w*(?:\.[^\W\d]\w*)*"


@click.group(cls=Group, aliases={"ls": "list", "remove": "rm", "delete": "rm"})
def schedule() -> None:
    """Run functions periodically, by the server's clock."""


@schedule.command()
@click.argument("name")
@click.argument("function", metavar="<module:function>")
@click.option("--queue", type=Named("queues"), metavar="<name>", default="default", show_default=True, help="Where to.")
@click.option("--every", type=Length(), metavar="<length>", help="90s, 5m, 1h30m, 1d: from now on.")
@click.option("--cron", metavar="<expression>", help='minute hour day month weekday: "*/5 * * * *".')
@click.option("--tz", metavar="<zone>", help="Of --cron, as Europe/Oslo (default UTC).")
@click.option("--args", "arguments", metavar="<json>", default="[]", help="Positional arguments, a JSON array.")
@click.option("--kwarg", "pairs", multiple=True, metavar="k=v", help="A keyword argument, JSON or text; repeatable.")
@click.option(
    "--catch-up",
    type=click.Choice(("none", "last", "all")),
    default="last",
    show_default=True,
    help="What was missed while the server was down: nothing, one run, or every one.",
)
@click.option(
    "--overlap",
    type=click.Choice(("skip", "allow")),
    help="While the last run has not ended: skip (default; allow with --catch-up all).",
)
@json_option
@server_options
@click.pass_context
def add(
    ctx: click.Context,
    name: str,
    function: str,
    queue: str,
    every: float | None,
    cron: str | None,
    tz: str | None,
    arguments: str,
    pairs: tuple[str, ...],
    catch_up: str,
    overlap: str | None,
    as_json: bool,
) -> None:
    """Submit a function now and again. The first run is at the next instant, not now."""
    if (every is None) == (cron is None):
        raise Failure("say when: either --every 5m or --cron '*/5 * * * *'", code=ExitCode.USAGE)
    if tz is not None and cron is None:
        raise Failure("--tz is for --cron", code=ExitCode.USAGE)
    packed = _envelope(function, arguments, pairs).to_bytes()
    asked: dict[str, Any] = {
        "name": name,
        "queue": queue,
        "catchUp": catch_up,
        "envelope": base64.b64encode(packed).decode(),
    }
    given = (("every", every), ("cron", cron), ("tz", tz), ("overlap", overlap))
    asked |= {key: value for key, value in given if value is not None}
    with connect(ctx) as server:
        row = server.add_schedule(asked)
    if as_json:
        print_json(row)
    else:
        click.echo(f"{plain(row.get('name'))} runs {function} {plain(_rule(row))}; next {_next(row)}")


@schedule.command("list")
@json_option
@server_options
@click.pass_context
def list_(ctx: click.Context, as_json: bool) -> None:
    """List schedules: when each runs next, and what became of its last run."""
    with connect(ctx) as server:
        rows = server.schedules()
    Listing(
        rows,
        columns=("name", "when", "function", "queue", "next", "last", "state", "last id"),
        cells=_cells,
        right=("next", "last"),
        gives=("function", "when", "queue"),
        empty=f"no schedules in namespace {server.namespace!r}",
        as_json=as_json,
    ).print()
    for row in () if as_json else rows:
        if row.get("error"):
            say(f"{plain(row.get('name'))} cannot run: {plain(row['error'])}")


@schedule.command()
@click.argument("name", type=Named("schedules"))
@json_option
@server_options
@click.pass_context
def rm(ctx: click.Context, name: str, as_json: bool) -> None:
    """Remove a schedule. What it has submitted stays."""
    with connect(ctx) as server:
        server.remove_schedule(name)
    removed(name, as_json)


@schedule.command()
@click.argument("name", type=Named("schedules"))
@json_option
@server_options
@click.pass_context
def pause(ctx: click.Context, name: str, as_json: bool) -> None:
    """Let no instant of a schedule run until `resume`; those that pass are not made up for."""
    _paused(ctx, name, as_json, paused=True)


@schedule.command()
@click.argument("name", type=Named("schedules"))
@json_option
@server_options
@click.pass_context
def resume(ctx: click.Context, name: str, as_json: bool) -> None:
    """Let a paused schedule go on."""
    _paused(ctx, name, as_json, paused=False)


def _paused(ctx: click.Context, name: str, as_json: bool, *, paused: bool) -> None:
    with connect(ctx) as server:
        row = server.pause_schedule(name, paused=paused)
    if as_json:
        print_json(row)
    else:
        click.echo(f"{name} paused" if paused else f"{name} goes on; next {_next(row)}")


def _envelope(function: str, arguments: str, pairs: tuple[str, ...]) -> Envelope:
    """The call, without an id of its own: every run gets one."""
    found = re.fullmatch(rf"({_DOTTED}):({_DOTTED})", function)
    if found is None:
        raise Failure(f"{function!r} names no function: write module:function", code=ExitCode.USAGE)
    try:
        args = json.loads(arguments)
    except ValueError as error:
        raise Failure(f"--args is no JSON: {error}", hint="--args '[1, \"two\"]'", code=ExitCode.USAGE) from error
    if not isinstance(args, list):
        raise Failure("--args takes a JSON array", hint="--args '[1, \"two\"]'", code=ExitCode.USAGE)
    kwargs: dict[str, Any] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals or not key.isidentifier():
            raise Failure(f"--kwarg {pair!r} is no name=value", code=ExitCode.USAGE)
        kwargs[key] = _json_or_text(text)
    fn = {"kind": "ref", "module": found[1], "qualname": found[2], "src_hash": ANY_SOURCE}
    return Envelope.build(id="schedule", fn=fn, args=args, kwargs=kwargs)


def _json_or_text(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _cells(row: dict[str, Any], now: datetime) -> tuple[str, ...]:
    return (
        str(row.get("name")),
        _rule(row),
        str(row.get("function")),
        str(row.get("queue")),
        "paused" if row.get("paused") else ahead(row.get("nextAt"), now),
        age(row.get("lastAt"), now),
        str(row.get("lastState") or "—"),
        str(row.get("lastId") or "—"),
    )


def _rule(row: dict[str, Any]) -> str:
    """`every 5m`, `*/5 * * * * Europe/Oslo`."""
    if row.get("every") is not None:
        return f"every {Length.text(float(row['every']))}"
    return " ".join(str(row[key]) for key in ("cron", "tz") if row.get(key))


def _next(row: dict[str, Any]) -> str:
    return f"{ahead(row.get('nextAt'), datetime.now(UTC))} ({plain(row.get('nextAt') or 'never')})"
