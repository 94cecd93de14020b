"""Throughput of one thread: all submits in one loop, then every result."""

from __future__ import annotations

from harness.given import Given
from harness.stats import clock, must_be

from lakeshore.sdk.queues import SyncQueue

from .bodies import QUEUE, add
from .planes import finish, plane_of, warm_up

__all__ = ["finish", "measure", "prepare"]
prepare = warm_up


def measure(given: Given) -> dict[str, float]:
    """`loop_tasks_s`; `loop_submits_s` of its first half alone."""
    plane = plane_of(given)
    queue = SyncQueue(QUEUE, dispatch=plane)
    with clock() as elapsed:
        ids = [add.submit(i, i, _dispatch=plane) for i in range(given.count)]
        submitted = elapsed()
        results = [queue.result(id_, timeout=120) for id_ in ids]
        took = elapsed()
    must_be(results, [2 * i for i in range(given.count)])
    return {"loop_tasks_s": given.count / took, "loop_submits_s": given.count / submitted}
