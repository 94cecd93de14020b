"""`lakeshore nymph push|list`: releases of the daemon's file on the control plane.

Rule: what is pushed is our own one file (a zip with our program in it), which runs anywhere; so its target is `any`,
whatever `--target` says is kept as it was said. `--json` has `url` (a path), `full_url`, `sha256`.
Reference: cli/examples/secrets-modes-tunnels-config-nymph.md, "nymph".
"""

from __future__ import annotations

import hashlib
import os
from datetime import datetime
from typing import Any

import click

from lakeshore.client.releases import Releases
from lakeshore.client.workers import Workers

from ..daemon.named import find
from ..exits import ExitCode
from ..failures import Failure
from ..listing import Listing, json_option
from ..named import Named
from ..output import age, plain, print_json, say
from ..server import connect_admin, namespace_option, url_option

ANY = "any"
SHOWN = 12
token_option = click.option("--admin-token", metavar="<token>", help="Better in LAKESHORE_ADMIN_TOKEN.")


@click.command()
@click.argument("file", metavar="<file>", type=click.Path(dir_okay=False))
@click.option("--target", default=ANY, show_default=True, metavar="<triple>", help="What it runs on.")
@click.option("--name", "label", metavar="<label>", help="What it is listed as (default: nymph).")
@token_option
@click.option(
    "--update", "daemons", multiple=True, metavar="<daemon>", type=Named("daemons"), help="Let it install this."
)
@json_option
@namespace_option
@url_option
@click.pass_context
def push(
    ctx: click.Context,
    file: str,
    target: str,
    label: str | None,
    admin_token: str | None,
    daemons: tuple[str, ...],
    as_json: bool,
    namespace: str | None,
    url: str | None,
) -> None:
    """Upload a daemon's file, for daemons to update themselves from."""
    try:
        opened = open(file, "rb")  # noqa: SIM115  (the upload is in its `with`)
    except OSError as error:
        raise Failure(f"cannot read {file}: {error.strerror}", code=ExitCode.USAGE) from error
    with opened, connect_admin(ctx, url, namespace, token=admin_token) as server:
        size, sha256 = os.fstat(opened.fileno()).st_size, hashlib.file_digest(opened, "sha256").hexdigest()
        opened.seek(0)
        row = Releases(server).upload(opened, size=size, sha256=sha256, target=target, label=label)
        full = str(row.get("full_url") or server.url + str(row.get("url")))
        workers = Workers(server)
        for one in [find(workers, name) for name in daemons]:
            workers.update(one.id, url=full, sha256=sha256)
            say(f"queued for {one.label}: {sha256[:SHOWN]}…")
    if as_json:
        print_json({**row, "full_url": full})
        return
    click.echo(
        f"✓ uploaded {plain(row.get('label'))} ({_megabytes(size)})\n"
        f"  sha256: {plain(row.get('sha256'))}\n"
        f"  label:  {plain(row.get('label'))}\n"
        f"  target: {plain(row.get('target'))}\n"
        f"  url:    {plain(row.get('url'))}\n"
        f"  full:   {plain(full)}"
    )


@click.command("list")
@json_option
@token_option
@url_option
@click.pass_context
def list_(ctx: click.Context, as_json: bool, admin_token: str | None, url: str | None) -> None:
    """List the releases on the control plane, newest first."""
    with connect_admin(ctx, url, token=admin_token) as server:
        rows = Releases(server).all()
    Listing(
        rows,
        columns=("sha256", "label", "version", "target", "size", "created"),
        cells=_cells,
        right=("size", "created"),
        gives=("label", "version", "target"),
        empty="no releases; `lakeshore nymph push <file>` uploads one",
        as_json=as_json,
    ).print()


def _cells(row: dict[str, Any], now: datetime) -> tuple[str, ...]:
    size = row.get("bytes")
    return (
        str(row.get("sha256")),
        str(row.get("label") or "—"),
        str(row.get("version") or "—"),
        str(row.get("target") or ANY),
        _megabytes(size) if isinstance(size, int) else "—",
        age(row.get("createdAt"), now),
    )


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.1f} MB"
