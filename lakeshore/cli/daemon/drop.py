"""`lakeshore daemon kill|cleanup`: daemons that are not to be there any more.

Rules: what is killed by a prefix, and a cleanup, are confirmed on a terminal and refused where there is none, unless
`--yes`. One that is named whole is killed at once, as documented; a terminal is asked when a cloud instance would go
too, when only the beginning of a name was given, and when it has work in hand.
Reference: nymph/daemon-lifecycle.md, "Kill", "Cleanup".
"""

from __future__ import annotations

from typing import Any

import click

from lakeshore.client.errors import ApiError
from lakeshore.client.workers import Workers

from ..confirming import confirmed, somebody_is_there
from ..exits import ExitCode
from ..listing import json_option
from ..named import Named
from ..numbers import Age
from ..output import duration, plain, print_json, say
from ..server import connect, server_options
from .named import Found, find, freshest_first, label_of, labelled

LONGEST_H = 168
yes_option = click.option("--yes", is_flag=True, help="Do not ask.")


@click.command()
@click.argument("id_", metavar="[<id>]", required=False, type=Named("daemons"))
@click.option("--no-terminate", is_flag=True, help="Keep the cloud instance, and forget about it.")
@click.option("--prefix", metavar="<p>", help="Every daemon whose label begins so.")
@yes_option
@json_option
@server_options
@click.pass_context
def kill(ctx: click.Context, id_: str | None, no_terminate: bool, prefix: str | None, yes: bool, as_json: bool) -> int:
    """Drop a daemon: its row goes, it drains and exits, its cloud instance is terminated."""
    if (id_ is None) == (prefix is None):
        raise click.UsageError("name one daemon, or several with --prefix")
    if prefix == "":
        raise click.BadParameter("an empty prefix is every daemon; `daemon cleanup` drops those that are gone")
    done, refused = [], 0
    with connect(ctx) as server:
        workers = Workers(server)
        if prefix is not None:
            rows = freshest_first(labelled(workers.all(), prefix))
            if not rows:
                say(f"no daemon's label begins with {prefix!r}")
            names = ", ".join(label_of(row) for row in rows)
            if rows and not confirmed(f"kill {len(rows)} daemon{'s' if len(rows) > 1 else ''} ({names})?", yes=yes):
                say("nothing was killed")
                return ExitCode.FAILED
            named = [Found(id=str(row["id"]), row=row) for row in rows]
        else:
            assert id_ is not None
            named = [find(workers, id_)]
            if not yes and somebody_is_there() and not _sure(workers, named[0], keeps=no_terminate):
                say("nothing was killed")
                return ExitCode.FAILED
        for one in named:
            try:
                row = workers.kill(one.id, keep_instance=no_terminate)
            except ApiError as error:
                if prefix is None or error.status in (401, 403):
                    raise
                say(f"error: {one.label}: {error}")
                refused += 1
                continue
            done.append({"id": one.id, **row})
            if not as_json:
                label = plain(row.get("label") or one.label)
                machine = ", and its machine" if row.get("terminated") else ""
                click.echo(f"killed {label if label == one.id else f'{label} ({one.id})'}{machine}")
            if row.get("trouble"):
                say(f"note: {row.get('label') or one.label}: {row['trouble']}")
    if as_json:
        print_json(done)
    return ExitCode.FAILED if refused else ExitCode.OK


def _sure(workers: Workers, one: Found, *, keeps: bool) -> bool:
    """Ask, where there is a reason to."""
    row = workers.show(one.id)
    reasons = []
    if one.begun:
        reasons.append("the name was only begun")
    if row.get("providerName") and not keeps:
        reasons.append(f"its instance ({row['providerName']}) is terminated")
    held = row.get("inFlight")
    if isinstance(held, int) and held:
        reasons.append(f"it has {held} job{'s' if held > 1 else ''} in hand")
    return not reasons or confirmed(f"kill {label_of(row)} ({one.id})? {'; '.join(reasons)}", yes=False)


@click.command()
@click.option(
    "--older-than",
    type=Age(min=0, max=LONGEST_H, min_open=True),
    default="24h",
    show_default=True,
    metavar="<d>",
    help="Since they were last seen: 30m, 2h, 5d, or hours; 168h at most.",
)
@click.option("--dry-run", is_flag=True, help="Say which, and drop none.")
@yes_option
@json_option
@server_options
@click.pass_context
def cleanup(ctx: click.Context, older_than: float, dry_run: bool, yes: bool, as_json: bool) -> int:
    """Drop the daemons that have not been seen for long."""
    which = f"not seen for more than {duration(older_than * 3600)}"
    with connect(ctx) as server:
        workers = Workers(server)
        if not dry_run and not yes:
            found = workers.cleanup(older_than_hours=older_than, dry_run=True)
            count = int(found.get("count", 0))
            if count and not confirmed(
                f"drop {_daemons(count)} {which} ({', '.join(_names(found))})?",
                yes=False,
                otherwise="add --yes, or look first with --dry-run",
            ):
                say("nothing was dropped")
                return ExitCode.FAILED
        answer = workers.cleanup(older_than_hours=older_than, dry_run=dry_run)
    if as_json:
        print_json(answer)
        return ExitCode.OK
    for name in _names(answer):
        click.echo(plain(name))
    count = int(answer.get("count", 0))
    say(f"{_daemons(count) if count else 'no daemon'} {which}{'' if not count or dry_run else ': dropped'}")
    return ExitCode.OK


def _names(answer: dict[str, Any]) -> list[str]:
    """What a cleanup's answer calls those that it dropped: rows or ids."""
    deleted = answer.get("deleted") or []
    return [label_of(one) if isinstance(one, dict) else str(one) for one in deleted]


def _daemons(count: int) -> str:
    return f"{count:,} daemon{'' if count == 1 else 's'}"
