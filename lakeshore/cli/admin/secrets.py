"""`lakeshore admin secrets rekey`: every secret of the server under another key.

Rule: a key goes in by a file or by stdin, never by an argument, and none is shown.
Reference: api/auth-and-secrets, "Encryption at rest"; C-1458.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from lakeshore.client.providers import Rekeying
from lakeshore.client.rounds import Rounds

from ..exits import ExitCode
from ..failures import Failure
from ..groups import Group
from ..listing import json_option
from ..output import plain, print_json, say
from ..server import connect_admin, url_option

LARGEST = 1024


@click.group(cls=Group)
def secrets() -> None:
    """The key that every secret of the server is sealed with."""


@secrets.command()
@click.option(
    "--new-key",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True),
    metavar="<path>",
    help="32 bytes in base64 (-: stdin). Needed where the server has SECRETS_KEY; else one is made.",
)
@json_option
@url_option
@click.pass_context
def rekey(ctx: click.Context, new_key: str | None, as_json: bool, url: str | None) -> int:
    """Seal every secret anew, under another key. Interrupted, it goes on when it is typed again without a key."""
    key = None if new_key is None else _key(new_key)
    with connect_admin(ctx, url) as server:
        rekeying, rounds, resealed = Rekeying(server), Rounds("sealing anew"), 0
        while True:
            answer = rekeying.some(key)
            resealed += int(answer.get("resealed", 0))
            if not answer.get("left"):
                break
            rounds.left(answer["left"])
            say(f"{resealed:,} of {answer.get('total', 0):,} secrets so far")
    if as_json:
        print_json({**answer, "resealed": resealed})
    else:
        click.echo(f"{resealed:,} of {answer.get('total', 0):,} secrets sealed anew, under key {plain(answer['key'])}")
    return _told(answer)


def _told(answer: dict[str, Any]) -> int:
    """Say what is left to do; the exit code."""
    for row in answer.get("failed", ()):
        say(f"{row.get('namespace')}/{row.get('name')} does not open: {row.get('error')}")
    if not answer.get("done"):
        hint = "`lakeshore secrets rotate` or `remove` each of them, then rekey again; both keys stay in use until then"
        raise Failure("the old key still seals secrets that do not open", hint=hint)
    if answer.get("setSecretsKey"):
        say("now start the server with SECRETS_KEY set to the new key; until then the state directory keeps it as well")
    return ExitCode.OK


def _key(path: str) -> str:
    try:
        data = sys.stdin.buffer.read(LARGEST) if path == "-" else Path(path).read_bytes()[:LARGEST]
        return data.decode("ascii").strip()
    except OSError as error:
        raise Failure(f"cannot read {path}: {error.strerror or error}") from error
    except UnicodeDecodeError:
        raise Failure(
            f"{path} is no key: it is not base64", hint="openssl rand -base64 32 makes one", code=ExitCode.USAGE
        ) from None
