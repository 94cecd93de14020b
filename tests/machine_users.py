"""Users that tests make on this machine, one at a time: the files that name them are locked as a whole."""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path


def add_user(name: str, home: Path, *, password: str = "!") -> None:
    """One with a home and bash; `password` as `shadow` has it (`*`: none, and not locked). Needs root."""
    with _alone():
        command = ["useradd", "-m", "-d", str(home), "-s", "/bin/bash", "-p", password, name]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def remove_user(name: str) -> None:
    """With the home, as far as it can be."""
    with _alone():
        subprocess.run(["userdel", "-r", name], check=False, capture_output=True)


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    at = Path(tempfile.gettempdir(), f"lakeshore-test-users-{os.getuid()}")
    with open(os.open(at, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600), "r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
