# /// script
# requires-python = ">=3.11"
# dependencies = ["lakeshore"]
#
# [tool.uv.sources]
# lakeshore = { path = "..", editable = true }
# ///
"""Two stages: the graph is the order in which ordinary Python submits.

Teaches: a barrier between stages, by resolving the whole first stage; and how to do without one, by keeping pairs of
ids and submitting the second stage of each item as soon as its first is there.

Needs nothing but Python.
"""

import asyncio
import threading

import dreamlake.lakeshore as dls

NUMBERS = range(6)


@dls.udf(queue="pipeline")
def double(x: int) -> int:
    return x * 2


@dls.udf(queue="pipeline")
def label(n: int) -> dict:
    return {"n": n, "hex": hex(n)}


def with_a_barrier(plane: dls.Dispatch) -> list[dict]:
    """The second stage sees values. It begins when the slowest of the first has ended."""
    q = dls.SyncQueue("pipeline", dispatch=plane)
    doubled = [q.result(i, timeout=30) for i in [double.submit(x, _dispatch=plane) for x in NUMBERS]]
    return [q.result(i, timeout=30) for i in [label.submit(n, _dispatch=plane) for n in doubled]]


async def without_one(plane: dls.Dispatch) -> list[dict]:
    """Each item goes on by itself; what ties its two ids together is a coroutine."""
    q = dls.Queue("pipeline", dispatch=plane)

    async def both(first: str) -> dict:
        second = label.submit(await q.result(first, timeout=30), _dispatch=plane)
        return await q.result(second, timeout=30)

    firsts = [double.submit(x, _dispatch=plane) for x in NUMBERS]
    return await asyncio.gather(*(both(first) for first in firsts))


def main() -> None:
    plane = dls.Dispatch(":memory:")
    stop = threading.Event()
    worker = threading.Thread(
        target=dls.run_worker,
        args=(dls.SyncQueue("pipeline", dispatch=plane),),
        kwargs={"stop": stop.is_set},
    )
    worker.start()
    try:
        labels = with_a_barrier(plane)
        for x, found in zip(NUMBERS, labels, strict=True):
            print(f"{x} -> {found['n']:2} -> {found['hex']}")
        print("the same without a barrier:", asyncio.run(without_one(plane)) == labels)
    finally:
        stop.set()
        worker.join()


if __name__ == "__main__":
    main()
