"""`python -m dreamlake.lakeshore.daemon.entry`: one invocation, in the directory that a daemon prepared for it.

    args.msgpack     read: the Envelope, as it was submitted
    result.msgpack   written, and exit 0: the packed value; a stream's is the list of its yields or its whole manifest
    error.json       written, and exit 1: {"type", "message", "traceback"}

Each is written whole or not at all, and of the two the last run left one. It is no worker: it claims nothing, settles
nothing and tries nothing again; whoever started it does. DREAMLAKE_INVOCATION_ID names the invocation. With
LAKESHORE_URL, the body's own submits go there; with DREAMLAKE_CLAIM as well (and DREAMLAKE_FIRST_SEQ and
DREAMLAKE_ATTEMPT when they are not 0 and 1) its yields are posted there as they come. With DREAMLAKE_FRAMES, the name
of a directory, they are written there instead (`frame_files`), and a daemon posts them. With DREAMLAKE_CODE, the tree
or the archive of the call's commit, which a daemon fetched, modules that are not here are imported from there
(`code_mount`).
Reference: api/function-protocol.md, "The workdir contract"; nymph/daemons.md.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from lakeshore.archives.stamp import MARK
from lakeshore.wire import Envelope
from lakeshore.wire.errors import WireError

from ..ambient import set_process_plane
from ..claimed import Claimed
from ..errors import DispatchError
from ..execution import Setup, execute
from ..interrupts import Interrupter
from ..sources import Ending, FrameSink, Work
from ..transport import POLICIES
from .frame_files import FrameFiles
from .process import hide_secrets, token

WARM, ALLOW_PICKLED = "--warm", "--allow-pickled"
ARGS, RESULT, ERROR = "args.msgpack", "result.msgpack", "error.json"
FAILED = 1


def main(argv: Sequence[str] | None = None) -> int:
    """Run the invocation of the working directory; the exit code: 0, 1 failed, 2 usage."""
    words = sys.argv[1:] if argv is None else argv
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="lakeshore entry: %(message)s")
    if len(words) == 2 and words[0] == WARM:
        from .warm import await_job  # at its wall: a cold start does without

        words = await_job(words[1])
    given = _arguments(words)
    directory = os.getcwd()
    bearer = token()
    hide_secrets()
    for name in (RESULT, ERROR):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{directory}/{name}")  # not by pathlib, which costs a short job a twentieth of its time
    try:
        work = _work(directory)
    except (OSError, WireError, ValueError) as error:
        message = f"{directory}/{ARGS} must hold the Envelope of the invocation: {error}"
        return _end(directory, Ending(outcome="failed", error={"type": "WorkerError", "message": message}))
    frames = os.environ.pop("DREAMLAKE_FRAMES", None)
    plane = _plane(bearer)
    set_process_plane(plane)
    setup = Setup(
        root=Path(given.root or directory).expanduser().absolute(),
        allow_pickled=given.allow_pickled,
        runtime_policy=given.runtime_policy,
        plane=plane,
    )
    early = _prepared(work.envelope, plane, given.runtime_policy) if MARK in work.envelope else None
    with Interrupter(at_once=False) as interrupter, _stopped_by_signals(interrupter):
        interrupter.start(None)
        ending = early or execute(work, lambda _work: _sink(plane, work, frames), setup, interrupter)
    if plane is not None:
        with contextlib.suppress(DispatchError):
            plane.close()
    return _end(directory, ending)


class _Given(NamedTuple):
    """What the command line and the environment say."""

    root: str | None
    allow_pickled: bool
    runtime_policy: str


def _arguments(argv: Sequence[str]) -> _Given:
    root = os.environ.get("LAKESHORE_ROOT") or None
    policy = os.environ.get("LAKESHORE_RUNTIME_POLICY") or "minor"
    if policy in POLICIES and list(argv) in ([], [ALLOW_PICKLED]):  # a parser costs a quarter of a short job
        return _Given(root, allow_pickled=bool(argv), runtime_policy=policy)
    import argparse  # wall: as said above

    parser = argparse.ArgumentParser(
        prog="python -m dreamlake.lakeshore.daemon.entry",
        description=f"Run the invocation whose {ARGS} is in the working directory.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--root", default=root, help="root of dls.run keys (LAKESHORE_ROOT; cwd)")
    add(ALLOW_PICKLED, action="store_true", help="run a function that was sent by value")
    add("--runtime-policy", default=policy, help="strict | minor | off (LAKESHORE_RUNTIME_POLICY)")
    given = parser.parse_args(argv)
    if given.runtime_policy not in POLICIES:
        parser.error(f"unknown runtime policy {given.runtime_policy!r}; use strict | minor | off")
    return _Given(given.root, given.allow_pickled, given.runtime_policy)


def _work(directory: str) -> Claimed:
    with open(f"{directory}/{ARGS}", "rb") as file:
        data = file.read()
    return Claimed(
        id=os.environ.get("DREAMLAKE_INVOCATION_ID") or Envelope.from_bytes(data).id,
        envelope=data,
        attempt=_number("DREAMLAKE_ATTEMPT", 1),
        queue="",
        claim=_number("DREAMLAKE_CLAIM", 0),
        first_seq=_number("DREAMLAKE_FIRST_SEQ", 0),
    )


def _number(variable: str, otherwise: int) -> int:
    text = os.environ.get(variable)
    return otherwise if not text else int(text)


def _plane(bearer: str | None) -> Any:
    url = os.environ.get("LAKESHORE_URL")
    if not url:
        return None
    from ..http_dispatch import HttpDispatch  # at its wall: without a plane no HTTP client is loaded

    return HttpDispatch(url, token=bearer, namespace=os.environ.get("LAKESHORE_NAMESPACE") or "default")


def _prepared(data: bytes, plane: Any, runtime_policy: str) -> Ending | None:
    """What a call needs of its commit can be imported; else its ending."""
    if os.environ.get("LAKESHORE_CODE", "").strip().lower() == "off":
        return None
    from ..code_mount import Mount, given_by_daemon, got_from  # at its wall: most calls run what is here

    get = given_by_daemon(os.environ) or (None if plane is None else got_from(plane))
    return None if get is None else Mount(get, alone=False, runtime_policy=runtime_policy).prepare(data, fresh=True)


def _sink(plane: Any, work: Work, frames: str | None) -> FrameSink:
    if frames:
        return FrameFiles(Path(frames).absolute())
    return _Nowhere() if plane is None or not work.claim else _Posts(plane, work)


class _Nowhere:
    """Yields are in the result, and nowhere else."""

    def put(self, seq: int, frame: bytes) -> None:
        """Not kept here."""

    def flush(self) -> None:
        """Nothing is under way."""


class _Posts:
    """Each frame is on the plane before the body goes on."""

    def __init__(self, plane: Any, work: Work) -> None:
        self._plane, self._work = plane, work

    def put(self, seq: int, frame: bytes) -> None:
        self._plane.journal_append(self._work.id, seq, frame, claim=self._work.claim)

    def flush(self) -> None:
        """Nothing is under way."""


@contextlib.contextmanager
def _stopped_by_signals(interrupter: Interrupter) -> Iterator[None]:
    def on_signal(_number: int, _frame: Any) -> None:
        interrupter.interrupt_current("worker")

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end(directory: str, ending: Ending) -> int:
    if ending.outcome == "succeeded":
        _write(directory, RESULT, ending.result)
        return 0
    _write(directory, ERROR, json.dumps({"traceback": "", **(ending.error or {})}).encode())
    return FAILED


def _write(directory: str, name: str, data: bytes) -> None:
    half = f"{directory}/.{name}.{os.getpid()}"
    with open(half, "wb", buffering=0) as file:
        rest = memoryview(data)
        while rest:
            rest = rest[file.write(rest) :]
    os.replace(half, f"{directory}/{name}")
