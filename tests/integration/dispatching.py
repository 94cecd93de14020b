"""A dispatcher at work in the test's own loop, and who asks it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from lakeshore.plane.contract import Outcome, Poll, Report, Submission, Wish
from lakeshore.plane.database import Durability
from lakeshore.plane.plane import Plane
from lakeshore.server.dispatcher import Dispatcher

NS, QUEUE = "default", "q"


class Asker:
    """A request that waits."""

    def __init__(self) -> None:
        self._woken = trio.Event()

    async def park(self, timeout_s: float) -> str:
        with trio.move_on_after(timeout_s):
            await self._woken.wait()
        return "woken" if self._woken.is_set() else "timeout"

    def wake(self) -> None:
        self._woken.set()

    def is_gone(self) -> bool:
        return False


@asynccontextmanager
async def running(
    directory: Path, durability: Durability = "power", *, lease_s: float = 60.0
) -> AsyncIterator[Dispatcher]:
    """On a new plane in `directory`; both are closed at the end."""
    plane = Plane(str(directory / "plane.sqlite"), files=directory, durability=durability)
    dispatcher = Dispatcher(plane, lease_s=lease_s, reserve_bytes=0)
    try:
        async with trio.open_nursery() as nursery:
            await nursery.start(dispatcher.run)
            yield dispatcher
            nursery.cancel_scope.cancel()
    finally:
        dispatcher.close()
        plane.close()


async def claimed(dispatcher: Dispatcher, *ids: str, watch: str | None = None) -> dict[str, int]:
    """Submit these, and hand them out: id to claim."""
    items = [Submission(ns=NS, id=id_, queue=QUEUE, args=b"", hash=id_.encode(), max_attempts=1) for id_ in ids]
    await dispatcher.submit_many(items, watch=watch)
    found: dict[str, int] = {}
    while len(found) < len(ids):
        n = len(found) + 1
        wish = Wish(ns=NS, queues=(QUEUE,), worker=f"w{n}", session="s", n=1, capacity=32)
        poll = Poll(ns=NS, worker=f"w{n}", session="s", n=1, wish=wish)
        answer = await dispatcher.poll(poll, timeout_s=0.0, parker=Asker())
        found |= {run.id: run.claim for run in answer.runs}
    return found


def report(id_: str, claim: int, outcome: Outcome = "succeeded", result: bytes = b"") -> Report:
    error = None if outcome == "succeeded" else b"\x81\xa4type\xa1E"
    return Report(ns=NS, id=id_, claim=claim, outcome=outcome, result=result, error=error)
