"""`lakeshore providers`: machines, or what makes them, registered under a name.

Rules: a key of a profile or a configuration goes to the server as a secret, and the provider refers to it. A provider
that is removed can be restored.
Reference: cli/examples/providers-and-discover; cli/happy-paths/07; C-086…C-109.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import click

from lakeshore.client.providers import Providers

from ..clouds import tools_told
from ..entries import named_secrets
from ..exits import ExitCode
from ..failures import Failure
from ..groups import LazyGroup
from ..listing import Listing, json_option
from ..named import Named
from ..output import age, plain, print_json, say
from ..server import connect, server_options
from ..values import as_yaml, fields_of, merged, of_file
from .registering import Found, of_aws, of_gcloud, registered

LAUNCHERS = ("SSH", "SLURM", "EC2", "GCE", "Kube")
KEY_KINDS = {"SSH": "ssh_key", "SLURM": "ssh_key", "EC2": "aws_keypair", "GCE": "gcp_sa_json"}
DISPATCHES = ("direct", "daemon")
VERBS = {
    "test": "lakeshore.cli.providers.trial:test",
    "edit": "lakeshore.cli.providers.states:edit",
    "restore": "lakeshore.cli.providers.states:restore",
    "hide": "lakeshore.cli.providers.states:hide",
    "unhide": "lakeshore.cli.providers.states:unhide",
    "discover": "lakeshore.cli.providers.discover:discover",
    "instances": "lakeshore.cli.providers.instances:instances",
    "terminate": "lakeshore.cli.providers.instances:terminate",
}
PATH = click.Path(exists=True, dir_okay=False, path_type=Path)
kwarg_option = click.option(
    "--kwarg", "pairs", multiple=True, metavar="<k=v>", help="An argument; dots nest. Repeatable."
)
kwargs_file_option = click.option("--kwargs-file", type=PATH, metavar="<path>", help="All of them, as YAML or JSON.")
dispatch_option = click.option(
    "--dispatch", type=click.Choice(DISPATCHES), help="Who reaches it (default: by launcher)."
)

tunnel_option = click.option(
    "--tunnel", type=Named("tunnels"), metavar="<name>", help="The tunnel that it is reached through; empty for none."
)


@click.group(cls=LazyGroup, verbs=VERBS, aliases={"ls": "list", "rm": "remove", "delete": "remove"})
def providers() -> None:
    """Machines under a name: add, see, try and remove them."""


@providers.command()
@click.argument("name", metavar="<name>")
@click.option("--launcher", type=click.Choice(LAUNCHERS), help="What kind of machine it is.")
@kwarg_option
@kwargs_file_option
@click.option(
    "--from-aws-profile",
    "aws_profile",
    type=Named("aws-profiles"),
    metavar="<name>",
    help="EC2, with the region and the keys of a profile of ~/.aws.",
)
@click.option(
    "--from-gcloud-config",
    "gcloud_config",
    type=Named("gcloud-configs"),
    metavar="<name>",
    help="GCE, with the project, the zone and the service account of a configuration.",
)
@dispatch_option
@tunnel_option
@json_option
@server_options
@click.pass_context
def add(
    ctx: click.Context,
    name: str,
    launcher: str | None,
    pairs: tuple[str, ...],
    kwargs_file: Path | None,
    aws_profile: str | None,
    gcloud_config: str | None,
    dispatch: str | None,
    tunnel: str | None,
    as_json: bool,
) -> None:
    """Register a machine. `--kwarg ssh_key.$secret=<name>` refers to a secret."""
    given = merged({} if kwargs_file is None else of_file(kwargs_file), fields_of(pairs))
    found = _found(launcher, aws_profile, gcloud_config)
    with connect(ctx) as server, named_secrets(KEY_KINDS.get(str(launcher), "opaque")):
        if found is None:
            row = Providers(server).add(name, str(launcher), given, dispatch=dispatch, tunnel=tunnel or None)
        else:
            row = registered(server, name, found, given, dispatch=dispatch, tunnel=tunnel or None)
    _done(row, "added", as_json)


@providers.command()
@click.argument("name", metavar="<name>", type=Named("providers"))
@kwarg_option
@kwargs_file_option
@dispatch_option
@tunnel_option
@click.option("--launcher", hidden=True)
@json_option
@server_options
@click.pass_context
def update(
    ctx: click.Context,
    name: str,
    pairs: tuple[str, ...],
    kwargs_file: Path | None,
    dispatch: str | None,
    tunnel: str | None,
    launcher: str | None,
    as_json: bool,
) -> None:
    """Merge arguments into a provider's (`k=null` takes one away); a file replaces them all."""
    if launcher is not None:
        raise Failure(
            "a provider's launcher cannot be changed",
            hint=f"lakeshore providers remove {name}, and add it again",
            code=ExitCode.USAGE,
        )
    new = fields_of(pairs)
    if not new and kwargs_file is None and dispatch is None and tunnel is None:
        raise Failure("nothing to change: give --kwarg, --kwargs-file, --dispatch or --tunnel", code=ExitCode.USAGE)
    with connect(ctx) as server, named_secrets("<kind>"):
        ours = Providers(server)
        kwargs = None
        if new or kwargs_file is not None:
            kwargs = merged(ours.show(name).get("kwargs") or {} if kwargs_file is None else of_file(kwargs_file), new)
        row = ours.change(name, kwargs=kwargs, dispatch=dispatch, tunnel=tunnel)
    _done(row, "updated", as_json)


