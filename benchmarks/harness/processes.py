"""Processes that this run starts, and that end with it whatever happens.

Each is the leader of a process group of its own; the whole group is ended: TERM, a grace, KILL. A process that detaches
itself from its group (a guardian) watches its parent and ends by itself.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType

BENCHMARKS = Path(__file__).resolve().parents[1]
ROOT = BENCHMARKS.parent
GRACE_S = 5.0


class NotStarted(Exception):
    """A process ended, or said nothing in time; the message carries its last words."""


def environment(**more: str) -> dict[str, str]:
    """Ours, without anything that would point at a user's own servers."""
    dropped = ("LAKESHORE_", "CELERY_", "PYTHONPATH", "PORT", "ADMIN_TOKEN", "SECRETS_KEY", "NODE_ENV")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    return {**clean, "PYTHONPATH": f"{ROOT}{os.pathsep}{BENCHMARKS}", **more}


class Children:
    """`with Children(directory) as children:` everything started inside is gone outside."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._running: list[subprocess.Popen[bytes]] = []

    def start(
        self, command: Sequence[str], name: str, *, env: Mapping[str, str] | None = None, cwd: Path | None = None
    ) -> subprocess.Popen[bytes]:
        """Start one; its output goes to `<name>.log`."""
        with open(self.directory / f"{name}.log", "ab") as log:
            child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment(**(env or {})),
                cwd=cwd or BENCHMARKS,
                start_new_session=True,
            )
        self._running.append(child)
        return child

    def until(self, ready: Callable[[], bool], child: subprocess.Popen[bytes], name: str, *, within_s: float) -> None:
        """Wait until `ready()`. Raises NotStarted when the process ends before, or takes longer."""
        deadline = time.monotonic() + within_s
        while not ready():
            if child.poll() is not None or time.monotonic() > deadline:
                raise NotStarted(f"{name} did not start:\n{self.last_words(name)}")
            time.sleep(0.01)

    def last_words(self, name: str) -> str:
        """The end of a process's log."""
        with contextlib.suppress(OSError):
            return (self.directory / f"{name}.log").read_text("utf-8", "replace")[-2000:]
        return "(no log)"

    def end(self, *children: subprocess.Popen[bytes]) -> None:
        """End these, and all that is left of their groups."""
        for child in children:
            _signal(child, signal.SIGTERM)
        deadline = time.monotonic() + GRACE_S
        for child in children:
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(max(0.0, deadline - time.monotonic()))
            _signal(child, signal.SIGKILL, even_if_ended=True)
            child.wait()
            if child in self._running:
                self._running.remove(child)

    def __enter__(self) -> Children:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self.end(*reversed(self._running))


def _signal(child: subprocess.Popen[bytes], number: int, *, even_if_ended: bool = False) -> None:
    # Until the leader is reaped its number is not given to another group; after that only members keep it alive.
    if child.returncode is None or even_if_ended:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, number)
