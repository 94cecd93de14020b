"""`lakeshore providers instances|terminate`: what a provider's launcher runs now.

Rules: this machine's own tools ask, unless that takes a secret which only the server has, or the provider is a host:
then the server does. Of several providers each is asked; one that cannot be asked is told, and the exit code is then
1. An instance is ended after a question on a terminal, and at once where nobody can be asked.
Reference: cli/examples/providers-and-discover, "instances", "terminate"; C-105, C-106.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from lakeshore.client.errors import ApiError
from lakeshore.client.providers import Providers

from ..clouds import tools_told
from ..confirming import confirmed, somebody_is_there
from ..exits import ExitCode
from ..failures import Failure
from ..listing import Listing, json_option
from ..named import Named
from ..numbers import Whole
from ..output import plain, say
from ..remote_failures import told
from ..server import connect, server_options
from .trial import leads_elsewhere, refers

if TYPE_CHECKING:
    from lakeshore.clouds.instances import Instance

Row = dict[str, Any]
AT_ONCE = 8
ENDING_S = 120.0


@click.command()
@click.argument("name", metavar="[name]", type=Named("providers"), required=False)
@click.option("--all", "every", is_flag=True, help="Of every provider that makes instances.")
@click.option(
    "--timeout", type=Whole(min=1), default=10, show_default=True, metavar="<s>", help="How long each may take."
)
@json_option
@server_options
@click.pass_context
def instances(ctx: click.Context, name: str | None, every: bool, timeout: int, as_json: bool) -> int:
    """List what a provider runs now."""
    if name is None and not every:
        raise click.UsageError("name a provider, or --all for every one")
    with connect(ctx) as server:
        ours = Providers(server)
        rows = [row for row in ours.all() if row.get("launcher") != "SSH"] if every else [ours.show(str(name))]
        rows = [ours.resolved(str(row["name"])) if _needs_key(row, server.namespace) else row for row in rows]
        served = {number: _told_by(ours, row, timeout) for number, row in enumerate(rows) if _is_servers(row)}
    with ThreadPoolExecutor(AT_ONCE) as pool:
        others = {number: pool.submit(_asked, row, timeout) for number, row in enumerate(rows) if number not in served}
        asked = [served[number] if number in served else others[number].result() for number in range(len(rows))]
    failed = [answer for answer in asked if isinstance(answer, Failure)]
    if failed and not every:
        raise failed[0]
    pairs = list(zip(rows, asked, strict=True))
    Listing(
        [(row, one) for row, answer in pairs if not isinstance(answer, Failure) for one in answer],
        columns=("provider", "id", "state", "name", "type", "address", "since"),
        cells=lambda pair, _now: (
            str(pair[0].get("name")),
            pair[1].id,
            pair[1].state,
            *(said or "—" for said in (pair[1].name, pair[1].type, pair[1].address, pair[1].since)),
        ),
        gives=("name", "address"),
        empty="no instances" if rows else "no provider here makes instances",
        as_json=as_json,
        json_rows=lambda pair: {"provider": pair[0].get("name"), **asdict(pair[1])},
    ).print()
    for row, answer in pairs:
        if isinstance(answer, Failure):
            say(f"{row.get('name')}: {answer}")
    return ExitCode.FAILED if failed else ExitCode.OK


@click.command()
@click.argument("provider", metavar="<provider>", type=Named("providers"))
@click.argument("instance", metavar="<instance-id>")
@click.option("--yes", is_flag=True, help="Do not ask.")
@server_options
@click.pass_context
def terminate(ctx: click.Context, provider: str, instance: str, yes: bool) -> int:
    """End an instance of EC2 or GCE. A daemon on it is not asked."""
    from lakeshore.clouds.instances import terminate as end  # wall: only these commands start tools

    if instance.startswith("-"):
        raise click.UsageError(f"{instance} is no instance id")
    with connect(ctx) as server:
        row = Providers(server).show(provider)
    launcher = str(row.get("launcher"))
    if launcher not in ("EC2", "GCE"):
        raise Failure(
            f"only instances of EC2 and GCE are terminated, and {provider} is {plain(launcher)}",
            hint="`lakeshore daemon kill <id>` ends a daemon",
            code=ExitCode.USAGE,
        )
    question = f"terminate {instance} of {provider}? What is on its disks may be gone."
    if not confirmed(question, yes=yes or not somebody_is_there()):
        return ExitCode.FAILED
    if _is_servers(row):
        with connect(ctx) as server:
            Providers(server).terminate(provider, instance)
    else:
        with tools_told():
            end(launcher, row.get("kwargs") or {}, instance, limit_s=ENDING_S)
    click.echo(f"{instance} is being terminated")
    return ExitCode.OK


def _is_servers(row: Row) -> bool:
    """Whether the server asks: a host, or what takes a secret that it does not give away."""
    launcher = row.get("launcher")
    return launcher == "SSH" or (launcher in ("EC2", "GCE", "Kube") and refers(row.get("kwargs")))


def _told_by(ours: Providers, row: Row, limit_s: float) -> list[Instance] | Failure:
    """What the server says."""
    from lakeshore.clouds.instances import Instance  # wall: as above

    try:
        rows = ours.instances(str(row.get("name")), timeout_s=limit_s)
    except ApiError as error:
        return Failure(str(error), hint=error.hint)
    texts = ("name", "type", "address", "since")
    return [
        Instance(id=str(one.get("id")), state=str(one.get("state")), **{name: one.get(name) for name in texts})
        for one in rows
    ]


def _asked(row: Row, limit_s: float) -> list[Instance] | Failure:
    from lakeshore.clouds.instances import instances as ask  # wall: as above

    kwargs = row.get("kwargs") or {}
    try:
        with told(), tools_told():
            elsewhere = _over_ssh(row) if row.get("launcher") == "SLURM" and leads_elsewhere(kwargs) else None
            return ask(str(row.get("launcher")), kwargs, limit_s=limit_s, elsewhere=elsewhere)
    except Failure as failure:
        return failure


def _over_ssh(row: Row) -> Callable[[Sequence[str], float], str]:
    from lakeshore.remote import providers as remote  # wall: only these commands load what reaches hosts

    def asked(words: Sequence[str], limit_s: float) -> str:
        with remote.place_of(str(row.get("name")), row.get("kwargs") or {}) as place:
            return remote.asked(place, words, limit_s)

    return asked


def _needs_key(row: Row, namespace: str) -> bool:
    """Whether it is reached with a key that the server keeps for this namespace."""
    kwargs = row.get("kwargs") or {}
    is_ours = row.get("namespace") == namespace and row.get("dispatch") == "direct"
    return is_ours and row.get("launcher") == "SLURM" and leads_elsewhere(kwargs) and refers(kwargs)
