"""The flags that name a control plane, and a client of the one that they name (`choice`).

@server_options
@click.pass_context
def list_(ctx):
    with connect(ctx) as server: ...
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import click

from lakeshore.client.api import ApiClient

from .choice import Choice, choose, choose_admin
from .exits import ExitCode
from .failures import Failure
from .groups import ASKED
from .named import Named
from .waiting import counted

F = TypeVar("F", bound=Callable[..., Any])
_KEPT = "lakeshore.server"
_URL: dict[str, Any] = {"metavar": "<url>", "help": "Control plane (LAKESHORE_URL)."}
_NAMESPACE: dict[str, Any] = {
    "type": Named("namespaces"),
    "metavar": "<slug>",
    "help": "Namespace (LAKESHORE_NAMESPACE, default `default`).",
}
_TOKEN: dict[str, Any] = {"metavar": "<token>", "help": "Bearer token (LAKESHORE_CLIENT_TOKEN)."}
url_option = click.option("--url", **_URL)
namespace_option = click.option("--namespace", **_NAMESPACE)


class Flags(NamedTuple):
    """What a line says of the server; a namespace that it does not say is what the program was told before the verb."""

    url: str | None
    namespace: str | None
    token: str | None


def server_options(command: F) -> F:
    """The flags that name a server, on a verb that talks to one. They are no arguments of it: `connect` knows them."""
    for name, said in (("--token", _TOKEN), ("--namespace", _NAMESPACE), ("--url", _URL)):
        command = click.option(name, expose_value=False, callback=_keep, **said)(command)
    return command


def flags(ctx: click.Context) -> Flags:
    """Those of a verb with `server_options`."""
    said = Flags(**ctx.meta[_KEPT])
    return said if said.namespace else said._replace(namespace=ctx.find_object(str))


def chosen(ctx: click.Context, *, namespace: str | None = None) -> Choice:
    """The server that the flags and the environment name; `namespace` is one that is named otherwise. Failure."""
    said = flags(ctx)
    return choose(url=said.url, namespace=namespace or said.namespace, token=said.token)


def connect(ctx: click.Context, *, namespace: str | None = None) -> ApiClient:
    """A client of it. Failure for no server, or a malformed URL."""
    return client_of(chosen(ctx, namespace=namespace))


def connect_admin(
    ctx: click.Context, url: str | None, namespace: str | None = None, *, token: str | None = None
) -> ApiClient:
    """The same with the admin token; `token` is one that a flag names."""
    environ = os.environ if token is None else {**os.environ, "LAKESHORE_ADMIN_TOKEN": token}
    return client_of(choose_admin(url=url, namespace=namespace or ctx.find_object(str), environ=environ))


def same_server(ctx: click.Context) -> list[str]:
    """The flags that name the same server in another command; never the token."""
    said = flags(ctx)
    given = (("--url", said.url), ("--namespace", said.namespace))
    return [word for flag, value in given if value for word in (flag, value)]


def client_of(choice: Choice) -> ApiClient:
    """A client of that server. Failure (exit 2) for a malformed URL."""
    try:
        client = ApiClient(choice.url, namespace=choice.namespace, token=choice.token)
    except ValueError as error:
        raise Failure(str(error), code=ExitCode.USAGE) from error
    ctx = click.get_current_context(silent=True)
    if ctx is not None:
        ctx.meta[ASKED] = client
    client.around = functools.partial(counted, f"waiting for {client.url}")
    return client


def _keep(ctx: click.Context, param: click.Parameter, said: str | None) -> None:
    ctx.meta.setdefault(_KEPT, {})[param.name] = said