@providers.command("list")
@click.option("--hidden", is_flag=True, help="Also hidden ones.")
@click.option("--deleted", is_flag=True, help="Also removed ones.")
@click.option("--all", "every", is_flag=True, help="Both.")
@json_option
@server_options
@click.pass_context
def list_(ctx: click.Context, hidden: bool, deleted: bool, every: bool, as_json: bool) -> None:
    """List the providers of the namespace and its org."""
    with connect(ctx) as server:
        rows = Providers(server).all(hidden=hidden or every, deleted=deleted or every)
    Listing(
        rows,
        columns=("name", "launcher", "dispatch", "namespace", "changed"),
        cells=_cells,
        right=("changed",),
        gives="namespace",
        empty=f"no providers in namespace {server.namespace!r}; `lakeshore ssh upload <alias>` registers a host",
        as_json=as_json,
    ).print()


@providers.command()
@click.argument("name", metavar="<name>", type=Named("providers"))
@json_option
@server_options
@click.pass_context
def show(ctx: click.Context, name: str, as_json: bool) -> None:
    """Show one with all its arguments; a secret is shown by its name."""
    with connect(ctx) as server:
        row = Providers(server).show(name)
    if as_json:
        print_json(row)
    else:
        click.echo(_preview(row), nl=False)


@providers.command()
@click.argument("name", metavar="<name>", type=Named("providers"))
@json_option
@server_options
@click.pass_context
def remove(ctx: click.Context, name: str, as_json: bool) -> None:
    """Remove one. What runs there goes on; `restore` brings it back."""
    with connect(ctx) as server:
        row = Providers(server).remove(name)
    if as_json:
        print_json(row)
    else:
        click.echo(f"{name} removed; `lakeshore providers restore {name}` brings it back")


# --- inside


def _found(launcher: str | None, aws_profile: str | None, gcloud_config: str | None) -> Found | None:
    """What a profile or a configuration of this machine says; None where the launcher is named. UsageError."""
    if aws_profile is not None and gcloud_config is not None:
        raise click.UsageError("--from-aws-profile and --from-gcloud-config make two providers")
    if aws_profile is None and gcloud_config is None:
        if launcher is None:
            raise click.UsageError("Missing option '--launcher': one of " + ", ".join(LAUNCHERS))
        return None
    with tools_told():
        found = of_gcloud(str(gcloud_config)) if aws_profile is None else of_aws(aws_profile)
    if launcher not in (None, found.launcher):
        raise click.UsageError(f"that makes an {found.launcher} provider, and --launcher says {launcher}")
    return found


def _cells(row: dict[str, Any], now: datetime) -> tuple[str, ...]:
    return _name(row), str(row.get("launcher")), str(row.get("dispatch")), str(row.get("namespace")), _age(row, now)


def _done(row: dict[str, Any], what: str, as_json: bool) -> None:
    if as_json:
        print_json(row)
    else:
        click.echo(f"provider {plain(row.get('name'))} {what}  ({plain(row.get('launcher'))})")
    for warning in row.get("warnings") or ():
        say(f"warning: {warning}")


def _name(row: dict[str, Any]) -> str:
    name = str(row.get("name"))
    deleted = row.get("deletedAt")
    said = name.partition(" [deleted ")[0] + f" [D {deleted}]" if deleted else name
    return said + " (hidden)" if row.get("hidden") else said


def _age(row: dict[str, Any], now: datetime) -> str:
    return age(row.get("updatedAt"), now)


def _preview(row: dict[str, Any]) -> str:
    """The row as YAML, with the names of secrets in place of references."""
    shown = {key: row.get(key) for key in ("name", "namespace", "launcher", "dispatch", "hidden", "tunnel", "kwargs")}
    if row.get("deletedAt"):
        shown["deletedAt"] = row["deletedAt"]
    return as_yaml(shown)
