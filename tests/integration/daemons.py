"""Real daemons for the tests: `lakeshore nymph` as a process, with a home, a label and a queue of its own."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import tomli_w
from served import Served

import dreamlake.lakeshore as dls
from lakeshore.nymph.keeping import processes

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent
PYTHON = {"python": sys.executable, "env": {"PYTHONPATH": str(HERE)}}
"""The interpreter that has what the SDK needs, and where the bodies are."""
PATIENCE_S = 60.0
BARE = "/usr/bin:/bin"
MARK = "TEST_DAEMON"
"""In the environment of a daemon, its keeper and its jobs."""


class Daemon:
    """One daemon, and those that come after it in its place."""

    def __init__(self, server: str, directory: Path, sections: dict[str, Any] | None = None, **env: str) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory, self.name = directory, secrets.token_hex(4)
        self.queue, self.root = f"nymph-{self.name}", directory / "udf"
        self.log, self.record = directory / "log", directory / "record.jsonl"
        told: dict[str, dict[str, Any]] = {
            "server": {"url": server},
            "daemon": {"label": self.name},
            "runtime": {"workdir": str(self.root), "keep_alive_s": -1},
            "poll": {"retry_min_s": 0.1, "retry_max_s": 0.5},
            "shutdown": {"grace_s": 20},
        }
        for name, keys in (sections or {}).items():
            told[name] = {**told.get(name, {}), **keys}
        self.config = directory / "udf-daemon.toml"
        self.config.write_text(tomli_w.dumps(told))
        self.env = {
            "HOME": str(directory),
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), BARE]),
            "PYTHONPATH": str(ROOT),
            MARK: self.name,
            **env,
        }
        self.process: subprocess.Popen[bytes]

    def start(self, *flags: str, program: tuple[str, ...] = (sys.executable, "-m", "lakeshore", "nymph")) -> Daemon:
        argv = [*program, "--config", str(self.config), "--queue", self.queue, "--record", str(self.record), *flags]
        with self.log.open("ab") as out:
            self.process = subprocess.Popen(
                argv, env=self.env, cwd=self.directory, stdin=subprocess.DEVNULL, stdout=out, stderr=out
            )
        return self

    def said(self) -> str:
        return self.log.read_text() if self.log.exists() else ""

    def stop(self, number: int = signal.SIGTERM, timeout_s: float = PATIENCE_S) -> int:
        """Its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(timeout_s)

    def events(self, name: str) -> list[dict[str, Any]]:
        """What was recorded of one kind."""
        if not self.record.exists():
            return []
        lines = [line for line in self.record.read_text().split("\n") if line.endswith("}")]
        return [said for said in map(json.loads, lines) if said.get("event") == name]

    def until(self, true: Callable[[], Any], what: str = "") -> Any:
        """Wait, with a deadline, for what nobody announces."""
        return until(true, lambda: f"{what}\n{self.said()}")

    def polls(self) -> Daemon:
        """Until its first poll is with the server."""
        self.until(lambda: "Poll" in [one["do"] for said in self.events("HelloAnswered") for one in said["does"]])
        return self

    def bodies(self) -> list[int]:
        """The processes of jobs that were started cold: no nest, and no spare of one."""
        lines = {}
        for pid in self.processes():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
                lines[pid] = Path(f"/proc/{pid}/cmdline").read_bytes()
        return [pid for pid, line in lines.items() if b"entry" in line and b"--warm" not in line]

    def processes(self) -> list[int]:
        """What lives of it: itself, its keeper, its jobs."""
        named = [pid for pid in processes.table() if processes.variable(pid, MARK) == self.name]
        return [pid for pid in named if (one := processes.look(pid)) and not one.zombie]

    def left(self) -> dict[str, Any]:
        """What there is of jobs, when the daemon is gone and its keeper has had the time to follow."""
        deadline = time.monotonic() + PATIENCE_S
        while self.processes() and time.monotonic() < deadline:
            time.sleep(0.02)
        jobs = [one.name for at in self.directory.glob(".local/state/lakeshore/nymph/*/jobs") for one in at.iterdir()]
        udf = [one.name for one in self.root.iterdir() if not one.name.startswith(".")] if self.root.exists() else []
        return {"processes": self.processes(), "jobs": jobs, "directories": udf}

    def kill_all(self) -> None:
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if hasattr(self, "process"):
            self.process.wait()


NOTHING: dict[str, Any] = {"processes": [], "jobs": [], "directories": []}


def until(true: Callable[[], Any], what: Callable[[], str] = str) -> Any:
    deadline = time.monotonic() + PATIENCE_S
    while not (found := true()):
        assert time.monotonic() < deadline, f"waited in vain: {what()}"
        time.sleep(0.02)
    return found


@contextlib.contextmanager
def daemon(server: str, directory: Path, sections: dict[str, Any] | None = None, **env: str) -> Iterator[Daemon]:
    """Not started yet; nothing of it is left afterwards."""
    one = Daemon(server, directory, sections, **env)
    try:
        yield one
    finally:
        one.kill_all()


def submit(server: Served, queue: str, function: Any, *args: Any, **config: Any) -> str:
    """A call of a function of `entry_bodies`; its id."""
    envelope = dls.thunk(function, *args).to_envelope()
    body = {
        "invocation_id": envelope.id,
        "queue": queue,
        "args_blob": envelope.to_bytes(),
        "run_config": {**PYTHON, **config},
    }
    answer = server.post("/v1/producer/submit", body)
    assert answer.status == 200, answer.raw
    return envelope.id


def row(server: Served, id_: str) -> dict[str, Any]:
    return dict(server.post("/v1/producer/await", {"invocation_id": id_, "get": True}).body["invocation"])


def ended(server: Served, id_: str, timeout_s: float = PATIENCE_S) -> dict[str, Any]:
    answer: dict[str, Any] = {}
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        answer = server.post("/v1/producer/await", {"invocation_id": id_, "timeout_s": 20}).body
        if answer["state"] != "pending":
            return answer
    raise AssertionError(f"{id_} does not end: {answer}")
