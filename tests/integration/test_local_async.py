"""Awaits of the local plane go together: many submits in one sync, many results in one look."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import dreamlake.lakeshore as dls
from lakeshore import wire
from lakeshore.plane import queues
from lakeshore.plane.inbox import Inbox
from lakeshore.sdk import local_async
from lakeshore.sdk.dispatch import Dispatch, DispatchError
from lakeshore.sdk.local_submission import Call

QUEUE = "q"


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[Dispatch]:
    plane = Dispatch(tmp_path / "plane.sqlite", durability="process")
    plane.submit(QUEUE, b"", id="first")
    plane.cancel("first")
    yield plane
    plane.close()


def change(plane: Dispatch, name: str, **fields: Any) -> None:
    row = queues.QueueRow(ns="default", name=name, created_at=time.time(), **fields)
    plane._write(lambda tx: queues.add(tx, row) or queues.change(tx, row))


def call(queue: str, id_: str) -> Call:
    return queue, b"x", {"id": id_, "new": True}


def work(plane: Dispatch, count: int) -> None:
    queue = dls.SyncQueue(QUEUE, dispatch=plane)
    for _ in range(count):
        while (job := queue.claim()) is None:
            plane.wait_for_work(QUEUE, 1.0)
        queue.ack(job, job.payload * 2)


@pytest.mark.inventory("K-22")
def test_what_is_awaited_together_leaves_together_and_each_hears_its_own_result(
    plane: Dispatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = local_async.TOGETHER + 30
    all_there = threading.Event()
    leave, left = Inbox.leave, []

    def leaves(inbox: Inbox, items: Any, now: float) -> bool:
        assert all_there.wait(60)
        left.append(len(items))
        return leave(inbox, items, now)

    monkeypatch.setattr(Inbox, "leave", leaves)

    async def main() -> list[int]:
        queue = dls.Queue(QUEUE, dispatch=plane)
        tasks = [asyncio.ensure_future(queue.call(i, timeout=60)) for i in range(count)]
        for _ in range(5):
            await asyncio.sleep(0)
        all_there.set()
        return await asyncio.gather(*tasks)

    worker = threading.Thread(target=work, args=(plane, count))
    worker.start()
    assert asyncio.run(main()) == [2 * i for i in range(count)]
    worker.join()
    assert sum(left) == count and len(left) <= 4, left


def test_of_submits_that_leave_together_each_is_refused_by_itself(plane: Dispatch) -> None:
    change(plane, "closed", state="archived")
    answers = plane.submit_together([call(QUEUE, "a"), call("closed", "b"), call(QUEUE, "c"), call("closed", "d")])
    assert [type(one) for one in answers] == [str, DispatchError, str, DispatchError]
    assert "archived" in str(answers[1])
    assert [plane.get(id_) is not None for id_ in "abcd"] == [True, False, True, False]


@pytest.mark.inventory("K-19")
def test_an_awaited_submit_is_held_while_its_queue_is_full_and_holds(plane: Dispatch) -> None:
    change(plane, QUEUE, max_depth=1, on_full="block")
    plane.submit(QUEUE, wire.pack(1), id="a")

    async def main() -> str:
        sent = asyncio.ensure_future(dls.Queue(QUEUE, dispatch=plane).submit(2))
        await asyncio.sleep(0.05)
        assert not sent.done()
        plane.cancel("a")
        return await asyncio.wait_for(sent, 30)

    assert plane.get(asyncio.run(main())) is not None


def test_who_watches_for_ends_sleeps_when_there_is_no_new_one(plane: Dispatch) -> None:
    since = time.time()
    plane.submit(QUEUE, b"", id="a")
    plane.cancel("a")
    ended, since = plane.watch_done(since, 5.0)
    assert ended == ["a"]
    before = time.monotonic()
    assert plane.watch_done(since, 0.2) == ([], since)
    assert time.monotonic() - before >= 0.19
    plane.submit(QUEUE, b"", id="b")
    plane.cancel("b")
    assert plane.watch_done(since, 5.0)[0] == ["b"]
