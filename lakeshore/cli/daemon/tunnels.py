"""`lakeshore daemon tunnels`: the tunnels that `daemon install --reverse-tunnel` made from this machine.

A tunnel is kept up by a process of this machine; after a restart of it, `--up` starts those that are gone.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from ..exits import ExitCode
from ..listing import Listing, json_option
from ..output import plain, say

if TYPE_CHECKING:
    from lakeshore.remote.installs import Install
    from lakeshore.remote.tunnel import Tunnel


@click.command()
@click.option("--up", is_flag=True, help="Start those that are not kept up.")
@json_option
def tunnels(up: bool, as_json: bool) -> int:
    """Show the tunnels to daemons that were installed from here."""
    from lakeshore.remote import tunnel  # wall: only these commands load what reaches hosts
    from lakeshore.remote.errors import RemoteFailure  # wall: as above
    from lakeshore.remote.installs import Installs  # wall: as above
    from lakeshore.server.here import default_directory, tunnel_socket  # wall: only who installs needs it

    state = default_directory(os.environ)
    installs = Installs(state)
    rows: list[tuple[Install, Tunnel]] = []
    failed = False
    for install in installs.all():
        found = tunnel.look(installs, install.launch_id)
        if found is None:
            continue
        if up and found.pid is None:
            try:
                tunnel.start(installs, install, tunnel_socket(state))
            except RemoteFailure as error:
                failed = True
                say(f"{install.label}: {error}")
            found = tunnel.look(installs, install.launch_id) or found
        rows.append((install, found))
    Listing(
        rows,
        columns=("label", "host", "port", "state", "pid", "why"),
        cells=lambda row, _now: _cells(*row),
        json_rows=lambda row: _plainly(*row),
        right=("port", "pid"),
        gives=("why", "host"),
        empty="no tunnels were made from here; `lakeshore daemon install <host> --reverse-tunnel` makes one",
        as_json=as_json,
    ).print()
    return ExitCode.FAILED if failed else ExitCode.OK


def _cells(install: Install, found: Tunnel) -> tuple[str, ...]:
    pid = "—" if found.pid is None else str(found.pid)
    why = plain(found.why) if found.state != "up" else ""
    return (install.label, install.alias, str(found.port or "—"), found.state, pid, why)


def _plainly(install: Install, found: Tunnel) -> dict[str, Any]:
    return {
        "launchId": install.launch_id,
        "label": install.label,
        "alias": install.alias,
        "port": found.port,
        "state": found.state,
        "pid": found.pid,
        "since": found.since,
        "why": found.why or None,
    }
