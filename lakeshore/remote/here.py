"""This machine in the place of a host that ssh leads to: the same scripts, without ssh.

Rule: of this process's environment a script gets what names places and languages, and SLURM's configuration. Nothing
of a server's own (its tokens, the key of its secrets) reaches a job.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import IO

from .bounded import MOST, Done, TooMuch, run
from .errors import RemoteFailure
from .ssh import Connection, Place

NAME = "localhost"
_KEPT = (
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LANGUAGE",
    "TZ",
    "TMPDIR",
    "XDG_RUNTIME_DIR",
    "LD_LIBRARY_PATH",
)
_KEPT_BEGINNINGS = ("LC_", "SLURM_")


class Here(Connection):
    """This machine. What a `Connection` does over ssh is done in a process of this account."""

    def __init__(self) -> None:
        super().__init__(Place(alias=NAME))

    def program(self) -> list[str]:
        """There is no ssh that leads here."""
        raise RemoteFailure("this machine is not reached over ssh")

    def run(self, command: list[str], stdin: bytes | None = None, *, timeout_s: float) -> Done:
        """Run a program. RemoteFailure."""
        return _done(command, timeout_s, b"" if stdin is None else stdin)

    def pipe(self, path: Path, command: str, *, timeout_s: float) -> Done:
        """Run a command line of ours with a file as its standard input."""
        with path.open("rb") as file:
            return _done(["sh", "-c", command], timeout_s, file)

    def failure(self, done: Done) -> RemoteFailure:  # type: ignore[override]  # no ssh has failed
        """What an exit code of bash means."""
        lines = [line.strip() for line in done.err.splitlines() if line.strip()]
        return RemoteFailure(f"a script on this machine ended with exit code {done.code}: {lines[-1] if lines else ''}")


def _done(command: list[str], timeout_s: float, stdin: bytes | IO[bytes]) -> Done:
    environ = {name: value for name, value in os.environ.items() if name in _KEPT or name.startswith(_KEPT_BEGINNINGS)}
    try:
        return run(command, stdin=stdin, timeout_s=timeout_s, env=environ, cwd="/")
    except FileNotFoundError as error:
        raise RemoteFailure(f"there is no {command[0]} on this machine") from error
    except subprocess.TimeoutExpired as error:
        raise RemoteFailure(f"a script on this machine did not end within {timeout_s:g} s") from error
    except TooMuch as error:
        raise RemoteFailure(f"a script on this machine says more than {MOST >> 20} MiB") from error
