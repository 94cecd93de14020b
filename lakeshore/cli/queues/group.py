"""`lakeshore queues`: the queues of a namespace. Two of its verbs are `ls` and `rm`; `list` and `remove` mean them.

Reference: get-started/queues.md; cli/examples/queues-and-jobs.md.
"""

from __future__ import annotations

import click

from ..groups import LazyGroup

VERBS = {
    "add": "lakeshore.cli.queues.changed:add",
    "patch": "lakeshore.cli.queues.changed:patch",
    "pause": "lakeshore.cli.queues.changed:pause",
    "resume": "lakeshore.cli.queues.changed:resume",
    "drain": "lakeshore.cli.queues.changed:drain",
    "archive": "lakeshore.cli.queues.changed:archive",
    "unarchive": "lakeshore.cli.queues.changed:unarchive",
    "rm": "lakeshore.cli.queues.changed:rm",
    "ls": "lakeshore.cli.queues.shown:ls",
    "show": "lakeshore.cli.queues.shown:show",
    "members": "lakeshore.cli.queues.members:members",
    "stats": "lakeshore.cli.queues.shown:stats",
    "events": "lakeshore.cli.queues.shown:events",
}
ALIASES = {"list": "ls", "remove": "rm", "create": "add", "edit": "patch"}


@click.group(cls=LazyGroup, verbs=VERBS, aliases=ALIASES)
def queues() -> None:
    """Queues: see them, and decide what they take and hand out."""
