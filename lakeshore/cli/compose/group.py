"""`lakeshore compose <verb>`: another spelling of the five verbs, which stand at the top by themselves.

Reference: cli.md; C-036, C-1464.
"""

from __future__ import annotations

import click

from ..groups import LazyGroup

VERBS = {
    "up": "lakeshore.cli.compose.up:up",
    "down": "lakeshore.cli.compose.down:down",
    "ps": "lakeshore.cli.compose.shown:ps",
    "status": "lakeshore.cli.compose.shown:status",
    "logs": "lakeshore.cli.compose.logs:logs",
}


@click.group(cls=LazyGroup, verbs=VERBS)
def compose() -> None:
    """The daemons and queues that lakeshore.yaml declares; `lakeshore up` is the same as `lakeshore compose up`."""
