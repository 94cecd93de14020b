"""`lakeshore providers`: machines, or what makes them, registered under a name.

Rules: `test` of an SSH provider runs from this machine, with the key that the server gives for it. A provider that is
removed can be restored. What would make machines (EC2, GCE, Kube, SLURM) can be registered, and is not started yet.
Reference: cli/examples/providers-and-discover; cli/happy-paths/07; C-086…C-109.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import click

from lakeshore.client.providers import Providers

from ..entries import named_secrets
from ..exits import ExitCode
from ..failures import Failure
from ..groups import LazyGroup
from ..listing import json_option, listed
from ..named import Named
from ..numbers import Whole
from ..output import age, plain, print_json
from ..remote_failures import told
from ..server import connect, server_options
from ..table import BY_HAND, Entry
from ..values import as_yaml, fields_of, merged, of_file

LAUNCHERS = ("SSH", "SLURM", "EC2", "GCE", "Kube")
DISPATCHES = ("direct", "daemon")
MISSING = {
    "discover": Entry("a picker of what is not registered", nearest="`lakeshore ssh upload --all`, `providers add`"),
    "edit": Entry("an interactive editor", nearest="`lakeshore providers update|remove|restore <name>`"),
    "instances": Entry("instances that a provider runs", nearest="`lakeshore daemon list`"),
    "terminate": Entry("the end of an instance", nearest="`lakeshore daemon kill`, and the cloud's own console"),
}
STUB = "SLURM providers cannot be tested yet"
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


@click.group(cls=LazyGroup, verbs={}, missing=MISSING, aliases={"ls": "list", "rm": "remove", "delete": "remove"})
def providers() -> None:
    """Machines under a name: add, see, try and remove them."""


@providers.command()
@click.argument("name", metavar="<name>")
@click.option("--launcher", required=True, type=click.Choice(LAUNCHERS), help="What kind of machine it is.")
@kwarg_option
@kwargs_file_option
@dispatch_option
@tunnel_option
@json_option
@server_options
@click.pass_context
def add(
    ctx: click.Context,
    name: str,
    launcher: str,
    pairs: tuple[str, ...],
    kwargs_file: Path | None,
    dispatch: str | None,
    tunnel: str | None,
    as_json: bool,
    url: str | None,
    namespace: str | None,
    token: str | None,
) -> None:
    """Register a machine. `--kwarg ssh_key.$secret=<name>` refers to a secret."""
    kwargs = merged({} if kwargs_file is None else of_file(kwargs_file), fields_of(pairs))
    with connect(ctx, url, namespace, token) as server, named_secrets("ssh_key"):
        row = Providers(server).add(name, launcher, kwargs, dispatch=dispatch, tunnel=tunnel or None)
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
    url: str | None,
    namespace: str | None,
    token: str | None,
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
    with connect(ctx, url, namespace, token) as server, named_secrets("ssh_key"):
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
def list_(
    ctx: click.Context,
    hidden: bool,
    deleted: bool,
    every: bool,
    as_json: bool,
    url: str | None,
    namespace: str | None,
    token: str | None,
) -> None:
    """List the providers of the namespace and its org."""
    with connect(ctx, url, namespace, token) as server:
        rows = Providers(server).all(hidden=hidden or every, deleted=deleted or every)
    listed(
        rows,
        columns=("name", "launcher", "dispatch", "namespace", "changed"),
        cells=_cells,
        right=("changed",),
        gives="namespace",
        empty=f"no providers in namespace {server.namespace!r}; `lakeshore ssh upload <alias>` registers a host",
        as_json=as_json,
    )


@providers.command()
@click.argument("name", metavar="<name>", type=Named("providers"))
@json_option
@server_options
@click.pass_context
def show(
    ctx: click.Context, name: str, as_json: bool, url: str | None, namespace: str | None, token: str | None
) -> None:
    """Show one with all its arguments; a secret is shown by its name."""
    with connect(ctx, url, namespace, token) as server:
        row = Providers(server).show(name)
    if as_json:
        print_json(row)
    else:
        click.echo(_preview(row), nl=False)


@providers.command()
@click.argument("name", metavar="<name>", type=Named("providers"))
@click.option("--script", type=PATH, metavar="<path>", help="Run this one (default: a small Python script of ours).")
@click.option(
    "--timeout", type=Whole(min=1), default=600, show_default=True, metavar="<s>", help="How long it may take."
)
@click.option("--ssh-config", type=PATH, metavar="<path>", help="The configuration for ssh -F.")
@server_options
@click.pass_context
def test(
    ctx: click.Context,
    name: str,
    script: Path | None,
    timeout: int,
    ssh_config: Path | None,
    url: str | None,
    namespace: str | None,
    token: str | None,
) -> int:
    """Run a script on it, and show what it prints."""
    from lakeshore.remote import providers as remote  # wall: only these commands load what reaches hosts

    with connect(ctx, url, namespace, token) as server:
        ours = Providers(server)
        row = ours.show(name)
        _check_testable(row)
        if _refers(row.get("kwargs")):
            row = ours.resolved(name)
    kwargs = row.get("kwargs") or {}
    config = None if ssh_config is None else str(ssh_config.absolute())
    with told(), remote.place_of(name, kwargs, config=config) as place:
        code = remote.run(place, script, timeout_s=timeout)
    if code != 0:
        raise Failure(f"the script on {name} ended with exit code {code}")
    return ExitCode.OK


@providers.command()
@click.argument("name", metavar="<name>", type=Named("providers"))
@json_option
@server_options
@click.pass_context
def remove(
    ctx: click.Context, name: str, as_json: bool, url: str | None, namespace: str | None, token: str | None
) -> None:
    """Remove one. What runs there goes on; `restore` brings it back."""
    with connect(ctx, url, namespace, token) as server:
        row = Providers(server).remove(name)
    if as_json:
        print_json(row)
    else:
        click.echo(f"{name} removed; `lakeshore providers restore {name}` brings it back")


@providers.command()
@click.argument("name", metavar="<name>")
@json_option
@server_options
@click.pass_context
def restore(
    ctx: click.Context, name: str, as_json: bool, url: str | None, namespace: str | None, token: str | None
) -> None:
    """Bring back the one that was removed last under this name."""
    with connect(ctx, url, namespace, token) as server:
        row = Providers(server).restore(name)
    _done(row, "restored", as_json)


# --- inside


def _cells(row: dict[str, Any], now: datetime) -> tuple[str, ...]:
    return _name(row), str(row.get("launcher")), str(row.get("dispatch")), str(row.get("namespace")), _age(row, now)


def _check_testable(row: dict[str, Any]) -> None:
    name, launcher = plain(row.get("name")), row.get("launcher")
    if launcher == "SLURM":
        raise Failure(
            STUB, hint="`lakeshore daemon install <login-node> --slurm` runs a daemon there", code=ExitCode.USAGE
        )
    if launcher != "SSH":
        raise Failure(f"{plain(launcher)} providers cannot be tested yet", hint=BY_HAND)
    if row.get("deletedAt"):
        raise Failure(f"{name} was removed", hint=f"lakeshore providers restore {name!r}")
    if row.get("dispatch") != "direct":
        hint = f"lakeshore providers update {name} --dispatch direct"
        raise Failure(f"{name} is not reached from here: its dispatch is {plain(row.get('dispatch'))}", hint=hint)


def _refers(value: Any) -> bool:
    if isinstance(value, dict):
        return "$secret" in value or any(map(_refers, value.values()))
    return isinstance(value, list) and any(map(_refers, value))


def _done(row: dict[str, Any], what: str, as_json: bool) -> None:
    if as_json:
        print_json(row)
    else:
        click.echo(f"provider {plain(row.get('name'))} {what}  ({plain(row.get('launcher'))})")


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
