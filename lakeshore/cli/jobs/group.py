"""`lakeshore jobs`: what is queued, running and done, and the few things to do about it.

Reference: get-started/jobs.md; cli/examples/queues-and-jobs.md. `list --json` is the array form (`.[].id`);
`--envelope` is the route's own answer.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import Any

import click

from lakeshore.client.errors import ApiError
from lakeshore.wire.errors import NameError_
from lakeshore.wire.names import check_queue

from ..completing.kinds import STATES
from ..exits import ExitCode
from ..failures import Failure
from ..groups import LazyGroup
from ..listing import Listing, first, json_option, limit_options, watched
from ..named import Named
from ..numbers import Age, Whole
from ..output import age, ahead, duration, indented, local_time, moment, plain, print_json, say
from ..server import connect, server_options
from ..watching import watch_option
from .ids import whole_id

ENDS = STATES[2:]
_MOST = 200
"""Rows of one answer."""
TIMES = ("submittedAt", "due", "claimedAt", "startedAt", "finishedAt")
ALIASES = {"worker": "workerId", "queue": "queueName"}
"""Names that a row has twice, in short for jq."""
TWICE = ("waits",)
"""What a row says in words, too."""


@click.group(cls=LazyGroup, verbs={"logs": "lakeshore.cli.jobs.logs:logs"}, aliases={"ls": "list", "cancel": "kill"})
def jobs() -> None:
    """See, kill and retry invocations, and read what they print."""


@jobs.command("list")
@click.option("--state", "states", multiple=True, type=click.Choice(STATES), help="Only these; repeatable.")
@click.option("--delayed", is_flag=True, help="Only those that wait for their instant.")
@click.option("--worker", type=Named("daemons"), metavar="<id>", help="Only what this worker claimed.")
@click.option("--queue", type=Named("queues"), metavar="<name>", help="Only this queue.")
@limit_options(50)
@click.option("--offset", type=Whole(min=0), default=0, show_default=True, metavar="<n>")
@json_option
@click.option("--envelope", is_flag=True, help="JSON as the server gives it: {invocations, limit, offset, count}.")
@watch_option
@server_options
@click.pass_context
def list_(
    ctx: click.Context,
    states: tuple[str, ...],
    delayed: bool,
    worker: str | None,
    queue: str | None,
    limit: int,
    every: bool,
    offset: int,
    as_json: bool,
    envelope: bool,
    watch: float | None,
) -> None:
    """List invocations, newest first."""
    _check_queue(queue)
    if delayed and states:
        raise Failure("--delayed is a part of `--state queued`: give one of them", code=ExitCode.USAGE)
    states = ("delayed",) if delayed else states
    if watch is not None and envelope:
        raise Failure("--watch shows rows: leave --envelope out", code=ExitCode.USAGE)
    with connect(ctx) as server:
        if envelope:
            print_json(server.invocations(states=states, worker=worker, queue=queue, limit=limit, offset=offset))
            return
        page = _MOST if every else min(limit + 1, _MOST)
        matching = " match" if states or worker or queue or offset else ""

        def look() -> Listing[Any]:
            pages = server.every_invocation(states=states, worker=worker, queue=queue, offset=offset, page=page)
            found, more = first(pages, None if every else limit)
            return Listing(
                [_row(row) for row in found],
                columns=("id", "state", "worker", "queue", "attempt", "submitted", "started", "function"),
                cells=_cells,
                right=("attempt", "submitted", "started"),
                gives=("worker", "function", "queue"),
                empty=f"no invocations{matching} in namespace {server.namespace!r}",
                as_json=as_json,
                more=f"--offset {offset + limit}, or --all" if more else None,
            )

        watched(look, watch, server, "invocations")


@jobs.command()
@click.argument("id_", metavar="<id>", type=Named("invocations"))
@json_option
@server_options
@click.pass_context
def show(ctx: click.Context, id_: str, as_json: bool) -> None:
    """Show one invocation, the whole record."""
    with connect(ctx) as server:
        row = server.invocation(whole_id(server, id_))
    if as_json:
        print_json(row)
    else:
        click.echo("\n".join(describe(row, datetime.now(UTC))))


@jobs.command("why")
@click.argument("id_", metavar="<id>", type=Named("invocations"))
@json_option
@server_options
@click.pass_context
def why_(ctx: click.Context, id_: str, as_json: bool) -> None:
    """Say why an invocation waits: its queue, its instant, or nobody who could run it."""
    with connect(ctx) as server:
        row = server.invocation(whole_id(server, id_))
    waits = row.get("waits") or {}
    if as_json:
        print_json({"id": row.get("id"), "state": row.get("state"), **(waits or {"reason": None, "message": None})})
        return
    if row.get("state") != "queued":
        click.echo(f"{plain(row.get('id'))} does not wait: it is {plain(row.get('state'))}")
        return
    click.echo(plain(waits.get("message") or row.get("why") or "it is queued; this server does not say why"))
    for one in waits.get("workers") or ():
        click.echo(f"  {plain(one.get('label') or one.get('id'))}: {plain(one.get('why'))}")


@jobs.command()
@click.argument("id_", metavar="<id>", type=Named("invocations"))
@json_option
@server_options
@click.pass_context
def kill(ctx: click.Context, id_: str, as_json: bool) -> None:
    """Kill one invocation: at once when it is queued; one that runs is asked to stop, where its worker can be."""
    with connect(ctx) as server:
        id_ = whole_id(server, id_)
        try:
            row = server.kill(id_)
        except ApiError as error:
            raise _refused(error) from error
    if as_json:
        print_json(row)
    elif row.get("state") == "cancelling":
        click.echo(
            f"{id_} stopping on worker {plain(row.get('workerId'))}; `lakeshore jobs show {id_}` tells when it has"
        )
    else:
        click.echo(f"{id_} {plain(row.get('state'))}")


@jobs.command()
@click.argument("ids", metavar="<id>…", type=Named("invocations"), nargs=-1, required=True)
@json_option
@server_options
@click.pass_context
def retry(ctx: click.Context, ids: tuple[str, ...], as_json: bool) -> int:
    """Queue failed, killed or timed-out invocations again, under the same ids."""
    done, refused = [], 0
    with connect(ctx) as server:
        for said in dict.fromkeys(ids):
            try:
                id_ = whole_id(server, said)
                claim = server.invocation(id_).get("claim")  # what was seen: a retry of somebody else's wins once
                row = server.retry(id_, claim=claim if isinstance(claim, int) else None)
            except (ApiError, Failure) as error:
                if isinstance(error, ApiError) and error.status in (401, 403):
                    raise
                say(f"error: {said}: {error}" + (f" (hint: {error.hint})" if error.hint else ""))
                refused += 1
                continue
            done.append(row)
            if not as_json:
                click.echo(f"{id_} {plain(row.get('state'))}")
    if as_json:
        print_json(done)
    return ExitCode.FAILED if refused else ExitCode.OK


@jobs.command("bulk-cancel")
@click.option("--queue", type=Named("queues"), metavar="<name>", help="Only this queue.")
@json_option
@server_options
@click.pass_context
def bulk_cancel(ctx: click.Context, queue: str | None, as_json: bool) -> None:
    """Kill everything that is queued. What runs is untouched."""
    _check_queue(queue)
    with connect(ctx) as server:
        answer = server.bulk_cancel(queue=queue)
    if as_json:
        print_json(answer)
    else:
        where = f" on queue {queue}" if queue else ""
        click.echo(f"{answer.get('cancelled', 0)} cancelled{where}")


@jobs.command()
@click.option(
    "--older-than", type=Age(), default="7d", show_default=True, metavar="<age>", help="Since they ended: 12h, 30d, …"
)
@click.option("--state", "states", multiple=True, type=click.Choice(ENDS), help="Only these; repeatable.")
@click.option("--queue", type=Named("queues"), metavar="<name>", help="Only this queue.")
@click.option("--dry-run", is_flag=True, help="Count them, and delete nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
@server_options
@click.pass_context
def prune(
    ctx: click.Context,
    older_than: float,
    states: tuple[str, ...],
    queue: str | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> int:
    """Delete invocations that ended long ago, with their arguments, results and frames."""
    _check_queue(queue)
    if not dry_run and not yes and (as_json or not sys.stdin.isatty()):
        raise Failure("nobody can be asked here", hint="add --yes, or look first with --dry-run", code=ExitCode.USAGE)
    which = f"invocations that ended more than {duration(older_than * 3600)} ago"
    which += (f" on queue {queue}" if queue else "") + (f" ({', '.join(states)})" if states else "")
    with connect(ctx) as server:

        def all_of_them(*, count_only: bool) -> int:
            count, cursor = 0, None
            while True:
                answer = server.prune(
                    older_than_hours=older_than, states=states, queue=queue, dry_run=count_only, cursor=cursor
                )
                count += int(answer.get("count", 0))
                cursor = answer.get("next")
                if cursor is None:
                    return count
                if not count_only:
                    say(f"{count:,} deleted so far")

        if dry_run or not yes:
            count = all_of_them(count_only=True)
            if dry_run:
                if as_json:
                    print_json({"count": count, "dryRun": True})
                else:
                    click.echo(f"{count:,} {which}")
                return ExitCode.OK
            if count == 0:
                click.echo(f"no {which}")
                return ExitCode.OK
            if not click.confirm(f"{count:,} {which}: delete them for good?", err=True):
                say("nothing was deleted")
                return ExitCode.FAILED
        count = all_of_them(count_only=False)
    if as_json:
        print_json({"count": count, "dryRun": False})
    else:
        click.echo(f"{count:,} deleted")
    return ExitCode.OK


def _check_queue(name: str | None) -> None:
    """A queue of that name may exist. click.BadParameter (exit 2) says what may."""
    if name is not None:
        try:
            check_queue(name)
        except NameError_ as error:
            raise click.BadParameter(str(error).removeprefix("queue: "), param_hint="'--queue'") from error


def _cells(row: dict[str, Any], now: datetime) -> tuple[str, ...]:
    return (
        str(row["id"]),
        str(row["state"]),
        str(row["worker"] or "—"),
        str(row["queue"] or "—"),
        str(row.get("attempt", "")),
        age(row.get("submittedAt"), now),
        ahead(row.get("due"), now) if _is_delayed(row) else age(row.get("startedAt"), now),
        str(row.get("functionQualname") or "—"),
    )


def _is_delayed(row: dict[str, Any]) -> bool:
    """A server that is older tells only what is delayed why it waits."""
    return bool(row.get("why")) and (row.get("waits") or {"reason": "delayed"}).get("reason") == "delayed"


def _row(row: dict[str, Any]) -> dict[str, Any]:
    """A row with the short names that the cookbook's jq lines use."""
    return {**row, "worker": row.get("worker", row.get("workerId")), "queue": row.get("queue", row.get("queueName"))}


