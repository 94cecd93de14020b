"""Tasks of one loop share requests; whoever leaves early costs the others nothing (K-18, K-21)."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import time
from collections.abc import Iterator

import pytest
import served
import trio

from lakeshore.sdk.errors import DispatchError
from lakeshore.sdk.http_dispatch import HttpDispatch
from lakeshore.sdk.http_loop import HttpLoop
from lakeshore.sdk.queues import Queue, SyncQueue
from lakeshore.sdk.submitter import MAX_ITEMS

PATIENCE_S = 60.0
SEED = int(os.environ.get("LAKESHORE_SEED") or random.randrange(2**32))


@pytest.fixture
def q(server: served.Served) -> Iterator[Queue]:
    plane = HttpDispatch(server.url)
    yield Queue(f"q-{served.new_id()}", dispatch=plane)
    plane.close()


@pytest.mark.inventory("K-18")
def test_more_submits_than_a_batch_takes_all_arrive_once(q: Queue) -> None:
    count = 2 * MAX_ITEMS + 100

    async def main() -> list[str]:
        return await asyncio.gather(*(q.submit(n) for n in range(count)))

    assert len(set(asyncio.run(main()))) == count
    assert q.sync.count() == count


@pytest.mark.inventory("K-18")
@pytest.mark.parametrize("turns", range(4))
def test_a_task_that_is_cancelled_while_it_sends_for_others_costs_them_nothing(q: Queue, turns: int) -> None:
    async def main() -> list[str]:
        await q.submit("a connection is open")
        tasks = [asyncio.create_task(q.submit(n)) for n in range(20)]
        for _ in range(turns):
            await asyncio.sleep(0)
        tasks[0].cancel()
        tasks[1].cancel()
        more = [asyncio.create_task(q.submit(n)) for n in range(20)]
        return await asyncio.wait_for(asyncio.gather(*tasks[2:], *more), PATIENCE_S)

    assert len(set(asyncio.run(main()))) == 38


@pytest.mark.inventory("K-21")
def test_whoever_is_cancelled_while_waiting_leaves_nobody_behind(q: Queue) -> None:
    print(f"LAKESHORE_SEED={SEED}")
    chance = random.Random(SEED)

    async def main() -> None:
        ids = await asyncio.gather(*(q.submit(n) for n in range(60)))
        waits = [asyncio.create_task(q.result(id_, timeout=PATIENCE_S)) for id_ in ids]
        late = [asyncio.create_task(q.result(id_, timeout=0.05)) for id_ in ids[:10]]
        answers = asyncio.create_task(asyncio.to_thread(answer, q.sync, 60))
        gone = chance.sample(range(60), 30)
        for n in gone:
            waits[n].cancel()
            if chance.random() < 0.5:
                await asyncio.sleep(0)
        stay = [task for n, task in enumerate(waits) if n not in gone]
        wanted = [2 * n for n in range(60) if n not in gone]
        assert await asyncio.wait_for(asyncio.gather(*stay), PATIENCE_S) == wanted
        await answers
        await asyncio.gather(*late, return_exceptions=True)

    asyncio.run(main())


@pytest.mark.inventory("K-18", "K-21")
def test_calls_that_are_cancelled_at_any_moment_cost_the_others_nothing(q: Queue) -> None:
    print(f"LAKESHORE_SEED={SEED}")
    chance = random.Random(SEED)

    async def main() -> None:
        await q.submit("a connection is open")
        calls = [asyncio.create_task(q.call(n, timeout=PATIENCE_S)) for n in range(60)]
        gone = chance.sample(range(60), 30)
        for n in gone[:15]:  # before they leave, while they travel
            calls[n].cancel()
            if chance.random() < 0.5:
                await asyncio.sleep(0)
        await asyncio.to_thread(until_queued, q.sync, 60 - 15)
        for n in gone[15:]:  # while they wait: the first that stay also lead
            calls[n].cancel()
            if chance.random() < 0.5:
                await asyncio.sleep(0.002)
        answers = asyncio.create_task(asyncio.to_thread(answer_all, q.sync))
        stay = [task for n, task in enumerate(calls) if n not in gone]
        wanted = [2 * n for n in range(60) if n not in gone]
        assert await asyncio.wait_for(asyncio.gather(*stay), PATIENCE_S) == wanted
        await answers

    asyncio.run(main())


@pytest.mark.inventory("K-18", "K-21")
def test_calls_of_one_key_are_one_invocation_whose_end_all_of_them_see(q: Queue) -> None:
    async def main() -> list[int]:
        calls = [asyncio.create_task(q.call(21, key="one", timeout=PATIENCE_S)) for _ in range(5)]
        await asyncio.to_thread(until_queued, q.sync, 1)
        await asyncio.to_thread(answer, q.sync, 1)
        return await asyncio.wait_for(asyncio.gather(*calls), PATIENCE_S)

    assert asyncio.run(main()) == [42] * 5


async def ends_after(q: Queue, timeout_s: float) -> None:
    """A call that nobody answers."""
    began = time.monotonic()
    with pytest.raises(TimeoutError, match=f"still 'queued' after {timeout_s}s"):
        await q.call("nobody answers", timeout=timeout_s)
    assert time.monotonic() - began >= timeout_s


TIMES = (0.5, 0.1, 0.3, 0.1)


@pytest.mark.inventory("K-21")
def test_each_call_ends_at_its_own_time_on_asyncio(q: Queue) -> None:
    async def main() -> None:
        longest = asyncio.create_task(q.call("it leads", timeout=PATIENCE_S))
        await asyncio.gather(*(ends_after(q, seconds) for seconds in TIMES))
        assert not longest.done()
        longest.cancel()

    asyncio.run(main())


@pytest.mark.inventory("K-21")
def test_each_call_ends_at_its_own_time_on_trio(q: Queue) -> None:
    async def main() -> None:
        async with trio.open_nursery() as outer:
            outer.start_soon(q.call, "it leads")
            async with trio.open_nursery() as nursery:
                for seconds in TIMES:
                    nursery.start_soon(ends_after, q, seconds)
            outer.cancel_scope.cancel()

    trio.run(main)


@pytest.mark.inventory("K-21")
def test_calls_on_trio_share_one_watch_and_a_cancelled_one_hands_it_over(q: Queue) -> None:
    results: dict[int, int] = {}

    async def one(n: int) -> None:
        results[n] = await q.call(n, timeout=PATIENCE_S)

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            with trio.CancelScope() as scope:
                async with trio.open_nursery() as leaving:
                    leaving.start_soon(one, 0)  # it leads
                    await trio.to_thread.run_sync(until_queued, q.sync, 1)
                    for n in range(1, 30):
                        nursery.start_soon(one, n)
                    await trio.to_thread.run_sync(until_queued, q.sync, 30)
                    scope.cancel()
            await trio.to_thread.run_sync(answer, q.sync, 30)

    trio.run(main)
    assert results == {n: 2 * n for n in range(1, 30)}


@pytest.mark.inventory("K-18", "K-19")
def test_a_call_that_is_refused_fails_alone(q: Queue, server: served.Served) -> None:
    """Of calls in one request each has its own answer."""

    async def main() -> list[object]:
        good = [q.call(n, timeout=PATIENCE_S) for n in range(3)]
        bad = q.call(9, key="k" * 10_000, timeout=PATIENCE_S)
        calls = asyncio.gather(*good, bad, return_exceptions=True)
        await asyncio.to_thread(until_queued, q.sync, 3)
        await asyncio.to_thread(answer, q.sync, 3)
        return list(await asyncio.wait_for(calls, PATIENCE_S))

    *values, refused = asyncio.run(main())
    assert values == [0, 2, 4]
    assert isinstance(refused, DispatchError)


def until_queued(q: SyncQueue, count: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while q.count() < count:
        assert time.monotonic() < deadline, f"{q.count()} were queued, not {count}"
        time.sleep(0.01)


def answer_all(q: SyncQueue) -> None:
    """Double what is queued, until nothing is."""
    while (job := q.claim()) is not None:
        q.ack(job, job.payload * 2)


def answer(q: SyncQueue, count: int) -> None:
    """Double what is queued."""
    for _ in range(count):
        job = q.claim()
        assert job is not None
        q.ack(job, job.payload * 2)


def test_a_process_that_makes_loop_after_loop_keeps_what_belongs_to_the_one_that_runs(q: Queue) -> None:
    async def one() -> None:
        await q.submit(1)

    def kept() -> int:
        gc.collect()
        return sum(type(thing) is HttpLoop for thing in gc.get_objects())

    asyncio.run(one())
    before = kept()
    for _ in range(3):
        trio.run(one)
        asyncio.run(one())
    assert kept() <= before
    assert q.sync.count() == 7
