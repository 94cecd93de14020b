"""`lakeshore daemon status|stop`: the daemon of this machine, by the record that it keeps of itself.

Rules: they ask no server. `stop` signals the very process of the record, never a later one of the same number. `status`
exits 1 where none runs; `stop` exits 0 then, for it is what was wanted.
Reference: cli/examples/daemons-and-exec.md, "the local daemon record".
"""

from __future__ import annotations

import os
import select
import signal
import time
from datetime import UTC, datetime

import click

from lakeshore.nymph.local_record import Local, place, read

from ..exits import ExitCode
from ..failures import Failure
from ..listing import json_option
from ..numbers import Seconds
from ..output import local_time, plain, print_json, say

LOOK_S = 0.05


@click.command()
@json_option
def status(as_json: bool) -> int:
    """Say whether a daemon runs on this machine."""
    local = _recorded()
    if as_json:
        known = {} if local is None else {"worker_id": local.worker_id, "server": local.server}
        print_json({"running": local is not None, "pid": None if local is None else local.pid, **known})
    elif local is None:
        say(f"no daemon of this user runs on this machine (by {place()})")
    else:
        since = datetime.fromtimestamp(local.started_at, UTC)
        click.echo(
            f"running     process {local.pid}\nworker      {plain(local.worker_id or '—')}\n"
            f"server      {plain(local.server)}\nstarted     {local_time(since.isoformat(), datetime.now(UTC))}"
        )
    return ExitCode.FAILED if local is None else ExitCode.OK


@click.command()
@click.option(
    "--timeout", type=Seconds(min=0), default=30.0, show_default=True, metavar="<s>", help="How long to wait for it."
)
@click.option("--force", is_flag=True, help="Kill it at once: it does not end its jobs first.")
@json_option
def stop(timeout: float, force: bool, as_json: bool) -> int:
    """Stop the daemon of this machine: it ends its jobs, says goodbye and exits."""
    local = _recorded()
    if local is None:
        if as_json:
            print_json({"stopped": False, "pid": None})
        else:
            say(f"no daemon of this user runs on this machine (by {place()})")
        return ExitCode.OK
    if not _ended(local, signal.SIGKILL if force else signal.SIGTERM, timeout):
        raise Failure(
            f"process {local.pid} has not ended within {timeout:g} s",
            hint="wait longer with --timeout, or kill it with --force",
        )
    if as_json:
        print_json({"stopped": True, "pid": local.pid})
    else:
        click.echo(f"stopped process {local.pid}")
    return ExitCode.OK


def _recorded() -> Local | None:
    """The record of a daemon that runs."""
    try:
        local = read()
    except OSError as error:
        raise Failure(f"cannot read {place()}: {error.strerror}") from error
    return local if local is not None and local.lives() else None


def _ended(local: Local, how: signal.Signals, timeout: float) -> bool:
    """Signal that process; whether it has ended within `timeout` seconds. Failure where we may not."""
    handle: int | None = None
    try:
        # A process that is held by a descriptor keeps its number: looked at again, it is the one of the record.
        handle = os.pidfd_open(local.pid) if hasattr(os, "pidfd_open") else None
        if not local.lives():
            return True
        if handle is None:
            os.kill(local.pid, how)
        else:
            signal.pidfd_send_signal(handle, how)
    except ProcessLookupError:
        return True
    except PermissionError as error:
        raise Failure(f"process {local.pid} is another user's", hint="stop it as that user") from error
    else:
        return _gone(local, handle, timeout)
    finally:
        if handle is not None:
            os.close(handle)


def _gone(local: Local, handle: int | None, timeout: float) -> bool:
    if handle is not None:
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        return bool(poll.poll(timeout * 1000))
    until = time.monotonic() + timeout
    while local.lives():
        if time.monotonic() >= until:
            return False
        time.sleep(LOOK_S)
    return True
