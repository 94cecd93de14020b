"""`lakeshore storage`: buckets of an object store, or directories of buckets, under a name.

Rules: `<namespace>/<name>` names one of another namespace. The store's own keys never come here: what needs them
(presign, credentials, --provision, --purge) is asked of the server.
Reference: get-started/storages.md; cli/examples/storage-code-mounts.md; C-157…C-169.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import click

from lakeshore.client.api import ApiClient
from lakeshore.client.storages import Storages
from lakeshore.config.marker import MARKER

from ..entries import change_of, file_option, kwarg_option, named_secrets, removed, shown, told
from ..exits import ExitCode
from ..failures import Failure
from ..groups import Group
from ..listing import Listing, json_option
from ..named import Named
from ..numbers import Whole
from ..output import age, plain, print_json
from ..pairs import pairs_of
from ..server import connect, server_options
from ..values import fields_of, merged, of_file
from .folding import Folding, folded

KINDS = ("s3", "s3-prefix")
DAY_S, SHORTEST_S, LONGEST_S = 86_400, 900, 129_600
SHOWN = ("name", "namespace", "kind", "description", "config")
name_argument = click.argument("name", metavar="<name>", type=Named("storages"))


@click.group(cls=Group, aliases={"ls": "list", "rm": "remove", "delete": "remove"})
def storage() -> None:
    """Buckets of an object store under a name."""


@contextmanager
def _there(ctx: click.Context, name: str) -> Iterator[tuple[ApiClient, str]]:
    """The server in the namespace that `[<namespace>/]<name>` says, and the name."""
    where, slash, bare = name.rpartition("/")
    if (slash and not (where and bare)) or "/" in where:
        raise Failure(f"{name!r} is neither <name> nor <namespace>/<name>", code=ExitCode.USAGE)
    with connect(ctx, namespace=where or None) as server, named_secrets("aws_keypair"):
        yield server, bare


@storage.command(cls=Folding)
@click.argument("name", metavar="<name>")
@click.option("--kind", required=True, type=click.Choice(KINDS), help="A bucket, or a directory of one.")
@click.option("--bucket", metavar="<bucket>", help="The bucket.")
@click.option("--prefix", metavar="<prefix>", help="The directory, of kind s3-prefix.")
@click.option("--region", metavar="<region>", help="Its region.")
@click.option("--endpoint", metavar="<url>", help="The store's URL, where it is not AWS.")
@click.option("--creds", type=Named("secrets"), metavar="<secret>", help="The secret with its keys (kind aws_keypair).")
@click.option("--description", metavar="<text>", help="What it is for.")
@kwarg_option
@file_option("its config; --kwarg and the options go over it")
@click.option("--provision", is_flag=True, help="Make the bucket, too.")
@click.option("--s3-option", "s3_options", multiple=True, metavar="<K=V>", help="For its making. Repeatable.")
@json_option
@server_options
@click.pass_context
def add(
    ctx: click.Context,
    /,
    name: str,
    kind: str,
    creds: str | None,
    description: str | None,
    pairs: tuple[str, ...],
    file: str | None,
    provision: bool,
    s3_options: tuple[str, ...],
    as_json: bool,
    **given: str | None,
) -> None:
    """Add a storage. Any other `--<key> <value>` is a field of its config."""
    config = merged({} if file is None else of_file(file), fields_of(pairs))
    config = merged(config, fields_of(folded(ctx), "--<key> <value>"))
    config |= {key: value for key, value in given.items() if value is not None}
    if creds is not None:
        config["creds"] = {MARKER: creds}
    options = pairs_of(s3_options, "--s3-option")
    with _there(ctx, name) as (server, bare):
        row = Storages(server).add(bare, kind, config, description=description, provision=provision, s3_options=options)
    made = "" if "bucketCreated" not in row else f"; bucket {'made' if row['bucketCreated'] else 'adopted'}"
    told(row, f"storage {bare} added  ({kind}){made}", as_json)


@storage.command("list")
@click.option("--deleted", is_flag=True, help="Also removed ones.")
@json_option
@server_options
@click.pass_context
def list_(ctx: click.Context, deleted: bool, as_json: bool) -> None:
    """List a namespace's storages."""
    with connect(ctx) as server:
        rows = Storages(server).all(deleted=deleted)
    Listing(
        rows,
        columns=("name", "kind", "bucket", "prefix", "endpoint", "changed", "description"),
        cells=_cells,
        right=("changed",),
        gives=("description", "endpoint", "prefix"),
        empty=f"no storages in namespace {server.namespace!r}",
        as_json=as_json,
    ).print()


