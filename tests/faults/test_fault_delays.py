"""Submits for later, while servers are killed, workers sleep, many are due at once, and very many wait."""

from __future__ import annotations

import asyncio
import json
import signal
import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import served
import trio

from lakeshore.plane import claims, delays, rows, submits
from lakeshore.plane.contract import DELAYED, Claimed, Report, Submission, Submitted, Wish
from lakeshore.plane.plane import Plane
from lakeshore.sdk.dispatch import Dispatch
from lakeshore.sdk.http_dispatch import HttpDispatch
from lakeshore.sdk.http_wire import Refusal
from lakeshore.server.dispatcher import Dispatcher

PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[served.Served]:
    with served.running(tmp_path_factory.mktemp("delays")) as running:
        yield running


def claim_at_last(plane: Dispatch | HttpDispatch, queue: str = "q") -> str:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        job = plane.claim(queue, "w")
        if job is not None:
            return job.id
        time.sleep(0.01)
    raise AssertionError("it was never handed out")


@pytest.mark.inventory("K-29")
@pytest.mark.parametrize("killed", ["before its instant", "across its instant"])
def test_a_delayed_submit_outlives_kill_9(tmp_path: Path, killed: str) -> None:
    away_s = 0.0 if killed == "before its instant" else 2.5
    with served.running(tmp_path, "--reserve-bytes", "0") as server:
        plane = HttpDispatch(server.url)
        due = time.time() + 2.0
        plane.submit("q", b"args", id="a", due=due)
        plane.close()
        server.stop(signal.SIGKILL)
    time.sleep(away_s)
    with served.running(tmp_path, "--reserve-bytes", "0") as server:
        plane = HttpDispatch(server.url)
        assert claim_at_last(plane) == "a"
        assert time.time() >= due
        plane.ack("a", "w", result=b"r")
        assert plane.claim("q", "w") is None
        assert plane.result("a", timeout=60) == b"r"
        plane.close()


@pytest.mark.inventory("K-9")
def test_a_parked_poll_gets_what_becomes_due(server: served.Served) -> None:
    plane = HttpDispatch(server.url)
    due = time.time() + 1.0
    plane.submit("parked", b"", id="parked-1", due=due)
    body = {"worker_id": "sleeper", "queue": "parked", "timeout_s": 20, "session": "01S", "n": 1, "capacity": 1}
    answer = server.post("/v1/daemon/poll", body)
    assert "parked-1" in json.dumps(answer.body, default=repr)
    assert due <= time.time() < due + 10
    plane.close()


@pytest.mark.parametrize("path", [":memory:", "file"])
def test_a_worker_that_sleeps_wakes_at_the_instant_and_hears_of_an_earlier_one(tmp_path: Path, path: str) -> None:
    plane = Dispatch(path if path == ":memory:" else str(tmp_path / "plane.sqlite"))
    plane.submit("q", b"", id="late", delay=300)
    woken: list[float] = []

    def sleep_and_take() -> None:
        while not woken:
            plane.wait_for_work("q", 60.0)
            if plane.claim("q", "w") is not None:
                woken.append(time.time())

    sleeper = threading.Thread(target=sleep_and_take, daemon=True)
    sleeper.start()
    due = time.time() + 0.5
    plane.submit("q", b"", id="early", due=due)
    sleeper.join(PATIENCE_S)
    assert woken and woken[0] >= due
    assert plane.count("q", "delayed") == 1
    plane.close()


def test_a_busy_worker_of_a_file_lets_through_what_becomes_due(tmp_path: Path) -> None:
    plane = Dispatch(str(tmp_path / "plane.sqlite"))
    due = time.time() + 0.4
    plane.submit("q", b"", id="urgent", due=due, priority=9)
    for k in range(200):
        plane.submit("q", b"", id=f"plain-{k}")
    for _ in range(200):
        job = plane.claim("q", "w")
        assert job is not None, "the plain ones are never done before it comes"
        plane.ack(job.id, "w")
        if job.id == "urgent":
            assert time.time() >= due
            break
        time.sleep(0.01)
    else:
        raise AssertionError("a queue that is never empty kept it waiting")
    plane.close()


class _Hook:
    """What a parked poll of this process hangs on."""

    def __init__(self) -> None:
        self._news = trio.Event()

    async def park(self, timeout_s: float) -> str:
        with trio.move_on_after(timeout_s):
            await self._news.wait()
        return "woken"

    def wake(self) -> None:
        self._news.set()

    def is_gone(self) -> bool:
        return False


