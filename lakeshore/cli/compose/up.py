"""`lakeshore up`: what the file declares is made to be there, and what is there already stays as it is.

Rules: queues first, then the daemons that are missing, some at a time, each under its own label; the server takes a
label of a project once, so that two who do this at the same time make nothing twice. Then those that are too many go,
with their machines. Nothing is written down here: whoever was interrupted runs it again. A daemon that was drained by a
`down` that did not finish works again.
Reference: get-started/compose.md; admin/happy-paths/12-compose-cluster.md; C-337…C-342, C-353…C-356.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from lakeshore.client.api import ApiClient
from lakeshore.client.errors import ApiError
from lakeshore.client.providers import Providers
from lakeshore.client.queues import Queues
from lakeshore.client.workers import Workers
from lakeshore.config.compose import Group

from ..exits import ExitCode
from ..failures import Failure
from ..interrupts import unwinding
from ..listing import json_option
from ..numbers import Length
from ..output import plain, print_json, say
from ..progress import progress
from ..server import server_options
from .arriving import WAIT_S, arrived, check_setups
from .ending import Ended, Ending
from .file import file_option, group_argument, opened, plan_option, seen, threads_client
from .launching import Launched, asked_for, launched, notes
from .parallel import Refusal, each
from .plan import GroupPlan, Plan
from .words import advice, counted, drift_lines, failure_line, member_json, plan_json, plan_lines, unchanged_lines, who


@dataclass(slots=True)
class Made:
    """What came of it so far."""

    queues: list[str] = field(default_factory=list)
    launched: list[tuple[str, str]] = field(default_factory=list)
    """(label, id)"""
    already: list[str] = field(default_factory=list)
    """Labels that somebody else had taken when we came."""
    failed: list[tuple[str, Refusal]] = field(default_factory=list)
    """(what, why)"""
    ended: Ended = field(default_factory=Ended)
    said: list[str] = field(default_factory=list)
    """By the server, of launches."""
    states: dict[str, str] = field(default_factory=dict)
    """By label, once they were waited for."""


@click.command()
@group_argument
@click.option("--wait", is_flag=True, help="Until every daemon has come up.")
@click.option(
    "--timeout",
    "limit_s",
    type=Length(0),
    metavar="<d>",
    help=f"Wait so long at most (default {Length.text(WAIT_S)}); for jobs of who is too many, too.",
)
@click.option("--now", is_flag=True, help="Do not wait for the jobs of daemons that are too many.")
@plan_option
@file_option
@json_option
@server_options
@click.pass_context
def up(
    ctx: click.Context,
    group: str | None,
    wait: bool,
    limit_s: float | None,
    now: bool,
    only_plan: bool,
    path: Path | None,
    as_json: bool,
) -> int:
    """Let there be what lakeshore.yaml declares: its queues, its daemons; or those of one group."""
    compose, server = opened(ctx, path)
    made = Made()
    with server, unwinding():
        plan = seen(server, compose, only=group)
        launchers = _providers(server, plan)
        for note in notes(plan, launchers):
            say(f"note: {note}")
        if only_plan:
            _tell_plan(plan, as_json=as_json)
            return ExitCode.OK
        client = threads_client(ctx, compose)
        told = whole = False
        try:
            _make_queues(server, plan, made)
            _launch(server, plan, launchers, client, made)
            _undrain(server, plan)
            _end_surplus(server, plan, client, made, wait=not now, limit_s=limit_s)
            whole = True
            if wait and not as_json:
                _tell(plan, made, whole=whole, as_json=False)
                told = True
            if wait:
                _wait(server, plan, made, WAIT_S if limit_s is None else limit_s)
        except (KeyboardInterrupt, SystemExit):
            say("what is made stays; `lakeshore up` goes on, `lakeshore down` takes it back")
            raise
        finally:
            if not told:
                _tell(plan, made, whole=whole, as_json=as_json)
    return ExitCode.FAILED if made.failed or made.ended.refused or made.ended.working else ExitCode.OK


# --- what is done


def _providers(server: ApiClient, plan: Plan) -> dict[str, str]:
    """The launcher of each provider that is needed, by its name. Failure for one that is not named, or not there."""
    needed = [one.group for one in plan.groups if one.launch]
    for group in needed:
        if group.provider is None:
            raise Failure(
                f"{plan.compose.path}: daemons.{group.name}.provider — required here, or `provider` at the top",
                hint="`lakeshore providers list` shows them",
                code=ExitCode.USAGE,
            )
    if not needed:
        return {}
    found = {str(row["name"]): str(row.get("launcher")) for row in Providers(server).all(hidden=True)}
    for group in needed:
        if group.provider not in found:
            raise Failure(
                f"daemons.{group.name}.provider — there is no provider {group.provider!r} in {server.namespace!r}",
                hint="`lakeshore providers list` shows them, `lakeshore providers add` adds one",
            )
    return found


def _make_queues(server: ApiClient, plan: Plan, made: Made) -> None:
    for one in plan.queues:
        if one.exists:
            continue
        try:
            Queues(server).add({"name": one.queue.name, **one.queue.settings})
        except ApiError as error:
            if error.status == 409:
                continue  # somebody made it meanwhile
            if error.status in (401, 403):
                raise
            field_ = f"queues.{one.queue.name}{f'.{error.field}' if error.field else ''}"
            raise Failure(f"{plan.compose.path}: {field_} — {error}", hint=error.hint) from error
        made.queues.append(one.queue.name)


def _launch(
    server: ApiClient, plan: Plan, launchers: dict[str, str], client: Callable[[], ApiClient], made: Made
) -> None:
    kept = _forget_gone(server, plan, client, made)
    wanted = [(group.group, label) for group in plan.groups for label in group.launch if label not in kept]
    if not wanted:
        return

    def one(client: ApiClient, what: tuple[Group, str]) -> Launched | None:
        group, label = what
        return launched(client, asked_for(plan.compose, group, label, launchers[str(group.provider)]))

    with progress("launching", len(wanted)) as advance:

        def done(what: tuple[Group, str], worker: Launched | None) -> None:
            advance()
            if worker is None:
                made.already.append(what[1])
            else:
                made.launched.append((what[1], worker.id))
                made.said += [text for text in worker.said if text not in made.said]

        def refused(what: tuple[Group, str], why: Refusal) -> None:
            advance()
            made.failed.append((what[1], why))

        each(wanted, one, client=client, done=done, refused=refused)
    for text in made.said:
        say(f"note: {text}")


def _forget_gone(server: ApiClient, plan: Plan, client: Callable[[], ApiClient], made: Made) -> set[str]:
    """Delete those whose places are taken anew, with what is left of their machines; the labels that stay taken."""
    ended = Ended()
    gone = [one for group in plan.groups for one in group.gone]
    ending = Ending(server=server, client=client, project=plan.compose.project, keep_instance=False, wait=False)
    ending.end(gone, ended)
    made.failed += [(one.label, why) for one, why in ended.refused]
    return {one.label for one, _why in ended.refused}


def _undrain(server: ApiClient, plan: Plan) -> None:
    """Whoever a `down` drained, and is to stay, works again; whether one was who is silent, is not shown."""
    for group in plan.groups:
        for one in group.stays:
            if one.state in ("draining", "stale"):
                Workers(server).drain(one.id, off=True)


def _end_surplus(
    server: ApiClient,
    plan: Plan,
    client: Callable[[], ApiClient],
    made: Made,
    *,
    wait: bool,
    limit_s: float | None,
) -> None:
    surplus = [one for group in plan.groups for one in group.surplus]
    if surplus:
        ending = Ending(
            server=server,
            client=client,
            project=plan.compose.project,
            keep_instance=False,
            wait=wait,
            limit_s=limit_s,
        )
        ending.end(surplus, made.ended)


def _wait(server: ApiClient, plan: Plan, made: Made, limit_s: float) -> None:
    """Until all that was asked for has come up, and its setups have gone well. Failure."""
    failed = {label for label, _why in made.failed}
    wanted = [label for group in plan.groups for label in group.group.labels if label not in failed]
    known = [one.label for group in plan.groups for one in group.stays] + [label for label, _id in made.launched]
    if wanted:
        arrived(server, plan.compose, wanted, made.states, known=known, limit_s=limit_s)
        check_setups(server, made.launched)


# --- what is told


def _tell_plan(plan: Plan, *, as_json: bool) -> None:
    if as_json:
        print_json({**plan_json(plan), "plan": True})
        return
    for line in plan_lines(plan):
        click.echo(line)
    for line in advice(plan):
        say(line)


def _tell(plan: Plan, made: Made, *, whole: bool, as_json: bool) -> None:
    """`whole`: all was tried."""
    if as_json:
        print_json(_json(plan, made))
        return
    ended = made.ended
    counts = [(len(made.launched), "daemon(s) launched"), (len(made.queues), "queue(s) created")]
    counts += [(len(ended.deleted), "daemon(s) removed")]
    counts += [(len(made.failed) + len(ended.refused), "failed"), (len(ended.working), "still at work")]
    mark = "✗" if not whole or made.failed or ended.refused or ended.working else "✓"
    click.echo(f"{mark} project '{plan.compose.project}': {counted(counts, always=2)}")
    for name in made.queues:
        click.echo(f"  + queue {name}")
    order = {label: at for at, label in enumerate(label for group in plan.groups for label in group.launch)}
    for label, id_ in sorted(made.launched, key=lambda one: order[one[0]]):
        click.echo(f"  + daemon {label}  ({plain(id_)})")
    for label in sorted(made.already, key=order.__getitem__):
        click.echo(f"  daemon {label}  (already present)")
    for one, _machine in ended.deleted:
        click.echo(f"  - daemon {who(one)}")
    for label, why in sorted(made.failed, key=lambda one: order[one[0]]):
        click.echo(failure_line(f"daemon {label}", why))
    for one, why in ended.refused:
        click.echo(failure_line(f"daemon {one.label}", why))
    for one in ended.working:
        click.echo(f"  … {who(one)}  has {one.held} job(s) in hand")
    for line in (*unchanged_lines(plan), *drift_lines(plan)):
        click.echo(line)
    for line in advice(plan):
        say(line)


def _json(plan: Plan, made: Made) -> dict[str, Any]:
    def group(one: GroupPlan) -> dict[str, Any]:
        ours = set(one.group.labels)
        surplus = {member.id for member in one.surplus}
        return {
            "name": one.group.name,
            "desired": one.group.count,
            "before": one.before,
            "launched": [
                {"label": label, "id": id_, **({"state": made.states[label]} if label in made.states else {})}
                for label, id_ in made.launched
                if label in ours
            ],
            "present": [*(member.label for member in one.stays), *(label for label in made.already if label in ours)],
            "removed": [member_json(member) for member, _machine in made.ended.deleted if member.id in surplus],
            "failed": _failed([(label, why) for label, why in made.failed if label in ours])
            + _failed([(member.label, why) for member, why in made.ended.refused if member.id in surplus]),
            "working": [member_json(member) for member in made.ended.working if member.id in surplus],
            "changed": {label: list(fields) for label, fields in one.changed.items()},
        }

    told = plan_json(plan)
    return {
        "project": told["project"],
        "plan": False,
        "queues": [
            {**queue, "state": "created" if queue["name"] in made.queues else "present"} for queue in told["queues"]
        ],
        "groups": [group(one) for one in plan.groups],
        "orphans": told["orphans"],
    }


def _failed(found: Sequence[tuple[str, Refusal]]) -> list[dict[str, Any]]:
    return [{"label": label, "error": str(why), "hint": getattr(why, "hint", None)} for label, why in found]
