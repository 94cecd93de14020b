"""`lakeshore daemon`: the daemons of a namespace. One verb a module, imported when it is called.

Reference: nymph/daemon-lifecycle.md; cli/examples/daemons-and-exec.md.
"""

from __future__ import annotations

import click

from ..groups import LazyGroup

VERBS = {
    "install": "lakeshore.cli.daemon.install:install",
    "launch": "lakeshore.cli.daemon.launch:launch",
    "launch-log": "lakeshore.cli.daemon.launch_log:launch_log",
    "uninstall": "lakeshore.cli.daemon.uninstall:uninstall",
    "tunnels": "lakeshore.cli.daemon.tunnels:tunnels",
    "list": "lakeshore.cli.daemon.list:list_",
    "show": "lakeshore.cli.daemon.list:show",
    "exec": "lakeshore.cli.daemon.exec:exec_",
    "execs": "lakeshore.cli.daemon.execs:execs",
    "follow": "lakeshore.cli.daemon.execs:follow",
    "cancel": "lakeshore.cli.daemon.execs:cancel",
    "setup": "lakeshore.cli.daemon.orders:setup",
    "hibernate": "lakeshore.cli.daemon.orders:hibernate",
    "reset": "lakeshore.cli.daemon.orders:reset",
    "update": "lakeshore.cli.daemon.update:update",
    "ota": "lakeshore.cli.daemon.update:ota",
    "target-version": "lakeshore.cli.daemon.update:target_version",
    "set-target-version": "lakeshore.cli.daemon.update:set_target_version",
    "keys": "lakeshore.cli.daemon.keys:keys",
    "kill": "lakeshore.cli.daemon.drop:kill",
    "cleanup": "lakeshore.cli.daemon.drop:cleanup",
    "status": "lakeshore.cli.daemon.local:status",
    "stop": "lakeshore.cli.daemon.local:stop",
}
REMOVED = {"start": "`lakeshore worker start` runs a worker on this machine, `lakeshore nymph` a daemon"}


@click.group(cls=LazyGroup, verbs=VERBS, removed=REMOVED, aliases={"ls": "list", "rm": "kill"})
def daemon() -> None:
    """Daemons on other hosts: see them, use them, look after them."""
