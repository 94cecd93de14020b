"""A control plane and workers on this machine, for as long as a `with` block runs: for scripts, tests and the demo.

    with Stack("state") as stack:
        os.environ["LAKESHORE_URL"] = stack.serve()
        stack.work("cpu", 2)

Rule: whatever happens, everything that was started here ends: workers first, which finish the job that they run, then
the server, which hears of it. That holds when this process is killed, too. What was written in a directory of the
caller's stays and is gone on with at the next start; without one it goes, too. Start a stack before your own threads.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from lakeshore._self import import_path, program
from lakeshore.cli.minder import Minder

__all__ = ["Stack", "StackError"]

MODULE = "dreamlake.lakeshore.daemon"
READY_S = 30.0
FREE_S = 30.0
_NAP_S = 0.02
_SHOWN_LINES = 15


class StackError(RuntimeError):
    """A process of the stack did not start, or has ended. The end of its log is in the message."""


class Stack:
    """One server and its workers. `url` is where the server answers, once `serve` has returned.

    `directory` holds state and logs; None makes a temporary one. `modules` is a directory whose modules the workers
    can import, such as that of the script. `grace_s` is how many seconds a running job has when the stack ends.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str] | None = None,
        *,
        modules: str | os.PathLike[str] | None = None,
        grace_s: float = 10.0,
        prefix: str = "lakeshore-stack-",
    ) -> None:
        self._temporary = directory is None
        self.directory = Path(tempfile.mkdtemp(prefix=prefix) if directory is None else directory).absolute()
        self.directory.mkdir(parents=True, exist_ok=True)
        self.url = ""
        self.server: subprocess.Popen[bytes] | None = None
        self.workers: list[subprocess.Popen[bytes]] = []
        self._grace_s = grace_s
        # Each minder holds the pipe of those that were made before it: the server's is told when the workers' ends.
        self._servers_minder = Minder(grace_s=grace_s)
        self._minder = Minder(grace_s=grace_s)
        self._env = _environment(modules)

    def serve(self) -> str:
        """Start the control plane and wait until it answers; its URL. StackError when it does not start."""
        ready = self.directory / "url"
        state = self.directory / "state"
        _await_free(state / "server.lock")
        until = time.monotonic() + READY_S
        ready.unlink(missing_ok=True)
        options = ["serve", "--port", "0", "--state-dir", str(state), "--ready-file", str(ready)]
        self.server = self._start(self._servers_minder, [*program(), *options], "serve")
        while not ready.exists():
            if self.server.poll() is not None or time.monotonic() > until:
                raise StackError(f"the control plane did not start:\n{self._log('serve')}")
            time.sleep(_NAP_S)
        self.url = ready.read_text("utf-8").strip()
        return self.url

    def work(self, queue: str, count: int = 1) -> None:
        """Start so many workers of a queue. They run what comes by value, too: it comes from this machine's user."""
        command = [sys.executable, "-u", "-m", MODULE, "--queue", queue, "--url", self.url, "--allow-pickled"]
        for _ in range(count):
            self.workers.append(self._start(self._minder, command, f"worker-{len(self.workers) + 1}"))

    def check(self) -> None:
        """StackError when a process has ended that should run."""
        for number, worker in enumerate(self.workers, 1):
            if worker.poll() is not None:
                raise StackError(f"worker {number} ended ({worker.returncode}):\n{self._log(f'worker-{number}')}")
        if self.server is not None and self.server.poll() is not None:
            raise StackError(f"the control plane ended ({self.server.returncode}):\n{self._log('serve')}")

    def dismiss(self, but: int = 0) -> None:
        """Let all workers but so many finish and leave."""
        self._end(self._minder, self.workers[but:])
        del self.workers[but:]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with _undisturbed():
            self._clear()
            self._minder.close()  # the later one first: the other waits for it
            self._servers_minder.close()

    def _clear(self) -> None:
        """End and remove."""
        self._end(self._minder, self.workers)
        self._end(self._servers_minder, [self.server] if self.server is not None else [])
        if self._temporary:
            shutil.rmtree(self.directory, ignore_errors=True)

    def _start(self, minder: Minder, command: Sequence[str], name: str) -> subprocess.Popen[bytes]:
        with open(self.directory / f"{name}.log", "wb") as log:
            return minder.start(command, env=self._env, stdout=log, stderr=log, cwd=self.directory)

    def _end(self, minder: Minder, children: Iterable[subprocess.Popen[bytes]]) -> None:
        children = list(children)
        for child in children:
            child.terminate()
        until = time.monotonic() + self._grace_s
        for child in children:
            try:
                child.wait(max(until - time.monotonic(), 0.0))
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
            minder.forget(child)

    def _log(self, name: str) -> str:
        with contextlib.suppress(OSError):
            lines = (self.directory / f"{name}.log").read_text("utf-8", errors="replace").splitlines()
            return "\n".join(f"  {line}" for line in lines[-_SHOWN_LINES:])
        return "  (no log)"


def _environment(modules: str | os.PathLike[str] | None) -> dict[str, str]:
    """Nothing of the caller's own Lakeshore: no server, no token, no admin token (which would end open mode)."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("LAKESHORE_")}
    for name in ("PORT", "ADMIN_TOKEN", "SECRETS_KEY", "SECRETS_KEY_PREVIOUS", "NODE_ENV"):
        env.pop(name, None)
    # Children run in another directory than this process.
    before = [os.path.abspath(entry) for entry in env.get("PYTHONPATH", "").split(os.pathsep) if entry]
    if modules is not None:
        before.append(os.path.abspath(modules))
    path = import_path(sys.executable, os.pathsep.join(before)) or os.pathsep.join(before)
    if path:
        env["PYTHONPATH"] = path
    return env


def _await_free(lock: Path) -> None:
    """Wait while the server of a process that was killed is still ending. If it stays, the new one says who it is."""
    until = time.monotonic() + FREE_S
    with contextlib.suppress(FileNotFoundError), open(lock, "rb") as file:
        while time.monotonic() < until:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(_NAP_S)
            else:
                return


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Another Ctrl-C does not cut the clearing up short: it takes seconds at most."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
