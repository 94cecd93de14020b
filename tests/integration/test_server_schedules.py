"""Schedules against a plane, its dispatcher and the records of a server; the wall clock is the test's."""

from __future__ import annotations

import shutil
import time
from collections.abc import Awaitable, Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import trio

from lakeshore.plane import claims, reports, rows
from lakeshore.plane.contract import Report, Wish
from lakeshore.plane.plane import Plane
from lakeshore.server.blobs import BlobStore
from lakeshore.server.dispatcher import Dispatcher
from lakeshore.server.records import Records, ScheduleRow
from lakeshore.server.scheduler import MOST_MISSED, Scheduler
from lakeshore.server.submissions import Submissions
from lakeshore.wire.envelope import Envelope

START = 1_764_450_000.0
CALL = Envelope.build(id="schedule", fn={"kind": "ref", "module": "m", "qualname": "f", "src_hash": "any"}, args=[1])


class Server:
    """What of a server has to do with schedules. `now` is its wall clock."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.now = START
        self.opened()

    def opened(self) -> None:
        self.plane = Plane(str(self.directory / "plane.db"), files=self.directory)
        self.dispatcher = Dispatcher(self.plane, reserve_bytes=0, clock=lambda: self.now)
        self.records = Records(self.directory / "records.db", now=lambda: self.now)
        submissions = Submissions(BlobStore(self.plane.blobs, b"k" * 32))
        self.scheduler = Scheduler(self.dispatcher, self.records, submissions, clock=lambda: self.now)

    def close(self) -> None:
        self.records.close()
        self.dispatcher.close()
        self.plane.close()

    async def add(self, name: str = "s", **asked: Any) -> None:
        row = ScheduleRow(
            **{
                "ns": "default",
                "name": name,
                "queue": "q",
                "every": 60.0,
                "cron": None,
                "tz": None,
                "catch_up": "last",
                "overlap": "allow",
                "envelope": CALL.to_bytes(),
                "created_at": self.now,
                "since": self.now,
                **asked,
            }
        )
        assert await self.records.schedules.add(row) is row

    async def at(self, seconds: float) -> list[float]:
        """Set the clock, let everything that is due run, and tell the instants that were submitted, in seconds."""
        self.now = START + seconds
        before = {row["id"] for row in self.submitted()}
        for row in self.records.schedules.all():
            await self.scheduler._fire(row)
        fresh = [row["key"] for row in reversed(self.submitted()) if row["id"] not in before]
        return [_instant(key) - START for key in fresh]

    def submitted(self) -> list[dict[str, Any]]:
        return rows.page(self.dispatcher.rows, "default", limit=5000)

    def row(self, name: str = "s") -> ScheduleRow:
        found = self.records.schedules.get("default", name)
        assert found is not None
        return found

    def end_last(self) -> None:
        """The oldest run that is queued is claimed, and succeeds."""
        wish = Wish(ns="default", queues=("q",), worker="w")
        (job,) = self.plane.write(lambda tx: claims.claim(tx, wish, self.now))
        report = Report(ns="default", id=job.id, outcome="succeeded", claim=job.claim, worker="w")
        self.plane.write(lambda tx: reports.settle(tx, report, self.now))


def _instant(key: str) -> float:
    return datetime.fromisoformat(key.removeprefix("schedule:s:").replace("Z", "+00:00")).timestamp()


def serve(directory: Path, check: Callable[[Server], Awaitable[None]]) -> None:
    async def main() -> None:
        server = Server(directory)
        async with trio.open_nursery() as nursery:
            await nursery.start(server.dispatcher.run)
            try:
                await check(server)
            finally:
                nursery.cancel_scope.cancel()
        server.close()

    trio.run(main)


def test_a_run_is_an_ordinary_invocation_at_each_instant(tmp_path: Path) -> None:
    async def check(server: Server) -> None:
        await server.add()
        assert await server.at(59.9) == []
        assert await server.at(60) == [60]
        assert await server.at(60) == [], "an instant comes once"
        assert await server.at(121) == [120]
        newest, oldest = server.submitted()
        assert newest["id"] == server.row().last_id != oldest["id"]
        assert (newest["queue"], newest["state"]) == ("q", "queued")
        wish = Wish(ns="default", queues=("q",), worker="w")
        (job,) = server.plane.write(lambda tx: claims.claim(tx, wish, server.now))
        assert isinstance(job.args, bytes)
        sent = Envelope.from_bytes(job.args)
        assert (sent.id, sent.key, sent.unpack_args()) == (oldest["id"], oldest["key"], (1,))

    serve(tmp_path, check)


@pytest.mark.parametrize(
    ("catch_up", "made_up"),
    [("last", [3600]), ("all", [60.0 * k for k in range(1, 61)]), ("none", [3600])],
)
def test_what_an_outage_missed_is_made_up_for_by_the_rule(tmp_path: Path, catch_up: str, made_up: list[float]) -> None:
    async def check(server: Server) -> None:
        await server.add(catch_up=catch_up)
        assert await server.at(3659.9) == made_up
        assert await server.at(3660) == [3660], "then it goes on"

    serve(tmp_path, check)


def test_with_none_what_passed_more_than_a_minute_ago_is_left_out(tmp_path: Path) -> None:
    async def check(server: Server) -> None:
        await server.add(catch_up="none", every=3000.0)
        assert await server.at(3061) == []
        assert await server.at(3001) == [], "also when the clock is put back"
        assert await server.at(6059) == [6000], "a minute late is no outage"

    serve(tmp_path, check)


def test_all_is_up_to_a_thousand_of_the_last(tmp_path: Path) -> None:
    async def check(server: Server) -> None:
        await server.add(catch_up="all", every=1.0)
        made_up = await server.at(5000.5)
        assert made_up == [float(k) for k in range(5001 - MOST_MISSED, 5001)]

    serve(tmp_path, check)


def test_an_instant_is_left_out_while_the_last_run_has_not_ended(tmp_path: Path) -> None:
    async def check(server: Server) -> None:
        await server.add(overlap="skip")
        assert await server.at(60) == [60]
        assert await server.at(120) == await server.at(180) == []
        assert server.row().skipped == 2
        server.end_last()
        assert await server.at(200) == [], "what was left out is not made up for"
        assert await server.at(240) == [240]

    serve(tmp_path, check)


def test_with_overlap_allowed_runs_pile_up(tmp_path: Path) -> None:
    async def check(server: Server) -> None:
        await server.add(overlap="allow")
        assert [await server.at(60.0 * k) for k in (1, 2, 3)] == [[60], [120], [180]]

    serve(tmp_path, check)


@pytest.mark.parametrize("catch_up", ["last", "all"])
def test_a_crash_between_submit_and_note_neither_doubles_nor_loses_a_run(tmp_path: Path, catch_up: str) -> None:
    """The records are put back to before the note; the plane has the run."""
    serve_at, copy = tmp_path / "state", tmp_path / "records-before"
    serve_at.mkdir()

    async def before(server: Server) -> None:
        await server.add(catch_up=catch_up)
        server.records._conn.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        shutil.copy(serve_at / "records.db", copy)
        assert await server.at(60) == [60]

    async def after(server: Server) -> None:
        assert server.row().last_id is None, "nothing was noted"
        assert await server.at(61) == [], "the instant has its run"
        (run,) = server.submitted()
        assert server.row().last_id == run["id"]
        assert await server.at(120) == [120]

    serve(serve_at, before)
    for rest in serve_at.glob("records.db*"):
        rest.unlink()
    shutil.copy(copy, serve_at / "records.db")
    serve(serve_at, after)


def test_a_clock_that_jumps_back_repeats_nothing(tmp_path: Path) -> None:
    async def check(server: Server) -> None:
        await server.add()
        assert await server.at(600) == [600]
        assert await server.at(60) == await server.at(600) == []
        assert await server.at(660) == [660]

    serve(tmp_path, check)


def test_a_run_that_the_queue_refuses_is_tried_again(tmp_path: Path) -> None:
    async def check(server: Server) -> None:
        await server.add()
        archived = "INSERT INTO queue (ns, name, state, created_at) VALUES ('default', 'q', 'archived', 0)"
        server.plane.write(lambda tx: tx.change(archived, {}))
        assert await server.at(60) == []
        assert "archived" in str(server.scheduler.trouble_of(server.row()))
        server.plane.write(lambda tx: tx.change("UPDATE queue SET state = 'active'", {}))
        assert await server.at(70) == [60]
        assert server.scheduler.trouble_of(server.row()) is None

    serve(tmp_path, check)


def test_a_row_that_is_changed_or_gone_meanwhile_stays_so(tmp_path: Path) -> None:
    async def check(server: Server) -> None:
        await server.add()
        seen = server.row()
        await server.records.schedules.update(seen, paused=True)
        changed = await server.records.schedules.update(seen, since=START + 60)
        assert changed is not None and changed.paused, "who notes a run does not undo a pause"
        await server.records.schedules.drop("default", "s")
        assert await server.records.schedules.update(seen, since=START + 120) is None
        await server.add()
        server.close()
        server.opened()
        assert server.row().since == START, "the file has what memory had"

    serve(tmp_path, check)


def test_the_task_runs_what_is_due_and_hears_of_news(tmp_path: Path) -> None:
    async def check(server: Server) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(server.scheduler.run)
            await server.add(every=1.0)
            server.scheduler.changed()
            server.now += 1.0
            with trio.fail_after(60):
                while not server.submitted():  # noqa: ASYNC110  # rows ring no bell
                    await trio.sleep(0.02)
            await server.records.schedules.update(server.row(), paused=True)
            server.scheduler.changed()
            assert server.scheduler.next_of(server.row()) is None
            nursery.cancel_scope.cancel()

    serve(tmp_path, check)


def test_a_clock_that_is_put_back_silences_no_schedule(tmp_path: Path) -> None:
    async def check(server: Server) -> None:
        await server.add()
        assert await server.at(365 * 86400.0) == [365 * 86400.0]  # a clock that is a year ahead
        assert await server.at(90.0) == []
        await server.scheduler._mind_the_clock()
        assert server.scheduler.next_of(server.row()) == START + 120
        assert await server.at(120.0) == [120.0]

    serve(tmp_path, check)


def test_a_clock_that_is_put_back_a_little_runs_no_instant_twice(tmp_path: Path) -> None:
    async def check(server: Server) -> None:
        await server.add(every=200.0)
        assert await server.at(200.0) == [200.0]
        server.now = START + 130.0
        await server.scheduler._mind_the_clock()
        assert server.scheduler.next_of(server.row()) == START + 200
        assert await server.at(205.0) == []
        assert await server.at(400.0) == [400.0]

    serve(tmp_path, check)


def test_thousands_of_schedules_cost_a_look_at_them_little(tmp_path: Path) -> None:
    async def check(server: Server) -> None:
        for k in range(5000):
            row = ScheduleRow(
                ns="default",
                name=f"s{k}",
                queue="q",
                every=None,
                cron=f"{k % 60} {k % 24} * * *",
                tz=None,
                catch_up="last",
                overlap="skip",
                envelope=CALL.to_bytes(),
                created_at=START + k,
                since=START + k,
            )
            server.records.schedules._rows[row.ns, row.name] = row  # without its commit
        began = time.thread_time()
        server.scheduler.changed()
        first = time.thread_time() - began
        began = time.thread_time()
        for _ in range(10):
            server.scheduler.changed()
        again = (time.thread_time() - began) / 10
        assert again < first / 10, "what is known is not worked out again"

    serve(tmp_path, check)
