"""One program with a limit on its time, and on what it says: what another host answers is kept in memory."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO, Any, Final

MOST: Final = 8 << 20
_BLOCK: Final = 1 << 16


class TooMuch(Exception):
    """It said more than `MOST` bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """What came of one command: its exit code and what it said."""

    code: int
    out: str
    err: str


def run(command: Sequence[str], *, stdin: bytes | IO[bytes] | None, timeout_s: float, **options: Any) -> Done:
    """Run it in a session of its own: a Ctrl-C is ours, and ssh ends of it even where it was told to ignore it.
    `options` are Popen's. TooMuch, subprocess.TimeoutExpired, OSError.
    """
    with tempfile.TemporaryFile() as given:
        if isinstance(stdin, bytes):
            given.write(stdin)
            given.seek(0)
        source = given if isinstance(stdin, bytes) else subprocess.DEVNULL if stdin is None else stdin
        process = subprocess.Popen(  # noqa: S603  (no shell)
            command,
            bufsize=0,  # a pipe that somebody reads can be closed
            stdin=source,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            **options,
        )
    assert process.stdout is not None and process.stderr is not None
    with process:
        try:
            readers = [_Reader(pipe, process) for pipe in (process.stdout, process.stderr)]
            until = time.monotonic() + timeout_s
            for reader in readers:
                reader.thread.join(max(until - time.monotonic(), 0.0))
            code = process.wait(max(until - time.monotonic(), 0.1))
        except BaseException:
            _end(process)
            raise
    if any(reader.size > MOST for reader in readers):
        raise TooMuch
    if any(reader.thread.is_alive() for reader in readers):  # who came of it keeps the pipe
        raise subprocess.TimeoutExpired(list(command), timeout_s)
    out, err = (b"".join(reader.kept).decode("utf-8", "replace") for reader in readers)
    return Done(code=code, out=out, err=err)


class _Reader:
    """Reads one pipe to its end, or until it is too much, which ends the program."""

    def __init__(self, pipe: IO[bytes], process: subprocess.Popen[bytes]) -> None:
        self.kept: list[bytes] = []
        self.size = 0
        self._pipe, self._process = pipe, process
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()

    def _read(self) -> None:
        while block := self._pipe.read(_BLOCK):
            self.size += len(block)
            if self.size > MOST:
                self.kept.clear()
                _end(self._process)
                return
            self.kept.append(block)


def _end(process: subprocess.Popen[bytes]) -> None:
    """All of its session."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
