"""Years of rows cost nothing: what a claim, a poll, a count or a page does is the same beside many ended ones.

Work is counted in steps of SQLite's machine, which no other process disturbs; times are printed. GROWN_ROWS is how many
ended rows there are (100,000, and a tenth of it queued); GROWN_ROWS=1000000 is the full size, and takes some minutes.
"""

from __future__ import annotations

import functools
import os
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgpack
import pytest
import served
import trio
from grown import DAY, QUEUES, grown

from lakeshore.plane import claims, frames, polls, retention, rows, submits
from lakeshore.plane.contract import Held, Poll, Purged, QueueFull, Submission, Wish
from lakeshore.plane.plane import Plane
from lakeshore.plane.transaction import Transaction
from lakeshore.server.dispatcher import Dispatcher
from lakeshore.server.forgetting import GRACE_S
from lakeshore.server.janitor import Janitor

ROWS = int(os.environ.get("GROWN_ROWS", "100000"))
FEW = 5000
OLD_ROWS = 6000
MEMORY_MIB = 150
START_S = 2.0
WAL_MIB = 64
LISTING = "/v1/namespaces/default/invocations"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where grown planes are kept for every process of this run."""
    base = tmp_path_factory.getbasetemp()
    return (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "grown"


def opened(state: Path) -> Plane:
    return Plane(str(state / "lakeshore.db"), files=state, durability="none")


@pytest.fixture(scope="module")
def planes(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Plane, Plane]]:
    """One with few rows, one with many."""
    found = [opened(grown(shared, tmp_path_factory.mktemp("state"), ended=n, queued=n // 10)) for n in (FEW, ROWS)]
    for plane in found:
        plane.write(lambda tx: polls.register(tx, "default", "w", "s", 0.0))
    yield found[0], found[1]
    for plane in found:
        plane.close()


def _claim(plane: Plane) -> None:
    wish = Wish(ns="default", queues=("gpu",), worker="w", session="s", start=True)
    assert len(plane.write(lambda tx: claims.claim(tx, wish, 0.0))) == 1


def _poll(plane: Plane) -> None:
    (n,) = plane.rows("SELECT n FROM worker WHERE id = 'w'", {})[0]
    running = plane.rows("SELECT id, claim FROM invocation WHERE state = 'running' LIMIT 3", {})
    held = tuple(Held(id=id_, claim=claim, started=True) for id_, claim in running)
    wish = Wish(ns="default", queues=("cpu", "e*"), worker="w", session="s")
    request = Poll(ns="default", worker="w", session="s", n=n + 1, held=held, wish=wish)
    assert len(plane.write(lambda tx: polls.poll(tx, request, 0.0)).runs) == 1


def _submit(plane: Plane) -> None:
    item = Submission(ns="default", queue="new", id=os.urandom(12).hex(), args=b"a", hash=os.urandom(32))
    plane.write(lambda tx: submits.submit(tx, item, 0.0))


def _page(plane: Plane, **filters: Any) -> None:
    assert len(rows.page(plane.rows, "default", limit=5, **filters)) == (0 if "worker" in filters else 5)


def _newest(plane: Plane) -> int:
    return int(plane.rows("SELECT MAX(seq) FROM invocation", {})[0][0])


OPERATIONS: dict[str, Callable[[Plane], None]] = {
    "claim": _claim,
    "poll": _poll,
    "submit": _submit,
    "count": lambda plane: [rows.count(plane.rows, "default", queue, "succeeded") for queue in QUEUES] and None,
    "first page": _page,
    "deep page": functools.partial(_page, before=FEW // 2),
    "page of a queue": functools.partial(_page, queue="etl"),
    "page of a rare queue": functools.partial(_page, queue="rare"),
    "page of what failed": functools.partial(_page, states=("failed", "timeout")),
    "page of a queue's killed": functools.partial(_page, queue="cpu", states=("killed",)),
    "page of what is queued": functools.partial(_page, states=("queued",)),
    "deep page of what is queued": lambda plane: _page(plane, states=("queued",), before=_newest(plane) - 100),
    "page of nobody": functools.partial(_page, worker="nobody", states=("succeeded",)),
}


def steps(plane: Plane, operation: Callable[[Plane], None]) -> int:
    """How many steps of SQLite's machine it takes."""
    counted = 0

    def step() -> int:
        nonlocal counted
        counted += 1
        return 0

    plane.conn.set_progress_handler(step, 1)
    try:
        operation(plane)
    finally:
        plane.conn.set_progress_handler(None, 0)
    return counted


