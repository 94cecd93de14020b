"""`lakeshore logs`: what the consoles of the project's machines print, each line with its daemon's label before it.

Rule: a console is asked for as a whole, again and again while it is followed; what is new of it is shown. One that has
forgotten its beginning meanwhile is shown from where it goes on, or anew where that cannot be told.
Reference: get-started/compose.md; cli/examples/daemons-and-exec.md; C-350…C-352.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import click

from lakeshore.client.api import ApiClient
from lakeshore.client.errors import ApiError
from lakeshore.client.launches import Launches
from lakeshore.config.compose import Compose
from lakeshore.net.errors import NetError, ProtocolViolation

from ..exits import ExitCode
from ..failures import Failure
from ..named import Named
from ..numbers import Whole
from ..output import plain, say
from ..server import server_options
from .file import file_option, opened, owned
from .plan import Member, members
from .words import listed

_ANCHOR = 256
"""Characters at the end of what is known, by which a console that forgot its beginning is found again."""
_OURS = frozenset({401, 403})
_NONE = 422
"""The status of a machine without a console."""


@click.command()
@click.argument("which", metavar="[<group|label>]", required=False, type=Named("compose-names"))
@click.option("--follow", is_flag=True, help="Show what comes, until Ctrl-C.")
@click.option(
    "--poll-ms",
    type=Whole(100),
    default=5000,
    show_default=True,
    metavar="<n>",
    help="With --follow: ask so often, in milliseconds.",
)
@click.option("--tail", type=Whole(1), metavar="<n>", help="Only so many of the last lines of each, to begin with.")
@file_option
@server_options
@click.pass_context
def logs(ctx: click.Context, which: str | None, follow: bool, poll_ms: int, tail: int | None, path: Path | None) -> int:
    """Show what the machines of a group, a daemon or all print on their consoles."""
    compose, server = opened(ctx, path)
    with server:
        chosen = _chosen(members(owned(server, compose)), which, compose.project)
        width = max(len(one.label) for one in chosen)
        known: dict[str, str] = {}
        told: set[tuple[str, str]] = set()
        while True:
            can = [_show(server, one, known, told, width=width, tail=tail) for one in chosen]
            if not follow or not any(can):
                break
            time.sleep(poll_ms / 1000)
            chosen = _again(server, compose, which) or chosen
    return ExitCode.OK if known else ExitCode.FAILED


def _again(server: ApiClient, compose: Compose, which: str | None) -> list[Member]:
    """Those that it is about by now; none where the server is away: then it is asked at the next turn."""
    try:
        return _matching(members(owned(server, compose)), which)
    except ProtocolViolation:
        raise
    except NetError:
        return []


def _show(
    server: ApiClient, one: Member, known: dict[str, str], told: set[tuple[str, str]], *, width: int, tail: int | None
) -> bool:
    """Print what is new; why there is nothing, once. Whether its machine keeps a console at all."""
    try:
        text = str(Launches(server).log(one.id, tail=None, latest=True).get("output") or "")
    except ProtocolViolation:
        raise
    except (ApiError, NetError) as error:
        if isinstance(error, ApiError) and error.status in _OURS:
            raise
        if (one.id, str(error)) not in told:
            told.add((one.id, str(error)))
            hint = getattr(error, "hint", None)
            say(f"{one.label}: {error}{f'; {hint}' if hint else ''}")
        return not (isinstance(error, ApiError) and error.status == _NONE)
    whole = text[: text.rfind("\n") + 1]  # a line that is not finished is shown when it is
    lines = (whole if one.id in known else text).splitlines()
    if one.id in known:
        lines = fresh(known[one.id], whole).splitlines()
    elif tail is not None:
        lines = lines[-tail:]
    known[one.id] = whole if one.id in known else text
    for line in lines:
        click.echo(f"{plain(one.label):<{width}} | {plain(line)}")
    return True


def fresh(known: str, now: str) -> str:
    """What of a console is new since it said `known`."""
    if now.startswith(known):
        return now[len(known) :]
    anchor = known[-_ANCHOR:]
    at = now.rfind(anchor) if anchor else -1
    return now if at < 0 else now[at + len(anchor) :]


def _chosen(found: Sequence[Member], which: str | None, project: str) -> list[Member]:
    """Those of a group, or the one of that label; all of them for None. Failure for none."""
    chosen = _matching(found, which)
    if not chosen:
        there = f"; there are {listed(one.label for one in found)}" if found else ""
        raise Failure(
            f"project '{project}' has no daemon" + (f" {which!r} and no group of that name" if which else "") + there,
            hint="`lakeshore up` launches what is declared",
        )
    return chosen


def _matching(found: Sequence[Member], which: str | None) -> list[Member]:
    return [one for one in found if which is None or one.label == which or one.group == which]
