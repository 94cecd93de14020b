"""The peers' processes: Huey's consumer on a file, or redis-server with a Celery worker; two worker processes each."""

from __future__ import annotations

import shutil
import socket
import subprocess
from pathlib import Path

from harness.processes import Children, NotStarted

START_S = 20.0
WORKERS = "2"


def huey(children: Children, python: Path, *, fsync: bool) -> tuple[dict[str, str], list[subprocess.Popen[bytes]]]:
    """(environment of the rows, processes)."""
    env = {"HUEY_FILE": str(children.directory / f"huey-{int(fsync)}.db"), "HUEY_FSYNC": str(int(fsync))}
    consumer = [str(python), "-m", "huey.bin.huey_consumer", "peers.huey_app.huey", "-w", WORKERS, "-k", "process"]
    paced = [*consumer, "--delay", "0.001", "--backoff", "1", "--max-delay", "0.001", "--no-periodic", "--quiet"]
    return env, [children.start(paced, f"huey-{int(fsync)}", env=env)]


def celery(children: Children, python: Path, *, sync: bool) -> tuple[dict[str, str], list[subprocess.Popen[bytes]]]:
    """(environment of the rows, processes). With `sync` every write of Redis is on disk before it is answered."""
    port, name = _free_port(), f"redis-{int(sync)}"
    place = children.directory / name
    place.mkdir()
    server = shutil.which("redis-server")
    if server is None:
        raise NotStarted("redis-server is not installed (apt-get install redis-server)")
    command = [server, "--port", str(port), "--bind", "127.0.0.1", "--dir", str(place)]
    always = ["--appendonly", "yes", "--appendfsync", "always"] if sync else []
    redis = children.start([*command, *always], name)
    children.until(lambda: _answers(port), redis, name, within_s=START_S)
    env = {"CELERY_REDIS": f"redis://127.0.0.1:{port}/0"}
    worker = [str(python), "-m", "celery", "-A", "peers.celery_app", "worker", "-c", WORKERS, "-l", "warning"]
    return env, [redis, children.start(worker, f"celery-{int(sync)}", env=env)]


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


def _answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(16).startswith(b"+PONG")
    except OSError:
        return False
