"""`lakeshore secrets`: values that the server keeps sealed, for providers to refer to.

Rule: a value goes in by a file or by stdin, never by an argument, and no command shows it.
Reference: api/auth-and-secrets, "Secrets"; C-128…C-136, C-1441.
"""

from __future__ import annotations

import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from lakeshore.client.errors import ApiError
from lakeshore.client.providers import Secrets

from .entries import removed
from .exits import ExitCode
from .failures import Failure
from .groups import Group
from .listing import Listing, facts, json_option
from .named import Named
from .output import age, plain, print_json
from .server import connect, server_options

KINDS = ("ssh_key", "aws_keypair", "gcp_sa_json", "opaque")
LARGEST = 64 * 1024
file_option = click.option(
    "--from-file",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True),
    metavar="<path>",
    help="The value (default: what is piped in; - is that, too).",
)


@click.group(cls=Group, aliases={"ls": "list", "rm": "remove", "delete": "remove"})
def secrets() -> None:
    """Values that the server keeps sealed, for providers to refer to."""


@secrets.command()
@click.argument("name", metavar="<name>")
@click.option("--kind", required=True, type=click.Choice(KINDS), help="How who uses it reads it.")
@file_option
@click.option("--description", metavar="<text>", help="What it is for.")
@json_option
@server_options
@click.pass_context
def add(
    ctx: click.Context, name: str, kind: str, from_file: str | None, description: str | None, as_json: bool
) -> None:
    """Keep a value under a new name."""
    value = _value(from_file)
    with connect(ctx) as server:
        row = Secrets(server).add(name, kind, value, description=description)
    _done(row, "created", row.get("createdAt"), as_json)


@secrets.command()
@click.argument("name", metavar="<name>", type=Named("secrets"))
@file_option
@json_option
@server_options
@click.pass_context
def rotate(ctx: click.Context, name: str, from_file: str | None, as_json: bool) -> None:
    """Put another value in the place of a known one."""
    value = _value(from_file)
    with connect(ctx) as server:
        row = Secrets(server).rotate(name, value)
    _done(row, "rotated", row.get("updatedAt"), as_json)


@secrets.command("list")
@json_option
@server_options
@click.pass_context
def list_(ctx: click.Context, as_json: bool) -> None:
    """List what is kept, without the values."""
    with connect(ctx) as server:
        rows = Secrets(server).all()
    Listing(
        rows,
        columns=("name", "kind", "changed", "description"),
        cells=_cells,
        right=("changed",),
        gives="description",
        empty=f"no secrets in namespace {server.namespace!r}",
        as_json=as_json,
    ).print()


@secrets.command()
@click.argument("name", metavar="<name>", type=Named("secrets"))
@json_option
@server_options
@click.pass_context
def show(ctx: click.Context, name: str, as_json: bool) -> None:
    """Show what is known of one; its value is not shown."""
    with connect(ctx) as server:
        row = Secrets(server).show(name)
    if as_json:
        print_json(row)
        return
    shown = ("name", "kind", "description", "createdAt", "updatedAt")
    click.echo("\n".join(facts((f"{key}:", row.get(key)) for key in shown)))


@secrets.command()
@click.argument("name", metavar="<name>", type=Named("secrets"))
@json_option
@server_options
@click.pass_context
def remove(ctx: click.Context, name: str, as_json: bool) -> None:
    """Forget a value. What refers to it fails when it is used next."""
    with connect(ctx) as server:
        Secrets(server).remove(name)
    removed(name, as_json)


def _cells(row: dict[str, Any], now: datetime) -> tuple[str, ...]:
    said = str(row.get("description") or "—")
    return (str(row.get("name")), str(row.get("kind")), age(row.get("updatedAt"), now), said)


def text_of(data: bytes, what: str) -> str:
    """A value as it is sent. Failure for none, too much, or no text."""
    if not data:
        raise Failure(f"{what} is empty", code=ExitCode.USAGE)
    if len(data) > LARGEST:
        raise Failure(f"{what} is larger than {LARGEST // 1024} KiB", code=ExitCode.USAGE)
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise Failure(f"{what} is no text", hint="base64 it first", code=ExitCode.USAGE) from None


def keep_secret(ours: Secrets, name: str, kind: str, text: str, *, says: str, otherwise: str) -> None:
    """Keep a value under a name: a new one, or another value of one of this kind. Failure for a name of another kind,
    which `otherwise` says what to do about.
    """
    try:
        ours.add(name, kind, text, description=says)
    except ApiError as error:
        if error.status != 409:
            raise
        if ours.show(name).get("kind") != kind:
            raise Failure(f"secret {name} is no {kind}", hint=otherwise) from error
        ours.rotate(name, text)


def _value(from_file: str | None) -> str:
    if from_file in (None, "-"):
        if sys.stdin is None or sys.stdin.isatty():
            raise Failure("use --from-file <path> or pipe plaintext via stdin", code=ExitCode.USAGE)
        return text_of(sys.stdin.buffer.read(LARGEST + 1), "what was piped in")
    path = Path(str(from_file))
    try:
        with path.open("rb") as file:
            return text_of(file.read(LARGEST + 1), str(path))
    except OSError as error:
        raise Failure(f"cannot read {path}: {error.strerror or error}") from error


def _done(row: dict[str, Any], what: str, at: object, as_json: bool) -> None:
    if as_json:
        print_json(row)
    else:
        click.echo(f'ok  secret "{plain(row.get("name"))}" {what}  ({plain(row.get("kind"))})  {plain(at)}')
