"""From a command that was started on a daemon to the exit status of ours: its output as it comes, then how it ended.

Rules: what it writes on stdout and stderr goes to ours while it runs, as bytes; after a lost connection it goes on at
the byte where it was. With `--json` nothing is printed before the record, which holds 1 MiB of each. The exit status is
the command's own; -1 (it did not start, or was cancelled) and -2 (its time was over) are what a shell makes of them,
255 and 254. Ctrl-C leaves the command running and says how to follow and how to cancel it; a reader of ours that has
seen enough (`| head`) cancels it.
Reference: cli/examples/daemons-and-exec.md, "Exec and run"; nymph/protocol.md.
"""

from __future__ import annotations

import base64
import shlex
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, TypeVar

import click

from lakeshore.client.errors import ApiError
from lakeshore.client.execs import ENDS, LONGEST_WAIT_S, Asked, Execs
from lakeshore.net.backoff import chance, full_jitter
from lakeshore.net.errors import NetError, ProtocolViolation

from ..exits import ExitCode
from ..failures import Failure
from ..numbers import Seconds
from ..output import print_json, say
from ..pairs import pairs_of

F = TypeVar("F", bound=Callable[..., Any])
Row = dict[str, Any]
PASS_THROUGH = {"allow_interspersed_args": False}
"""Our options come first; from the first word on everything is the command's."""
RECORDED_BYTES = 1024 * 1024
"""Of each stream in a record; more of it may have been printed."""


def exec_options(command: F) -> F:
    """What `exec` and `daemon exec` share."""
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print the record when it has ended, as JSON."),
        wait_option,
        click.option(
            "--stdin",
            type=click.Path(allow_dash=True, dir_okay=False),
            metavar="<path|->",
            help="A file for its standard input; - is ours.",
        ),
        click.option("--workdir", metavar="<path>", help="Where it runs on the daemon's host."),
        env_option,
        timeout_option,
    ):
        command = option(command)
    return command


timeout_option = click.option(
    "--timeout", type=Seconds(min=0.001), metavar="<s>", help="Stop it after that time: TERM, and KILL 5 s later."
)
env_option = click.option(
    "--env", "pairs", multiple=True, metavar="K=V", help="On top of the daemon's environment; repeatable."
)
wait_option = click.option(
    "--wait",
    type=Seconds(min=0),
    default=600.0,
    show_default=True,
    metavar="<s>",
    help="How long this program waits. The command is not stopped.",
)


def asked_of(
    words: Iterable[str],
    *,
    pairs: Iterable[str],
    timeout: float | None,
    workdir: str | None,
    stdin: str | None,
    as_json: bool,
) -> Asked:
    """What is sent: one word is a command line as it is; several are quoted, so that each stays one word."""
    line = list(words)
    if line[:1] == ["--"]:
        line = line[1:]
    if not line or not any(line):
        raise click.UsageError("missing the command that is to run")
    return Asked(
        command=line[0] if len(line) == 1 else shlex.join(line),
        env=pairs_of(pairs),
        workdir=workdir,
        stdin=None if stdin is None else bytes_of(stdin),
        timeout_s=timeout,
        log=not as_json,
    )


def bytes_of(path: str) -> bytes:
    """A file, or our own standard input for `-`. Failure (exit 2) when it cannot be read."""
    try:
        if path == "-":
            return sys.stdin.buffer.read()
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise Failure(f"cannot read {path}: {error.strerror}", code=ExitCode.USAGE) from error


def started(send: Callable[[], Row]) -> str:
    """The id of the command that `send` starts. Failure where its answer was lost: a start is not sent twice."""
    try:
        return str(send()["exec_id"])
    except NetError as error:
        if not error.sent_anything:
            raise
        raise Failure(
            str(error), hint="whether the command was started is not known; `lakeshore daemon execs` lists what was"
        ) from error


def follow(execs: Execs, exec_id: str, *, wait: float, as_json: bool, flags: Iterable[str] = ()) -> int:
    """Follow a command to its end; the exit status. `flags` name the server, for what is said on Ctrl-C."""
    told = _Told(execs, exec_id, as_json=as_json)
    try:
        row = told.until(time.monotonic() + wait)
    except KeyboardInterrupt:
        say("\ninterrupted; the command goes on")
        _ways_on(exec_id, flags)
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        with suppress(ApiError):  # it has ended by itself
            execs.cancel(exec_id)
        raise
    if row is None:
        say(f"error: it has not ended within {wait:g} s, and goes on")
        _ways_on(exec_id, flags)
        return ExitCode.FAILED
    return told.ended(row)


def _ways_on(exec_id: str, flags: Iterable[str]) -> None:
    from ..started import started_as  # wall: only who is interrupted pays for it

    more = "".join(f" {shlex.quote(flag)}" for flag in flags)
    for what, verb in (("follow it", "follow"), ("cancel it", "cancel")):
        say(f"{what}:  {started_as()} daemon {verb} {exec_id}{more}")


class _Told:
    """What of a command's output has been printed."""

    def __init__(self, execs: Execs, exec_id: str, *, as_json: bool) -> None:
        self._execs, self._id, self._as_json = execs, exec_id, as_json
        self._position = 0
        self._printed = {"stdout": 0, "stderr": 0}
        self._whole = as_json
        """Whether there is no more output to come."""

    def until(self, deadline: float) -> Row | None:
        """Print what comes until it ends; its record, or None when `deadline` passes first."""
        waits = full_jitter(chance, base=0.1, cap=2.0)
        away = False
        while (left := deadline - time.monotonic()) > 0:
            try:
                row = self._next(min(LONGEST_WAIT_S, left))
            except ProtocolViolation:
                raise
            except NetError as error:
                if not away:
                    say(f"the server is away, asking again: {error}")
                away = True
                time.sleep(min(next(waits), left))
                continue
            if row.get("status") in ENDS:
                return row
        return None

    def _next(self, wait_s: float) -> Row:
        if not self._whole:
            answer = self._execs.log(self._id, offset=self._position, wait_s=wait_s)
            for part in answer["parts"]:
                self._print(part)
            self._position = int(answer["offset"])
            self._whole = bool(answer["end"])
            if not self._whole:
                return {}
        return self._execs.show(self._id, wait_s=wait_s)

    def _print(self, part: Row) -> None:
        missing = int(part["position"]) - self._position
        if missing > 0:
            say(f"note: {missing:,} bytes are not kept")
        data = base64.b64decode(part["bytes"])
        self._position = int(part["position"]) + len(data)
        self._printed[part["stream"]] += len(data)
        stream: Any = sys.stderr if part["stream"] == "stderr" else sys.stdout
        stream.flush()
        stream.buffer.write(data)  # as it is: who asks for a command's output wants it so
        stream.buffer.flush()

    def ended(self, row: Row) -> int:
        """Say how it ended, where that is not all in the output; the exit status."""
        if self._as_json:
            print_json(row)
        else:
            whole = [f"{name} truncated" for name, printed in self._printed.items() if printed > RECORDED_BYTES]
            reasons = [one for one in str(row.get("error") or "").split("; ") if one and one not in whole]
            if reasons:
                say(f"error: {'; '.join(reasons)}")
        code = row.get("exit_code")
        return (code if isinstance(code, int) else -1) & 0xFF
