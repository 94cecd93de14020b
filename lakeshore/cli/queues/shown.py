"""`lakeshore queues ls|show|stats|events`: what there is.

Reference: cli/examples/queues-and-jobs.md; get-started/queues.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import click

from lakeshore.client.queues import Queues

from ..listing import Listing, facts, json_option, limit_options, watched
from ..named import Named
from ..output import age, duration, indented, local_time, plain, print_json
from ..server import connect, server_options
from ..watching import watch_option

STATES = ("active", "draining", "paused", "archived")
COLUMNS = ("name", "kind", "state", "members", "provider", "elasticity", "description")
name_argument = click.argument("name", metavar="<name>", type=Named("queues"))


@click.command()
@click.option("--state", type=click.Choice(STATES), help="Only these.")
@json_option
@watch_option
@server_options
@click.pass_context
def ls(ctx: click.Context, state: str | None, as_json: bool, watch: float | None) -> None:
    """List queues; also those of the org's other namespaces."""
    with connect(ctx) as server:

        def look() -> Listing[Any]:
            rows = Queues(server).all(state=state)
            several = len({row.get("namespace") for row in rows}) > 1
            return Listing(
                rows,
                columns=(COLUMNS[0], "namespace", *COLUMNS[1:]) if several else COLUMNS,
                cells=lambda row, _now: _cells(row, several),
                right=("members",),
                gives=("description", "provider", "elasticity"),
                empty=f"no queues{' match' if state else ''} in namespace {server.namespace!r}",
                as_json=as_json,
            )

        watched(look, watch, server, "queues")


@click.command()
@name_argument
@json_option
@server_options
@click.pass_context
def show(ctx: click.Context, name: str, as_json: bool) -> None:
    """Show one queue, and who pulls from it."""
    with connect(ctx) as server:
        row = Queues(server).show(name)
    if as_json:
        print_json(row)
    else:
        click.echo("\n".join(_described(row)))


@click.command()
@name_argument
@json_option
@server_options
@click.pass_context
def stats(ctx: click.Context, name: str, as_json: bool) -> None:
    """What a queue has now, and how fast it goes."""
    with connect(ctx) as server:
        found = Queues(server).stats(name)
    if as_json:
        print_json(found)
        return
    oldest = found.get("oldest_age_s")
    told = {
        "state": found.get("state"),
        "daemon_count": found.get("daemon_count"),
        "utilization": f"{float(found.get('utilization') or 0):.0%}",
        "pending": found.get("pending"),
        "delayed": found.get("delayed"),
        "running": found.get("running"),
        "oldest": "—" if oldest is None else duration(float(oldest)),
        "throughput": f"{float(found.get('throughput_per_s') or 0):.2f} a second",
        "held submits": found.get("held_submits"),
        "controller": _looks(found.get("controller") or {}),
    }
    if error := found.get("last_launch_error"):
        told["no daemon"] = f"{error.get('error')}; next try {local_time(error.get('next_try_at'), datetime.now(UTC))}"
    click.echo("\n".join(facts(told.items())))
    for action in found.get("recent_actions") or ():
        click.echo(f"  {age(action.get('at'), datetime.now(UTC))} ago  {'  '.join(map(plain, _told(action)))}")


@click.command()
@name_argument
@click.option("--verbose", is_flag=True, help="Also the controller's ticks that changed nothing.")
@click.option("--calls", is_flag=True, help="Also when its newest calls were queued, began and ended.")
@limit_options(50, most=200, every=False)
@json_option
@server_options
@click.pass_context
def events(ctx: click.Context, name: str, verbose: bool, calls: bool, limit: int, as_json: bool) -> None:
    """What was done with a queue, the newest first."""
    with connect(ctx) as server:
        rows = Queues(server).events(name, verbose=verbose, limit=limit, calls=calls)
    Listing(
        rows,
        columns=("ago", "kind", "what"),
        cells=lambda row, now: (age(row.get("at"), now), *_told(row)),
        right=("ago",),
        gives="what",
        empty=f"no events of queue {name}",
        as_json=as_json,
    ).print()


# --- inside


def _looks(controller: Mapping[str, Any]) -> str:
    """Whether the elasticity controller looks after the queue, and when it did last."""
    if not controller.get("enabled"):
        return "off"
    every, at = controller.get("tick_s"), controller.get("last_tick_at")
    return f"on, every {every:g} s" + (f", last {age(at, datetime.now(UTC))} ago" if at else "")


def _told(row: Mapping[str, Any]) -> tuple[str, str]:
    """What was done, and with what; of the controller's decisions, why."""
    if row.get("action"):
        return str(row["action"]), str(row.get("reason"))
    return str(row.get("kind")), _words(row.get("payload") or {})


def _words(payload: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{key} {' '.join(map(str, said)) if isinstance(said, list) else said}" for key, said in payload.items()
    )


def _cells(row: Mapping[str, Any], several: bool) -> tuple[str, ...]:
    return (
        str(row["name"]),
        *((str(row.get("namespace")),) if several else ()),
        str(row.get("kind")),
        str(row.get("state")),
        str(row.get("memberCount", 0)),
        str(row.get("providerRef") or "—"),
        str((row.get("elasticity") or {}).get("kind") or "—"),
        str(row.get("description") or "—"),
    )


def member(one: Mapping[str, Any]) -> tuple[str, ...]:
    """Who pulls, as a row of a table."""
    return (
        str(one.get("id")),
        str(one.get("label") or "—"),
        str(one.get("state")),
        ", ".join(map(str, one.get("queues") or ())) or "—",
    )


def _described(row: dict[str, Any]) -> list[str]:
    now = datetime.now(UTC)
    plainly = {key: said for key, said in row.items() if not isinstance(said, dict | list)}
    for key in ("createdAt", "updatedAt"):
        plainly[key] = local_time(row.get(key), now)
    lines = facts(plainly.items())
    for key, said in row.items():
        if isinstance(said, dict) and said:
            lines += [f"{key}:", *indented(said, 1)]
    found = row.get("members") or []
    lines += ["members:", *("  " + "  ".join(map(plain, member(one))) for one in found)] if found else ["members: none"]
    return lines
