"""`lakeshore jobs logs`: what an invocation's body printed, as the bytes that it wrote.

Both streams go to stdout, in the order in which they were printed; talk (an attempt begins, bytes were not kept, the
server is away) goes to stderr. `--follow` ends with the invocation, through all its attempts.
"""

from __future__ import annotations

import base64
import json
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import click

from lakeshore.client.api import ApiClient
from lakeshore.client.errors import ApiError
from lakeshore.client.steering import in_json
from lakeshore.net.backoff import chance, full_jitter
from lakeshore.net.errors import NetError, ProtocolViolation

from ..completing.kinds import STATES
from ..exits import ExitCode
from ..failures import Failure
from ..named import Named
from ..numbers import Whole
from ..output import print_json, say
from ..server import connect, server_options
from .ids import whole_id

WAIT_S = 20.0
LOOK_S = 0.5
ENDS = STATES[2:]


@click.command()
@click.argument("id_", metavar="<id>", type=Named("invocations"))
@click.option("--follow", "-f", is_flag=True, help="Go on until the invocation has ended.")
@click.option("--attempt", type=Whole(1), metavar="<n>", help="That attempt (default: the latest).")
@click.option("--stdout", "only_stdout", is_flag=True, help="Only what went to stdout.")
@click.option("--stderr", "only_stderr", is_flag=True, help="Only what went to stderr.")
@click.option("--tail", type=Whole(0), metavar="<n>", help="Begin with the last so many lines.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON; with --follow one object a line.")
@server_options
@click.pass_context
def logs(
    ctx: click.Context,
    id_: str,
    follow: bool,
    attempt: int | None,
    only_stdout: bool,
    only_stderr: bool,
    tail: int | None,
    as_json: bool,
) -> None:
    """Print what an invocation printed."""
    if only_stdout and only_stderr:
        raise Failure("--stdout and --stderr exclude each other", hint="leave both out for both", code=ExitCode.USAGE)
    stream = "stdout" if only_stdout else "stderr" if only_stderr else None
    with connect(ctx) as server:
        id_ = whole_id(server, id_)
        reader = _Reader(server, id_, attempt=attempt, stream=stream)
        if as_json and not follow:
            _as_json(reader, tail)
            return
        printer = _Printer(as_json=as_json)
        if tail is not None:
            printer.begins_anywhere = True
            for part in _last_lines([part for _answer, parts in reader.stored() for part in parts], tail):
                printer.print(part)
        for answer, parts in reader.followed(printer.attempt_begins) if follow else reader.stored():
            del answer
            for part in parts:
                printer.print(part)
        if not printer.printed and not as_json and not reader.position:
            say(f"{id_} has printed nothing{'' if follow or reader.state in ENDS else ' yet'}")


Parts = list[dict[str, Any]]


