"""`lakeshore queues add|patch|pause|resume|drain|archive|unarchive|rm`: what is decided.

`--elasticity` takes hyphens and underscores, the server underscores alone. The server takes whole objects: `patch`
reads the row, and sends it back with what the flags change.
Reference: cli/examples/queues-and-jobs.md; get-started/queues.md; get-started/elasticity.md.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from lakeshore.client.errors import ApiError
from lakeshore.client.queues import Queues
from lakeshore.wire.errors import NameError_
from lakeshore.wire.names import check_slug

from ..failures import Failure
from ..listing import json_option
from ..named import Named
from ..numbers import Length, Seconds, Whole
from ..output import plain, print_json, say
from ..server import connect, server_options
from .shown import name_argument

F = TypeVar("F", bound=Callable[..., Any])
KINDS = ("fifo", "priority", "boltzmann", "filo")
ELASTICITIES = ("fixed", "fully-elastic", "pool-with-threshold", "max-count")
BOUNDS = {"least": "min", "most": "max", "threshold": "threshold", "pool": "pool", "steal_delay": "steal_delay_s"}
MATCH = {"match_tag": "tags", "match_runner": "runners"}
HELPING = ("steal_delay", *MATCH)
ADMISSION = {
    "max_depth": "max_depth",
    "on_full": "on_full",
    "rate_limit": "rate_limit",
    "deadline_cutoff": "deadline_cutoff_s",
}
KIND_PARAMS = {"temperature": "temperature", "priority_field": "priority_field"}
TEMPLATE = ("instance_type", "image_id", "runner")


class Policy(click.Choice[str]):
    """How many daemons serve a queue, in either spelling; as the wire has it."""

    def __init__(self) -> None:
        super().__init__(ELASTICITIES)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return str(super().convert(value.replace("_", "-"), param, ctx)).replace("-", "_")


def _with(*options: Callable[[F], F]) -> Callable[[F], F]:
    def decorate(command: F) -> F:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def _rate(ctx: click.Context, param: click.Parameter, said: float | None) -> float | None:
    if said is not None and not 0 < said < 1e9:
        raise click.BadParameter(f"{said:g} is not a number above 0", ctx=ctx, param=param)
    return said


limits = _with(
    click.option("--description", metavar="<text>", help="What it is for."),
    click.option("--provider", metavar="<name>", type=Named("providers"), help="Where its daemons are launched."),
    click.option("--min", "least", type=Whole(0), metavar="<n>", help="Elasticity: daemons at least."),
    click.option("--max", "most", type=Whole(0), metavar="<n>", help="Elasticity: daemons at most."),
    click.option("--threshold", type=Seconds(0, 1), metavar="<0.0-1.0>", help="Elasticity: utilization to grow at."),
    click.option("--pool", metavar="<name>", help="Elasticity: queues of one name share their daemons."),
    click.option("--match-tag", multiple=True, metavar="<tag>", help="Of its pool, daemons with the tag. Repeatable."),
    click.option("--match-runner", multiple=True, metavar="<name>", help="The same of a runner. Repeatable."),
    click.option("--steal-delay", type=Seconds(0), metavar="<s>", help="So long is one idle before it helps out."),
    click.option("--max-depth", type=Whole(1), metavar="<n>", help="Calls that may be queued."),
    click.option("--on-full", type=click.Choice(("reject", "block")), help="What a full queue does with a submit."),
    click.option("--rate-limit", type=float, callback=_rate, metavar="<n>", help="Calls that begin in a second."),
    click.option("--deadline-cutoff", type=Length(), metavar="<length>", help="It takes no more behind such a wait."),
    click.option("--run-config", metavar="<json>", help="Defaults of its calls: an object; '' for none."),
    click.option("--temperature", type=float, callback=_rate, metavar="<T>", help="Of a boltzmann queue."),
    click.option("--priority-field", metavar="<name>", help="Of a priority queue: the run config's field."),
)  # fmt: skip
policy = click.option("--elasticity", type=Policy(), help="How many daemons serve it.")


@click.command()
@click.argument("name", metavar="<name>")
@click.option("--kind", type=click.Choice(KINDS), default="fifo", show_default=True, help="Which call is next.")
@policy
@click.option("--instance-type", metavar="<type>", help="Of a daemon that is launched for it.")
@click.option("--image-id", metavar="<id>", help="Of a daemon that is launched for it.")
@click.option("--runner", metavar="<name>", help="Of a daemon that is launched for it.")
@limits
@json_option
@server_options
@click.pass_context
def add(ctx: click.Context, /, name: str, kind: str, **given: Any) -> None:
    """Make a queue. A submit makes its queue, too, with nothing set."""
    try:
        check_slug(name)
    except NameError_ as error:
        raise click.BadParameter(str(error), param_hint="'<name>'") from error
    asked: dict[str, Any] = {"name": name, "kind": kind, **_changed(given, {})}
    template = {field: given[field] for field in TEMPLATE if given[field] is not None}
    asked |= {"daemonTemplate": template} if template else {}
    with connect(ctx) as server:
        row = Queues(server).add({key: said for key, said in asked.items() if said is not None})
    _done(row, given, "added")


@click.command()
@name_argument
@click.option("--kind", type=click.Choice(KINDS), help="Which call is next.")
@policy
@limits
@json_option
@server_options
@click.pass_context
def patch(ctx: click.Context, /, name: str, kind: str | None, **given: Any) -> None:
    """Change a queue. An empty --provider or --description clears it."""
    with connect(ctx) as server:
        queues = Queues(server)
        if kind is None and not _changed(given, {}):
            raise click.UsageError("name something to change")
        change = _changed(given, queues.show(name))
        row = queues.patch(name, change if kind is None else {**change, "kind": kind})
    _done(row, given, "changed")


def _moving(verb: str, help_: str, move: Callable[[Queues, str], dict[str, Any]]) -> click.Command:
    @click.command(verb, help=help_)
    @name_argument
    @json_option
    @server_options
    @click.pass_context
    def command(ctx: click.Context, /, name: str, **given: Any) -> None:
        with connect(ctx) as server:
            row = move(Queues(server), name)
        _done(row, given, f"is {row.get('state')}")

    return command


drain = _moving(
    "drain", "Take no more submits; what is queued still runs.", lambda queues, name: queues.move(name, "drain")
)
archive = _moving(
    "archive", "Take no submits and hand nothing out; the row stays.", lambda queues, name: queues.move(name, "archive")
)
unarchive = _moving(
    "unarchive", "Let a drained or archived queue go on.", lambda queues, name: queues.move(name, "unarchive")
)
pause = _moving(
    "pause", "Hand nothing out; submits are taken.", lambda queues, name: queues.patch(name, {"state": "paused"})
)
resume = _moving(
    "resume", "Let a paused queue go on.", lambda queues, name: queues.patch(name, {"state": "active"})
)  # fmt: skip


@click.command()
@name_argument
@click.option("--force", is_flag=True, help="Take its members out of it first, and kill what is queued.")
@json_option
@server_options
@click.pass_context
def rm(ctx: click.Context, /, name: str, force: bool, **given: Any) -> None:
    """Delete a queue that has no members and no calls. What ended there stays."""
    with connect(ctx) as server:
        try:
            answer = Queues(server).remove(name, force=force)
        except ApiError as error:
            if error.status != 409:
                raise
            raise Failure(str(error), hint=error.hint) from error
    if given["as_json"]:
        print_json(answer)
    else:
        click.echo(f"queue {name} deleted")


# --- inside


def _changed(given: Mapping[str, Any], row: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that the flags change, whole, as they are then."""
    made: dict[str, Any] = {}
    if given["description"] is not None:
        made["description"] = given["description"] or None
    if given["provider"] is not None:
        made["providerRef"] = given["provider"] or None
    if given["run_config"] is not None:
        made["runConfig"] = _object(given["run_config"])
    if policy := _policy(given):
        made["elasticity"] = {"kind": "fixed", **(row.get("elasticity") or {}), **policy}
    for field, names in (("admission", ADMISSION), ("kindParams", KIND_PARAMS)):
        said = {name: given[flag] for flag, name in names.items() if given[flag] is not None}
        if said:
            made[field] = {**(row.get(field) or {}), **said}
    return made


def _policy(given: Mapping[str, Any]) -> dict[str, Any]:
    """What the flags say of its elasticity. `match` is one thing: what is not named of it is not asked for."""
    said = {name: given[flag] for flag, name in {"elasticity": "kind", **BOUNDS}.items() if given[flag] is not None}
    match = {name: list(given[flag]) for flag, name in MATCH.items() if given[flag]}
    return {**said, **({"match": match} if match else {})}


def _object(text: str) -> dict[str, Any] | None:
    if not text.strip():
        return None
    try:
        found = json.loads(text)
    except ValueError as error:
        raise click.BadParameter(f"is no JSON: {error}", param_hint="'--run-config'") from error
    if not isinstance(found, dict):
        raise click.BadParameter("must be a JSON object", param_hint="'--run-config'")
    return found


def _done(row: Mapping[str, Any], given: Mapping[str, Any], what: str) -> None:
    if any(given.get(flag) for flag in HELPING):
        say("how daemons of a pool help out is stored; they serve the queues that they have joined, no others yet")
    if given["as_json"]:
        print_json(row)
    else:
        click.echo(f"queue {plain(row.get('name'))} {plain(what)}")
