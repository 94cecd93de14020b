"""Asking a program of the host: its first output, within a time limit.

Rules: no shell, no stdin, its own session; when the time is over the whole group is killed, and one that does not die
even then (a driver that hangs in the kernel) is left behind. What it wrote goes to a file, so that a grandchild that
keeps a pipe open keeps nobody waiting. A program that is missing, fails, or says too much is None.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

import trio

_MOST_BYTES: Final = 256 * 1024
_DYING_S: Final = 0.2


async def output_of(
    argv: Sequence[str], *, environ: Mapping[str, str], limit_s: float, stderr_too: bool = False
) -> str | None:
    """What `argv` prints, when it exits with 0 within `limit_s` seconds; else None."""
    program = await program_of(argv[0], environ)
    if program is None:
        return None
    try:
        with tempfile.TemporaryFile() as said:
            process = await trio.lowlevel.open_process(
                [program, *argv[1:]],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said if stderr_too else subprocess.DEVNULL,
                start_new_session=True,
                env={**environ, "LC_ALL": "C"},
            )
            try:
                with trio.move_on_after(limit_s):
                    await process.wait()
            finally:
                if process.returncode is None:
                    await _end(process)
            if process.returncode != 0:
                return None
            said.seek(0)
            text = said.read(_MOST_BYTES + 1)
    except OSError:  # not executable, no processes left, no space for what it says
        return None
    return text.decode("utf-8", "replace").strip() if len(text) <= _MOST_BYTES else None


async def program_of(name: str, environ: Mapping[str, str]) -> str | None:
    """Where a program is on the PATH; None when it is not. A thread looks: the PATH may lead over a network."""
    look = partial(shutil.which, name, path=environ.get("PATH", os.defpath))
    return await trio.to_thread.run_sync(look, abandon_on_cancel=True)


async def _end(process: trio.Process) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        process.kill()
    with trio.CancelScope(shield=True, deadline=trio.current_time() + _DYING_S):
        await process.wait()


def python_of(text: str | None) -> str | None:
    """The line in which a Python says its version; shims say other things, too, and Python 2 says it on stderr."""
    return next((line.strip() for line in (text or "").splitlines() if line.startswith("Python ")), None)


def first_line(text: str | None) -> str | None:
    """The first line that says anything."""
    return next((line.strip() for line in (text or "").splitlines() if line.strip()), None)
