"""`lakeshore daemon`: the daemons of a namespace. One verb a module, imported when it is called.

Reference: nymph/daemon-lifecycle.md; cli/examples/daemons-and-exec.md.
"""

from __future__ import annotations

import click

from .groups import LazyGroup
from .table import Entry

VERBS = {
    "install": "lakeshore.cli.daemon_install:install",
    "uninstall": "lakeshore.cli.daemon_uninstall:uninstall",
    "tunnels": "lakeshore.cli.daemon_tunnels:tunnels",
    "list": "lakeshore.cli.daemon_list:list_",
    "show": "lakeshore.cli.daemon_list:show",
    "exec": "lakeshore.cli.daemon_exec:exec_",
    "execs": "lakeshore.cli.daemon_execs:execs",
    "follow": "lakeshore.cli.daemon_execs:follow",
    "cancel": "lakeshore.cli.daemon_execs:cancel",
    "setup": "lakeshore.cli.daemon_orders:setup",
    "hibernate": "lakeshore.cli.daemon_orders:hibernate",
    "reset": "lakeshore.cli.daemon_orders:reset",
    "update": "lakeshore.cli.daemon_update:update",
    "ota": "lakeshore.cli.daemon_update:ota",
    "target-version": "lakeshore.cli.daemon_update:target_version",
    "set-target-version": "lakeshore.cli.daemon_update:set_target_version",
    "keys": "lakeshore.cli.daemon_keys:keys",
    "kill": "lakeshore.cli.daemon_drop:kill",
    "cleanup": "lakeshore.cli.daemon_drop:cleanup",
    "status": "lakeshore.cli.daemon_local:status",
    "stop": "lakeshore.cli.daemon_local:stop",
}
INSTALL = "`lakeshore daemon install <ssh-host>` brings one up on a host that you can ssh to"
MISSING = {
    "launch": Entry("daemons on hosts that a provider makes", nearest=INSTALL),
    "launch-log": Entry("the serial console of a cloud instance", nearest=INSTALL),
}
REMOVED = {"start": "`lakeshore worker start` runs a worker on this machine, `lakeshore nymph` a daemon"}


@click.group(cls=LazyGroup, verbs=VERBS, missing=MISSING, removed=REMOVED, aliases={"ls": "list", "rm": "kill"})
def daemon() -> None:
    """Daemons on other hosts: see them, use them, look after them."""
