"""`lakeshore config`: the `.dreamrc` that counts here, and where it came from.

The order is in `lakeshore/config/resolving.py`; the server is asked only where no file is found. One that keeps no
providers, or no modes, has none.
Reference: cli/examples/secrets-modes-tunnels-config-nymph.md, "Config"; api/configuration.md, "Resolution order".
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import click

from lakeshore.client.api import ApiClient
from lakeshore.client.errors import ApiError
from lakeshore.client.steering import in_yaml
from lakeshore.net.errors import NetError

from .choice import choose
from .failures import Failure
from .groups import Group, dreamrc_of
from .listing import Listing, json_option
from .output import plain, print_json, say
from .server import client_of

if TYPE_CHECKING:
    from lakeshore.config.modes import DreamRc
    from lakeshore.config.resolving import Server
    from lakeshore.config.served import Pulled


@click.group(cls=Group)
def config() -> None:
    """The resolved .dreamrc: modes and providers."""


@config.command()
@json_option
@click.pass_context
def show(ctx: click.Context, as_json: bool) -> None:
    """Print the configuration that counts here, as YAML."""
    from lakeshore.config.dreamrc_text import plain as told  # wall: YAML
    from lakeshore.config.dreamrc_text import to_yaml  # wall: YAML

    rc = resolved(ctx)
    if as_json:
        print_json(told(rc))
    else:
        click.echo(in_yaml(to_yaml(rc)), nl=False)


@config.command()
@click.option("--all", "all_", is_flag=True, help="Every configuration file that there is, and who reads it.")
@json_option
@click.pass_context
def source(ctx: click.Context, all_: bool, as_json: bool) -> None:
    """Print where it came from: explicit, env, workspace, home, server, cache or none."""
    if all_:
        _sources(ctx, as_json)
        return
    rc = resolved(ctx)
    if as_json:
        print_json({"source": rc.source, "path": None if rc.path is None else str(rc.path)})
    else:
        click.echo(rc.source)


@config.command()
@json_option
@click.pass_context
def refresh(ctx: click.Context, as_json: bool) -> None:
    """Ask the server anew, and keep what it says for when it is away."""
    from lakeshore.config.resolving import Away, keep  # wall: YAML
    from lakeshore.config.served import composed  # wall: only who asks a server pays for it

    server = _server(ctx)
    try:
        rc = composed(server.fetch())
    except Away as away:
        raise away.__cause__ or away from None
    path = keep(server, rc)
    if as_json:
        counts = {"modes": sorted(rc.modes), "providers": sorted(rc.providers)}
        print_json({"server": server.url, "namespace": server.namespace, "path": str(path), **counts})
        return
    say(f"{len(rc.modes)} modes and {len(rc.providers)} providers of {server.url}, namespace {server.namespace}")
    click.echo(plain(path))


def resolved(ctx: click.Context) -> DreamRc:
    """The configuration that counts for a command. ConfigError for a file that makes no sense."""
    from lakeshore.config.dreamrc import find_file  # wall: only this needs it
    from lakeshore.config.resolving import resolve_config  # wall: YAML

    named = dreamrc_of(ctx)
    server = None
    if find_file(named)[0] is None:
        try:
            server = _server(ctx)
        except Failure:  # nothing names a server
            server = None
    return resolve_config(named, server, tell=say)


def _server(ctx: click.Context) -> Server:
    from lakeshore.config.resolving import Server  # wall: YAML

    choice = choose(namespace=ctx.find_object(str))
    return Server(
        url=choice.url,
        namespace=choice.namespace,
        fetch=functools.partial(_fetch, functools.partial(client_of, choice)),
    )


def _fetch(connect: Any) -> Pulled:
    from lakeshore.config.resolving import Away  # wall: YAML
    from lakeshore.config.served import Pulled  # wall: as above

    try:
        with connect() as server:
            return Pulled(modes=_rows(server, "modes"), providers=_rows(server, "providers"))
    except NetError as error:
        raise Away("server unreachable") from error
    except ApiError as error:
        raise Away(f"the server refused ({error})") from error


def _rows(server: ApiClient, name: str) -> tuple[dict[str, Any], ...]:
    try:
        return tuple(server.pages(server.ours(name), name, page=500))
    except ApiError as error:
        if error.status != 404:
            raise
        return ()


def _sources(ctx: click.Context, as_json: bool) -> None:
    from lakeshore.config.found import found_files  # wall: YAML

    files = list(found_files(dreamrc_of(ctx)))
    Listing(
        files,
        columns=("file", "counts", "read for"),
        cells=lambda one, _now: (str(one.path), "yes" if one.counts else "no", one.reader),
        json_rows=lambda one: {"path": str(one.path), "reader": one.reader, "counts": one.counts},
        gives="read for",
        empty="no configuration file is here; see `lakeshore config source`",
        as_json=as_json,
    ).print()
