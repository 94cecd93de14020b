"""`lakeshore ssh upload`: a host of the user's ssh configuration as a provider on the server.

Rules: what is sent is host, user, port, jump host, and the key's path; with `--with-key` the key itself, as a secret,
and no path. One that is there already and leads to the same place is brought up to date; another one of
that name is left alone. Of several aliases of one place the first is taken.
Reference: cli/examples/providers-and-discover, "SSH"; C-119…C-124, C-540…C-550.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lakeshore.client.api import ApiClient
from lakeshore.client.errors import ApiError
from lakeshore.client.providers import Providers, Secrets

from ..confirming import somebody_is_there
from ..exits import ExitCode
from ..failures import Failure
from ..named import Named
from ..nearest import no_such_option
from ..numbers import Whole
from ..output import plain, print_json, say
from ..secrets import keep_secret, text_of
from ..server import connect, server_options
from ..values import slug_of
from .group import on_server, target_of

if TYPE_CHECKING:
    from lakeshore.remote.ssh_config import HostEntry

ALL = "--all"
DISPATCHES = ("direct", "daemon")


@dataclass(frozen=True, slots=True, kw_only=True)
class Uploaded:
    """What came of one host. `secret` is None where its key's path is kept instead."""

    alias: str
    provider: str
    secret: str | None
    created: bool
    target: str


