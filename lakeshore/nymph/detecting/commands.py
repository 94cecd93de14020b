"""Asking a program of the host: its first output, within a time limit.

Rules: no shell, no stdin, its own session; when the time is over the whole group is killed, and one that does not die
even then (a driver that hangs in the kernel) is left behind. What it wrote goes to a file, so that a grandchild that
keeps a pipe open keeps nobody waiting. A program that is missing, fails, or says too much is None.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from typing import Final

_MOST_BYTES: Final = 256 * 1024
_DYING_S: Final = 0.2


def output_of(
    argv: Sequence[str], *, environ: Mapping[str, str], limit_s: float, stderr_too: bool = False
) -> str | None:
    """What `argv` prints, when it exits with 0 within `limit_s` seconds; else None. Blocks for no longer than that,
    but for a PATH that leads over a network.
    """
    program = program_of(argv[0], environ)
    if program is None:
        return None
    try:
        with tempfile.TemporaryFile() as said:
            process = subprocess.Popen(  # noqa: S603  (the tools of the host, by their documented names)
                [program, *argv[1:]],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said if stderr_too else subprocess.DEVNULL,
                start_new_session=True,
                env={**environ, "LC_ALL": "C"},
            )
            if not _ended(process, limit_s):
                _end(process)
            if process.returncode != 0:
                return None
            said.seek(0)
            text = said.read(_MOST_BYTES + 1)
    except OSError:  # not executable, no processes left, no space for what it says
        return None
    return text.decode("utf-8", "replace").strip() if len(text) <= _MOST_BYTES else None


def program_of(name: str, environ: Mapping[str, str]) -> str | None:
    """Where a program is on the PATH; None when it is not."""
    return shutil.which(name, path=environ.get("PATH", os.defpath))


def _ended(process: subprocess.Popen[bytes], within_s: float) -> bool:
    """Whether it ends within that time; `Popen.wait` looks every 50 ms where the system could tell at once."""
    fd = -1
    with contextlib.suppress(AttributeError, OSError):  # not Linux, or an old one
        fd = os.pidfd_open(process.pid)
    if fd >= 0:
        try:
            end = select.poll()
            end.register(fd, select.POLLIN)
            within_s = 0.0 if not end.poll(max(0.0, within_s) * 1000) else 1.0
        finally:
            os.close(fd)
    try:
        process.wait(max(0.0, within_s))
    except subprocess.TimeoutExpired:
        return False
    return True


def _end(process: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        process.kill()
    _ended(process, _DYING_S)


def python_of(text: str | None) -> str | None:
    """The line in which a Python says its version; shims say other things, too, and Python 2 says it on stderr."""
    return next((line.strip() for line in (text or "").splitlines() if line.startswith("Python ")), None)


def first_line(text: str | None) -> str | None:
    """The first line that says anything."""
    return next((line.strip() for line in (text or "").splitlines() if line.strip()), None)
