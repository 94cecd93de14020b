"""`lakeshore ssh`: the hosts of the user's ssh configuration, and whether they can be reached.

Rules: the configuration is only read. What a probe found stays on this machine. A host is on the server when a provider
there leads to the same user, host and port; a server that keeps no providers, or none that is configured, has none.
Reference: cli/examples/providers-and-discover, "SSH"; C-116, C-125…C-127.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lakeshore.client.errors import ApiError
from lakeshore.client.providers import Providers
from lakeshore.net.errors import NetError

from ..choice import UNCONFIGURED
from ..exits import ExitCode
from ..failures import Failure
from ..groups import LazyGroup
from ..listing import Listing, json_option
from ..named import Named
from ..nearest import no_such_option
from ..numbers import Whole
from ..output import age, plain, print_json, say
from ..remote_failures import told
from ..server import connect, server_options

if TYPE_CHECKING:
    from lakeshore.remote.probes import Probe
    from lakeshore.remote.ssh_config import HostEntry

VERBS = {"upload": "lakeshore.cli.ssh.upload:upload"}
FILTERS = ("all", "new", "existing")
AT_ONCE = 16
ALL = "--all"
config_option = click.option(
    "--ssh-config",
    type=click.Path(exists=True, dir_okay=False),
    metavar="<path>",
    help="The configuration (default: ~/.ssh/config).",
)


@click.group(cls=LazyGroup, verbs=VERBS)
def ssh() -> None:
    """Hosts of your ssh configuration: see them, try them, make providers of them."""


@ssh.command()
@click.option("--filter", "which", type=click.Choice(FILTERS), default="all", show_default=True, help="Which ones.")
@click.option("--show-stripped", is_flag=True, help="Also show directives that matter on this machine alone.")
@json_option
@config_option
@server_options
@click.pass_context
def discover(ctx: click.Context, which: str, show_stripped: bool, as_json: bool, ssh_config: str | None) -> int:
    """List the hosts of ~/.ssh/config, and which of them the server knows."""
    from lakeshore.remote.ssh_config import entries  # wall: only these commands read it

    found = entries(ssh_config)
    known = on_server(ctx, asked=which != "all")
    shown = [one for one in found if which == "all" or (target_of(one) in known) == (which == "existing")]
    Listing(
        shown,
        columns=("alias", "user", "host", "port", "via", "key", "server"),
        cells=lambda one, _now: _cells(one, known),
        json_rows=lambda one: _plainly(one, known),
        right=("port",),
        gives=("key", "host", "via", "user"),
        empty=f"no {'' if which == 'all' else which + ' '}hosts in {ssh_config or '~/.ssh/config'}",
        as_json=as_json,
    ).print()
    if as_json or not shown:
        return ExitCode.OK
    if show_stripped:
        for one in shown:
            for line in one.stripped:
                click.echo(f"{one.alias}: {plain(line)}")
    say("new: not on the server · existing: a provider there leads to the same user, host and port · via: ProxyJump")
    return ExitCode.OK


@ssh.command(context_settings={"ignore_unknown_options": True})
@click.argument("alias", metavar="<alias>", type=Named("ssh-aliases"), required=False)
@click.option(ALL, "every", is_flag=True, help="Every host of the configuration.")
@click.option("--timeout", type=Whole(min=1), default=5, show_default=True, metavar="<s>", help="ssh's ConnectTimeout.")
@json_option
@config_option
def probe(alias: str | None, every: bool, timeout: int, as_json: bool, ssh_config: str | None) -> int:
    """Try to log in to a host, and remember on this machine how it went."""
    from lakeshore.remote import probes  # wall: only these commands load what reaches hosts
    from lakeshore.remote.ssh import Place  # wall: as above
    from lakeshore.remote.ssh_config import aliases  # wall: as above

    known = aliases(ssh_config)
    if alias is None and not every:
        raise click.UsageError("name a host, or --all for every one")
    if alias is not None and alias.startswith("-"):
        raise no_such_option(alias)
    if not every and alias not in known:
        raise Failure(
            f"no host '{alias}' in {ssh_config or '~/.ssh/config'}", hint="`lakeshore ssh discover` lists them"
        )
    wanted = known if every else [str(alias)]

    def one(name: str) -> Probe:
        return probes.probe(Place(alias=name, config=ssh_config), timeout_s=timeout)

    with told(), ThreadPoolExecutor(AT_ONCE) as pool:
        found = dict(zip(wanted, pool.map(one, wanted), strict=True))
    probes.remember(_status_file(), found)
    if as_json:
        print_json([{"alias": name, **_probe(result)} for name, result in found.items()])
    else:
        for name, result in found.items():
            click.echo(f"{'✓' if result.ok else '✗'} {name}  {result.ms} ms" + _because(result))
    return ExitCode.OK if all(result.ok for result in found.values()) else ExitCode.FAILED


@ssh.command()
@click.option("--name", type=Named("ssh-aliases"), metavar="<alias>", help="Of this host alone.")
@click.option("--history", type=Whole(min=1), default=3, show_default=True, metavar="<n>", help="Probes of each.")
@json_option
def status(name: str | None, history: int, as_json: bool) -> int:
    """Show what the last probes found. Nothing is tried."""
    from lakeshore.remote.probes import remembered  # wall: as above

    found = remembered(_status_file())
    if name is not None:
        if name not in found:
            raise Failure(f"{name} was never probed from here", hint=f"lakeshore ssh probe {name}")
        found = {name: found[name]}
    latest = [(alias, one) for alias, rows in sorted(found.items()) for one in reversed(rows[-history:])]
    Listing(
        latest,
        columns=("alias", "result", "ms", "ago", "why"),
        cells=lambda row, now: _tried(*row, now),
        json_rows=lambda row: {"alias": row[0], **_probe(row[1])},
        right=("ms", "ago"),
        gives="why",
        empty="no host was probed from here; `lakeshore ssh probe <alias>` tries one",
        as_json=as_json,
    ).print()
    return ExitCode.OK


# --- what the server knows


def on_server(ctx: click.Context, *, asked: bool) -> set[tuple[str, str, int]]:
    """(user, host, port) of its SSH providers. `asked`: the user wants to know, so that no answer is a failure."""
    try:
        with connect(ctx) as server:
            rows = Providers(server).all()
    except Failure as error:
        if asked or str(error) != UNCONFIGURED:
            raise
        return set()
    except ApiError as error:
        if error.status == 404:  # a server without providers knows no host
            return set()
        if asked:
            raise
        say(f"note: what is on the server is not known: {error}")
        return set()
    except NetError as error:
        if asked:
            raise
        say(f"note: what is on the server is not known: {error}")
        return set()
    return set(targets_of(rows))


def targets_of(rows: Iterable[dict[str, Any]]) -> Iterable[tuple[str, str, int]]:
    for row in rows:
        kwargs = row.get("kwargs") or row.get("config") or {}
        if str(row.get("launcher") or row.get("kind")) == "SSH" and isinstance(kwargs, dict):
            port = str(kwargs.get("port", 22))
            host, user = (kwargs.get("ip") or kwargs.get("host")), (kwargs.get("username") or kwargs.get("user"))
            if host and port.isdecimal():
                yield str(user or ""), str(host).lower(), int(port)


def target_of(one: HostEntry) -> tuple[str, str, int]:
    return one.user, one.hostname.lower(), one.port


# --- how it is shown


def _cells(one: HostEntry, known: set[tuple[str, str, int]]) -> tuple[str, ...]:
    state = "existing" if target_of(one) in known else "new"
    via = one.proxy_jump or "—"
    return (plain(one.alias), plain(one.user), plain(one.hostname), str(one.port), plain(via), _key(one), state)


def _tried(alias: str, one: Probe, now: datetime) -> tuple[str, ...]:
    return alias, "ok" if one.ok else "failed", str(one.ms), age(one.at, now), one.error or ""


def _key(one: HostEntry) -> str:
    if one.identity_file is None:
        return "—"
    home = str(Path.home())
    path = one.identity_file
    return plain("~" + path[len(home) :] if path.startswith(home + "/") else path)


def _plainly(one: HostEntry, known: set[tuple[str, str, int]]) -> dict[str, Any]:
    return {
        "alias": one.alias,
        "host": one.hostname,
        "user": one.user,
        "port": one.port,
        "identityFile": one.identity_file,
        "proxyJump": one.proxy_jump,
        "stripped": list(one.stripped),
        "state": "existing" if target_of(one) in known else "new",
    }


def _probe(one: Probe) -> dict[str, Any]:
    return {"at": one.at, "ok": one.ok, "ms": one.ms, "error": one.error}


def _because(one: Probe) -> str:
    return f"  {plain(one.error)}" if one.error else ""


def _status_file() -> Path:
    return Path("~/.config/dreamlake/ssh-status.json").expanduser()
