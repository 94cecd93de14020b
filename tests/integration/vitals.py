"""What a running server holds: requests, connections, files, threads, memory. After any storm it is as before."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path

from served import Served

HELD = ("lakeshore_parked_polls", "lakeshore_http_parked_requests", "lakeshore_http_connections")
"""What ends with its connection. Watched ids (`lakeshore_waiters`) outlive theirs by two minutes, for the next one."""


def gauges(server: Served) -> dict[str, float]:
    """What it says of itself, of what is held; one of the connections is the one that asks."""
    lines = server.get("/metrics", token=server.token).raw.decode().splitlines()
    found = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    return {name: float(found[name]) for name in HELD}


def until_as_before(server: Served, before: Mapping[str, float], patience_s: float = 60.0) -> None:
    """Wait until it holds what it held then."""
    deadline = time.monotonic() + patience_s
    while (now := gauges(server)) != before:
        assert time.monotonic() < deadline, (before, now)
        time.sleep(0.02)


def until_parked(server: Served, many: int, patience_s: float = 60.0) -> None:
    """Wait until it holds so many requests."""
    deadline = time.monotonic() + patience_s
    while gauges(server)["lakeshore_http_parked_requests"] < many:
        assert time.monotonic() < deadline, f"it does not hold {many}"
        time.sleep(0.02)


def open_files(server: Served) -> int:
    return len(os.listdir(f"/proc/{server.process.pid}/fd"))


def threads(server: Served) -> int:
    return _status(server, "Threads")


def memory_kib(server: Served) -> int:
    """Resident memory that is its own: not the pages of libraries and of the database that it maps."""
    return _status(server, "RssAnon")


def peak_kib(server: Served) -> int:
    """The most resident memory that it has ever had."""
    return _status(server, "VmHWM")


def cpu_s(server: Served) -> float:
    """Seconds of processor time that it has used, in hundredths."""
    fields = Path(f"/proc/{server.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _status(server: Served, name: str) -> int:
    for line in Path(f"/proc/{server.process.pid}/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1])
    raise AssertionError(f"{name} is not in the process's status")
