"""`lakeshore queues`: the queues of a namespace. Two of its verbs are `ls` and `rm`; `list` and `remove` mean them.

Reference: get-started/queues.md; cli/examples/queues-and-jobs.md.
"""

from __future__ import annotations

import click

from .groups import LazyGroup

VERBS = {
    "add": "lakeshore.cli.queues_changed:add",
    "patch": "lakeshore.cli.queues_changed:patch",
    "pause": "lakeshore.cli.queues_changed:pause",
    "resume": "lakeshore.cli.queues_changed:resume",
    "drain": "lakeshore.cli.queues_changed:drain",
    "archive": "lakeshore.cli.queues_changed:archive",
    "unarchive": "lakeshore.cli.queues_changed:unarchive",
    "rm": "lakeshore.cli.queues_changed:rm",
    "ls": "lakeshore.cli.queues_shown:ls",
    "show": "lakeshore.cli.queues_shown:show",
    "members": "lakeshore.cli.queues_shown:members",
    "stats": "lakeshore.cli.queues_shown:stats",
    "events": "lakeshore.cli.queues_shown:events",
}
ALIASES = {"list": "ls", "remove": "rm", "create": "add", "edit": "patch"}


@click.group(cls=LazyGroup, verbs=VERBS, aliases=ALIASES)
def queues() -> None:
    """Queues: see them, and decide what they take and hand out."""
