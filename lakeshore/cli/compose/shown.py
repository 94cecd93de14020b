"""`lakeshore ps` and `lakeshore status`: what the project has, and how that differs from what its file declares.

Reference: get-started/compose.md; C-348, C-349.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from ..listing import Listing, json_option, watched
from ..output import age, plain, print_json, say
from ..server import server_options
from ..watching import watch_option
from .file import file_option, opened, owned, seen
from .plan import SERVES, GroupPlan, Member, Plan, members
from .words import advice, drift_lines, listed, plan_json

COLUMNS = ("label", "state", "host", "jobs", "queues", "provider", "seen", "id")


@click.command()
@file_option
@json_option
@watch_option
@server_options
@click.pass_context
def ps(ctx: click.Context, path: Path | None, as_json: bool, watch: float | None) -> None:
    """List the project's daemons."""
    compose, server = opened(ctx, path)
    with server:

        def look() -> Listing[Any]:
            return Listing(
                members(owned(server, compose)),
                columns=COLUMNS,
                cells=_cells,
                right=("jobs", "seen"),
                gives=("queues", "provider"),
                empty=f"project '{compose.project}' has no daemons in {server.namespace!r}; `lakeshore up` makes them",
                as_json=as_json,
                json_rows=lambda one: one.row,
            )

        watched(look, watch, server, "workers")


@click.command()
@file_option
@json_option
@server_options
@click.pass_context
def status(ctx: click.Context, path: Path | None, as_json: bool) -> None:
    """Compare what there is with what lakeshore.yaml declares; nothing is changed."""
    compose, server = opened(ctx, path)
    with server:
        plan = seen(server, compose)
    if as_json:
        print_json({**plan_json(plan), "namespace": server.namespace})
        return
    click.echo(f"project '{compose.project}' in namespace '{server.namespace}':")
    for line in (*_lines(plan), *drift_lines(plan)):
        click.echo(line)
    if not plan.is_done:
        say("`lakeshore up` makes it so; `lakeshore up --plan` says how")
    elif plan.in_sync:
        say("all is as the file says")
    for line in advice(plan):
        say(line)


def _lines(plan: Plan) -> Iterator[str]:
    for queue in plan.queues:
        yield f"  queue {queue.queue.name}  ({'present' if queue.exists else 'missing'})"
    for group in plan.groups:
        yield f"  daemons {group.group.name}  {len(group.stays)} of {group.group.count}  ({_state(group)})"


def _state(group: GroupPlan) -> str:
    parts = []
    late = [f"{one.label} {one.state}" for one in group.stays if one.state not in SERVES]
    for what, labels in (
        ("missing", group.launch),
        ("gone", [one.label for one in group.gone]),
        ("too many", [one.label for one in group.surplus]),
        ("not up", late),
    ):
        if labels:
            parts.append(f"{what}: {listed(labels)}")
    return "; ".join(parts) or "as declared"


def _cells(one: Member, now: datetime) -> tuple[str, ...]:
    row = one.row
    return (
        one.label,
        one.state,
        str(row.get("hostStatus") or "—"),
        str(one.held),
        plain(",".join(map(str, row.get("queues") or ())) or "—"),
        str(row.get("providerName") or "—"),
        age(row.get("lastSeenAt"), now),
        one.id,
    )
