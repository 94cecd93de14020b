"""`lakeshore code`: archives of git trees, for workers that do not have the code.

`push` archives the commit that is checked out, once, in the storage `code-staging` or at the control plane itself. What
a call by reference does by itself is the same, so `push` is for a tree with changes, and for seeing what goes wrong.
Reference: cli/examples/storage-code-mounts.md, "Code"; C-170…C-174.
"""

from __future__ import annotations

import os
import tempfile
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from lakeshore.archives.errors import ArchiveError, NoTree
from lakeshore.archives.packing import pack
from lakeshore.archives.stamp import USUAL_STORAGE, key_of
from lakeshore.archives.trees import Tree, note_of_snapshot, snapshot, tree_at
from lakeshore.client.api import ApiClient
from lakeshore.client.code import CodeRepos, put_object
from lakeshore.client.errors import ApiError
from lakeshore.client.storages import Storages
from lakeshore.wire.names import Ulids

from ..exits import ExitCode
from ..failures import Failure
from ..groups import Group
from ..listing import Listing, first, json_option, limit_options
from ..named import Named
from ..output import age, plain, print_json
from ..server import connect, server_options

MOST = 200
SHORT = 12
LEAST = 6
"""Digits of a commit that name it."""


@click.group(cls=Group, aliases={"ls": "list", "rm": "remove"})
def code() -> None:
    """Archives of git trees, for workers that do not have the code."""


@code.command()
@click.option(
    "--storage",
    "storage",
    type=Named("storages"),
    metavar="<name>",
    help=f"Where it goes (default: {USUAL_STORAGE} if it exists, else the control plane).",
)
@click.option(
    "--dirty", is_flag=True, help="With what is not committed, new files included; what git ignores stays here."
)
@json_option
@server_options
@click.pass_context
def push(ctx: click.Context, storage: str | None, dirty: bool, as_json: bool) -> None:
    """Archive the commit that is checked out here."""
    try:
        tree = tree_at(Path.cwd())
        if tree.change is not None and not dirty:
            raise Failure(
                f"the working tree has changes that are not committed ({tree.change})",
                hint="commit them, or send them as they are with --dirty",
                code=ExitCode.USAGE,
            )
        commit = tree.head if tree.change is None else snapshot(tree)
        with connect(ctx) as server:
            repos = CodeRepos(server)
            row = _found(repos, tree, commit)
            row = _sent(server, tree, commit, storage) if row is None else {**row, "alreadyArchived": True}
        if tree.change is not None:
            note_of_snapshot(tree, commit)
    except NoTree as error:
        raise Failure(str(error), hint="cd into a git repository with a commit", code=ExitCode.USAGE) from error
    except ArchiveError as error:
        raise Failure(str(error)) from error
    if as_json:
        print_json(row)
    else:
        what = "already archived" if row["alreadyArchived"] else "archived"
        click.echo(f"{what}  {commit[:SHORT]}  {plain(row.get('archiveKey'))}")


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


@code.command()
@click.argument("commit", metavar="<commit>")
@json_option
@server_options
@click.pass_context
def remove(ctx: click.Context, commit: str, as_json: bool) -> None:
    """Forget the archives of a commit, named by its first digits. Calls that wait for it fail."""
    with connect(ctx) as server:
        repos = CodeRepos(server)
        rows = [row for row in repos.each() if len(commit) >= LEAST and str(row["commit"]).startswith(commit)]
        if not rows:
            hint = "`lakeshore code list` shows them" if len(commit) >= LEAST else f"name {LEAST} digits or more"
            raise Failure(f"no archive of a commit {commit!r}", hint=hint)
        if len({row["commit"] for row in rows}) > 1:
            raise Failure(f"{len(rows)} commits begin with {commit!r}", hint="name more of its digits")
        gone = [repos.remove(str(row["id"])) for row in rows]
    if as_json:
        print_json(gone)
    for row in gone if not as_json else ():
        click.echo(f"removed  {str(row['commit'])[:SHORT]}  {plain(row.get('remote'))}")


def _found(repos: CodeRepos, tree: Tree, commit: str) -> dict[str, Any] | None:
    try:
        return next(repos.each(remote=tree.remote, commit=commit), None)
    except ApiError as error:
        if error.status != 404:
            raise
        return None  # the namespace is new: sending makes it, where that may be


def _sent(server: ApiClient, tree: Tree, commit: str, storage: str | None) -> dict[str, Any]:
    """To the storage, which without a name is the usual one if it exists; else the control plane keeps it."""
    repos = CodeRepos(server)
    run = Ulids(lambda: time.time_ns() // 1_000_000, os.urandom).new()
    ref = None if commit == tree.head else f"refs/snapshots/run-{run}"
    with tempfile.TemporaryDirectory(prefix="lakeshore-code-") as place:
        packed = pack(tree.top, commit, Path(place, "code.tar.gz"))
        key = key_of(commit, packed.sha256)
        url = _place(server, storage, key)
        with packed.path.open("rb") as file:
            if url is not None:
                put_object(url, file, packed.size)
                name = storage or USUAL_STORAGE
                return repos.register(key=key, storage=name, remote=tree.remote, commit=commit, ref=ref)
            return repos.keep(file, size=packed.size, sha256=packed.sha256, remote=tree.remote, commit=commit, ref=ref)


def _place(server: ApiClient, storage: str | None, key: str) -> str | None:
    """Where the archive is put in a storage; None where none was named and the usual one is not there."""
    name = storage or USUAL_STORAGE
    try:
        return str(Storages(server).presign(name, key, put=True)["url"])
    except ApiError as error:
        if error.status != 404:
            raise
        if storage is None:
            return None
        raise Failure(
            f"there is no storage {name!r} for the archive",
            hint=f"lakeshore storage add {name} --kind s3 --kwarg bucket=<your-bucket> "
            "--kwarg 'creds.$secret=<aws-creds>'; without --storage the control plane keeps it",
        ) from error


def _cells(row: dict[str, Any], now: datetime) -> tuple[str, ...]:
    said = (str(row.get(key) or "—") for key in ("remote", "storageName", "ref"))
    return (str(row.get("commit"))[:SHORT], *said, age(row.get("createdAt"), now))
