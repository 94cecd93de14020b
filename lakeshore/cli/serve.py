"""`lakeshore serve`: the control plane in this process. What it promises is stated in `lakeshore.server.serve`."""

from __future__ import annotations

import logging
import os
import sys
from functools import partial
from pathlib import Path

import click

from .exits import ExitCode
from .failures import Failure
from .numbers import Bytes, Days, Seconds, Whole
from .output import print_json

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
PLACE = click.Path(path_type=Path)


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, metavar="<address>", help="Address to listen on.")
@click.option("--port", type=Whole(0, 65535), metavar="<n>", help="PORT, else 8080; 0: any free one.")
@click.option("--state-dir", type=PLACE, metavar="<dir>", help="Where everything is kept (LAKESHORE_STATE_DIR).")
@click.option("--tls-cert", type=FILE, metavar="<pem>", help="Serve HTTPS with this certificate.")
@click.option("--tls-key", type=FILE, metavar="<pem>", help="Its private key, where the certificate's file has none.")
@click.option("--open", "is_open", is_flag=True, help="Without an admin token, also for other users or addresses.")
@click.option(
    "--cors-origin", "origins", multiple=True, metavar="<origin>", help="A web page that may call; repeatable."
)
@click.option(
    "--lease-s",
    type=Seconds(),
    default=60.0,
    show_default=True,
    metavar="<s>",
    help="Silence after which a worker is lost.",
)
@click.option(
    "--durability",
    type=click.Choice(("power", "process")),
    default="power",
    show_default=True,
    help="What a submit survives.",
)
@click.option(
    "--keep-days",
    type=Days(min=7),
    default=30.0,
    show_default=True,
    metavar="<n>",
    help="Invocations that ended earlier are forgotten.",
)
@click.option(
    "--keep-bytes",
    type=Bytes(),
    metavar="<size>",
    help="And the oldest of those that ended a week ago, while the state is larger (50G).",
)
@click.option("--ready-file", type=PLACE, metavar="<path>", help="Gets the URL once the server answers.")
@click.option("--json", "as_json", is_flag=True, help="Print {url, pid} on stdout once the server answers.")
def serve(
    host: str,
    port: int | None,
    state_dir: Path | None,
    tls_cert: Path | None,
    tls_key: Path | None,
    is_open: bool,
    origins: tuple[str, ...],
    lease_s: float,
    durability: str,
    keep_days: float,
    keep_bytes: int | None,
    ready_file: Path | None,
    as_json: bool,
) -> int:
    """Run the control plane until SIGTERM or Ctrl-C."""
    try:
        import trio  # wall: only the server runs on it

        from lakeshore.server import serve as server  # wall: a command that asks a server does not load one
    except ModuleNotFoundError as error:
        raise Failure(f"this installation has no server ({error})", hint="pip install 'lakeshore[server]'") from error

    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        options = server.ServeOptions(
            host=host,
            port=server.port_from(os.environ) if port is None else port,
            state_dir=state_dir,
            tls_cert=tls_cert,
            tls_key=tls_key,
            open=is_open,
            cors_origins=origins,
            lease_s=lease_s,
            durability="process" if durability == "process" else "power",
            keep_days=keep_days,
            keep_bytes=keep_bytes,
            ready_file=ready_file,
        )
        trio.run(partial(server.serve, options, ready=_told if as_json else None))
    except server.ServeError as error:
        raise Failure(_plain(error)) from error
    return ExitCode.OK


def _plain(error: Exception) -> str:
    """The sentence, without the number that an OSError puts in front of its own."""
    cause = error.__cause__
    return cause.strerror if isinstance(cause, OSError) and cause.strerror else str(error)


def _told(url: str) -> None:
    print_json({"url": url, "pid": os.getpid()})
    sys.stdout.flush()
