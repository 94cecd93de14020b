"""Worker processes for the fault tests. Their dead stay unreaped for a while, as those of `lakeshore worker` do."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import served

HERE = Path(__file__).parent
MODULE = "dreamlake.lakeshore.daemon"
PATIENCE_S = 60.0


def until(what: Callable[[], Any], told: str | Callable[[], str], patience_s: float = PATIENCE_S) -> Any:
    """Wait for a fact."""
    deadline = time.monotonic() + patience_s
    while not (found := what()):
        assert time.monotonic() < deadline, told if isinstance(told, str) else told()
        time.sleep(0.01)
    return found


class Crew:
    """The workers of one queue."""

    def __init__(self, directory: Path, *flags: str, program: Sequence[str] = ("-m", MODULE)) -> None:
        self._flags, self._log, self._program = flags, directory / "crew.log", program
        self.workers: list[subprocess.Popen[bytes]] = []

    def start(self, **env: str) -> subprocess.Popen[bytes]:
        """One worker more."""
        command = [sys.executable, *self._program, *self._flags]
        with self._log.open("ab") as log:
            worker = subprocess.Popen(
                command, cwd=HERE, env=served.environment(**env), stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        self.workers.append(worker)
        return worker

    def dead(self, worker: subprocess.Popen[bytes]) -> bool:
        """Whether it has ended. It is not reaped by that."""
        if worker.returncode is not None:
            return True
        return os.waitid(os.P_PID, worker.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def replace_the_dead(self) -> None:
        """As a supervisor does: whoever has died has a successor."""
        if self.dead(self.workers[-1]):
            self.start()

    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def dismiss(self, patience_s: float = 60.0) -> list[int]:
        """Tell the living to go; how all have ended."""
        for worker in self.workers:
            if not self.dead(worker):
                worker.terminate()
        return [worker.wait(patience_s) for worker in self.workers]

    def end(self) -> None:
        for worker in self.workers:
            worker.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                worker.wait(60)


@contextlib.contextmanager
def crew(directory: Path, *flags: str, program: Sequence[str] = ("-m", MODULE)) -> Iterator[Crew]:
    """A crew that is gone afterwards. `program` is what Python is to run."""
    made = Crew(directory, *flags, program=program)
    try:
        yield made
    finally:
        made.end()


def children_of(directory: Path) -> list[int]:
    """Processes that bodies left behind."""
    return [int(path.name.removeprefix("child-")) for path in directory.glob("child-*")]


def end_children(directory: Path) -> None:
    for pid in children_of(directory):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
