"""The flags that name a control plane, and a client of the one that they name (`choice`)."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any, TypeVar

import click

from lakeshore.client.api import ApiClient

from .choice import Choice, choose, choose_admin
from .exits import ExitCode
from .failures import Failure
from .named import Named
from .waiting import counted

F = TypeVar("F", bound=Callable[..., Any])
url_option = click.option("--url", metavar="<url>", help="Control plane (LAKESHORE_URL).")
namespace_option = click.option(
    "--namespace",
    type=Named("namespaces"),
    metavar="<slug>",
    help="Namespace (LAKESHORE_NAMESPACE, default `default`).",
)


def server_options(command: F) -> F:
    """The flags that name a server, on a verb that talks to one."""
    token_option = click.option("--token", metavar="<token>", help="Bearer token (LAKESHORE_CLIENT_TOKEN).")
    for option in (token_option, namespace_option, url_option):
        command = option(command)
    return command


def connect(ctx: click.Context, url: str | None, namespace: str | None, token: str | None) -> ApiClient:
    """A client of the server that the flags and the environment name. Failure for none, or a malformed URL."""
    return client_of(choose(url=url, namespace=namespace or ctx.find_object(str), token=token))


def connect_admin(
    ctx: click.Context, url: str | None, namespace: str | None = None, *, token: str | None = None
) -> ApiClient:
    """The same with the admin token; `token` is one that a flag names."""
    environ = os.environ if token is None else {**os.environ, "LAKESHORE_ADMIN_TOKEN": token}
    return client_of(choose_admin(url=url, namespace=namespace or ctx.find_object(str), environ=environ))


def flags_of(ctx: click.Context, url: str | None, namespace: str | None) -> list[str]:
    """The flags that name the same server in another command; never the token."""
    namespace = namespace or ctx.find_object(str)
    given = (("--url", url), ("--namespace", namespace))
    return [word for flag, value in given if value for word in (flag, value)]


def client_of(choice: Choice) -> ApiClient:
    """A client of that server. Failure (exit 2) for a malformed URL."""
    try:
        client = ApiClient(choice.url, namespace=choice.namespace, token=choice.token)
    except ValueError as error:
        raise Failure(str(error), code=ExitCode.USAGE) from error
    client.around = functools.partial(counted, f"waiting for {client.url}")
    return client
