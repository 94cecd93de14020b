"""Which control plane a command talks to, in which namespace, with which token.

    url        --url, LAKESHORE_URL, the saved login's server, that of the server that runs here; else exit 2
    token      --token; LAKESHORE_ANON=1: none; LAKESHORE_CLIENT_TOKEN or LAKESHORE_TOKEN; the saved login's; for the
               server that runs here and that nothing named, its admin.token; else none
    namespace  --namespace, LAKESHORE_NAMESPACE, the saved login's; else `default`

    admin      LAKESHORE_ADMIN_TOKEN; on the machine that serves, the state directory's admin.token; else exit 1.
               LAKESHORE_SERVER names a server, too, after LAKESHORE_URL

Rule: a token is never sent to another server than its own. A saved one goes to the saved server only; one in the
environment belongs to the LAKESHORE_URL beside it, so it is held back from a different --url; the state directory's
goes to the server that runs from that directory. A saved login that cannot be used is an error where nothing else
names a server, and else only said. `--namespace` before the command and after it are the same, the later wins.
Without click: completion asks it at every Tab that a cache does not answer.
Reference: cli.md, "Server resolution"; cli/examples/auth.md.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from lakeshore.config.auth import SavedLogin, read_saved_login, same_server
from lakeshore.config.errors import ConfigError
from lakeshore.net.target import parse_target

from .exits import ExitCode
from .failures import Failure
from .output import say

if TYPE_CHECKING:
    from lakeshore.server.here import LocalServer

UNCONFIGURED = "server not configured — run `lakeshore auth login --server <url>` or set LAKESHORE_URL"
NO_ADMIN = "LAKESHORE_ADMIN_TOKEN is required for admin commands."


class Choice(NamedTuple):
    """A server to talk to. The token is not part of its text."""

    url: str
    namespace: str
    token: str | None

    def __repr__(self) -> str:
        return f"Choice(url={self.url!r}, namespace={self.namespace!r})"


def choose(
    *,
    url: str | None = None,
    namespace: str | None = None,
    token: str | None = None,
    environ: Mapping[str, str] = os.environ,
    look_here: bool = True,
) -> Choice:
    """Apply the rules above to the flags and the environment. Failure (exit 2) when nothing names a server, and none
    runs here; with `look_here` false only what is named counts.
    """
    named = environ.get("LAKESHORE_URL") or None
    saved, trouble = _saved(environ)
    chosen = url or named or (saved.server if saved is not None else None)
    if chosen is None:
        here = _here(environ) if look_here and trouble is None else None
        if here is None:
            raise trouble or _unconfigured()
        return Choice(url=here.url, namespace=_namespace(namespace, None, environ), token=_own(token, here, environ))
    ours = saved if saved is not None and saved.is_for(chosen) else None
    if token is None and environ.get("LAKESHORE_ANON") != "1":
        if named is None or same_server(named, chosen):
            token = environ.get("LAKESHORE_CLIENT_TOKEN") or environ.get("LAKESHORE_TOKEN") or None
        if token is None and ours is not None:
            token = ours.token_for(chosen)
        if token is None and trouble is not None:
            say(f"note: going on without the saved login: {trouble}")
    return Choice(url=chosen, namespace=_namespace(namespace, ours, environ), token=token)


def choose_admin(
    *,
    url: str | None = None,
    namespace: str | None = None,
    token: str | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Choice:
    """The same for what needs the admin token (`token`, where a flag gave it). Failure (exit 1) when there is none for
    the chosen server.
    """
    named = environ.get("LAKESHORE_URL") or None
    saved, trouble = _saved(environ)
    here = _here(environ)
    logged_in = environ.get("LAKESHORE_SERVER") or (saved.server if saved is not None else None)
    chosen = url or named or logged_in or (here.url if here is not None else None)
    given = token
    token = given or environ.get("LAKESHORE_ADMIN_TOKEN", "").strip() or None
    if given is None and token is not None and url and named and not same_server(named, url):
        raise Failure(
            f"LAKESHORE_ADMIN_TOKEN is not sent to {url}: it stands beside LAKESHORE_URL={named}",
            hint="unset LAKESHORE_URL, or set it to the server that the token is for",
        )
    if token is None and here is not None and chosen is not None and _is_here(here.url, chosen):
        token = here.admin_token
    if token is None:
        hint = "on the machine that serves, the state directory's admin.token is used; name it with LAKESHORE_STATE_DIR"
        if here is not None:
            hint = f"for the server that runs here, add --url {here.url}"
        elif chosen is None:
            hint = f"no server is named, and none runs here: `lakeshore serve` starts one; {hint}"
        raise Failure(NO_ADMIN, hint=hint)
    if chosen is None:
        raise trouble or _unconfigured()
    ours = saved if saved is not None and saved.is_for(chosen) else None
    return Choice(url=chosen, namespace=_namespace(namespace, ours, environ), token=token)


def _here(environ: Mapping[str, str]) -> LocalServer | None:
    from lakeshore.server.here import local_server  # wall: who names a server does not look for one

    return local_server(None, environ)


def _own(token: str | None, here: LocalServer, environ: Mapping[str, str]) -> str | None:
    """What is sent to the server that runs here, where nothing named it. Its directory is the caller's own."""
    if token is not None or environ.get("LAKESHORE_ANON") == "1":
        return token
    return environ.get("LAKESHORE_CLIENT_TOKEN") or environ.get("LAKESHORE_TOKEN") or here.admin_token


def _saved(environ: Mapping[str, str]) -> tuple[SavedLogin | None, ConfigError | None]:
    """The saved login, or why it cannot be used."""
    try:
        return read_saved_login(environ), None
    except ConfigError as error:
        return None, error


def _namespace(given: str | None, ours: SavedLogin | None, environ: Mapping[str, str]) -> str:
    return given or environ.get("LAKESHORE_NAMESPACE") or (ours.namespace if ours is not None else "default")


def _is_here(here: str, url: str) -> bool:
    """Whether a URL leads to the server of this machine that listens at `here`; loopback has many names."""
    if same_server(here, url):
        return True
    try:
        one, other = parse_target(here), parse_target(url)
    except ValueError:
        return False
    return one.is_loopback and other.is_loopback and (one.tls, one.port, "") == (other.tls, other.port, other.prefix)


def _unconfigured() -> Failure:
    hint = (
        "where `lakeshore serve` runs: export LAKESHORE_URL=http://127.0.0.1:8080; calls made without a server "
        "are in this machine's own queues, which commands do not show"
    )
    return Failure(UNCONFIGURED, hint=hint, code=ExitCode.USAGE)
