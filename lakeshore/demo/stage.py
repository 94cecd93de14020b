"""The demo's processes and files: a control plane and workers, in a directory of their own.

Rule: whatever happens, everything that was started here ends and everything that was written here goes, unless it is
kept on purpose. Processes are started before anything else of ours runs a thread.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType

from lakeshore._self import program
from lakeshore.cli.failures import Failure
from lakeshore.cli.minder import Minder
from lakeshore.cli.worker import MODULE, import_path

READY_S = 30.0
STOP_S = 5.0
_NAP_S = 0.02
STOP = """\
#!/bin/sh
# Ends what `lakeshore demo --keep` left running: the workers, then the server. Then removes this directory.
runs() {
    kill -0 "$1" 2>/dev/null && ! grep -q '^State:.Z' "/proc/$1/status" 2>/dev/null
}
end() {
    kill "$1" 2>/dev/null
    tries=0
    while runs "$1" && [ "$tries" -lt 100 ]; do
        sleep 0.1
        tries=$((tries + 1))
    done
    kill -KILL "$1" 2>/dev/null
}
"""


class Stage:
    """A control plane (`url`, once it answers) and its workers. Leaving the `with` block ends and removes all."""

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="lakeshore-demo-"))
        self.url = ""
        self.server: subprocess.Popen[bytes] | None = None
        self.workers: list[subprocess.Popen[bytes]] = []
        self._minder = Minder(grace_s=STOP_S)
        self._kept = False
        # Nothing of the caller's own Lakeshore: no server, no token, no admin token (which would end open mode).
        self._env = {name: value for name, value in os.environ.items() if not name.startswith("LAKESHORE_")}
        for name in ("PORT", "ADMIN_TOKEN", "SECRETS_KEY", "NODE_ENV"):
            self._env.pop(name, None)
        path = import_path(sys.executable, self._env.get("PYTHONPATH", ""))
        if path is not None:
            self._env["PYTHONPATH"] = path

    def serve(self) -> None:
        """Start the control plane and wait until it answers."""
        ready = self.directory / "url"
        state = self.directory / "state"
        options = ["serve", "--port", "0", "--state-dir", str(state), "--ready-file", str(ready)]
        self.server = self._start([*program(), *options], "serve")
        until = time.monotonic() + READY_S
        while not ready.exists():
            if self.server.poll() is not None or time.monotonic() > until:
                raise Failure(f"the control plane did not start:\n{self._log('serve')}")
            time.sleep(_NAP_S)
        self.url = ready.read_text("utf-8").strip()

    def work(self, count: int) -> None:
        """Start so many workers."""
        command = [sys.executable, "-u", "-m", MODULE, "--queue", "demo", "--url", self.url]
        for _ in range(count):
            self.workers.append(self._start(command, f"worker-{len(self.workers) + 1}"))

    def check(self) -> None:
        """Failure when a process has ended that should run."""
        for number, worker in enumerate(self.workers, 1):
            if worker.poll() is not None:
                raise Failure(f"worker {number} ended ({worker.returncode}):\n{self._log(f'worker-{number}')}")
        if self.server is not None and self.server.poll() is not None:
            raise Failure(f"the control plane ended ({self.server.returncode}):\n{self._log('serve')}")

    def dismiss(self, but: int) -> None:
        """Let all workers but so many finish and leave."""
        self._end(self.workers[but:])
        del self.workers[but:]

    @property
    def stop(self) -> str:
        """The command that ends and removes what is kept."""
        return f"sh {shlex.quote(str(self.directory / 'stop'))}"

    def keep(self) -> None:
        """Leave everything running and in place, for `stop`."""
        running = [*self.workers, *([self.server] if self.server is not None else [])]
        ends = [f"end {child.pid}" for child in running]
        lines = [*ends, f"rm -r {shlex.quote(str(self.directory))}"]
        (self.directory / "stop").write_text(STOP + "\n".join(lines) + "\n", "utf-8")
        self._kept = True
        for child in running:
            self._minder.forget(child)
            child.returncode = 0  # it is not ours any more: nothing to wait for, nothing to warn about

    def __enter__(self) -> Stage:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with _undisturbed():
            if not self._kept:
                self._end(self.workers)
                self._end([self.server] if self.server is not None else [])
                shutil.rmtree(self.directory, ignore_errors=True)
            self._minder.close()

    def _start(self, command: Sequence[str], name: str) -> subprocess.Popen[bytes]:
        with open(self.directory / f"{name}.log", "wb") as log:
            return self._minder.start(command, env=self._env, stdout=log, stderr=log, cwd=self.directory)

    def _end(self, children: Iterable[subprocess.Popen[bytes]]) -> None:
        children = list(children)
        for child in children:
            child.terminate()
        until = time.monotonic() + STOP_S
        for child in children:
            try:
                child.wait(max(until - time.monotonic(), 0.0))
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
            self._minder.forget(child)

    def _log(self, name: str) -> str:
        with contextlib.suppress(OSError):
            lines = (self.directory / f"{name}.log").read_text("utf-8", errors="replace").splitlines()
            return "\n".join(f"  {line}" for line in lines[-15:])
        return "  (no log)"


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Another Ctrl-C does not cut the clearing up short: it takes seconds at most."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