def _refused(error: ApiError) -> Exception:
    """A 409 in words: who holds the job, or how it ended."""
    if error.status != 409:
        return error
    worker, state = error.body.get("workerId") or error.body.get("worker"), error.body.get("state")
    message = str(error)
    if worker and str(worker) not in message:
        message += f" (worker {plain(worker)})"
    if state and str(state) not in message:
        message += f" (state {plain(state)})"
    return Failure(message, hint=error.hint)


def describe(row: dict[str, Any], now: datetime) -> list[str]:
    """The record as lines for a person: facts in a column, then nested values, then the error's traceback as it is."""
    row = {
        key: value
        for key, value in row.items()
        if key not in TWICE and (key not in ALIASES or row.get(ALIASES[key], ...) != value)
    }
    if (shown := row.pop("functionQualname", None)) is not None:
        row["function"] = shown  # the rest of it says how it travelled: --json has that
    lines, nested = [], []
    width = max(len(key) for key in row) + 2 if row else 0
    error = row.get("error")
    for key, value in row.items():
        if key in TIMES:
            lines.append(f"{key:<{width}}{local_time(value, now)}")
        elif isinstance(value, dict | list) and value:
            if key != "error":
                nested += [f"{key}:", *indented(value, 1)]
        elif key != "error":
            lines.append(f"{key:<{width}}{'—' if value in (None, '', {}, []) else plain(value)}")
    started, finished = moment(row.get("startedAt")), moment(row.get("finishedAt"))
    if started is not None and finished is not None:
        lines.append(f"{'took':<{width}}{duration((finished - started).total_seconds())}")
    return lines + nested + _error(error, width)


def _error(error: Any, width: int) -> list[str]:
    if not error:
        return [f"{'error':<{width}}—"]
    if not isinstance(error, dict):
        return [f"{'error':<{width}}{plain(error)}"]
    kind, message, trace = error.get("type"), error.get("message"), error.get("traceback")
    lines = [f"error: {plain(kind or 'Error')}: {plain(message or '')}"]
    rest = {key: value for key, value in error.items() if key not in ("type", "message", "traceback")}
    lines += indented(rest, 1)
    if trace:
        lines += [f"  {plain(line)}" for line in str(trace).rstrip().splitlines()]
    return lines