@pytest.mark.inventory("K-3", "K-8", "P-459")
@pytest.mark.parametrize("name", OPERATIONS)
def test_the_work_is_the_same_beside_many_ended_rows(planes: tuple[Plane, Plane], name: str) -> None:
    operation = OPERATIONS[name]
    for plane in planes:
        operation(plane)
    few, many = ([steps(plane, operation) for _ in range(3)] for plane in planes)
    times: list[list[float]] = [[], []]
    for _ in range(30):
        for plane, took in zip(planes, times, strict=True):
            before = time.perf_counter()
            operation(plane)
            took.append(time.perf_counter() - before)
    a, b = (statistics.median(took) * 1e6 for took in times)
    print(f"{name}: {sum(few)} steps beside {FEW} rows, {sum(many)} beside {ROWS}; {a:.0f} us, {b:.0f} us")
    assert sum(many) <= 1.2 * sum(few) + 60


def test_a_limited_queue_counts_without_looking_at_rows(planes: tuple[Plane, Plane]) -> None:
    plane = planes[1]
    deep = rows.count(plane.rows, "default", "gpu", "queued")
    plane.conn.execute("UPDATE queue SET max_depth = ? WHERE name = 'gpu'", (deep + 1,))
    item = functools.partial(Submission, ns="default", queue="gpu", args=b"a", hash=b"h")
    one, two = item(id=os.urandom(12).hex()), item(id=os.urandom(12).hex())

    def submit(plane: Plane) -> None:
        answers = plane.batch([lambda tx, each=each: submits.submit(tx, each, 0.0) for each in (one, two)])
        assert isinstance(answers[1], QueueFull) and not isinstance(answers[0], Exception)

    assert steps(plane, submit) < 1000
    plane.conn.execute("UPDATE queue SET max_depth = NULL")


