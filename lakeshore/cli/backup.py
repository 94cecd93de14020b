"""`lakeshore backup` and `lakeshore restore`: on the server's machine, on its state directory, while it runs or not."""

from __future__ import annotations

import os
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import click

from .failures import Failure
from .output import print_json

if TYPE_CHECKING:
    from lakeshore.server.backup import Copied

PLACE = click.Path(path_type=Path)
state_option = click.option(
    "--state-dir", type=PLACE, metavar="<dir>", help="The server's (LAKESHORE_STATE_DIR, else the default one)."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print what the copy holds as JSON.")


@click.command()
@click.argument("target", metavar="<dest>", type=PLACE)
@state_option
@json_option
def backup(target: Path, state_dir: Path | None, as_json: bool) -> None:
    """Copy a server's state to <dest>, a new directory, while it runs; checked before it appears."""
    copies = _copies()
    source = _directory(state_dir)
    try:
        done = copies.backup(source, target.expanduser().absolute())
    except copies.BackupError as error:
        raise Failure(str(error)) from error
    _tell(f"{source} is in {target}", done, as_json)


@click.command()
@click.argument("source", metavar="<src>", type=PLACE)
@state_option
@json_option
def restore(source: Path, state_dir: Path | None, as_json: bool) -> None:
    """Make a state directory of a backup; it must not exist yet, or be empty."""
    copies = _copies()
    target = _directory(state_dir)
    try:
        done = copies.restore(source.expanduser().absolute(), target)
    except copies.BackupError as error:
        raise Failure(str(error)) from error
    _tell(f"{source} is in {target}; `lakeshore serve --state-dir {target}` serves it", done, as_json)


def _copies() -> ModuleType:
    try:
        from lakeshore.server import backup as copies  # wall: the server's part, for these commands alone
    except ModuleNotFoundError as error:
        raise Failure(f"this installation has no server ({error})", hint="pip install 'lakeshore[server]'") from error
    return copies


def _directory(given: Path | None) -> Path:
    from lakeshore.server.here import default_directory  # wall: as above

    return (given.expanduser() if given is not None else default_directory(os.environ)).absolute()


def _tell(what: str, done: Copied, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "beganAt": done.began_at,
                "invocations": done.invocations,
                "frames": done.frames,
                "payloads": done.payloads,
                "bytes": done.bytes,
            }
        )
    else:
        click.echo(what)
        click.echo(
            f"checked: {done.invocations:,} invocations, {done.frames:,} frames, {done.payloads:,} payloads, "
            f"{done.bytes / 2**20:,.1f} MiB"
        )
