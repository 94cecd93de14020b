"""What every attended job has: a working directory that it shares, a way to run it and a way to stop it."""

from __future__ import annotations

import abc
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

RESULT, ERROR = "result.msgpack", "error.json"
LOOK_S = 0.25
"""How often files and output are looked at, seconds."""
PATIENCE_S = 60.0
"""For one command of the elsewhere, seconds."""


class Unable(Exception):
    """It cannot be run there, or was not; `kind` is the error's type."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class Elsewhere(abc.ABC):
    """One job. `run` returns its exit status, `stop` may be called from a signal handler while it does."""

    def __init__(self, told: Mapping[str, Any]) -> None:
        self.told = told
        self.workdir = Path(told["workdir"])
        self.stopping = False

    @abc.abstractmethod
    def run(self) -> int:
        """From its beginning to its end. Unable when it cannot be."""

    @abc.abstractmethod
    def stop(self) -> None:
        """Begin to end it."""

    def left(self, name: str) -> bool:
        """Whether the job has written that file."""
        return os.path.lexists(self.workdir / name)

    def explain(self, kind: str, message: str) -> None:
        """Leave error.json, unless the job did."""
        if self.left(ERROR) or self.left(RESULT):
            return
        half = self.workdir / f".{ERROR}.{os.getpid()}"
        half.write_text(json.dumps({"type": kind, "message": message, "traceback": ""}))
        half.replace(self.workdir / ERROR)


class Tail:
    """Copies what grows in a file to one of our own outputs."""

    def __init__(self, path: Path, to: int) -> None:
        self._path, self._to, self._at = path, to, 0

    def copy(self) -> None:
        """What is new."""
        try:
            fd = os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return
        try:
            while data := os.pread(fd, 1 << 16, self._at):
                self._at += len(data)
                write_all(self._to, data)
        finally:
            os.close(fd)


def write_all(fd: int, data: bytes) -> None:
    """Every byte."""
    while data:
        data = data[os.write(fd, data) :]


def asked(argv: Sequence[str], *, stdin: str | None = None, cwd: str | None = None) -> subprocess.CompletedProcess[str]:
    """One command, whole; a command that is not there ends with 127, one that takes too long with 124.

    It does not hear the TERM that the whole job gets: what it has begun elsewhere would be lost with its answer.
    """
    try:
        return subprocess.run(  # noqa: S603  (the tools of the elsewhere, by their documented names)
            argv,
            input=stdin,
            stdin=None if stdin is not None else subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PATIENCE_S,
            check=False,
            cwd=cwd,
            preexec_fn=_deaf,
        )
    except FileNotFoundError:
        return subprocess.CompletedProcess(argv, 127, "", f"there is no {argv[0]} on this host")
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(argv, 124, "", f"{argv[0]} did not answer within {PATIENCE_S:g} s")


def _deaf() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def said(done: subprocess.CompletedProcess[str]) -> str:
    """The last of what a command printed, for a message."""
    return (done.stderr.strip() or done.stdout.strip() or f"exit status {done.returncode}")[-1000:]


def warn(text: str) -> None:
    """For whoever reads the job's standard error."""
    sys.stderr.write(f"lakeshore: {text}\n")
    sys.stderr.flush()


def nap(until: float) -> None:
    """Sleep for a look, or until that moment of `time.monotonic` if it is nearer."""
    time.sleep(max(0.0, min(LOOK_S, until - time.monotonic())))
