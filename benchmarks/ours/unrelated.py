"""A small request of somebody else while submits pour in: it must wait for the server's turn, never for its disk.

Another process keeps `POURED` submits under way, one `asyncio.gather` after the other. Here one connection asks,
alternately, for /healthz (no SQL) and for an invocation that nobody knows (a read of the database).
"""

from __future__ import annotations

import asyncio
import http.client
import signal
import subprocess
import sys
import time
from urllib.parse import urlsplit

from harness.given import Given
from harness.stats import must_be, percentile

import dreamlake.lakeshore as dls
from lakeshore.sdk.http_dispatch import HttpDispatch

from .bodies import add

__all__ = ["finish", "measure", "prepare"]
QUEUE = "poured"
POURED = 100
UNKNOWN = "/v1/namespaces/default/invocations/00000000000000000000000f"

_pouring: list[subprocess.Popen[str]] = []


def prepare(given: Given) -> None:
    """Start the other process, and wait until what it pours arrives."""
    pour = subprocess.Popen([sys.executable, "-m", "ours.unrelated", given.url], stdout=subprocess.PIPE, text=True)
    _pouring.append(pour)
    assert pour.stdout is not None
    must_be(pour.stdout.readline(), "pouring\n")


def measure(given: Given) -> dict[str, float]:
    """`unrelated_p50_ms`, `unrelated_p99_ms`."""
    parts = urlsplit(given.url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=30)
    took: list[float] = []
    for path, status in (("/healthz", 200), (UNKNOWN, 404)) * (given.count // 2):
        before = time.perf_counter()
        connection.request("GET", path)
        answer = connection.getresponse()
        answer.read()
        took.append((time.perf_counter() - before) * 1e3)
        must_be(answer.status, status)
    connection.close()
    must_be([pour.poll() for pour in _pouring], [None])
    return {"unrelated_p50_ms": percentile(took, 0.5), "unrelated_p99_ms": percentile(took, 0.99)}


def finish(_given: Given) -> None:
    """End the other process."""
    for pour in _pouring:
        pour.send_signal(signal.SIGKILL)
        pour.wait()


async def _pour(url: str) -> None:
    plane = HttpDispatch(url)
    queue = dls.Queue(QUEUE, dispatch=plane)
    told = False
    while True:
        await asyncio.gather(*(queue.submit(dls.thunk(add, i, i)) for i in range(POURED)))
        if not told:
            sys.stdout.write("pouring\n")
            sys.stdout.flush()
            told = True


if __name__ == "__main__":
    asyncio.run(_pour(sys.argv[1]))
