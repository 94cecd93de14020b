"""Huey's rows. Its result is polled for, every 1 ms, as its consumer is set to look (the defaults are 50 and 100)."""

from __future__ import annotations

import os

from harness.given import Given
from harness.stats import clock, latencies_ms, must_be, percentile

from .huey_app import add, never, size

WAIT = {"blocking": True, "timeout": 60, "backoff": 1.0, "max_delay": 0.001}


def prepare(given: Given) -> None:
    """Workers past their imports."""
    del given
    for i in range(20):
        must_be(add(i, i).get(**WAIT), 2 * i)


def measure(given: Given) -> dict[str, float]:
    """Round trip, loop, submits, 1 MiB."""
    took = latencies_ms(lambda i: must_be(add(i, i).get(**WAIT), 2 * i), given.count // 5)
    figures = {"rtt_p50_ms": percentile(took, 0.5), "rtt_p99_ms": percentile(took, 0.99)}
    with clock() as elapsed:
        asked = [add(i, i) for i in range(given.count)]
        results = [result.get(**WAIT) for result in asked]
        figures["loop_tasks_s"] = given.count / elapsed()
    must_be(results, [2 * i for i in range(given.count)])
    with clock() as elapsed:
        for i in range(given.count):
            never(i, i)
        figures["submit_one_s"] = given.count / elapsed()
    data = os.urandom(2**20)
    took = latencies_ms(lambda _i: must_be(size(data).get(**WAIT), len(data)), 20)
    return {**figures, "mib_p50_ms": percentile(took, 0.5)}
