"""How long commands are kept, and what a sweep leaves: the services themselves, on a disk, with the test's clock."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio

from lakeshore.plane.contract import PlaneError
from lakeshore.server.execs import Execs, Output, Store, keeping
from lakeshore.server.execs.job import NewExec, Result
from lakeshore.server.http import HttpError

DAY = 86_400.0
START = 1_800_000_000.0


class Clock:
    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> float:
        return self.now


def use(tmp_path: Path, body: Callable[[Execs, Clock], Awaitable[None]]) -> None:
    """Run `body` with the services of `tmp_path`."""

    async def main() -> None:
        clock = Clock()
        execs = Execs(Store(tmp_path / "execs.db"), Output(tmp_path / "exec-logs"), clock=clock)
        try:
            async with trio.open_nursery() as nursery:
                await nursery.start(execs.run)
                await body(execs, clock)
                nursery.cancel_scope.cancel()
        finally:
            execs.store.close()

    trio.run(main)


async def ended(execs: Execs, *, printed: bytes = b"", ns: str = "ns") -> str:
    id_ = await execs.submit(NewExec(ns=ns, worker="w", command="true", log=bool(printed)))
    job = execs.get(ns, id_)
    assert job is not None
    if printed:
        execs.output.append(job.seq, "stdout", None, printed, START)
    assert await execs.finish(job, Result(exit_code=0, stdout=b"kept"))
    return id_


def printed_by(tmp_path: Path) -> int:
    return sum(path.is_file() for path in (tmp_path / "exec-logs").rglob("*"))


def test_what_ended_a_week_ago_is_forgotten_with_what_it_printed_and_what_is_open_is_not(tmp_path: Path) -> None:
    async def body(execs: Execs, clock: Clock) -> None:
        old = await ended(execs, printed=b"x" * 1000)
        clock.now += DAY
        young = await ended(execs, printed=b"x")
        running = await execs.submit(NewExec(ns="ns", worker="w", command="sleep 1000000"))
        await execs.take("ns", "w", 1, "s", 1)
        clock.now += 6 * DAY + 1
        assert await keeping.sweep(execs, clock.now) == 1
        assert execs.show("ns", old) is None
        assert [row.id for row in (execs.show("ns", young), execs.show("ns", running)) if row] == [young, running]
        assert printed_by(tmp_path) == 1

    use(tmp_path, body)


def test_what_nobody_took_for_a_week_has_failed(tmp_path: Path) -> None:
    async def body(execs: Execs, clock: Clock) -> None:
        id_ = await execs.submit(NewExec(ns="ns", worker="w", command="true"))
        clock.now += 7 * DAY + 1
        await keeping.sweep(execs, clock.now)
        row = execs.show("ns", id_)
        assert row is not None
        assert (row.state, row.exit_code, row.error) == ("failed", -1, "no daemon took it for 7 days")
        assert await execs.take("ns", "w", 1, "s", 4) == []

    use(tmp_path, body)


def test_to_save_bytes_the_oldest_go_first_and_none_of_the_last_hour(tmp_path: Path) -> None:
    async def body(execs: Execs, clock: Clock) -> None:
        old = await ended(execs, printed=b"x" * 2_000_000)
        clock.now += 2 * 3600
        young = await ended(execs, printed=b"x" * 2_000_000)
        await keeping.sweep(execs, clock.now, keep_bytes=1_000_000)
        assert execs.show("ns", old) is None
        assert execs.show("ns", young) is not None

    use(tmp_path, body)


def test_the_output_of_rows_that_are_gone_is_found_by_the_next_sweep(tmp_path: Path) -> None:
    async def first(execs: Execs, _clock: Clock) -> None:
        await ended(execs, printed=b"x")
        execs.output.append(4711, "stdout", None, b"whose row a killed server had just deleted", START)

    async def second(execs: Execs, clock: Clock) -> None:
        assert printed_by(tmp_path) == 2
        await keeping.sweep(execs, clock.now)
        assert printed_by(tmp_path) == 1

    use(tmp_path, first)
    use(tmp_path, second)


@pytest.mark.inventory("S-592")
def test_what_may_be_secret_is_not_kept_beyond_the_end(tmp_path: Path) -> None:
    async def body(execs: Execs, _clock: Clock) -> None:
        new = NewExec(
            ns="ns", worker="w", command="true", env={"A": "secret"}, stdin=b"secret", payload_inline=b"secret"
        )
        assert "secret" not in repr(new)
        id_ = await execs.submit(new)
        job = execs.get("ns", id_)
        assert job is not None
        asked = "SELECT env, stdin_b64, payload_inline FROM exec"
        assert None not in execs.store.rows(asked)[0]
        await execs.finish(job, Result(exit_code=0))
        assert execs.store.rows(asked) == [(None, None, None)]

    use(tmp_path, body)


def test_a_disk_that_is_full_refuses_one_and_loses_none(tmp_path: Path) -> None:
    async def body(execs: Execs, _clock: Clock) -> None:
        waits = await execs.submit(NewExec(ns="ns", worker="w", command="true"))
        ((pages,),) = execs.store.rows("PRAGMA page_count")
        execs.store.file.conn.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(PlaneError, match="no space"):
            await execs.submit(NewExec(ns="ns", worker="w", command="x" * 100_000))
        execs.store.file.conn.execute("PRAGMA max_page_count = 1000000")
        (order,) = await execs.take("ns", "w", 1, "s", 4)
        assert order.id == waits

    use(tmp_path, body)


def test_one_that_cannot_be_noted_as_handed_out_waits_on(tmp_path: Path) -> None:
    async def body(execs: Execs, _clock: Clock) -> None:
        ids = [await execs.submit(NewExec(ns="ns", worker="w", command="true")) for _ in range(2)]
        other = sqlite3.connect(tmp_path / "execs.db", isolation_level=None)
        execs.store.file.conn.execute("PRAGMA busy_timeout = 10")
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(PlaneError):
            await execs.take("ns", "w", 1, "s", 1)
        other.execute("ROLLBACK")
        other.close()
        assert [order.id for order in await execs.take("ns", "w", 1, "newer", 4)] == ids

    use(tmp_path, body)


def test_of_two_ends_that_come_at_once_one_counts(tmp_path: Path) -> None:
    async def body(execs: Execs, _clock: Clock) -> None:
        id_ = await execs.submit(NewExec(ns="ns", worker="w", command="true"))
        job = execs.get("ns", id_)
        assert job is not None
        counted: list[int] = []

        async def end(code: int) -> None:
            if await execs.finish(job, Result(exit_code=code)):
                counted.append(code)

        async with trio.open_nursery() as nursery:
            for code in (1, 2):
                nursery.start_soon(end, code)
        row = execs.show("ns", id_)
        assert row is not None
        assert counted == [row.exit_code]

    use(tmp_path, body)


def test_of_one_worker_so_many_wait_and_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakeshore.server.execs.book.MOST_OPEN", 2)

    async def body(execs: Execs, _clock: Clock) -> None:
        for _ in range(2):
            await execs.submit(NewExec(ns="ns", worker="w", command="true"))
        with pytest.raises(HttpError) as refused:
            await execs.submit(NewExec(ns="ns", worker="w", command="true"))
        assert refused.value.status == 429
        await execs.submit(NewExec(ns="ns", worker="another", command="true"))

    use(tmp_path, body)
