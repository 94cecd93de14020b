"""Where the blocks of a page run: one bash, one interpreter, and a terminal for each command that stays.

Their processes are groups of their own, so that whatever a page leaves behind ends with it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

from .processes import LONG_S

_PAUSE_S = 0.01


class Terminal:
    """A process that runs one block after the other and tells how each went."""

    def __init__(self, command: list[str], directory: Path, env: dict[str, str], name: str) -> None:
        self.directory, self.name = directory, name
        self._out, self._err = (directory.parent / f"{name}.{kind}" for kind in ("out", "err"))
        self._blocks = 0
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen(
                command,
                cwd=directory,
                env=env,
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=err,
                text=True,
                start_new_session=True,
            )
        self._seen = {self._out: 0, self._err: 0}

    def tell(self, line: str) -> None:
        """One line for its standard input."""
        stdin: IO[str] | None = self.process.stdin
        assert stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended: the wait for it says so
            stdin.write(f"{line}\n")
            stdin.flush()

    def said(self) -> tuple[str, str]:
        """(stdout, stderr) since the last call."""
        told = []
        for path, seen in self._seen.items():
            content = path.read_bytes()
            self._seen[path] = len(content)
            told.append(content[seen:].decode(errors="replace"))
        return told[0], told[1]

    def everything(self) -> str:
        """All that it has said, for an error message."""
        return f"--- stdout\n{self._out.read_text()}\n--- stderr\n{self._err.read_text()}"

    def until(self, ready: Callable[[], bool], what: str) -> None:
        """Wait for something. Raises AssertionError when it does not come, or when the process ends first."""
        deadline = time.monotonic() + LONG_S
        while not ready():
            if self.process.poll() is not None and not ready():
                raise AssertionError(f"{what}: ended with {self.process.returncode}\n{self.everything()}")
            if time.monotonic() > deadline:
                raise AssertionError(f"{what}: not within {LONG_S:g} s\n{self.everything()}")
            time.sleep(_PAUSE_S)

    def close(self) -> None:
        """End the process and all that it started."""
        group = self.process.pid
        for way, patience_s in ((signal.SIGTERM, 10.0), (signal.SIGKILL, 10.0)):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(group, way)
            deadline = time.monotonic() + patience_s
            while time.monotonic() < deadline and _is_there(group, self.process):
                time.sleep(_PAUSE_S)
        self.process.wait()
        if self.process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self.process.stdin.close()

    def next_block(self, code: str, suffix: str) -> tuple[Path, int]:
        """The file of the next block, and its number."""
        number, self._blocks = self._blocks, self._blocks + 1
        path = self.directory.parent / f"{self.name}-{number}{suffix}"
        path.write_text(code, "utf-8")
        return path, number


def _is_there(group: int, leader: subprocess.Popen[str]) -> bool:
    leader.poll()
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


class Bash(Terminal):
    """A shell. A block that fails ends it."""

    def __init__(self, directory: Path, env: dict[str, str], name: str = "bash") -> None:
        super().__init__(["bash", "--noprofile", "--norc"], directory, env, name)

    def run(self, code: str) -> str | None:
        """Run a block to its end; None, or how it failed."""
        path, number = self.next_block(f"set -eo pipefail\n{code}", ".sh")
        done = path.with_suffix(".done")
        done.unlink(missing_ok=True)  # of a shell before this one, which ended with a failure
        self.tell(f". {path} </dev/null; echo $? >{done}.part && mv {done}.part {done}")
        self.until(lambda: done.exists() or self.process.poll() is not None, f"block {number} of {self.name}")
        return None if done.exists() else f"exit code {self.process.returncode}"

    def leave(self, code: str, text: str) -> None:
        """Start a block and leave it running once it has said `text`."""
        path, _ = self.next_block(f"set -eo pipefail\n{code}", ".sh")
        self.tell(f". {path} </dev/null; exit")
        self.until(lambda: text in self.everything(), f"{text!r} is awaited of {code.strip()!r}")


class Interpreter(Terminal):
    """A Python that runs blocks as a notebook does."""

    def __init__(self, python: str, directory: Path, env: dict[str, str]) -> None:
        self._done = directory.parent / "python.done"
        here = Path(__file__).with_name("interpreter.py")
        super().__init__([python, str(here), str(self._done)], directory, env, "python")

    def run(self, code: str) -> str | None:
        """Run a block to its end; None, or its traceback."""
        path, number = self.next_block(code, ".py")
        done = self._done.with_suffix(f".done.{number}")
        self.tell(str(path))
        self.until(done.exists, f"block {number} of Python")
        return done.read_text("utf-8") or None
