# /// script
# requires-python = ">=3.11"
# dependencies = ["lakeshore"]
#
# [tool.uv.sources]
# lakeshore = { path = "..", editable = true }
# ///
"""Many calls at once, collected in the order in which they were asked.

Teaches: a comprehension of `submit` is the fan-out, a comprehension of `result` is the barrier; workers are added
without a word to the producer; `asyncio` composes where somebody must not wait for the slowest.

Needs nothing but Python: the plane is in memory, the workers are threads.
"""

import asyncio
import threading
import time

import dreamlake.lakeshore as dls

WORKERS = 4


@dls.udf(queue="compute")
def square(x: int) -> int:
    time.sleep(0.05 * (8 - x) / 8)  # the first ones take longest
    return x * x


def in_order(plane: dls.Dispatch, n: int) -> list[int]:
    """Blocking: results stand where their calls stood, whoever finished first."""
    q = dls.SyncQueue("compute", dispatch=plane)
    ids = [square.submit(x, _dispatch=plane) for x in range(n)]
    return [q.result(i, timeout=30) for i in ids]


async def as_they_finish(plane: dls.Dispatch, n: int) -> list[int]:
    """On an event loop: each result as soon as it is there."""
    q = dls.Queue("compute", dispatch=plane)
    ids = [square.submit(x, _dispatch=plane) for x in range(n)]
    return [await done for done in asyncio.as_completed([q.result(i, timeout=30) for i in ids])]


def main() -> None:
    plane = dls.Dispatch(":memory:")
    stop = threading.Event()
    workers = [
        threading.Thread(
            target=dls.run_worker,
            args=(dls.SyncQueue("compute", dispatch=plane),),
            kwargs={"stop": stop.is_set},
        )
        for _ in range(WORKERS)
    ]
    for worker in workers:
        worker.start()
    try:
        print("in order:", in_order(plane, 8))
        arrived = asyncio.run(as_they_finish(plane, 8))
        print("the same values as they finish:", sorted(arrived) == [x * x for x in range(8)])
    finally:
        stop.set()
        for worker in workers:
            worker.join()


if __name__ == "__main__":
    main()
