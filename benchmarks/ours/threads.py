"""The same from 16 threads: each submits its share in a loop, then joins it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from harness.given import Given
from harness.stats import clock, must_be

from lakeshore.sdk.queues import SyncQueue

from .bodies import QUEUE, add
from .planes import finish, plane_of, warm_up

__all__ = ["finish", "measure", "prepare"]
THREADS = 16
prepare = warm_up


def measure(given: Given) -> dict[str, float]:
    """`threads_tasks_s`."""
    plane = plane_of(given)
    queue = SyncQueue(QUEUE, dispatch=plane)

    def share(first: int) -> int:
        numbers = range(first, given.count, THREADS)
        ids = [add.submit(i, i, _dispatch=plane) for i in numbers]
        return sum(queue.result(id_, timeout=120) for id_ in ids)

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(abs, range(THREADS)))  # threads exist before the clock starts
        with clock() as elapsed:
            total = sum(pool.map(share, range(THREADS)))
            took = elapsed()
    must_be(total, given.count * (given.count - 1))
    return {"threads_tasks_s": given.count / took}
