"""The disk fills up at item k of a batch of n, for every k: what was taken is kept, what was refused says so (K-32).

The space that n items need is measured first, and then all of it but the part of the last n - k is given.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from disks import SmallDisk, small_disk
from served import Served, new_id, one, running

from lakeshore import wire
from lakeshore.plane import claims, frames, reports, rows, submits
from lakeshore.plane.contract import PlaneFull, Report, Submission, Wish
from lakeshore.plane.plane import Plane
from lakeshore.plane.statements import SQL
from lakeshore.plane.transaction import Transaction, payload_of

N = 8
SIZES = {"in the row": 20_000, "in a file": 100_000}


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, SmallDisk]]:
    run = tmp_path_factory.mktemp("full")
    with small_disk(run / "state", megabytes=48) as disk, running(run, "--lease-s", "600") as served:
        yield served, disk
        assert served.stop() == 0, served.said()
        assert "Traceback" not in served.said()


@pytest.fixture
def server(small: tuple[Served, SmallDisk]) -> Served:
    return small[0]


@pytest.fixture
def disk(small: tuple[Served, SmallDisk]) -> Iterator[SmallDisk]:
    yield small[1]
    small[1].empty()


def full_at(disk: SmallDisk, k: int, size: int, *, beside: int = 0) -> None:
    """Leave room for about k items, and for so much of a WAL `beside`, which may have to grow for what they write."""
    disk.fill(leave=k * (size + 9_000) + 4_000 + beside)


def submit_many(server: Served, calls: list[dict[str, Any]]) -> list[int]:
    answer = server.post("/v1/producer/submit", {"invocations": calls})
    if answer.status != 200:
        assert answer.status == 507, answer.body
        return [507] * len(calls)
    return [said["status"] for said in answer.body["results"]]


def there(server: Served, queue: str) -> dict[str, dict[str, Any]]:
    listed = server.get(f"/v1/namespaces/default/invocations?queue={queue}&limit=200").body
    return {row["id"]: row for row in listed["invocations"]}


def claim_all(server: Served, queue: str, session: str, n: int = 1) -> list[dict[str, Any]]:
    poll = {"worker_id": f"w-{queue}", "queue": queue, "session": session, "n": n, "timeout_s": 0, "capacity": N}
    answer = server.post("/v1/daemon/poll", {**poll, "held": []})
    assert answer.status == 200, answer.body
    return [command["body"] for command in answer.body["commands"] if command["kind"] == "run"]


@pytest.mark.inventory("K-32", "K-30", "K-18")
@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES)
def test_a_batch_of_submits_keeps_what_it_acknowledged_wherever_the_disk_was_full(
    server: Served, disk: SmallDisk, size: int
) -> None:
    mixed = 0
    for k, beside in product(range(N + 1), (0, 50_000)):
        queue = f"q-{new_id()}"
        calls = [one(queue=queue, args_blob=bytes([n]) * size) for n in range(N)]
        full_at(disk, k, size, beside=beside)
        said = submit_many(server, calls)
        assert set(said) <= {200, 507}, said
        mixed += len(set(said)) == 2
        taken = {call["invocation_id"] for call, status in zip(calls, said, strict=True) if status == 200}
        assert set(there(server, queue)) == taken, f"k={k}: {said}"
        assert server.get(f"/v1/producer/queues/{queue}/count").body == {"count": len(taken)}
        disk.empty()
        assert submit_many(server, calls) == [200] * N, "with space it is all taken, and nothing twice"
        runs = {run["invocation_id"]: run for run in claim_all(server, queue, "s")}
        for call in calls:
            assert runs[call["invocation_id"]]["args_blob"] == call["args_blob"]
        acks = [{"invocation_id": inv, "claim": run["claim"], "state": "succeeded"} for inv, run in runs.items()]
        assert {one["result"] for one in server.post("/v1/daemon/ack", {"acks": acks}).body["acks"]} == {"ok"}
    assert mixed or size < 64 * 1024, "some batches were taken in part"


@pytest.mark.inventory("K-32", "K-28", "K-20")
def test_a_batch_of_acks_settles_what_it_says_wherever_the_disk_was_full(server: Served, disk: SmallDisk) -> None:
    """Results in files. What is refused stays with its worker, who says it again."""
    size, mixed = 100_000, 0
    for k in range(N + 1):
        queue = f"q-{new_id()}"
        assert submit_many(server, [one(queue=queue) for _ in range(N)]) == [200] * N
        runs = claim_all(server, queue, "s")
        acks = [
            {
                "invocation_id": run["invocation_id"],
                "claim": run["claim"],
                "state": "succeeded",
                "result_blob": bytes([n + 1]) * size,
            }
            for n, run in enumerate(runs)
        ]
        full_at(disk, k, size)
        said = server.post("/v1/daemon/ack", {"acks": acks})
        if said.status == 200:
            told = [answer["result"] for answer in said.body["acks"]]
        else:
            assert said.status == 507, said.body
            told = ["refused"] * N
        assert set(told) <= {"ok", "refused"}, said.body
        mixed += len(set(told)) == 2
        now = there(server, queue)
        for ack, result in zip(acks, told, strict=True):
            assert now[ack["invocation_id"]]["state"] == ("succeeded" if result == "ok" else "running"), (k, told)
        disk.empty()
        again = [answer["result"] for answer in server.post("/v1/daemon/ack", {"acks": acks}).body["acks"]]
        assert again == ["duplicate" if result == "ok" else "ok" for result in told]
        for ack in acks:
            waited = server.post("/v1/producer/await", {"invocation_id": ack["invocation_id"], "timeout_s": 5})
            assert fetched(server, waited.body) == ack["result_blob"]
    assert mixed, "some batches were settled in part"


def fetched(server: Served, told: dict[str, Any]) -> bytes:
    assert told["state"] == "succeeded"
    return told["result_blob"] if "result_blob" in told else server.raw("GET", told["result_ref"]["url"]).raw


@pytest.mark.inventory("K-32", "K-24", "K-26")
def test_a_batch_of_frames_is_stored_up_to_where_the_disk_was_full(server: Served, disk: SmallDisk) -> None:
    size, mixed = 60_000, 0
    for k in range(N + 1):
        call = one()
        server.post("/v1/producer/submit", call)
        (run,) = claim_all(server, call["queue"], "s")
        inv = run["invocation_id"]
        data = [wire.FrameWriter(seq).value(bytes([seq]) * size) for seq in range(N)]
        chunks = [{"invocation_id": inv, "claim": run["claim"], "seq": seq, "bytes": data[seq]} for seq in range(N)]
        full_at(disk, k, size)
        said = server.post("/v1/daemon/result-chunk", {"chunks": chunks})
        told = [one["status"] for one in said.body["chunks"]] if said.status == 200 else [said.status] * N
        taken = told.count(200)
        assert told[:taken] == [200] * taken, told
        assert set(told[taken:]) <= {507, 409}, "the first that is refused leaves a gap before the others"
        mixed += 0 < taken < N
        disk.empty()
        assert server.post("/v1/daemon/result-chunk", {"chunks": chunks}).status == 200
        ack = {"invocation_id": inv, "claim": run["claim"], "state": "succeeded", "last_seq": N - 1}
        assert server.post("/v1/daemon/ack", ack).body["result"] == "ok"
        answer = server.get(f"/v1/producer/invocations/{inv}/result/stream")
        assert [frame.to_bytes() for frame in wire.FrameReader([answer.raw])][:-1] == data


# --- the same inside the plane, where a new WAL makes each byte count


def submission(number: int, size: int, inv: str | None = None) -> Submission:
    return Submission(
        ns="default",
        queue="q",
        id=inv or f"job-{number}",
        args=bytes([number]) * size,
        hash=b"h",
        function=b"\x80",
        run_config=b"\x80",
        code=b"\x80",
    )


def verbs_of(kind: str, plane: Plane, size: int) -> list[Callable[[Transaction], Any]]:
    """N items of one kind, and what they need beforehand."""
    if kind == "submit":
        return [partial(do_submit, submission(n, size)) for n in range(N)]
    for n in range(N):
        plane.write(partial(do_submit, submission(n, 10)))
    wish = Wish(ns="default", queues=("q",), worker="w", session="s", capacity=N)
    plane.write(lambda tx: claims.claim(tx, wish, 1.0))
    if kind == "ack":
        return [partial(do_settle, n, size) for n in range(N)]
    return [partial(do_append, n, size) for n in range(N)]


def do_submit(item: Submission, tx: Transaction) -> Any:
    return submits.submit(tx, item, 1.0)


def do_settle(number: int, size: int, tx: Transaction) -> Any:
    result = bytes([number]) * size
    report = Report(ns="default", id=f"job-{number}", outcome="succeeded", claim=1, worker="w", result=result)
    return reports.settle(tx, report, 2.0)


def do_append(number: int, size: int, tx: Transaction) -> Any:
    data = wire.FrameWriter(0).value(bytes([number]) * size)
    return frames.append(tx, "default", f"job-{number}", data, 2.0, claim=1, seq=0)


def done(kind: str, plane: Plane, number: int, size: int) -> bool:
    """Whether item `number` is there, whole; it must not be there in part."""
    row = rows.get(plane.rows, "default", f"job-{number}")
    if kind == "submit":
        if row is None:
            return False
        args = payload_of(plane.rows(SQL.args, {"seq": row["seq"]})[0])
        assert args == bytes([number]) * size
        return True
    assert row is not None
    if kind == "ack":
        ended = rows.ended(plane.rows, "default", row["id"])
        assert ended.state == "pending" or ended.result == bytes([number]) * size
        return ended.state == "succeeded"
    found, _ = frames.read(plane.rows, plane.journal, row["seq"], -1)
    assert len(found) == row["last_frame"] + 1
    return bool(found)


def measured(directory: Path, kind: str, size: int) -> int:
    """Bytes of disk that a batch of N takes when there is room."""
    directory.mkdir()
    plane = Plane(str(directory / "p.db"), files=directory)
    verbs = verbs_of(kind, plane, size)
    before = sum(path.stat().st_size for path in directory.rglob("*"))
    plane.batch(verbs)
    after = sum(path.stat().st_size for path in directory.rglob("*"))
    plane.close()
    shutil.rmtree(directory)
    return after - before


@pytest.mark.inventory("K-32", "K-30")
@pytest.mark.parametrize("kind", ["submit", "ack", "append"])
def test_every_item_of_a_batch_is_either_kept_or_refused_at_each_size_of_the_disk(tmp_path: Path, kind: str) -> None:
    size, mixed = 20_000, 0
    with small_disk(tmp_path / "disk", megabytes=8) as disk:
        need = measured(disk.root / "plane", kind, size)
        for k in range(2 * N + 1):
            directory = disk.root / "plane"
            directory.mkdir()
            plane = Plane(str(directory / "p.db"), files=directory)
            verbs = verbs_of(kind, plane, size)
            disk.fill(leave=need * k // (2 * N) // 4096 * 4096)
            said = [not isinstance(answer, Exception) for answer in plane.batch(verbs)]
            for answer in plane.batch([verb for verb, taken in zip(verbs, said, strict=True) if not taken]):
                assert not isinstance(answer, Exception) or isinstance(answer, PlaneFull), answer
            now = [done(kind, plane, n, size) for n in range(N)]
            assert all(is_there for is_there, taken in zip(now, said, strict=True) if taken), f"k={k}"
            mixed += len(set(now)) == 2
            shutil.copytree(directory, tmp_path / "dead")  # as a kill leaves it
            reopened = Plane(str(tmp_path / "dead" / "p.db"), files=tmp_path / "dead")
            assert [done(kind, reopened, n, size) for n in range(N)] == now, "what is told is what is on the disk"
            assert reopened.conn.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            reopened.close()
            disk.empty()
            left = [n for n in range(N) if not now[n]]
            assert not [answer for answer in plane.batch([verbs[n] for n in left]) if isinstance(answer, Exception)]
            assert all(done(kind, plane, n, size) for n in range(N))
            plane.close()
            shutil.rmtree(directory)
            shutil.rmtree(tmp_path / "dead")
    assert mixed, "some batches were taken in part"


@pytest.mark.inventory("K-32", "K-33")
def test_a_wal_that_cannot_be_folded_for_want_of_space_costs_nothing_that_was_told(tmp_path: Path) -> None:
    """The commit is kept in the WAL, which grows until it is full, and is folded once there is space."""
    size = 60_000
    with small_disk(tmp_path / "disk", megabytes=24) as disk:
        plane = Plane(str(disk.root / "p.db"), files=disk.root)
        wal = disk.root / "p.db-wal"
        disk.fill(leave=6_500_000)  # a WAL of 4 MB, and not as much again for the database
        kept = 0
        while True:
            (said,) = plane.batch([partial(do_submit, submission(kept % 256, size, f"job-{kept}"))])
            if isinstance(said, Exception):
                assert isinstance(said, PlaneFull), said
                break
            kept += 1
            assert kept < 1000
        assert wal.stat().st_size > 4_000_000
        assert (disk.root / "p.db").stat().st_size < 4_000_000, "it was not folded whole"
        assert rows.count(plane.rows, "default", "q", "queued") == kept
        disk.empty()
        for more in range(3):
            plane.write(partial(do_submit, submission(0, size, f"more-{more}")))
        (busy, in_wal, folded) = plane.conn.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        assert (busy, in_wal) == (0, folded)
        plane.close()
        again = Plane(str(disk.root / "p.db"), files=disk.root)
        assert rows.count(again.rows, "default", "q", "queued") == kept + 3 == len(page(again))
        again.close()


@pytest.mark.inventory("K-32", "K-30")
def test_a_wal_whose_index_cannot_grow_is_a_full_disk_and_not_a_broken_one(tmp_path: Path) -> None:
    """Every 4,096 frames SQLite's -shm grows; that it cannot is no failed sync, for which a plane would stop."""
    with small_disk(tmp_path / "disk", megabytes=32) as disk:
        plane = Plane(str(disk.root / "p.db"), files=disk.root, shared=True)  # which folds when it is told to
        wal = disk.root / "p.db-wal"
        number = 0
        for frames, size in ((4_000, 60_000), (4_050, 1)):  # by smaller steps at its end: the index grows at 4,062
            while wal.stat().st_size < frames * 4_120:
                plane.write(partial(do_submit, submission(0, size, f"job-{number}")))
                number += 1
        index = (disk.root / "p.db-shm").stat().st_size
        assert index == 32_768
        disk.fill(leave=28_000)
        while not isinstance(
            (said := plane.batch([partial(do_submit, submission(0, 1, f"job-{number}"))]))[0], Exception
        ):
            number += 1
        assert isinstance(said[0], PlaneFull), said
        assert rows.count(plane.rows, "default", "q", "queued") == number
        disk.empty()
        for _ in range(20):
            plane.write(partial(do_submit, submission(0, 1, f"job-{number}")))
            number += 1
        assert (disk.root / "p.db-shm").stat().st_size > index
        assert rows.count(plane.rows, "default", "q", "queued") == number == len(page(plane))
        plane.close()


def page(plane: Plane) -> list[dict[str, Any]]:
    return rows.page(plane.rows, "default", limit=10_000)