def test_ten_thousand_of_one_instant_are_each_handed_out_once_while_others_are_served(tmp_path: Path) -> None:
    n, workers = 10_000, 4
    now = [time.time()]
    taken: list[str] = []
    passed: list[int] = []

    async def work(dispatcher: Dispatcher, name: str) -> None:
        wish = Wish(ns="default", queues=("q",), worker=name, capacity=32)
        while len(taken) < n:
            answer = await dispatcher.poll_foreign(wish, listed=(), timeout_s=2.0, parker=_Hook())
            taken.extend(run.id for run in answer.runs)
            ended = [Report(ns="default", id=run.id, outcome="succeeded", claim=run.claim) for run in answer.runs]
            settled = await dispatcher.report_many(ended)
            assert {one.result for one in settled} <= {"ok"}

    async def main() -> None:
        plane = Plane(str(tmp_path / "plane.db"), files=tmp_path, durability="process")
        dispatcher = Dispatcher(plane, reserve_bytes=0, clock=lambda: now[0])
        due = now[0] + 1000
        async with trio.open_nursery() as nursery:
            await nursery.start(dispatcher.run)
            for start in range(0, n, 2000):
                items = [
                    Submission(ns="default", queue="q", id=f"j{k}", args=b"", hash=b"h", due=due)
                    for k in range(start, start + 2000)
                ]
                for done in await dispatcher.submit_many(items):
                    assert isinstance(done, Submitted) and done.due == due
            async with trio.open_nursery() as crew:
                for k in range(workers):
                    crew.start_soon(work, dispatcher, f"w{k}")
                await trio.sleep(0.1)
                assert not taken
                now[0] = due - 0.001
                await trio.sleep(1.2)
                assert not taken, "not a millisecond early"
                now[0] = due
                for k in range(20):
                    before = len(taken)
                    await dispatcher.submit(
                        Submission(ns="default", queue="other", id=f"other-{k}", args=b"", hash=b"h")
                    )
                    passed.append(len(taken) - before)
                    await trio.sleep(0.05)
            assert rows.count(dispatcher.rows, "default", "q", "succeeded") == n
            assert rows.count(dispatcher.rows, "default", "q", "delayed") == 0
            nursery.cancel_scope.cancel()
        dispatcher.close()
        plane.close()

    trio.run(main)
    assert len(taken) == len(set(taken)) == n
    assert max(passed) < n / 5, "who submits meanwhile waits for a batch, not for all of them"


def test_a_hundred_thousand_that_wait_cost_a_claim_and_a_page_nothing(tmp_path: Path) -> None:
    plane = Plane(str(tmp_path / "plane.db"), files=tmp_path, durability="none")
    now = time.time()

    def submit(n: int, due: float | None = None) -> None:
        name = "later" if due is None else "delayed"
        items = [Submission(ns="default", queue="q", id=f"{name}-{k}", args=b"", hash=b"h", due=due) for k in range(n)]
        plane.write(lambda tx: submits.submit_many(tx, items, now))

    submit(1, now + 5000)
    columns = [
        row[1] for row in plane.conn.execute("PRAGMA table_info(invocation)") if row[1] not in ("seq", "id", "due")
    ]
    plane.conn.execute(
        f"WITH RECURSIVE n (k) AS (SELECT 1 UNION ALL SELECT k + 1 FROM n WHERE k < 99999) "
        f"INSERT INTO invocation (id, due, {', '.join(columns)}) "
        f"SELECT 'copy-' || k, due + k, {', '.join(columns)} FROM n, invocation WHERE invocation.id = 'delayed-0'"
    )
    plane.conn.execute("UPDATE tally SET n = 100000 WHERE state = ?", (DELAYED,))
    submit(200)
    wish = Wish(ns="default", queues=("q",), worker="w", capacity=1)

    def steps(work: object) -> int:
        """How much SQLite does, in its own instructions: a figure without a clock."""
        count = 0

        def tick() -> int:
            nonlocal count
            count += 1
            return 0

        plane.conn.set_progress_handler(tick, 10)
        work()  # type: ignore[operator]  # a callable
        plane.conn.set_progress_handler(None, 0)
        return count * 10

    taken: list[Claimed] = []
    assert steps(lambda: taken.extend(plane.write(lambda tx: claims.claim(tx, wish, now)))) < 2000
    assert [job.id for job in taken] == ["later-0"]
    assert steps(lambda: delays.next_due(plane.rows)) < 100
    assert steps(lambda: delays.next_due(plane.rows, "default", "q")) < 100
    assert steps(lambda: plane.write(lambda tx: delays.promote(tx, now))) < 500, "nothing is due"
    assert steps(lambda: rows.page(plane.rows, "default", limit=50)) < 40_000
    assert steps(lambda: rows.page(plane.rows, "default", states=("queued",), queue="q", limit=50)) < 40_000
    assert len(rows.page(plane.rows, "default", states=("delayed",), limit=50)) == 50
    promoted = plane.write(lambda tx: delays.promote(tx, now + 6000))
    assert promoted == {("default", "q"): delays.AT_ONCE}, "the earliest of them, some at a time"
    assert rows.count(plane.rows, "default", "q", "delayed") == 100_000 - delays.AT_ONCE
    plane.close()


