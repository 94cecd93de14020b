"""`--watch [s]`: the same answer again and again, until Ctrl-C.

On a terminal it is drawn over the one before; elsewhere they follow each other. Where the server tells what changes, a
change is shown at once, and the seconds are for what time alone changes. A server that is away is told once, and asked
again.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from lakeshore.client.errors import ApiError
from lakeshore.net.errors import NetError, ProtocolViolation

from .numbers import Seconds
from .output import say

if TYPE_CHECKING:
    from lakeshore.client.api import ApiClient
    from lakeshore.client.following import Follower

F = TypeVar("F", bound=Callable[..., Any])
USUAL_S = 2.0
_HOME, _REST_OF_LINE, _REST_OF_SCREEN = "\x1b[H", "\x1b[K", "\x1b[J"


def watch_option(command: F) -> F:
    """`--watch`, bare or with seconds."""
    return click.option(
        "--watch",
        type=Seconds(0.1, 3600),
        is_flag=False,
        flag_value=USUAL_S,
        metavar="[<s>]",
        help=f"Look again at each change, and every so many seconds (bare: {USUAL_S:g}), until Ctrl-C.",
    )(command)


def shown(look: Callable[[], str], every: float | None, server: ApiClient, kind: str) -> None:
    """Print what `look` says; with `every` again after so many seconds, or when one of that kind changed, for ever."""
    if every is None:
        sys.stdout.write(look())
        return
    from lakeshore.client.following import Follower  # wall: most look once

    changes = Follower(server, (kind,))
    screen = sys.stdout.isatty()
    if screen:
        sys.stdout.write("\x1b[2J")
    away = False
    while True:
        try:
            text = look()
            away = False
        except ProtocolViolation:
            raise
        except NetError as error:
            if not away:
                say(f"the server is away, asking again: {error}")
            away = True
        else:
            lines = text.splitlines()
            sys.stdout.write(
                _HOME + "".join(f"{line}{_REST_OF_LINE}\n" for line in lines) + _REST_OF_SCREEN if screen else text
            )
            sys.stdout.flush()
        _rest(every, None if away else changes)


def _rest(seconds: float, changes: Follower | None) -> None:
    """Until something changed, or so long."""
    until = time.monotonic() + seconds
    try:
        while changes is not None and (left := until - time.monotonic()) > 0:
            if changes.wait(left):
                return
    except (ApiError, NetError):  # an older server, or one that is away: the next look says which
        pass
    time.sleep(max(0.0, until - time.monotonic()))
