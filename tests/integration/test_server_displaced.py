"""A poll that was given up for a newer one of its session strands nothing, in whichever commit the two meet (K-8)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from dispatching import NS, QUEUE, Asker, claimed, report, running

from lakeshore.plane.contract import Poll, PollAnswer, Report, Submission, Wish
from lakeshore.plane.plane import Plane
from lakeshore.plane.transaction import Transaction
from lakeshore.server.dispatcher import Dispatcher


class SlowDisk:
    """A plane whose commits take so long that they leave the loop, and wait for `gate`."""

    commit_s = 1.0

    def __init__(self, plane: Plane) -> None:
        self._plane = plane
        self.gate = threading.Event()
        self.gate.set()

    def batch(self, verbs: Sequence[Callable[[Transaction], Any]]) -> list[Any]:
        self.gate.wait(10)
        return self._plane.batch(verbs)


async def poll(dispatcher: Dispatcher, n: int, *reports: Report, timeout_s: float = 30.0) -> PollAnswer:
    wish = Wish(ns=NS, queues=(QUEUE,), worker="w1", session="s", n=n, capacity=1)
    request = Poll(ns=NS, worker="w1", session="s", n=n, reports=reports, wish=wish)
    return await dispatcher.poll(request, timeout_s=timeout_s, parker=Asker())


async def submit(dispatcher: Dispatcher, id_: str) -> None:
    await dispatcher.submit(Submission(ns=NS, id=id_, queue=QUEUE, args=b"", hash=id_.encode()))


@pytest.mark.inventory("K-8")
def test_what_an_older_poll_got_in_the_same_commit_comes_back_with_the_next_one(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path, "none") as dispatcher, trio.open_nursery() as nursery:

            async def newer() -> None:
                answers.append(await poll(dispatcher, 3, done))

            answers: list[PollAnswer] = []
            done = report("one", (await claimed(dispatcher, "one"))["one"])
            nursery.start_soon(poll, dispatcher, 2, done)  # it looks for company, is given up, and said again
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(newer)
            await trio.testing.wait_all_tasks_blocked()
            await submit(dispatcher, "two")
            await trio.testing.wait_all_tasks_blocked()
            assert [list(answer.runs) for answer in answers] == [[]], "it is answered, with nothing"
            clock.autojump_threshold = 0.01  # nobody else comes: the next one goes alone
            (again,) = (await poll(dispatcher, 4)).runs
            assert (again.id, again.claim) == ("two", 2)

    clock = trio.testing.MockClock()  # which stands still
    trio.run(main, clock=clock)


@pytest.mark.inventory("K-8")
def test_what_a_commit_under_way_gives_a_displaced_poll_comes_back_with_the_next_one(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path, "none") as dispatcher, trio.open_nursery() as nursery:

            async def newer() -> None:
                answers.append(await poll(dispatcher, 3))
                answered.set()

            answers: list[PollAnswer] = []
            answered = trio.Event()
            await poll(dispatcher, 1, timeout_s=0.0)
            disk = SlowDisk(dispatcher.plane)
            dispatcher.writer._into, dispatcher.writer.commit_average_s = disk, 1.0  # type: ignore[assignment]
            nursery.start_soon(poll, dispatcher, 2)
            await trio.testing.wait_all_tasks_blocked()
            disk.gate.clear()
            nursery.start_soon(submit, dispatcher, "one")
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(newer)
            await trio.testing.wait_all_tasks_blocked()
            disk.gate.set()
            with trio.fail_after(10):
                await answered.wait()
                assert not answers[0].runs
                (again,) = (await poll(dispatcher, 4)).runs
            assert (again.id, again.claim) == ("one", 2)

    trio.run(main)
