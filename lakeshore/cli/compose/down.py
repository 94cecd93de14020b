"""`lakeshore down`: the project's daemons go. Whoever was launched by hand, or by another project, stays.

Reference: get-started/compose.md; admin/happy-paths/12-compose-cluster.md; C-343…C-347, C-357, C-358, C-1408.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from lakeshore.client.api import ApiClient
from lakeshore.client.errors import ApiError
from lakeshore.client.queues import Queues
from lakeshore.config.compose import Compose, place_of

from ..exits import ExitCode
from ..interrupts import unwinding
from ..listing import json_option
from ..numbers import Length
from ..output import plain, print_json, say
from ..server import server_options
from .ending import Ended, Ending
from .file import file_option, opened, owned, plan_option, threads_client
from .plan import Member, members
from .words import counted, failure_line, listed, member_json, who

_KEPT = "--prune-queues deletes it"


@dataclass(slots=True)
class Pruned:
    """The declared queues: which are deleted, which are kept and why."""

    deleted: list[str] = field(default_factory=list)
    kept: dict[str, str] = field(default_factory=dict)


@click.command()
@click.option("--terminate", is_flag=True, help="Terminate their cloud instances, too.")
@click.option("--prune-queues", is_flag=True, help="Delete the declared queues that nobody pulls from any more.")
@click.option("--now", is_flag=True, help="Do not wait for the jobs that they have in hand.")
@click.option("--timeout", "limit_s", type=Length(0), metavar="<d>", help="Wait so long for their jobs: 90s, 5m, 1h.")
@plan_option
@file_option
@json_option
@server_options
@click.pass_context
def down(
    ctx: click.Context,
    terminate: bool,
    prune_queues: bool,
    now: bool,
    limit_s: float | None,
    only_plan: bool,
    path: Path | None,
    as_json: bool,
) -> int:
    """Drain the project's daemons and delete them; their instances stay, unless told."""
    if now and limit_s is not None:
        raise click.UsageError("--now waits for nothing, so --timeout has nothing to say")
    compose, server = opened(ctx, path)
    ended, pruned = Ended(), Pruned()
    with server, unwinding():
        found = members(owned(server, compose))
        if only_plan:
            _look_at_queues(server, compose, found, pruned, prune=prune_queues)
            _tell_plan(compose, found, pruned, terminate=terminate, now=now, as_json=as_json)
            return ExitCode.OK
        ending = Ending(
            server=server,
            client=threads_client(ctx, compose),
            project=compose.project,
            keep_instance=not terminate,
            wait=not now,
            limit_s=limit_s,
        )
        finished = False
        try:
            ending.end(found, ended)
            if not ended.working:
                _prune(server, compose, pruned, prune=prune_queues)
            finished = True
        finally:
            _tell(compose, ended, pruned, whole=finished, terminate=terminate, as_json=as_json)
            if ended.working:
                say(f"{listed(one.label for one in ended.working)}: get no more work, and are still there")
                say("`lakeshore down` goes on; `lakeshore up` lets them work again")
    return ExitCode.FAILED if ended.refused or ended.working else ExitCode.OK


# --- queues


def _prune(server: ApiClient, compose: Compose, pruned: Pruned, *, prune: bool) -> None:
    queues = Queues(server)
    for queue in compose.queues:
        if not prune:
            pruned.kept[queue.name] = _KEPT
            continue
        try:
            row = queues.show(queue.name)
            why = _reason(row)
            if why is None:
                queues.remove(queue.name, force=False)
        except ApiError as error:
            if error.status == 404:
                continue  # it is not there
            if error.status not in (400, 409, 422):
                raise
            why = str(error)
        if why is None:
            pruned.deleted.append(queue.name)
        else:
            pruned.kept[queue.name] = why


def _look_at_queues(
    server: ApiClient, compose: Compose, found: Sequence[Member], pruned: Pruned, *, prune: bool
) -> None:
    """What `_prune` would do once those daemons are gone."""
    ours = {one.id for one in found}
    for queue in compose.queues:
        try:
            row = Queues(server).show(queue.name)
        except ApiError as error:
            if error.status != 404:
                raise
            continue
        others = [one for one in row.get("members") or () if one.get("id") not in ours]
        why = _reason({**row, "memberCount": len(others)}) if prune else _KEPT
        if why is None:
            pruned.deleted.append(queue.name)
        else:
            pruned.kept[queue.name] = why


def _reason(row: Mapping[str, Any]) -> str | None:
    """Why a queue is not deleted."""
    for count, what in ((row.get("memberCount"), "member(s)"), (row.get("running"), "running call(s)")):
        if count:
            return f"it has {count} {what}"
    waiting = (row.get("queued") or 0) + (row.get("delayed") or 0)
    return f"it has {waiting} call(s) that wait" if waiting else None


# --- what is told


def _tell_plan(
    compose: Compose, found: Sequence[Member], pruned: Pruned, *, terminate: bool, now: bool, as_json: bool
) -> None:
    if as_json:
        print_json(
            {
                "project": compose.project,
                "plan": True,
                "daemons": [member_json(one) for one in found],
                "queues": {"deleted": pruned.deleted, "kept": pruned.kept},
            }
        )
        return
    how = f"would {'' if now else 'drain and '}{'delete and terminate' if terminate else 'delete'}"
    click.echo(f"Plan for project '{compose.project}':")
    groups: dict[str, list[str]] = {}
    for one in found:
        place = place_of(one.label)
        groups.setdefault(one.label if place is None else place[0], []).append(one.label)
    for name in (*(group.name for group in compose.groups), *groups):
        if labels := groups.pop(name, []):
            click.echo(f"  daemons {plain(name)}  {len(labels)} → 0  ({how}: {listed(labels)})")
    if not found:
        click.echo("  no daemons")
    for line in _queue_lines(pruned, "would delete"):
        click.echo(line)


def _tell(compose: Compose, ended: Ended, pruned: Pruned, *, whole: bool, terminate: bool, as_json: bool) -> None:
    """`whole`: all was tried."""
    if as_json:
        print_json(
            {
                "project": compose.project,
                "deleted": [{**member_json(one), "terminated": machine} for one, machine in ended.deleted],
                "failed": [
                    {**member_json(one), "error": str(why), "hint": getattr(why, "hint", None)}
                    for one, why in ended.refused
                ],
                "working": [{**member_json(one), "inFlight": one.held} for one in ended.working],
                "queues": {"deleted": pruned.deleted, "kept": pruned.kept},
            }
        )
        return
    counts = [(len(ended.deleted), "worker(s) deleted"), (ended.machines, "cloud instance(s) terminated")]
    counts += [(len(ended.refused), "failed"), (len(ended.working), "still at work")]
    counts += [(len(pruned.deleted), "queue(s) deleted")]
    mark = "✗" if not whole or ended.refused or ended.working else "✓"
    click.echo(f"{mark} project '{compose.project}': {counted(counts, always=2 if terminate else 1)}")
    for one, _machine in ended.deleted:
        click.echo(f"  - {who(one)}")
    for one, why in ended.refused:
        click.echo(failure_line(f"daemon {one.label}", why))
    for one in ended.working:
        click.echo(f"  … {who(one)}  has {one.held} job(s) in hand")
    for line in _queue_lines(pruned, "deleted"):
        click.echo(line)


def _queue_lines(pruned: Pruned, done: str) -> Iterator[str]:
    for name in pruned.deleted:
        yield f"  - queue {name}" if done == "deleted" else f"  queue {name}  ({done})"
    for name, why in pruned.kept.items():
        yield f"  queue {name}  (kept: {plain(why)})"
