"""Durable submits with nobody working: one by one, and from one `asyncio.gather`."""

from __future__ import annotations

import asyncio

from harness.given import Given
from harness.stats import clock, must_be

import dreamlake.lakeshore as dls

from .bodies import add
from .planes import finish, plane_of

__all__ = ["finish", "measure"]
QUEUE = "unattended"


def measure(given: Given) -> dict[str, float]:
    """`submit_one_s` (over a fifth as many), `submit_gather_s`."""
    plane = plane_of(given)
    add.submit(0, 0, _queue=QUEUE, _dispatch=plane)
    one_by_one = max(1, given.count // 5)
    with clock() as elapsed:
        for i in range(one_by_one):
            add.submit(i, i, _queue=QUEUE, _dispatch=plane)
        figures = {"submit_one_s": one_by_one / elapsed()}
    figures["submit_gather_s"] = asyncio.run(_gather(dls.Queue(QUEUE, dispatch=plane), given.count))
    return figures


async def _gather(queue: dls.Queue, count: int) -> float:
    await queue.submit(dls.thunk(add, 0, 0))
    with clock() as elapsed:
        ids = await asyncio.gather(*(queue.submit(dls.thunk(add, i, i)) for i in range(count)))
        took = elapsed()
    must_be(len(set(ids)), count)
    return count / took
