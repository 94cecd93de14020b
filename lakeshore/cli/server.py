"""The flags that name a control plane, and a client of the one that they name (`choice`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from lakeshore.client.api import ApiClient

from .choice import Choice, choose, choose_admin
from .exits import ExitCode
from .failures import Failure
from .named import Named

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


def connect_admin(ctx: click.Context, url: str | None, namespace: str | None = None) -> ApiClient:
    """The same with the admin token."""
    return client_of(choose_admin(url=url, namespace=namespace or ctx.find_object(str)))


def client_of(choice: Choice) -> ApiClient:
    """A client of that server. Failure (exit 2) for a malformed URL."""
    try:
        return ApiClient(choice.url, namespace=choice.namespace, token=choice.token)
    except ValueError as error:
        raise Failure(str(error), code=ExitCode.USAGE) from error
