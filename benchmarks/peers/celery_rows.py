"""Celery's rows."""

from __future__ import annotations

import os

from harness.given import Given
from harness.stats import clock, latencies_ms, must_be, percentile

from .celery_app import add, size

WAIT_S = 60


def prepare(given: Given) -> None:
    """Workers past their imports, connections open."""
    del given
    for i in range(20):
        must_be(add.delay(i, i).get(timeout=WAIT_S), 2 * i)


def measure(given: Given) -> dict[str, float]:
    """Round trip, loop, submits, 1 MiB."""
    took = latencies_ms(lambda i: must_be(add.delay(i, i).get(timeout=WAIT_S), 2 * i), given.count // 5)
    figures = {"rtt_p50_ms": percentile(took, 0.5), "rtt_p99_ms": percentile(took, 0.99)}
    with clock() as elapsed:
        asked = [add.delay(i, i) for i in range(given.count)]
        results = [result.get(timeout=WAIT_S) for result in asked]
        figures["loop_tasks_s"] = given.count / elapsed()
    must_be(results, [2 * i for i in range(given.count)])
    with clock() as elapsed:
        for i in range(given.count):
            add.apply_async((i, i), queue="unattended", ignore_result=True)
        figures["submit_one_s"] = given.count / elapsed()
    data = os.urandom(2**20)
    took = latencies_ms(lambda _i: must_be(size.delay(data).get(timeout=WAIT_S), len(data)), 20)
    return {**figures, "mib_p50_ms": percentile(took, 0.5)}
