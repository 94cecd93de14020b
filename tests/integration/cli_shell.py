"""The command line as it is typed, and a daemon for it to be typed at."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import daemons
from served import Served, environment

from lakeshore.nymph import local_record

ROOT = Path(__file__).resolve().parents[2]
SOON_S = 60.0


class Shell:
    """Runs the program in a process, as a shell does: against one server, in one namespace."""

    def __init__(self, url: str, home: Path, ns: str) -> None:
        self.env = environment(LAKESHORE_URL=url, LAKESHORE_NAMESPACE=ns, XDG_CONFIG_HOME=str(home), HOME=str(home))

    def start(self, *words: str, **more: Any) -> subprocess.Popen[bytes]:
        how = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "cwd": ROOT, **more}
        return subprocess.Popen([sys.executable, "-m", "lakeshore", *words], env=self.env, **how)

    def run(self, *words: str, stdin: bytes | None = None) -> tuple[int, bytes, bytes]:
        how = {} if stdin is None else {"stdin": subprocess.PIPE}
        with self.start(*words, **how) as process:
            out, err = process.communicate(stdin, timeout=SOON_S)
            return process.returncode, out, err


@dataclass
class Box:
    """A real daemon that has said hello. `env` leads `lakeshore daemon status` to it."""

    id: str
    label: str
    env: dict[str, str]
    process: subprocess.Popen[bytes]


@contextlib.contextmanager
def box(server: Served, directory: Path, *, label: str, ns: str = "default", queue: str = "") -> Iterator[Box]:
    """Start one; nothing of it is left afterwards."""
    sections = {
        "server": {"namespace": ns},
        "daemon": {"label": label, "machine_id": f"machine-of-{label}", "lanes": [queue] if queue else []},
    }
    with daemons.daemon(server.url, directory, sections) as one:
        one.start()

        def named() -> str | None:
            local = local_record.read(one.env)
            return None if local is None else local.worker_id

        yield Box(one.until(named, "it has no name"), label, one.env, one.process)
