"""Commands that are handed out in the commit of their submit, to the poll that waits (K-34)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio

from lakeshore.server.execs import Execs, Output, Seat, Store
from lakeshore.server.execs.job import KILLED, NewExec, Result

NS, WORKER = "default", "w"
NEW = NewExec(ns=NS, worker=WORKER, command="true")


def run(tmp_path: Path, body: Callable[[Execs], Awaitable[None]]) -> None:
    async def main() -> None:
        store = Store(tmp_path / "execs.db")
        execs = Execs(store, Output(tmp_path / "logs"))
        async with trio.open_nursery() as nursery:
            await nursery.start(execs.run)
            await body(execs)
            nursery.cancel_scope.cancel()
        store.close()

    trio.run(main)


def state(execs: Execs, id_: str) -> str:
    row = execs.show(NS, id_)
    assert row is not None
    return row.state


@pytest.mark.inventory("K-34")
def test_what_is_submitted_while_a_poll_waits_is_its_sessions_and_needs_no_other_commit(tmp_path: Path) -> None:
    async def body(execs: Execs) -> None:
        execs.sit(NS, WORKER, Seat("s1", 1))
        first, second = await execs.submit(NEW), await execs.submit(NEW)
        assert (state(execs, first), state(execs, second)) == ("running", "pending")
        commits = execs._writer.commits
        (order,) = await execs.take(NS, WORKER, 7, "s1", 1)
        assert (order.id, order.body["command"]) == (first, "true")
        assert execs._writer.commits == commits
        await execs.acknowledge(NS, WORKER, "s1", 7)
        assert not execs.waiting(NS, WORKER, 0)

    run(tmp_path, body)


def test_a_poll_that_waits_no_more_takes_nothing(tmp_path: Path) -> None:
    async def body(execs: Execs) -> None:
        old, new = Seat("s1", 1), Seat("s1", 1)
        execs.sit(NS, WORKER, old)
        execs.sit(NS, WORKER, new)
        execs.leave(NS, WORKER, old)
        assert state(execs, await execs.submit(NEW)) == "running"
        execs.leave(NS, WORKER, new)
        assert state(execs, await execs.submit(NEW)) == "pending"

    run(tmp_path, body)


@pytest.mark.inventory("K-34")
@pytest.mark.parametrize("is_sent", [False, True])
def test_a_newer_session_gets_what_was_never_sent_and_nothing_else(tmp_path: Path, is_sent: bool) -> None:
    async def body(execs: Execs) -> None:
        execs.sit(NS, WORKER, Seat("s1", 1))
        id_ = await execs.submit(NEW)
        if is_sent:
            await execs.take(NS, WORKER, 1, "s1", 1)
        await execs.superseded(NS, WORKER, "s2")
        assert state(execs, id_) == ("failed" if is_sent else "pending")
        given = await execs.take(NS, WORKER, 1, "s2", 1)
        assert [order.id for order in given] == ([] if is_sent else [id_])

    run(tmp_path, body)


def test_a_session_that_ends_while_a_submit_commits_does_not_keep_it(tmp_path: Path) -> None:
    async def body(execs: Execs) -> None:
        execs.sit(NS, WORKER, Seat("s1", 1))
        submitted: list[str] = []

        async def submit() -> None:
            submitted.append(await execs.submit(NEW))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(submit)
            nursery.start_soon(execs.superseded, NS, WORKER, "s2")
        assert state(execs, submitted[0]) == "pending"

    run(tmp_path, body)


def test_an_older_session_that_still_polls_is_given_nothing(tmp_path: Path) -> None:
    async def body(execs: Execs) -> None:
        await execs.superseded(NS, WORKER, "s2")
        execs.sit(NS, WORKER, Seat("s1", 1))
        assert state(execs, await execs.submit(NEW)) == "pending"

    run(tmp_path, body)


def test_an_unsent_one_is_cancelled_at_once_and_fails_with_a_worker_that_was_killed(tmp_path: Path) -> None:
    async def body(execs: Execs) -> None:
        execs.sit(NS, WORKER, Seat("s1", 2))
        one, other = await execs.submit(NEW), await execs.submit(NEW)
        job = execs.get(NS, one)
        assert job is not None
        await execs.cancel(job)
        assert state(execs, one) == "failed"
        await execs.abandoned(NS, WORKER, KILLED)
        assert state(execs, other) == "failed"

    run(tmp_path, body)


def test_a_cancel_waits_until_its_session_has_heard_of_the_command(tmp_path: Path) -> None:
    async def body(execs: Execs) -> None:
        execs.sit(NS, WORKER, Seat("s1", 1))
        job = execs.get(NS, await execs.submit(NEW))
        assert job is not None
        await execs.take(NS, WORKER, 1, "s1", 1)
        await execs.cancel(job)
        await execs.acknowledge(NS, WORKER, "s1", 0)  # the answer of poll 1 was lost
        assert [order.kind for order in await execs.take(NS, WORKER, 2, "s1", 1)] == ["exec"]
        await execs.acknowledge(NS, WORKER, "s1", 2)
        assert [order.kind for order in await execs.take(NS, WORKER, 3, "s1", 1)] == ["cancel"]

    run(tmp_path, body)


def test_several_end_in_one_commit_and_the_first_word_about_each_counts(tmp_path: Path) -> None:
    async def body(execs: Execs) -> None:
        jobs = [execs.get(NS, await execs.submit(NEW)) for _ in range(3)]
        found = [job for job in jobs if job is not None]
        commits = execs._writer.commits
        ends = [(job, Result(exit_code=0)) for job in (*found, found[0])]
        assert await execs.finish_many(ends) == [True, True, True, False]
        assert execs._writer.commits == commits + 1

    run(tmp_path, body)