@storage.command()
@name_argument
@json_option
@server_options
@click.pass_context
def show(ctx: click.Context, name: str, as_json: bool) -> None:
    """Show a storage's config as YAML; a secret by its name."""
    with _there(ctx, name) as (server, bare):
        row = Storages(server).show(bare)
    shown(row, SHOWN, as_json)


@storage.command()
@name_argument
@kwarg_option
@file_option("its config from now on, whole; without --kwarg")
@click.option("--description", metavar="<text>", help="What it is for.")
@json_option
@server_options
@click.pass_context
def update(
    ctx: click.Context, name: str, pairs: tuple[str, ...], file: str | None, description: str | None, as_json: bool
) -> None:
    """Change a storage; its bucket, prefix and endpoint stay."""
    change = change_of(file, pairs, needed=description is None)

    def changed(row: dict[str, Any]) -> dict[str, Any]:
        said = {} if change is None else {"config": change(row.get("config") or {})}
        return said if description is None else {**said, "description": description}

    with _there(ctx, name) as (server, bare):
        row = Storages(server).change(bare, changed)
    told(row, f"storage {bare} changed", as_json)


@storage.command()
@name_argument
@click.option("--purge", is_flag=True, help="Delete its bucket, too; it must be empty.")
@json_option
@server_options
@click.pass_context
def remove(ctx: click.Context, name: str, purge: bool, as_json: bool) -> None:
    """Forget a storage. Its bucket stays, but for --purge, and one with objects stays in any case."""
    with _there(ctx, name) as (server, bare):
        row = Storages(server).remove(bare, purge=purge)
    if not purge or as_json:
        removed(bare, as_json)
    else:
        bucket = row.get("bucket")
        click.echo(plain(f"{bare} removed; bucket {bucket} {'deleted' if row.get('bucketDeleted') else 'was gone'}"))


@storage.command()
@name_argument
@click.argument("key", metavar="<key>")
@click.option("--put", is_flag=True, help="For an upload.")
@click.option("--expires-in", type=Whole(1), metavar="<s>", help="How long it is good (3600; a day at most).")
@json_option
@server_options
@click.pass_context
def presign(ctx: click.Context, name: str, key: str, put: bool, expires_in: int | None, as_json: bool) -> None:
    """Print a URL that gets, or puts, one object."""
    seconds = None if expires_in is None else min(expires_in, DAY_S)
    with _there(ctx, name) as (server, bare):
        row = Storages(server).presign(bare, key, put=put, expires_in=seconds)
    if as_json:
        print_json(row)
    else:
        click.echo(row.get("url"))


@storage.command()
@name_argument
@click.option("--env", "as_env", is_flag=True, help="Print `export AWS_…` lines, for eval.")
@click.option(
    "--duration", type=Whole(SHORTEST_S, LONGEST_S), metavar="<s>", help="How long they last (3600; 900 to 129600)."
)
@json_option
@server_options
@click.pass_context
def credentials(ctx: click.Context, name: str, as_env: bool, duration: int | None, as_json: bool) -> None:
    """Print keys that end by themselves."""
    with _there(ctx, name) as (server, bare):
        row = Storages(server).credentials(bare, duration_s=duration)
    if as_json:
        print_json(row)
        return
    variables = {
        "AWS_ACCESS_KEY_ID": row.get("accessKeyId"),
        "AWS_SECRET_ACCESS_KEY": row.get("secretAccessKey") if as_env else "…",
        "AWS_SESSION_TOKEN": row.get("sessionToken") if as_env else "…",
        "AWS_REGION": row.get("region"),
    }
    if row.get("endpoint"):
        variables["AWS_ENDPOINT_URL_S3"] = row["endpoint"]
    for variable, value in variables.items():
        said = str(value or "")
        click.echo(f"export {variable}={shlex.quote(said)}" if as_env else f"{variable:<23}{plain(said) or '—'}")
    if not as_env:
        click.echo(f"{'ends':<23}{plain(str(row.get('expiration') or '—'))}")


def _cells(row: dict[str, Any], now: datetime) -> tuple[str, ...]:
    said = (str(row.get(key) or "—") for key in ("name", "kind", "bucket", "prefix", "endpoint"))
    return (*said, age(row.get("updatedAt"), now), str(row.get("description") or "—"))
