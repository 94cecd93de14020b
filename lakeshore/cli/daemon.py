"""`lakeshore daemon`: the daemons of a namespace. One verb a module, imported when it is called.

Reference: nymph/daemon-lifecycle.md; cli/examples/daemons-and-exec.md.
"""

from __future__ import annotations

import click

from .groups import LazyGroup

VERBS: dict[str, str] = {}


@click.group(cls=LazyGroup, verbs=VERBS, aliases={"ls": "list", "rm": "kill"})
def daemon() -> None:
    """Daemons on other hosts: see them, use them, look after them."""
