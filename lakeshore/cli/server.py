"""Which control plane a command talks to, in which namespace, with which token.

    url        --url, LAKESHORE_URL, the saved login's server; else exit 2
    token      --token; LAKESHORE_ANON=1: none; LAKESHORE_CLIENT_TOKEN or LAKESHORE_TOKEN; the saved login's; else none
    namespace  --namespace, LAKESHORE_NAMESPACE, the saved login's; else `default`

Rule: a token is never sent to another server than its own. A saved one goes to the saved server only; one in the
environment belongs to the LAKESHORE_URL beside it, so it is held back from a different --url.
Reference: cli.md, "Server resolution".
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from lakeshore.client.api import ApiClient
from lakeshore.config.auth import read_saved_login, same_server

from .exits import ExitCode
from .failures import Failure

UNCONFIGURED = "server not configured — run `lakeshore auth login --server <url>` or set LAKESHORE_URL"
F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
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
) -> Choice:
    """Apply the rules above to the flags and the environment. Failure (exit 2) when nothing names a server."""
    named = environ.get("LAKESHORE_URL") or None
    saved = read_saved_login(environ)
    chosen = url or named or (saved.server if saved is not None else None)
    if chosen is None:
        hint = "where `lakeshore serve` runs: export LAKESHORE_URL=http://127.0.0.1:8080"
        raise Failure(UNCONFIGURED, hint=hint, code=ExitCode.USAGE)
    ours = saved if saved is not None and saved.is_for(chosen) else None
    if token is None and environ.get("LAKESHORE_ANON") != "1":
        if named is None or same_server(named, chosen):
            token = environ.get("LAKESHORE_CLIENT_TOKEN") or environ.get("LAKESHORE_TOKEN") or None
        if token is None and ours is not None:
            token = ours.token_for(chosen)
    namespace = namespace or environ.get("LAKESHORE_NAMESPACE") or (ours.namespace if ours is not None else "default")
    return Choice(url=chosen, namespace=namespace, token=token)


def server_options(command: F) -> F:
    """The flags that name a server, on a verb that talks to one."""
    for option in (
        click.option("--token", metavar="<token>", help="Bearer token (LAKESHORE_CLIENT_TOKEN)."),
        click.option("--namespace", metavar="<slug>", help="Namespace (LAKESHORE_NAMESPACE, default `default`)."),
        click.option("--url", metavar="<url>", help="Control plane (LAKESHORE_URL)."),
    ):
        command = option(command)
    return command


def connect(ctx: click.Context, url: str | None, namespace: str | None, token: str | None) -> ApiClient:
    """A client of the server that the flags and the environment name. Failure for none, or a malformed URL."""
    choice = choose(url=url, namespace=namespace or ctx.find_object(str), token=token)
    try:
        return ApiClient(choice.url, namespace=choice.namespace, token=choice.token)
    except ValueError as error:
        raise Failure(str(error), code=ExitCode.USAGE) from error