def memory_mib(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise AssertionError("the kernel tells no VmHWM")


def since(started: float) -> float:
    return time.monotonic() - started


@pytest.mark.inventory("K-33")
def test_a_server_with_many_rows_starts_fast_stays_small_and_prunes_beside_its_work(
    shared: Path, tmp_path: Path
) -> None:
    (tmp_path / "full").mkdir()
    grown(shared, tmp_path / "full", ended=ROWS, queued=ROWS // 10)
    os.sync()  # the copy of the state is not the server's work
    empty_s, full_s = (least_start(tmp_path / name) for name in ("empty", "full"))
    print(f"start-up: empty {empty_s:.2f} s, full {full_s:.2f} s")
    assert full_s < empty_s + START_S
    with served.running(tmp_path / "full") as server:
        stop = threading.Event()
        wal = server.state_dir / "lakeshore.db-wal"
        walked: list[int] = []

        def read_without_pause() -> None:
            while not stop.is_set():
                assert len(server.get(f"{LISTING}?limit=200&offset=10000").body["invocations"]) == 200

        readers = [threading.Thread(target=read_without_pause) for _ in range(2)]
        for reader in readers:
            reader.start()
        ends_at = time.monotonic() + 3.0
        while time.monotonic() < ends_at:
            batch = [served.one(queue="load", args_blob=os.urandom(8000)) for _ in range(50)]
            assert server.post("/v1/producer/submit", {"invocations": batch}).status == 200
            walked.append(wal.stat().st_size)
        stop.set()
        for reader in readers:
            reader.join()
        print(f"WAL under constant readers: {max(walked) / 2**20:.1f} MiB at most")
        assert max(walked) < WAL_MIB * 2**20

        counted: list[int] = []
        pruned = threading.Thread(target=lambda: counted.append(prune(server, states=["failed", "timeout"])))
        pruned.start()
        waits: list[float] = []
        while pruned.is_alive():
            before = time.monotonic()
            assert server.post("/v1/producer/submit", served.one()).status == 200
            waits.append(since(before))
        pruned.join()
        print(f"pruned {counted[0]}; {len(waits)} submits beside it, p50 {statistics.median(waits) * 1e3:.1f} ms")
        expected = sum(1 for k in range(1, ROWS + 1) if k % 100 in (94, 95, 96, 99) and k % 5000 != 7)
        assert counted[0] == expected
        assert statistics.median(waits) < 0.5
        assert server.get(f"{LISTING}?state=failed").body["invocations"] == []
        assert server.get(f"{LISTING}?state=killed").body["count"] == 50
        cancelled: list[Any] = []
        path = f"{LISTING}/bulk-cancel?queue=gpu"
        cancelling = threading.Thread(target=lambda: cancelled.append(server.post(path, {}).body))
        cancelling.start()
        waits = []
        while cancelling.is_alive():
            before = time.monotonic()
            assert server.post("/v1/producer/submit", served.one(queue="gpu")).status == 200
            waits.append(since(before))
        cancelling.join()
        print(f"{cancelled[0]}; {len(waits)} submits beside it, p50 {statistics.median(waits) * 1e3:.1f} ms")
        assert ROWS // 20 <= cancelled[0]["cancelled"] <= ROWS // 20 + len(waits)
        assert len(waits) > 3, "others are served in between"
        assert statistics.median(waits) < 0.5
        used = memory_mib(server.process.pid)
        print(f"memory: {used:.0f} MiB at most")
        assert used < MEMORY_MIB


def least_start(directory: Path) -> float:
    """Seconds from the command to the first answer, the least of three."""
    least = float("inf")
    for _ in range(3):
        before = time.monotonic()
        with served.running(directory):
            least = min(least, since(before))
    return least


def prune(server: served.Served, **wanted: Any) -> int:
    count, cursor = 0, None
    while True:
        body = {"olderThanHours": 0, "cursor": cursor, **wanted}
        answer = server.post(f"{LISTING}/prune", body, encoding=served.JSON)
        assert answer.status == 200, answer.raw
        count, cursor = count + answer.body["count"], answer.body["next"]
        if cursor is None:
            return count


# --- retention


def swept(plane: Plane, now: float, **keep: Any) -> int:
    async def sweep() -> int:
        dispatcher = Dispatcher(plane, reserve_bytes=0)
        janitor = Janitor(dispatcher, **keep)
        async with trio.open_nursery() as nursery:
            await nursery.start(dispatcher.run)
            gone = await janitor.sweep(now)
            nursery.cancel_scope.cancel()
        janitor.close()
        dispatcher.close()
        return gone

    return trio.run(sweep)


def counts_are_the_rows(plane: Plane) -> None:
    counted = plane.rows("SELECT ns, queue, state, n FROM tally WHERE n != 0 ORDER BY 1, 2, 3", {})
    assert counted == plane.rows(
        "SELECT ns, queue, state, COUNT(*) FROM invocation GROUP BY 1, 2, 3 ORDER BY 1, 2, 3", {}
    )


def age_files(state: Path, now: float) -> None:
    for path in (*(state / "journal").iterdir(), *(state / "blobs").rglob("*")):
        os.utime(path, (now - 2 * GRACE_S, now - 2 * GRACE_S))


@pytest.mark.inventory("K-16", "K-26")
def test_what_is_too_large_loses_its_oldest_rows_and_nothing_of_the_last_week(shared: Path, tmp_path: Path) -> None:
    state = grown(shared, tmp_path, ended=OLD_ROWS, queued=100, days=30.0)
    now = time.time()
    age_files(state, now)
    plane = opened(state)
    whole = sum(path.stat().st_size for path in state.rglob("*") if path.is_file())
    segments = len(plane.journal.segments())
    assert swept(plane, now, keep_s=60 * DAY) == 0
    gone = swept(plane, now, keep_s=60 * DAY, keep_bytes=whole * 8 // 10)
    assert 0 < gone < OLD_ROWS * 7 // 10
    ((oldest, left),) = plane.rows("SELECT MIN(finished_at), COUNT(*) FROM invocation WHERE finished_at > 0", {})
    assert left == OLD_ROWS - gone
    assert oldest == pytest.approx(now - 30 * DAY + gone * 30 * DAY / OLD_ROWS, abs=0.1 * DAY)
    assert len(plane.journal.segments()) < segments
    swept(plane, now, keep_s=60 * DAY, keep_bytes=1)
    ((oldest, left),) = plane.rows("SELECT MIN(finished_at), COUNT(*) FROM invocation WHERE finished_at > 0", {})
    assert oldest == pytest.approx(now - 7 * DAY, abs=0.1 * DAY)
    assert left == pytest.approx(OLD_ROWS * 7 / 30, abs=20)
    ((free,), (pages,)) = plane.rows("PRAGMA freelist_count", {})[0], plane.rows("PRAGMA page_count", {})[0]
    assert free * 10 <= pages, "free pages are given back"
    counts_are_the_rows(plane)
    assert plane.rows("PRAGMA integrity_check", {}) == [("ok",)]
    for channel, seq in plane.rows("SELECT channel, MAX(seq) FROM frame GROUP BY channel LIMIT 50", {}):
        assert frames.read(plane.rows, plane.journal, channel, seq - 1)[0], "a frame of a row that is left is readable"
    plane.close()


def test_a_slice_stops_when_its_time_is_up_and_the_next_goes_on(tmp_path: Path) -> None:
    plane = Plane(str(tmp_path / "p.db"), files=tmp_path, durability="none")
    wish = Wish(ns="default", queues=("q",), worker="w", start=True)
    for id_ in ("many", "few"):
        item = Submission(ns="default", queue="q", id=id_, args=b"a", hash=id_.encode())
        plane.write(lambda tx, item=item: submits.submit(tx, item, 1.0))
        (claimed,) = plane.write(lambda tx: claims.claim(tx, wish, 1.0))
        n = 2500 if id_ == "many" else 1

        def append(tx: Transaction, id_: str = id_, n: int = n, claim: int = claimed.claim) -> None:
            for seq in range(n):
                frame = frames.value_frame(seq, msgpack.packb(seq))
                frames.append(tx, "default", id_, frame, 1.0, claim=claim, seq=seq)

        plane.write(append)
        plane.conn.execute("UPDATE invocation SET state = 'succeeded', finished_at = 2.0 WHERE id = ?", (id_,))
        plane.conn.execute("UPDATE tally SET n = 0 WHERE state = 'running'")
        plane.conn.execute("INSERT OR IGNORE INTO tally VALUES ('default', 'q', 'succeeded', 0)")
        plane.conn.execute("UPDATE tally SET n = n + 1 WHERE state = 'succeeded'")
    slices = []
    while True:
        slices.append(plane.write(lambda tx: retention.purge(tx, before=3.0, now=4.0, budget_s=0.0)))
        counts_are_the_rows(plane)
        if not slices[-1].more:
            break
    assert [done.rows for done in slices] == [0, 0, 2]
    assert plane.rows("SELECT COUNT(*) FROM frame", {}) == [(0,)]
    item = Submission(ns="default", queue="q", id="many", args=b"a", hash=b"many")
    with pytest.raises(Purged):
        plane.write(lambda tx: submits.submit(tx, item, 1.0))
    plane.close()


# --- payloads


@pytest.mark.inventory("K-20")
def test_a_payload_that_was_just_touched_or_is_named_is_not_collected(tmp_path: Path) -> None:
    plane = opened(tmp_path)
    now = time.time()
    keys = ("a/named", "a/touched", "b/c/garbage", "young")
    for key in keys:
        plane.blobs.put(key, b"x")
    for key in keys[:3]:
        os.utime(plane.blobs.path(key), (now - 2 * GRACE_S, now - 2 * GRACE_S))
    item = Submission(ns="default", queue="q", id="i", hash=b"h", args=plane.blobs.put("other", b"y" * 70_000))
    plane.write(lambda tx: submits.submit(tx, item, now))
    plane.conn.execute("UPDATE args SET blob = 'a/named'")
    plane.blobs.touch("a/touched")
    swept(plane, now, keep_s=60 * DAY)
    left = sorted(p.relative_to(tmp_path / "blobs").as_posix() for p in (tmp_path / "blobs").rglob("*"))
    assert left == ["a", "a/named", "a/touched", "other", "young"]
    with pytest.raises(FileNotFoundError):
        plane.blobs.touch("b/c/garbage")
    touched = plane.blobs.path("a/touched")  # after somebody looked whether a row names it
    assert not plane.blobs.collect(touched, now - GRACE_S) and touched.exists()
    os.utime(touched, (now - 2 * GRACE_S, now - 2 * GRACE_S))
    assert plane.blobs.collect(touched, now - GRACE_S) and not touched.exists()
    plane.close()


@pytest.mark.inventory("K-20")
def test_a_submit_touches_the_payload_that_it_names(tmp_path: Path) -> None:
    with served.running(tmp_path) as server:
        presign = {"op": "put", "jobId": "job", "kind": "args", "size": 9}
        put = server.post("/v1/namespaces/default/payloads/presign", presign).body
        assert server.raw("PUT", put["url"].removeprefix(server.url), b"123456789").status == 201
        path = server.state_dir / "blobs" / put["key"]
        call = {"queue": "q", "args_ref": {"key": put["key"], "size": 9}}
        assert server.post("/v1/producer/submit", {**call, "invocation_id": served.new_id()}).status == 200
        an_hour_ago = time.time() - 3600  # so young that the janitor leaves it alone
        os.utime(path, (an_hour_ago, an_hour_ago))
        answer = server.post("/v1/producer/submit", {**call, "invocation_id": served.new_id()})
        assert answer.status == 200, answer.raw
        assert time.time() - path.stat().st_mtime < 60
