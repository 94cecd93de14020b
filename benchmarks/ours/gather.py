"""The same from one `asyncio.gather` over `Queue.call`; and over `remote` of a function with an async body."""

from __future__ import annotations

import asyncio

from harness.given import Given
from harness.stats import clock, must_be

import dreamlake.lakeshore as dls

from .bodies import QUEUE, add, add_async
from .planes import finish, plane_of, warm_up

__all__ = ["finish", "measure", "prepare"]
prepare = warm_up


def measure(given: Given) -> dict[str, float]:
    """`gather_tasks_s`, `gather_remote_tasks_s`."""
    plane = plane_of(given)
    queue = dls.Queue(QUEUE, dispatch=plane)

    async def calls() -> float:
        with clock() as elapsed:
            asked = (queue.call(dls.thunk(add, i, i), timeout=120) for i in range(given.count))
            results = await asyncio.gather(*asked)
            took = elapsed()
        must_be(results, [2 * i for i in range(given.count)])
        return given.count / took

    async def remotes(count: int) -> float:
        with clock() as elapsed:
            asked = (add_async.remote(i, i, _dispatch=plane, _timeout=120) for i in range(count))
            results = await asyncio.gather(*asked)
            took = elapsed()
        must_be(results, [2 * i for i in range(count)])
        return count / took

    figures = {"gather_tasks_s": asyncio.run(calls())}
    if not given.extra.get("calls_only"):
        figures["gather_remote_tasks_s"] = asyncio.run(remotes(given.count // 4))
    return figures
