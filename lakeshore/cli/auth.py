"""`lakeshore auth`: save a login, look whether it still works, forget it.

    server     login: --server, LAKESHORE_SERVER, LAKESHORE_URL, the saved one, http://localhost:8080
               status: --server, LAKESHORE_SERVER, the saved one
    namespace  --namespace; else `default` for login, the saved one for status
    token      --token (`-`: from stdin); else one that LAKESHORE_ADMIN_TOKEN mints; else asked for on a terminal,
               without echo; else exit 2

Rules: nothing is saved that `whoami` refused; the admin token of the environment is never saved; the saved token goes
to its own server only. Reference: api/auth-and-secrets.md, "CLI auth commands"; cli/examples/auth.md.
"""

from __future__ import annotations

import getpass
import os
import re
import sys
from datetime import UTC, datetime, timedelta
from typing import Any

import click

from lakeshore.client.api import ApiClient
from lakeshore.client.errors import ApiError, NotLakeshore
from lakeshore.client.namespaces import Namespaces
from lakeshore.config.auth import (
    SavedLogin,
    forget_saved_login,
    read_saved_login,
    same_server,
    write_saved_login,
)
from lakeshore.config.errors import ConfigError
from lakeshore.net.target import parse_target
from lakeshore.wire.errors import NameError_
from lakeshore.wire.names import check_label, check_namespace

from .choice import Choice
from .exits import ExitCode
from .failures import Failure
from .groups import Group
from .output import local_time, moment, plain, print_json, say
from .server import client_of

DEFAULT_SERVER = "http://localhost:8080"
NO_LOGIN = "No saved auth."
FROM_STDIN = "-"
MINT_HINT = "LAKESHORE_ADMIN_TOKEN must be the one that the server was started with, or what is in its admin.token"
LOG_IN = "`lakeshore auth login --server <url> --namespace <slug>` saves one"
_SHOWN = 8
"""How much of a token is shown: what the server lists of it, too."""
_STAMP = "%Y-%m-%dT%H-%M-%S"
_SOON = timedelta(days=7)
_LONGEST_BASE = 64 - len("-2026-01-02T03-04-05")


@click.group(cls=Group)
def auth() -> None:
    """Save a login, check it, forget it."""


@auth.command()
@click.option("--server", metavar="<url>", help="Control plane (LAKESHORE_SERVER).")
@click.option("--namespace", metavar="<slug>", help="The namespace of the token (default `default`).")
@click.option("--token", metavar="<plaintext>", help="A token of yours; `-`: read it from stdin.")
@click.option("--name", metavar="<label>", help="With LAKESHORE_ADMIN_TOKEN: how the minted token's name begins.")
@click.pass_context
def login(ctx: click.Context, server: str | None, namespace: str | None, token: str | None, name: str | None) -> None:
    """Check a token with the server, and save it. With LAKESHORE_ADMIN_TOKEN and no --token: mint one and save that."""
    url = login_url(server)
    namespace = _checked(check_namespace, namespace or ctx.find_object(str) or "default", "--namespace")
    base = _checked(check_label, name, "--name") if name is not None else label_for("cli", getpass_user())
    if token == FROM_STDIN:
        token = sys.stdin.readline().strip()
    admin = os.environ.get("LAKESHORE_ADMIN_TOKEN", "").strip()
    if token is None and admin:
        token = _mint(url, namespace, admin, base)
    elif token is None:
        token = _ask(url, namespace)
    me = _whoami(url, namespace, token)
    saved = write_saved_login(url, namespace, token or None)
    click.echo(f"Saved auth to {saved.path}")
    click.echo(f"  server:    {saved.server}")
    click.echo(f"  namespace: {saved.namespace}")
    click.echo(f"  token:     {_shown(me, token)}")
    click.echo(f"  authMode:  {plain(me.get('authMode'))}")
    if me.get("authMode") == "admin":
        say("note: this is the admin token, which may do all; `lakeshore admin tokens create` makes a lesser one")
    _mind_the_end(me)
    target = parse_target(url)
    if token and not target.tls and not target.is_loopback:
        say(f"note: {url} is not encrypted: who sees the traffic sees the token")


