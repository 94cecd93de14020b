"""`lakeshore code`: archives of git trees, for workers that do not have the code.

`push` looks whether the commit is archived, and whether there is a storage for it. The archive itself is not made yet.
Reference: cli/examples/storage-code-mounts.md, "Code"; C-170…C-174.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import click

from lakeshore.client.code import CodeRepos
from lakeshore.client.errors import ApiError
from lakeshore.client.storages import Storages

from ..failures import Failure
from ..groups import Group
from ..listing import Listing, first, json_option, limit_options
from ..named import Named
from ..output import age, plain, print_json
from ..server import connect, server_options
from .tree import read_tree

USUAL_STORAGE = "code-staging"
MOST = 200
SHORT = 12


@click.group(cls=Group, aliases={"ls": "list"})
def code() -> None:
    """Archives of git trees, for workers that do not have the code."""


@code.command()
@click.option(
    "--storage",
    "storage",
    type=Named("storages"),
    default=USUAL_STORAGE,
    show_default=True,
    metavar="<name>",
    help="Where it goes.",
)
@click.option("--dirty", is_flag=True, help="With what is not committed.")
@json_option
@server_options
@click.pass_context
def push(ctx: click.Context, storage: str, dirty: bool, as_json: bool) -> None:
    """Archive the commit that is checked out here."""
    tree = read_tree(dirty=dirty)
    with connect(ctx) as server:
        there = next(CodeRepos(server).each(remote=tree.remote, commit=tree.commit), None)
        if there is None:
            _need_storage(Storages(server), storage)
    if there is None:
        raise Failure("not built yet: code archives", hint="until then, run the worker where your modules are")
    if as_json:
        print_json({**there, "alreadyArchived": True})
    else:
        click.echo(f"already archived  {tree.commit[:SHORT]}  {plain(there.get('archiveKey'))}")


@code.command("list")
@click.option("--remote", metavar="<url>", help="Of this remote only.")
@limit_options(MOST)
@json_option
@server_options
@click.pass_context
def list_(ctx: click.Context, remote: str | None, limit: int, every: bool, as_json: bool) -> None:
    """List what is archived, newest first."""
    with connect(ctx) as server:
        rows, more = first(CodeRepos(server).each(remote=remote), None if every else limit)
    Listing(
        rows,
        columns=("commit", "remote", "storage", "ref", "archived"),
        cells=_cells,
        right=("archived",),
        gives=("remote", "ref"),
        empty=f"no archives in namespace {server.namespace!r}",
        as_json=as_json,
        more="--all" if more else None,
    ).print()


def _need_storage(storages: Storages, name: str) -> None:
    try:
        storages.show(name)
    except ApiError as error:
        if error.status != 404:
            raise
        raise Failure(
            f"there is no storage {name!r} for the archive",
            hint=f"lakeshore storage add {name} --kind s3 --kwarg bucket=<your-bucket> "
            "--kwarg 'creds.$secret=<aws-creds>'",
        ) from error


def _cells(row: dict[str, Any], now: datetime) -> tuple[str, ...]:
    said = (str(row.get(key) or "—") for key in ("remote", "storageName", "ref"))
    return (str(row.get("commit"))[:SHORT], *said, age(row.get("createdAt"), now))
