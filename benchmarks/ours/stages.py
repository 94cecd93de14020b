"""The processes that rows of ours are measured on: a control plane with two workers, or two workers on one file."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from harness.processes import Children

WORKERS = 2
START_S = 20.0


def control_plane(
    children: Children, name: str = "state", *, env: Mapping[str, str] | None = None
) -> tuple[str, list[subprocess.Popen[bytes]]]:
    """(url, processes): one server, with `env`, and two workers on the queue of the bodies."""
    url, server = server_alone(children, name, env=env)
    worker = [sys.executable, "-m", "dreamlake.lakeshore.daemon", "--queue", "bench", "--url", url]
    return url, [server, *(children.start(worker, f"worker-{i}") for i in range(WORKERS))]


def server_alone(
    children: Children, name: str, *, env: Mapping[str, str] | None = None
) -> tuple[str, subprocess.Popen[bytes]]:
    """(url, process): a server without workers."""
    ready = children.directory / f"{name}.url"
    command = [sys.executable, "-m", "lakeshore.server.serve", "--port", "0", "--ready-file", str(ready)]
    server = children.start([*command, "--state-dir", str(children.directory / name)], "server", env=env)
    children.until(ready.exists, server, "server", within_s=START_S)
    return ready.read_text("utf-8").strip(), server


def local_workers(children: Children, file: Path, durability: str) -> list[subprocess.Popen[bytes]]:
    """Two workers on a plane file."""
    command = [sys.executable, "-m", "ours.local_worker", str(file), durability]
    return [children.start(command, f"local-{durability}-{i}") for i in range(WORKERS)]
