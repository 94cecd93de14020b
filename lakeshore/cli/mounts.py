"""`lakeshore mounts`: file systems that are to be in a job's directory. They are kept; nothing mounts them yet.

Reference: get-started/mounts.md; cli/examples/storage-code-mounts.md; C-150…C-156.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import click

from lakeshore.client.entries import Entries

from .entries import KEPT_ONLY, change_of, config_of, file_option, kwarg_option, named_secrets, removed, shown, told
from .groups import Group
from .listing import Listing, json_option
from .named import Named
from .output import age, say
from .server import connect, server_options

TARGETS = {  # kind -> the fields that say where it leads
    "nfs": ("server", "path"),
    "samba": ("server", "share"),
    "ftp": ("server", "path"),
    "sftp": ("server", "path"),
    "s3": ("bucket", "prefix"),
    "s3fs": ("bucket", "prefix"),
    "google_drive": ("folderId",),
    "dropbox": ("path",),
    "bind": ("hostPath",),
    "configmap": ("kubeNamespace", "name"),
}


class _Kind(click.Choice[str]):
    """One of the ten; who wants git is told what sends a working tree."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value == "git":
            self.fail("'git' is none of the ten kinds; `lakeshore code push` sends a working tree", param, ctx)
        return super().convert(value, param, ctx)


@click.group(cls=Group, aliases={"ls": "list", "rm": "remove", "delete": "remove"})
def mounts() -> None:
    """File systems for jobs: add, see, change, remove them."""


@mounts.command()
@click.argument("name", metavar="<name>")
@click.option("--kind", required=True, type=_Kind(tuple(TARGETS)), metavar="<kind>", help=f"{', '.join(TARGETS)}.")
@kwarg_option
@file_option("its config; --kwarg goes over it")
@json_option
@server_options
@click.pass_context
def add(ctx: click.Context, name: str, kind: str, pairs: tuple[str, ...], file: str | None, as_json: bool) -> None:
    """Add a mount. `--kwarg creds.$secret=<name>` refers to a secret."""
    config = config_of(file, pairs)
    with connect(ctx) as server, named_secrets("opaque"):
        row = Entries(server, "mounts").add(name, kind, config)
    told(row, f"mount {name} added  ({kind})", as_json)
    say(KEPT_ONLY)


@mounts.command()
@click.argument("name", metavar="<name>", type=Named("mounts"))
@kwarg_option
@file_option("its config from now on, whole; without --kwarg")
@json_option
@server_options
@click.pass_context
def update(ctx: click.Context, name: str, pairs: tuple[str, ...], file: str | None, as_json: bool) -> None:
    """Change a mount's config, field by field or all of it."""
    change = change_of(file, pairs)
    assert change is not None
    with connect(ctx) as server, named_secrets("opaque"):
        row = Entries(server, "mounts").change(name, lambda before: change(before.get("config") or {}))
    told(row, f"mount {name} changed", as_json)


@mounts.command("list")
@json_option
@server_options
@click.pass_context
def list_(ctx: click.Context, as_json: bool) -> None:
    """List a namespace's mounts."""
    with connect(ctx) as server:
        rows = Entries(server, "mounts").all()
    Listing(
        rows,
        columns=("name", "kind", "target", "changed"),
        cells=_cells,
        right=("changed",),
        gives="target",
        empty=f"no mounts in namespace {server.namespace!r}",
        as_json=as_json,
    ).print()


@mounts.command()
@click.argument("name", metavar="<name>", type=Named("mounts"))
@json_option
@server_options
@click.pass_context
def show(ctx: click.Context, name: str, as_json: bool) -> None:
    """Show a mount's config as YAML; a secret by its name."""
    with connect(ctx) as server:
        row = Entries(server, "mounts").show(name)
    shown(row, ("name", "kind", "config"), as_json)


@mounts.command()
@click.argument("name", metavar="<name>", type=Named("mounts"))
@json_option
@server_options
@click.pass_context
def remove(ctx: click.Context, name: str, as_json: bool) -> None:
    """Forget a mount. What it leads to stays as it is."""
    with connect(ctx) as server:
        Entries(server, "mounts").remove(name)
    removed(name, as_json)


def _cells(row: dict[str, Any], now: datetime) -> tuple[str, ...]:
    config, kind = row.get("config") or {}, str(row.get("kind"))
    said = [config[key] for key in TARGETS.get(kind, ()) if isinstance(config.get(key), str)]
    return str(row.get("name")), kind, ":".join(said) or "—", age(row.get("updatedAt"), now)
