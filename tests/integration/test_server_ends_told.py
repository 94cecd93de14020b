"""What a waiter is told of an end, from the report or from the rows, is what the rows say."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest
import trio
import trio.testing
from dispatching import NS, QUEUE, Asker, claimed, report, running

from lakeshore.plane import rows
from lakeshore.plane.contract import Ended, Outcome, Poll, Report, Submission, Wish
from lakeshore.server.waiters import KEPT, KEPT_BYTES


def as_told(ended: Ended) -> Ended:
    return replace(ended, row_state=None)  # of what is terminal nobody is told it


@pytest.mark.inventory("K-22")
@pytest.mark.parametrize("outcome", ["succeeded", "failed", "killed", "timeout"])
def test_who_waits_for_one_end_is_told_what_its_row_says(tmp_path: Path, outcome: Outcome) -> None:
    async def main() -> None:
        async with running(tmp_path, "none") as dispatcher, trio.open_nursery() as nursery:
            told: list[Ended] = []

            async def wait() -> None:
                told.append(await dispatcher.results.wait(NS, "one", 30.0, Asker()))

            claims = await claimed(dispatcher, "one")
            nursery.start_soon(wait)
            await trio.testing.wait_all_tasks_blocked()
            await dispatcher.report_many([report("one", claims["one"], outcome, b"r")])
            await trio.testing.wait_all_tasks_blocked()
            row = rows.ended(dispatcher.rows, NS, "one")
            assert row.state == outcome and [as_told(ended) for ended in told] == [as_told(row)]

    trio.run(main)


@pytest.mark.inventory("K-21", "K-22")
def test_a_watch_is_told_what_the_rows_say_however_many_ended_and_whatever_they_brought(tmp_path: Path) -> None:
    ids = [f"id{n:04}" for n in range(KEPT + 40)]

    async def main() -> None:
        async with running(tmp_path, "none") as dispatcher:
            claims = await claimed(dispatcher, *ids, watch="watch")
            for n, id_ in enumerate(ids):
                outcome: Outcome = "failed" if n % 7 == 0 else "succeeded"
                await dispatcher.report_many([report(id_, claims[id_], outcome, b"r" * (n % 5 * KEPT_BYTES // 2))])
            told: list[Ended] = []
            while len(told) < len(ids):
                told += (await dispatcher.results.watch(NS, "watch", (), (), 0.0, Asker())).ended
            assert [ended.id for ended in told] == ids
            read = rows.ended_many(dispatcher.rows, NS, ids)
            assert list(map(as_told, told)) == list(map(as_told, read))

    trio.run(main)


def test_an_end_that_could_not_be_read_is_told_the_next_time(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path, "none") as dispatcher:
            claims = await claimed(dispatcher, "one", "two", watch="watch")
            await dispatcher.report_many([report("one", claims["one"], "failed"), report("two", claims["two"])])
            dispatcher.plane.conn.execute("ALTER TABLE invocation RENAME TO away")
            with pytest.raises(sqlite3.Error):
                await dispatcher.results.watch(NS, "watch", (), (), 0.0, Asker())
            dispatcher.plane.conn.execute("ALTER TABLE away RENAME TO invocation")
            told = await dispatcher.results.watch(NS, "watch", (), (), 0.0, Asker())
            assert [(ended.id, ended.state) for ended in told.ended] == [("one", "failed"), ("two", "succeeded")]

    trio.run(main)


def test_who_is_of_another_namespace_is_not_told_of_a_call_that_runs(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path, "none") as dispatcher:
            await claimed(dispatcher, "one")
            assert (await dispatcher.results.wait("another", "one", 5.0, Asker())).state == "unknown"

    trio.run(main)


@pytest.mark.inventory("K-30")
def test_a_poll_that_nobody_waits_for_goes_with_the_next_submit(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path, "none") as dispatcher, trio.open_nursery() as nursery:

            async def poll(n: int, *reports: Report) -> None:
                wish = Wish(ns=NS, queues=(QUEUE,), worker="w1", session="s", n=n, capacity=1)
                request = Poll(ns=NS, worker="w1", session="s", n=n, reports=reports, wish=wish)
                given.append(await dispatcher.poll(request, timeout_s=30.0, parker=Asker()))

            given: list[object] = []
            claims = await claimed(dispatcher, "one")
            before = dispatcher.writer.commits
            nursery.start_soon(poll, 2, report("one", claims["one"]))
            await trio.testing.wait_all_tasks_blocked()
            assert dispatcher.writer.commits == before, "it looks for company"
            await dispatcher.submit(Submission(ns=NS, id="two", queue=QUEUE, args=b"", hash=b"two"))
            await trio.testing.wait_all_tasks_blocked()
            assert dispatcher.writer.commits == before + 1 and len(given) == 1
            assert rows.ended(dispatcher.rows, NS, "one").state == "succeeded"

    trio.run(main, clock=trio.testing.MockClock())  # which stands still: it looks for company as long as that takes