@auth.command()
@click.option("--server", metavar="<url>", help="Ask this server (LAKESHORE_SERVER).")
@click.option("--namespace", metavar="<slug>", help="Ask about this namespace.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def status(ctx: click.Context, server: str | None, namespace: str | None, as_json: bool) -> None:
    """Show the saved login, and ask the server whether it is still good."""
    saved = read_saved_login()
    if saved is None:
        raise Failure(NO_LOGIN, hint=LOG_IN)
    asked = server or os.environ.get("LAKESHORE_SERVER") or saved.server
    if not saved.is_for(asked):
        _parsed(asked)
        raise Failure(
            f"no saved auth for {asked}: the saved token is for {saved.server} and goes nowhere else",
            hint=f"`lakeshore auth login --server {asked}` saves one in its place",
        )
    namespace = namespace or ctx.find_object(str) or saved.namespace
    me = _whoami(saved.server, namespace, saved.token)
    _mind_the_environment(saved)
    _mind_the_end(me)
    if as_json:
        print_json({"configPath": str(saved.path), "server": saved.server, **me})
        return
    click.echo("Auth OK.")
    click.echo(f"  config path: {saved.path}")
    click.echo(f"  server:      {saved.server}")
    click.echo(f"  namespace:   {plain(me.get('namespace'))}")
    label = f" ({plain(me.get('tokenName'))})" if me.get("tokenPrefix") else ""
    click.echo(f"  token:       {_shown(me, saved.token)}{label}")
    click.echo(f"  lastUsedAt:  {plain(me.get('lastUsedAt') or '—')}")
    click.echo(f"  authMode:    {plain(me.get('authMode'))}")


@auth.command()
def logout() -> None:
    """Delete the saved login. The token itself stays good until it is revoked."""
    path = forget_saved_login()
    if path is None:
        say(NO_LOGIN)
    else:
        click.echo(f"Removed {path}")


def label_for(*parts: str, longest: int = _LONGEST_BASE) -> str:
    """A token's name of what a machine or a user is called: what may not be in one becomes `-`."""
    return re.sub(r"[^a-zA-Z0-9_-]+", "-", "-".join(parts))[:longest].strip("-_") or "cli"


def getpass_user() -> str:
    """Who is logged in to this machine."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's number without a name
        return f"user{os.getuid()}"


def login_url(server: str | None) -> str:
    """The server to log in to, by the rules above."""
    named = server or os.environ.get("LAKESHORE_SERVER") or os.environ.get("LAKESHORE_URL")
    if not named:
        try:
            saved = read_saved_login()
        except ConfigError as error:  # it is about to be replaced
            say(f"note: {error}")
            saved = None
        named = saved.server if saved is not None else DEFAULT_SERVER
    return _parsed(named)


def _parsed(url: str) -> str:
    try:
        return parse_target(url).url
    except ValueError as error:
        raise Failure(str(error), code=ExitCode.USAGE) from error


def _checked(check: Any, value: str, flag: str) -> str:
    try:
        return str(check(value))
    except NameError_ as error:
        raise click.BadParameter(str(error).partition(": ")[2], param_hint=f"'{flag}'") from error


def _ask(url: str, namespace: str) -> str:
    if not sys.stdin.isatty():
        raise Failure(
            "no token: nobody can be asked here",
            hint="pass --token, or set LAKESHORE_ADMIN_TOKEN to mint one",
            code=ExitCode.USAGE,
        )
    return getpass.getpass(f"Token for {url}, namespace {namespace} (Enter: none): ").strip()


def _mint(url: str, namespace: str, admin: str, base: str) -> str:
    """A new token of the namespace, which is made if it is missing: an operator's first login."""
    name = f"{base[:_LONGEST_BASE]}-{datetime.now(UTC):{_STAMP}}"
    with client_of(Choice(url=url, namespace=namespace, token=admin)) as server:
        try:
            try:
                return _minted(server, name)
            except ApiError as error:
                if error.status == 404 and error.field == "namespace":
                    Namespaces(server).create(namespace)
                    say(f"namespace {namespace!r} did not exist; it does now")
                    return _minted(server, name)
                if error.status == 409:  # twice in one second
                    return _minted(server, f"{name[: 64 - 5]}-{os.urandom(2).hex()}")
                raise
        except NotLakeshore:
            raise
        except ApiError as error:
            hint = MINT_HINT if error.status in (401, 403) else error.hint
            raise Failure(f"mint failed ({error.status}): {error}", hint=hint) from error


def _minted(server: ApiClient, name: str) -> str:
    return str(server.mint_token(name)["plaintext"])


def _whoami(url: str, namespace: str, token: str | None) -> dict[str, Any]:
    with client_of(Choice(url=url, namespace=namespace, token=token or None)) as server:
        try:
            return server.whoami()
        except NotLakeshore:
            raise
        except ApiError as error:
            raise Failure(f"whoami failed ({error.status}): {error}", hint=error.hint) from error


def _shown(me: dict[str, Any], token: str | None) -> str:
    """What may be shown of a token: the start of one that the server minted."""
    prefix = me.get("tokenPrefix")
    if prefix:
        return f"{plain(prefix)}..."
    return f"{token[:_SHOWN]}..." if token and token.startswith("dlk_") else plain(me.get("tokenName"))


def _mind_the_end(me: dict[str, Any]) -> None:
    now = datetime.now(UTC)
    end = moment(me.get("expiresAt"))
    if end is not None and end - now < _SOON:
        say(f"note: this token expires {local_time(me['expiresAt'], now)}; ask the operator for a new one before")


def _mind_the_environment(saved: SavedLogin) -> None:
    url = os.environ.get("LAKESHORE_URL")
    if url and not same_server(url, saved.server):
        say(f"note: LAKESHORE_URL is set: other commands go to {url}, without this token")