def test_an_older_program_that_has_the_file_open_runs_nothing_early(tmp_path: Path) -> None:
    """Its claim, as it was written before there were delays, on a file of today."""
    plane = Dispatch(str(tmp_path / "plane.sqlite"))
    plane.submit("q", b"", id="later", delay=300)
    old = sqlite3.connect(tmp_path / "plane.sqlite")
    claimed = old.execute(
        "UPDATE invocation SET state = 'running', claim = claim + 1 WHERE seq IN (SELECT seq FROM invocation "
        "WHERE ns = 'default' AND queue = 'q' AND state = 'queued' ORDER BY priority DESC, seq ASC LIMIT 1)"
    ).rowcount
    assert claimed == 0
    old.close()
    assert plane.cancel("later")
    plane.close()


def test_the_answer_and_the_row_say_until_when(server: served.Served) -> None:
    due = round(time.time() + 600, 3)
    answer = server.post(
        "/v1/producer/submit", {"invocation_id": "say-1", "queue": "say", "args_blob": b"", "due": due}
    )
    assert answer.body["due"] == due
    row = server.get("/v1/namespaces/default/invocations/say-1").body
    assert row["state"] == "queued"
    assert row["why"] == f"delayed until {row['due']}"
    assert server.get("/v1/namespaces/default/invocations?state=delayed&queue=say").body["count"] == 1
    assert 'lakeshore_delayed_invocations{namespace="default"}' in server.get("/metrics").raw.decode()
    cancelled = server.call("DELETE", "/v1/namespaces/default/invocations/say-1").body
    assert cancelled["state"] == "killed" and "why" not in cancelled
    for wrong in (
        {"due": due, "delay_s": 1},
        {"delay_s": -1},
        {"delay_s": float("nan")},
        {"due": 1e300},
        {"due": "now"},
    ):
        body = {"invocation_id": "say-2", "queue": "say", "args_blob": b"", **wrong}
        refused = server.post("/v1/producer/submit/delayed", body)
        assert refused.status == 422 and refused.body["field"] in ("due", "delay_s"), refused.raw
    assert server.post("/v1/namespaces/default/invocations/bulk-cancel?queue=say", {}).body["cancelled"] == 0


def test_bulk_cancel_takes_what_waits_with_it(server: served.Served) -> None:
    plane = HttpDispatch(server.url)
    for k in range(5):
        plane.submit("bulk", b"", id=f"bulk-{k}", delay=300 if k % 2 else None)
    assert server.post("/v1/namespaces/default/invocations/bulk-cancel?queue=bulk", {}).body["cancelled"] == 5
    assert (plane.count("bulk"), plane.count("bulk", "delayed"), plane.count("bulk", "killed")) == (0, 0, 5)
    plane.close()


def test_async_submits_for_later_and_one_that_the_server_refuses(server: served.Served) -> None:
    plane = HttpDispatch(server.url)

    async def main() -> None:
        async def one(k: int) -> str:
            return await plane.aio.submit("async", b"", id=f"async-{k}", delay=300.0)

        assert await asyncio.gather(*(one(k) for k in range(20))) == [f"async-{k}" for k in range(20)]
        with pytest.raises(Refusal, match="taken"):
            await plane.aio.submit("async", b"other", id="async-0", delay=300.0)

    asyncio.run(main())
    assert plane.count("async", "delayed") == 20
    plane.close()
