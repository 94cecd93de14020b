"""Tasks of one loop share requests; whoever leaves early costs the others nothing (K-18, K-21)."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Iterator

import pytest
import served

from lakeshore.sdk.http_dispatch import HttpDispatch
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


def answer(q: SyncQueue, count: int) -> None:
    """Double what is queued."""
    for _ in range(count):
        job = q.claim()
        assert job is not None
        q.ack(job, job.payload * 2)