class _Reader:
    """Reads on from where it is; parts have their bytes decoded, as `data`."""

    def __init__(self, server: ApiClient, id_: str, *, attempt: int | None, stream: str | None) -> None:
        self._server, self._id, self._attempt, self._stream = server, id_, attempt, stream
        self._claim: int | None = None
        self.position = 0
        self.state = ""

    def stored(self) -> Iterator[tuple[dict[str, Any], Parts]]:
        """What there is now."""
        while True:
            answer, parts = self._next(0.0)
            yield answer, parts
            if not parts or answer["end"]:
                return

    def followed(self, attempt_begins: Callable[[int], None]) -> Iterator[tuple[dict[str, Any], Parts]]:
        """What there is and what comes, until nothing more can."""
        before: int | None = None
        while True:
            answer, parts = self._insist(lambda: self._next(WAIT_S))
            if before is not None and self._claim is not None:
                attempt_begins(int(answer["attempt"]))
                before = None
            yield answer, parts
            if not answer["end"]:
                continue
            if self._attempt is not None:
                return
            before = self._claim
            while True:  # between two attempts, or another is over as well: what was asked for was this one
                answer = self._insist(lambda: self._server.logs(self._id, stream=self._stream))
                self.state = str(answer["state"])
                if answer["claim"] not in (None, before) or (answer["claim"] is None and self.state == "running"):
                    break
                if self.state in ENDS:
                    return
                time.sleep(LOOK_S)
            self._claim, self.position = None, 0

    def _next(self, wait_s: float) -> tuple[dict[str, Any], Parts]:
        answer = self._server.logs(
            self._id,
            attempt=self._attempt,
            claim=self._claim,
            offset=self.position,
            stream=self._stream,
            wait_s=wait_s,
        )
        if answer["claim"] is not None:
            self._claim = answer["claim"]
        self.position, self.state = int(answer["offset"]), str(answer["state"])
        return answer, [{**part, "data": base64.b64decode(part["bytes"])} for part in answer["parts"]]

    def _insist(self, ask: Callable[[], Any]) -> Any:
        """Ask until there is an answer; a server that is away may come back."""
        waits = full_jitter(chance, base=0.1, cap=2.0)
        told = False
        while True:
            try:
                return ask()
            except ProtocolViolation:
                raise
            except (NetError, ApiError) as error:
                if isinstance(error, ApiError) and error.status not in (429, 502, 503):
                    raise
                if not told:
                    say(f"{error}; trying again")
                told = True
            time.sleep(next(waits))


class _Printer:
    """Writes parts to stdout, and says where some are missing."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._ends: dict[str, int] = {}
        self.begins_anywhere = False
        self.printed = False

    def attempt_begins(self, attempt: int) -> None:
        self._ends = {}
        self.begins_anywhere = False
        say(f"attempt {attempt}")

    def print(self, part: dict[str, Any]) -> None:
        missing = part["offset"] - self._ends.get(part["stream"], part["offset"] if self.begins_anywhere else 0)
        self._ends[part["stream"]] = part["offset"] + len(part["data"])
        self.printed = True
        if self._as_json:
            sys.stdout.write(in_json(json.dumps(_told(part), ensure_ascii=False)) + "\n")
            sys.stdout.flush()
            return
        if missing > 0:
            say(f"{missing:,} bytes of {part['stream']} were not kept")
        sys.stdout.flush()
        sys.stdout.buffer.write(part["data"])
        sys.stdout.buffer.flush()


def _as_json(reader: _Reader, tail: int | None) -> None:
    answer: dict[str, Any] = {}
    parts: Parts = []
    for page, found in reader.stored():
        answer = page
        parts += found
    if tail is not None:
        parts = _last_lines(parts, tail)
    head = {name: answer.get(name) for name in ("attempt", "attempts", "state")}
    print_json({**head, "parts": [_told(part) for part in parts]})


def _told(part: dict[str, Any]) -> dict[str, Any]:
    """A part as JSON: its text; what is no UTF-8 is also there as it was, in base64."""
    data: bytes = part["data"]
    told = {"stream": part["stream"], "offset": part["offset"], "at": part["at"]}
    try:
        return {**told, "text": data.decode("utf-8")}
    except UnicodeDecodeError:
        return {**told, "text": data.decode("utf-8", "replace"), "base64": base64.b64encode(data).decode()}


def _last_lines(parts: Parts, count: int) -> Parts:
    """The end of what was printed: its last `count` lines, the last one perhaps unfinished."""
    kept: Parts = []
    left = count
    is_last = True
    for part in reversed(parts):
        data: bytes = part["data"]
        at = len(data)
        if is_last and data.endswith(b"\n"):
            at -= 1
        is_last = False
        while left > 0 and (at := data.rfind(b"\n", 0, at)) >= 0:
            left -= 1
        if left <= 0:
            if count:
                cut = at + 1
                if cut < len(data):
                    kept.append({**part, "offset": part["offset"] + cut, "data": data[cut:]})
            break
        kept.append(part)
    return kept[::-1]