@click.command("upload", context_settings={"ignore_unknown_options": True})
@click.argument("alias", metavar="<alias>", type=Named("ssh-aliases"), required=False)
@click.option(ALL, "every", is_flag=True, help="Every host of the configuration, each place once.")
@click.option("--interactive", is_flag=True, help="Pick from a list, whatever is named.")
@click.option("--with-key", is_flag=True, help="Keep the private key itself on the server, sealed.")
@click.option(
    "--key-secret", type=Named("secrets"), metavar="<name>", help="The key's name there (default: ssh-<alias>)."
)
@click.option("--name", metavar="<provider>", help="The provider's name (default: the alias).")
@click.option("--user", metavar="<name>", help="Instead of the configuration's.")
@click.option("--host", metavar="<name>", help="Instead of the configuration's HostName.")
@click.option("--port", type=Whole(min=1, max=65_535), metavar="<n>", help="Instead of the configuration's.")
@click.option("--pem", type=click.Path(dir_okay=False), metavar="<path>", help="Instead of its IdentityFile.")
@click.option("--dispatch", type=click.Choice(DISPATCHES), help="Who reaches it (default: direct).")
@click.option(
    "--ssh-config",
    type=click.Path(exists=True, dir_okay=False),
    metavar="<path>",
    help="The configuration (default: ~/.ssh/config).",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@server_options
@click.pass_context
def upload(ctx: click.Context, /, **given: Any) -> None:
    """Register a host of ~/.ssh/config as a provider."""
    found = _chosen(ctx, given)
    if len(found) > 1 and any(given[name] for name in ("name", "key_secret", "user", "host", "port", "pem")):
        raise click.UsageError("--name, --key-secret, --user, --host, --port and --pem are for one host")
    overrides = {"user": given["user"], "hostname": given["host"], "port": given["port"]}
    overrides["identity_file"] = given["pem"] and str(Path(given["pem"]).expanduser().absolute())
    done = []
    with connect(ctx) as server:
        for one in found:
            host = replace(one, **{name: value for name, value in overrides.items() if value is not None})
            done.append(upload_host(server, host, given))
            if not given["as_json"]:
                tell_of(done[-1])
    if given["as_json"]:
        print_json(
            [
                {"alias": one.alias, "provider": one.provider, "secret": one.secret, "created": one.created}
                for one in done
            ]
        )


def _chosen(ctx: click.Context, given: dict[str, Any]) -> list[HostEntry]:
    from lakeshore.remote.ssh_config import aliases, entries, entry  # wall: only these commands read it

    alias, config = given["alias"], given["ssh_config"]
    if given["every"] or alias == ALL:
        firsts: dict[str, HostEntry] = {}
        for one in entries(config):
            firsts.setdefault(one.target, one)
        return list(firsts.values())
    if alias is None or given["interactive"]:
        return _picked(ctx, given, entries(config))
    if alias.startswith("-"):
        raise no_such_option(alias)
    if alias not in aliases(config):
        raise Failure(f"no host '{alias}' in {config or '~/.ssh/config'}", hint="`lakeshore ssh discover` lists them")
    return [entry(alias, config)]


def _picked(ctx: click.Context, given: dict[str, Any], found: list[HostEntry]) -> list[HostEntry]:
    """Hosts that somebody picks: first those that the server does not know."""
    if not found:
        raise Failure(f"no hosts in {given['ssh_config'] or '~/.ssh/config'}")
    if not somebody_is_there():
        hint = "`lakeshore ssh discover --filter new` lists those that the server does not know"
        raise Failure("nobody can pick here: name a host, or --all", hint=hint, code=ExitCode.USAGE)
    from ..picker import pick_several  # wall: termios is for who is asked

    known = on_server(ctx, asked=True)
    states = {one.alias: "existing" if target_of(one) in known else "new" for one in found}
    found = sorted(found, key=lambda one: states[one.alias] != "new")
    marked = pick_several("hosts to register", [(one.alias, one.target, states[one.alias]) for one in found])
    if not marked:
        say("nothing to register")
    return [found[number] for number in marked]


def upload_host(server: ApiClient, host: HostEntry, given: dict[str, Any]) -> Uploaded:
    name = given["name"] or slug_of(host.alias)
    kwargs: dict[str, Any] = {"ip": host.hostname, "username": host.user, "port": host.port}
    if host.proxy_jump is not None:
        kwargs["proxy_jump"] = host.proxy_jump
    providers = Providers(server)
    known = _known(providers, name)
    if known is not None and not _same_place(known, kwargs):
        raise Failure(
            f"there is a provider {name} already, and it leads elsewhere",
            hint=f"--name gives this one another name; `lakeshore providers show {name}` shows that one",
        )
    secret = None
    if given["with_key"]:
        secret = given["key_secret"] or slug_of(f"ssh-{host.alias}")
        _keep_key(Secrets(server), secret, host)
        kwargs["ssh_key"] = {"$secret": secret}
    elif host.identity_file is not None:
        kwargs["pem"] = host.identity_file
    if known is None:
        providers.add(name, "SSH", kwargs, dispatch=given["dispatch"])
    else:
        providers.change(name, kwargs=kwargs, dispatch=given["dispatch"])
    return Uploaded(alias=host.alias, provider=name, secret=secret, created=known is None, target=host.target)


def _known(providers: Providers, name: str) -> dict[str, Any] | None:
    try:
        return providers.show(name)
    except ApiError as error:
        if error.status != 404:
            raise
        return None


def _same_place(row: dict[str, Any], kwargs: dict[str, Any]) -> bool:
    there = row.get("kwargs") or {}
    return row.get("launcher") == "SSH" and all(
        str(there.get(one, there.get(other, usual))).lower() == str(kwargs[one]).lower()
        for one, other, usual in (("ip", "host", ""), ("username", "user", ""), ("port", "port", 22))
    )


def _keep_key(secrets: Secrets, name: str, host: HostEntry) -> None:
    if host.identity_file is None:
        hint = "name it with --pem, or with IdentityFile in the ssh configuration"
        raise Failure(f"{host.alias} has no private key that is known here", hint=hint)
    path = Path(host.identity_file)
    try:
        text = text_of(path.read_bytes(), str(path))
    except OSError as error:
        raise Failure(f"cannot read the key {path}: {error.strerror or error}", hint="--pem names another") from error
    if "PRIVATE KEY" not in text:
        raise Failure(f"{path} is no private key", hint="name the file without .pub")
    keep_secret(
        secrets, name, "ssh_key", text, says=f"key of {plain(host.alias)}", otherwise="--key-secret takes another name"
    )


def tell_of(one: Uploaded) -> None:
    click.echo(f"✓ provider {one.provider} {'added' if one.created else 'updated'}  ({plain(one.target)})")
    if one.secret is not None:
        click.echo(f"  key: secret {one.secret}")
    else:
        say("the key stays on this machine: the provider works from here alone (--with-key keeps it on the server)")
