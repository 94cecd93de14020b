"""The processes of a soak: each has a name, can be killed with -9, and is started again as another."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import served
from ports import free_port

HERE = Path(__file__).parent
LEASE_S = 2.0
PRODUCERS = {"producer-1": "loop", "producer-2": "threads", "producer-3": "gather"}
LOCAL_PRODUCERS = {"producer-1": "loop", "producer-2": "threads", "producer-4": "bursts"}
WORKERS = ("worker-1", "worker-2")


class Cast:
    """Server, workers, producers and the worker by hand, on one state directory below `directory`."""

    def __init__(self, directory: Path, rng: random.Random) -> None:
        self.port = free_port()
        self.directory, self._rng = directory, rng
        self.url = self.where = f"http://127.0.0.1:{self.port}"
        self.kills: Counter[str] = Counter()
        self._alive: set[str] = set()
        self._zygote = subprocess.Popen(
            [sys.executable, str(HERE / "soak_zygote.py")],
            cwd=HERE,
            env=served.environment(PYTHONPATH=os.pathsep.join([str(HERE.parents[1]), str(HERE)])),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def names(self) -> list[str]:
        return ["server", *WORKERS, *PRODUCERS, "hand"]

    def start(self, name: str) -> None:
        self._ask("start", name, *self._what(name), str(self.directory / f"log-{name}"))
        self._alive.add(name)

    def kill(self, name: str) -> None:
        assert self._ask("wait", name, 0) is None, f"{name} ended by itself:\n{self.log(name)}"
        self._signal(name, signal.SIGKILL)
        self.wait(name, 10.0)
        self.kills[name] += 1

    def freeze(self, name: str, *, thaw: bool = False) -> None:
        self._signal(name, signal.SIGCONT if thaw else signal.SIGSTOP)

    def end(self, name: str, timeout: float = 60.0) -> int:
        self._signal(name, signal.SIGTERM)
        return self.wait(name, timeout)

    def wait(self, name: str, timeout: float) -> int:
        status = self._ask("wait", name, timeout)
        assert status is not None, f"{name} did not end:\n{self.log(name)}"
        self._alive.discard(name)
        return int(status)

    def log(self, name: str) -> str:
        return (self.directory / f"log-{name}").read_text(errors="replace")[-4000:]

    def close(self) -> None:
        for name in sorted(self._alive):
            self._signal(name, signal.SIGKILL)
        self._zygote.communicate(timeout=60)

    def _signal(self, name: str, number: int) -> None:
        self._ask("signal", name, int(number))

    def _ask(self, *words: object) -> Any:
        assert self._zygote.stdin is not None and self._zygote.stdout is not None
        self._zygote.stdin.write(json.dumps(words) + "\n")
        self._zygote.stdin.flush()
        return json.loads(self._zygote.stdout.readline())

    def _what(self, name: str) -> tuple[str, list[str]]:
        directory, seed = str(self.directory), str(self._rng.randrange(2**31))  # another one for each life
        if name == "server":
            where = ["--port", str(self.port), "--state-dir", str(self.directory / "state")]
            return "server", [*where, "--reserve-bytes", "0", "--lease-s", str(LEASE_S)]
        if name.startswith("worker-"):
            return "worker", [self.where]
        if name.startswith("producer-"):
            return "producer", [self.where, directory, name, seed, (PRODUCERS | LOCAL_PRODUCERS)[name]]
        return "hand", [self.url, directory, seed]


class LocalCast(Cast):
    """Producers and workers on one file of a local plane, and nobody else."""

    def __init__(self, directory: Path, rng: random.Random) -> None:
        super().__init__(directory, rng)
        self.where = str(directory / "plane.sqlite")

    def names(self) -> list[str]:
        return [*WORKERS, "worker-3", *LOCAL_PRODUCERS]
