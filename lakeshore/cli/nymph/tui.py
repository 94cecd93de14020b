"""`lakeshore nymph tui`: where the status page is, and whether there is a terminal to show it on.

The address is `--url`, else what the daemon's configuration says, else the default. A configuration that cannot be read
is a line on the screen, never an end. Reference: nymph/status-tui.md, "Flags"; N-308…N-310.
"""

from __future__ import annotations

import os

import click

from lakeshore.config.errors import ConfigError
from lakeshore.net.target import parse_target

from ..exits import ExitCode
from ..numbers import Seconds
from ..whole_screen import need_terminal, textual

LEAST_S = 0.1
USUAL_S = 2.0
USUAL_URL = "http://127.0.0.1:9876"


@click.command("tui")
@click.option("--url", metavar="<url>", help="The daemon's status page; the default is what its configuration says.")
@click.option(
    "--config", type=click.Path(), metavar="<path>", help="The daemon's configuration file (LAKESHORED_CONFIG)."
)
@click.option(
    "--interval",
    type=Seconds(max=86_400),
    default=USUAL_S,
    metavar="<seconds>",
    help=f"Look again every so many seconds; at least {LEAST_S:g}.  [{USUAL_S:g}]",
)
@click.pass_context
def tui(ctx: click.Context, url: str | None, config: str | None, interval: float) -> int:
    """Watch the daemon of this host: its state and its log. Nothing is changed."""
    if config is None and ctx.parent is not None:
        config = ctx.parent.params.get("config")  # `lakeshore nymph --config <path> tui`
    hint = None
    if url is None:
        url, hint = derived(config)
    else:
        _check(url)
    need_terminal(f"`curl {url.rstrip('/')}/status` and `…/events` say the same, `lakeshore daemon status` says less")
    with textual():
        from lakeshore.tui.nymph_app import NymphApp  # wall: only a screen pays for Textual
    app = NymphApp(url, interval=max(interval, LEAST_S), hint=hint)
    app.run()
    return app.return_code or ExitCode.OK


def derived(config: str | None) -> tuple[str, str | None]:
    """(address, what to say while nobody answers there) by the daemon's configuration."""
    from lakeshore.nymph import lookup  # wall: only this command and the daemon read its file

    try:
        path = lookup.find_file(config, os.environ)
        section = lookup.read_file(path).introspect
    except ConfigError as error:
        return USUAL_URL, f"{error}; so this is the usual address, and --url names another"
    if section.port == 0:
        return USUAL_URL, f"{path}: introspect.port is 0: the daemon's log names the one it has, for --url"
    url = f"http://{f'[{section.bind}]' if ':' in section.bind else section.bind}:{section.port}"
    try:
        _check(url)
    except click.UsageError as error:
        return USUAL_URL, f"{path}: introspect.bind: {error.message}"
    if not section.enabled:
        return url, f"[introspect] enabled = true in {path or 'udf-daemon.toml'} switches the status page on"
    return url, section.refusal()


def _check(url: str) -> None:
    try:
        target = parse_target(url)
    except ValueError as error:
        raise click.UsageError(f"--url: {error}") from None
    if target.tls:
        raise click.UsageError("--url: a status page speaks plain HTTP: write it as http://127.0.0.1:9876")
