"""`lakeshore daemon uninstall`: ends a daemon that `daemon install` started, and removes what is of it.

In this order: the daemon is told to stop and its jobs may end; its files on the host go, with the log unless it is to
stay; its token is revoked; its worker and its tunnel go; and what this machine remembers of it.
Reference: an addition to nymph/install-remote-daemon.md, which leaves this to a person's hands.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lakeshore.client.api import ApiClient
from lakeshore.client.errors import ApiError
from lakeshore.client.workers import Workers

from ..choice import choose_admin
from ..exits import ExitCode
from ..failures import Failure
from ..named import Named
from ..numbers import Whole
from ..output import print_json, say
from ..remote_failures import told
from ..server import client_of, namespace_option, url_option

if TYPE_CHECKING:
    from lakeshore.remote.installs import Install, Installs


@click.command()
@click.argument("name", metavar="<label|launch-id>")
@click.option("--alias", type=Named("ssh-aliases"), metavar="<ssh-alias>", help="The host, where it is not known here.")
@click.option(
    "--grace-s",
    type=Whole(min=1),
    default=60,
    show_default=True,
    metavar="<n>",
    help="How long running jobs may take to end.",
)
@click.option("--keep-log", is_flag=True, help="Leave its log on the host.")
@click.option("--force", is_flag=True, help="Go on where the host cannot be reached; its files stay there.")
@click.option("--admin-token", metavar="<token>", help="The server's admin token (LAKESHORE_ADMIN_TOKEN).")
@click.option(
    "--ssh-config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="<path>",
    help="The configuration for ssh -F.",
)
@click.option("--json", "as_json", is_flag=True, help="Print what was removed as JSON.")
@namespace_option
@url_option
@click.pass_context
def uninstall(
    ctx: click.Context,
    name: str,
    alias: str | None,
    grace_s: int,
    keep_log: bool,
    force: bool,
    admin_token: str | None,
    ssh_config: Path | None,
    as_json: bool,
    namespace: str | None,
    url: str | None,
) -> int:
    """Stop a daemon that `daemon install` started, revoke its token and remove its files."""
    from lakeshore.remote import launch, tunnel  # wall: only these commands load what reaches hosts
    from lakeshore.remote.errors import RemoteFailure  # wall: as above
    from lakeshore.remote.installs import Installs  # wall: as above
    from lakeshore.remote.ssh import Connection, Place  # wall: as above
    from lakeshore.server.here import default_directory  # wall: only who installs needs it

    installs = Installs(default_directory(os.environ))
    known = _known(installs, name)
    launch_id = _launch_id(known, name)
    if known is not None:
        url, namespace = url or known.url, namespace or ctx.find_object(str) or known.namespace
        alias, config = alias or known.alias, known.ssh_config
    else:
        config = None
    if alias is None:
        raise Failure(
            f"this machine does not know where {name} was installed",
            hint="name its host: --alias <ssh-alias>",
            code=ExitCode.USAGE,
        )
    config = os.path.abspath(ssh_config) if ssh_config is not None else config
    with told():
        place = Place(alias=alias, config=config)
    choice = choose_admin(url=url, namespace=namespace or ctx.find_object(str), token=admin_token)
    with client_of(choice) as client:
        removed: bool | None = None
        try:
            with Connection(place) as connection:
                removed = launch.remove(connection, launch_id, grace_s=grace_s, keep_log=keep_log)
        except RemoteFailure as error:
            if not force:
                hint = f"{error.hint}; --force revokes its token and forgets it all the same"
                raise Failure(str(error), hint=hint) from error
            say(f"note: {error}; its files stay on {alias}")
        tunnelled = tunnel.stop(installs, launch_id)
        revoked = _revoke(client, known, launch_id)
        worker = _drop_worker(client, launch_id)
    installs.forget(launch_id)
    if as_json:
        print_json(
            {
                "launchId": launch_id,
                "alias": alias,
                "filesRemoved": removed,
                "tokensRevoked": revoked,
                "worker": worker,
                "tunnelEnded": tunnelled,
            }
        )
        return ExitCode.OK
    if removed is not None:
        click.echo(f"stopped and removed on {alias}" if removed else f"there was nothing of it on {alias}")
    click.echo(f"token revoked: {', '.join(revoked)}" if revoked else "there was no token of it left")
    if tunnelled:
        click.echo("its tunnel is closed")
    return ExitCode.OK


def _known(installs: Installs, name: str) -> Install | None:
    """The install of that name; Failure when there are several."""
    found = installs.named(name)
    if len(found) > 1:
        each = ", ".join(one.launch_id for one in found)
        raise Failure(f"{len(found)} launches are called {name}: {each}", hint="name one of these", code=ExitCode.USAGE)
    return found[0] if found else None


def _launch_id(known: Install | None, name: str) -> str:
    from lakeshore.remote.installs import launch_id_in  # wall: as above

    found = known.launch_id if known is not None else launch_id_in(name)
    if found is None:
        raise Failure(
            f"no launch is called {name}",
            hint="name its label, or the launch id that its label ends in: `lakeshore daemon list` shows labels",
            code=ExitCode.USAGE,
        )
    return found


def _revoke(client: ApiClient, known: Install | None, launch_id: str) -> list[str]:
    """Revoke the tokens that were minted for the launch; their names."""
    revoked = []
    for row in client.tokens():
        mine = row.get("id") == known.token_id if known is not None else False
        if (mine or str(row.get("name", "")).endswith(f"-{launch_id}")) and not row.get("revokedAt"):
            client.revoke_token(str(row["id"]))
            revoked.append(str(row.get("name")))
    return revoked


def _drop_worker(client: ApiClient, launch_id: str) -> str | None:
    """Drop the record of its worker, where it has not gone by itself; the worker's id."""
    workers = Workers(client)
    dropped = None
    for row in workers.all():
        if str(row.get("label", "")).endswith(f"-{launch_id}"):
            dropped = str(row["id"])
            try:
                workers.kill(dropped)
            except ApiError as error:
                if error.status != 404:
                    raise
    return dropped
