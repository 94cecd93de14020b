"""Programs as a user starts them: fresh interpreters with nothing of this one but its Python."""

from __future__ import annotations

import contextlib
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .reference import ROOT

LONG_S = 90.0
"""How long a program may take before it is taken for stuck."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where programs run: a directory, the environment, the Python and the way to the CLI."""

    directory: Path
    env: dict[str, str]
    python: str = sys.executable
    cli: tuple[str, ...] = (sys.executable, "-m", "lakeshore")

    def run(self, *arguments: str, timeout_s: float = LONG_S) -> subprocess.CompletedProcess[str]:
        """Run the Python with these arguments to its end."""
        with self.started(self.python, *arguments) as process:
            try:
                out, err = process.communicate(timeout=timeout_s)
            except subprocess.TimeoutExpired:
                process.kill()
                out, err = process.communicate()
                raise AssertionError(f"still running after {timeout_s} s\n{out}\n{err}") from None
        return subprocess.CompletedProcess(arguments, process.returncode, out, err)

    @contextlib.contextmanager
    def started(self, *command: str) -> Iterator[subprocess.Popen[str]]:
        """A process that does not outlive the block."""
        process = subprocess.Popen(
            command, cwd=self.directory, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        try:
            yield process
        finally:
            end(process)

    @contextlib.contextmanager
    def working(self, *command: str) -> Iterator[subprocess.Popen[bytes]]:
        """A worker that does not outlive the block; it must still be there at the end. It writes to `worker.log`."""
        log = self.directory / "worker.log"
        with log.open("ab") as out:
            process = subprocess.Popen(command, cwd=self.directory, env=self.env, stdout=out, stderr=out)
        try:
            yield process
            assert process.poll() is None, f"the worker ended by itself:\n{log.read_text()}"
        except BaseException as error:
            error.add_note(f"the worker said:\n{log.read_text()}")
            raise
        finally:
            end(process)


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A control plane in open mode, in a process of its own."""

    url: str
    process: subprocess.Popen[bytes] = field(repr=False)


@contextlib.contextmanager
def serving(directory: Path) -> Iterator[Served]:
    """A control plane whose state is in `directory`."""
    ready, log = directory / "ready", directory / "log"
    command = [sys.executable, "-m", "lakeshore.server.serve", "--port", "0", "--reserve-bytes", "0"]
    with log.open("wb") as out:
        process = subprocess.Popen(
            [*command, "--state-dir", str(directory / "state"), "--ready-file", str(ready)],
            env=clean(),
            stdout=out,
            stderr=out,
        )
    try:
        deadline = time.monotonic() + 60
        while not ready.exists():
            assert process.poll() is None and time.monotonic() < deadline, f"no server:\n{log.read_text()}"
            time.sleep(0.01)
        yield Served(url=ready.read_text().strip(), process=process)
    finally:
        end(process)


def clean(*, path: str = str(ROOT), **more: str) -> dict[str, str]:
    """This environment without what would steer the project, importing it from `path`."""
    ours = ("LAKESHORE_", "DREAMLAKE_", "PYTHON", "COVERAGE_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return {**kept, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1", **more}


def on_plane(plane: str, directory: Path, served: Served | None) -> dict[str, str]:
    """The variables that select a plane: a home of its own, or a namespace of its own on the control plane."""
    variables = {"HOME": str(directory / "home"), "LAKESHORE_HOME": str(directory / "home" / ".lakeshore")}
    if plane == "http":
        assert served is not None
        variables |= {"LAKESHORE_URL": served.url, "LAKESHORE_NAMESPACE": f"pages-{secrets.token_hex(6)}"}
    return variables


def end(process: subprocess.Popen[str] | subprocess.Popen[bytes], patience_s: float = 10.0) -> None:
    """Ask a process to end, then make it."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(patience_s)
        except subprocess.TimeoutExpired:
            process.kill()
    process.wait()
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            stream.close()


def processes(place: Path) -> list[int]:
    """The processes whose command line or working directory is in `place`."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            line = (entry / "cmdline").read_bytes().decode("utf-8", "replace")
            where = os.readlink(entry / "cwd")
        except OSError:
            continue
        if str(place) in line or where.startswith(str(place)):
            found.append(int(entry.name))
    return found


def daemon(python: str, queue: str, flags: Sequence[str] = ()) -> list[str]:
    """The worker's command in its stable spelling."""
    return [python, "-m", "dreamlake.lakeshore.daemon", "--queue", queue, *flags]
