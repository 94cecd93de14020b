"""The file that a verb works by, and the server that it is for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from lakeshore.client.api import ApiClient
from lakeshore.client.queues import Queues
from lakeshore.client.workers import Workers
from lakeshore.config.compose import Compose, read_compose

from ..exits import ExitCode
from ..failures import Failure
from ..named import Named
from ..output import say
from ..server import chosen, connect, flags
from .plan import Plan, Row, planned
from .pythons import with_pythons

F = TypeVar("F", bound=Callable[..., Any])


def file_option(command: F) -> F:
    """`-f`; as `path`, None where it is not said."""
    where = click.Path(path_type=Path)
    return click.option("-f", "--file", "path", type=where, metavar="<path>", help="Instead of ./lakeshore.yaml.")(
        command
    )


group_argument = click.argument("group", metavar="[<group>]", required=False, type=Named("compose-groups"))
plan_option = click.option("--plan", "only_plan", is_flag=True, help="Say what would be done, and do nothing.")


def opened(ctx: click.Context, path: Path | None) -> tuple[Compose, ApiClient]:
    """The file, and a client of its namespace: the one that a flag names, else the file's, else the usual one."""
    compose = with_pythons(read_compose(path))
    for warning in compose.warnings:
        say(f"warning: {warning}")
    return compose, connect(ctx, namespace=flags(ctx).namespace or compose.namespace)


def threads_client(ctx: click.Context, compose: Compose) -> Callable[[], ApiClient]:
    """What makes further clients of the same server; what they do is not counted on the terminal."""
    choice = chosen(ctx, namespace=flags(ctx).namespace or compose.namespace)
    return lambda: ApiClient(choice.url, namespace=choice.namespace, token=choice.token)


def owned(server: ApiClient, compose: Compose) -> list[Row]:
    """The rows of the daemons that the project has."""
    return list(Workers(server).all(project=compose.project))


def seen(server: ApiClient, compose: Compose, *, only: str | None = None) -> Plan:
    """What is to be done, by what is there now. Failure for a group that the file does not have."""
    if only is not None and only not in {group.name for group in compose.groups}:
        names = ", ".join(group.name for group in compose.groups)
        raise Failure(f"{compose.path} has no group {only!r}", hint=f"there are {names}", code=ExitCode.USAGE)
    queues = [row for row in Queues(server).all() if row.get("namespace") == server.namespace]
    return planned(compose, queues, owned(server, compose), only=only)
