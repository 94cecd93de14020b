"""`lakeshore tui`, also `dashboard` and `top`: whether there is a terminal and a server, and the screen.

Both are looked at before anything is drawn. Reference: cli/tui.md, "Flags"; C-386…C-391.
"""

from __future__ import annotations

import gc
import os
import sys

import click

from .exits import ExitCode
from .failures import Failure
from .numbers import Seconds
from .output import say
from .server import chosen, server_options
from .whole_screen import need_terminal, textual

LEAST_S = 1.0
USUAL_S = 4.0
SWITCH_S = 0.0005
"""How long a thread that reads rows may hold up one that reads keys."""
OTHERWISE = (
    "`lakeshore daemon list`, `lakeshore queues ls`, `lakeshore jobs list` and `lakeshore storage list` say the same"
)


@click.command("tui")
@click.option(
    "--interval",
    type=Seconds(max=86_400),
    default=USUAL_S,
    metavar="<seconds>",
    help=f"Read the tab that is seen again every so many seconds; at least {LEAST_S:g}.  [{USUAL_S:g}]",
)
@click.option(
    "--tab",
    default="workers",
    metavar="<name>",
    help="Begin with workers, queues, invocations or storage.  [workers]",
)
@server_options
@click.pass_context
def tui(ctx: click.Context, interval: float, tab: str) -> int:
    """Watch workers, queues, invocations and storage on the whole terminal, and act on them."""
    need_terminal(OTHERWISE)
    choice = chosen(ctx)
    os.environ.setdefault("TEXTUAL_FPS", "120")  # a key waits for the next picture
    sys.setswitchinterval(SWITCH_S)
    gc.disable()  # until the first picture: `lakeshore.tui.garbage`
    with textual():
        from lakeshore.tui.dashboard.app import Dashboard  # wall: only a screen pays for Textual
        from lakeshore.tui.dashboard.server import Server  # wall: as above
        from lakeshore.tui.dashboard.tabs import NAMES  # wall: as above
    told = None
    if tab not in NAMES:
        told = f"--tab {tab}: there is no such tab, so this is {NAMES[0]}; there are {', '.join(NAMES)}"
        say(f"warning: {told}")
    try:
        server = Server(url=choice.url, namespace=choice.namespace, token=choice.token)
    except ValueError as error:
        raise Failure(str(error), code=ExitCode.USAGE) from error
    app = Dashboard(server, interval=interval, tab=tab if told is None else NAMES[0], told=told)
    app.run()
    return app.return_code or ExitCode.OK
