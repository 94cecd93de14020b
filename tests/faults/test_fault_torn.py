"""Torn and turned files: what is damaged is told and never served, what is whole is kept (K-32).

TORN_SEED replays the places; TORN_PLACES (default 30) is how many are tried in each file.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from disks import fast_directory
from served import Served, new_id, one, refused, running

from lakeshore import wire
from lakeshore.plane import rows, submits
from lakeshore.plane.contract import Submission, UnfitPlane
from lakeshore.plane.plane import Plane
from lakeshore.sdk.dispatch import Dispatch
from lakeshore.sdk.errors import DispatchError
from lakeshore.sdk.http_dispatch import HttpDispatch

SEED = int(os.environ.get("TORN_SEED", random.randrange(2**32)))
PLACES = int(os.environ.get("TORN_PLACES", "30"))
COMMITS = 16


@pytest.fixture(autouse=True)
def said() -> None:
    print(f"TORN_SEED={SEED}")


def flip(path: Path, place: int, rng: random.Random) -> None:
    """Turn one bit."""
    raw = bytearray(path.read_bytes())
    raw[place] ^= 1 << rng.randrange(8)
    path.write_bytes(raw)


def places(size: int, rng: random.Random, *more: int) -> Iterator[int]:
    """Where to hurt a file of that size: its ends, the places named, and others drawn."""
    yield from sorted({0, size - 1, *(place for place in more if 0 <= place < size)})
    for _ in range(PLACES):
        yield rng.randrange(size)


# --- the WAL


class Crashed:
    """A plane whose process has died: a database, and a WAL of `COMMITS` commits that end at `ends`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.ends: list[int] = []
        live = root / "live"
        live.mkdir(parents=True)
        plane = Plane(str(live / "lakeshore.db"), files=live)
        self.start = (live / "lakeshore.db-wal").stat().st_size
        for number in range(COMMITS):
            item = Submission(
                ns="default",
                queue="q",
                id=f"job-{number}",
                args=b"a" * (3000 * (number % 3)),
                hash=b"h",
                function=b"\x80",
                run_config=b"\x80",
                code=b"\x80",
            )
            plane.write(lambda tx, item=item: submits.submit(tx, item, 1.0))
            self.ends.append((live / "lakeshore.db-wal").stat().st_size)
        shutil.copytree(live, root / "dead")
        plane.close()

    def copy(self) -> tuple[Path, Path]:
        """A database to hurt, and its WAL."""
        hurt = self.root / "hurt"
        shutil.rmtree(hurt, ignore_errors=True)
        shutil.copytree(self.root / "dead", hurt)
        return hurt / "lakeshore.db", hurt / "lakeshore.db-wal"

    def whole(self, upto: int) -> int:
        """How many commits are whole in the first bytes of the WAL."""
        return sum(end <= upto for end in self.ends)


@pytest.fixture(scope="module")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crashed]:
    with fast_directory(tmp_path_factory.mktemp("crashed")) as directory:
        yield Crashed(directory)


def jobs(database: Path) -> list[str]:
    """The ids in a plane, in order; its counts are those of its rows."""
    plane = Plane(str(database), files=database.parent)
    try:
        found = [row["id"] for row in rows.page(plane.rows, "default", limit=1000)]
        assert rows.count(plane.rows, "default", "q", "queued") == len(found)
        assert plane.conn.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        return found[::-1]
    finally:
        plane.close()


@pytest.mark.inventory("K-32", "K-33")
def test_a_wal_that_lost_its_end_keeps_every_commit_that_is_whole(crashed: Crashed) -> None:
    rng = random.Random(SEED)
    ends = [end + step for end in crashed.ends for step in (-1, 0, 1)]
    for place in places(crashed.ends[-1] + 1, rng, *ends):
        if place < crashed.start:
            continue  # the schema itself: see the next test
        database, wal = crashed.copy()
        os.truncate(wal, place)
        assert jobs(database) == [f"job-{n}" for n in range(crashed.whole(place))], f"cut at {place}"


@pytest.mark.inventory("K-32", "K-33")
def test_a_turned_bit_in_a_wal_is_told_unless_only_the_last_commit_has_it(crashed: Crashed) -> None:
    """What was damaged there cannot be told from what a power cut tore; before it, nothing is lost."""
    rng = random.Random(SEED)
    told = 0
    for place in places(crashed.ends[-1], rng, *range(0, 32, 3), *crashed.ends):
        database, wal = crashed.copy()
        flip(wal, place, rng)
        before = crashed.whole(place)
        for _again in range(2):  # a refusal leaves everything as it is
            try:
                found = jobs(database)
            except UnfitPlane as error:
                told += 1
                assert str(wal) in str(error)
                assert "Restore a backup" in str(error)
                advice = str(error).partition("truncate -s ")[2].split()
            else:
                assert before == COMMITS - 1, f"a bit of commit {before} was turned, at {place}: nobody is told"
                assert found == [f"job-{n}" for n in range(before)]
                break
        else:
            if place >= crashed.start:  # then the schema is there
                subprocess.run(["truncate", "-s", *advice], check=True)
                assert jobs(database) == [f"job-{n}" for n in range(before)]
    assert told >= PLACES


@pytest.mark.inventory("K-32")
def test_a_wal_without_its_database_is_not_thrown_away(crashed: Crashed) -> None:
    for gone in (True, False):
        database, wal = crashed.copy()
        size = wal.stat().st_size
        database.unlink() if gone else os.truncate(database, 0)
        with pytest.raises(UnfitPlane, match=r"empty or gone"):
            jobs(database)
        assert wal.stat().st_size == size


@pytest.mark.inventory("K-32", "K-33")
def test_a_plane_of_files_tells_of_its_damaged_wal(tmp_path: Path) -> None:
    plane = Dispatch(tmp_path / "plane.sqlite")
    for number in range(COMMITS):
        plane.submit("q", b"a" * 1000, id=f"job-{number}")
    dead = tmp_path / "dead"
    dead.mkdir()
    for path in tmp_path.glob("plane.sqlite*"):
        if path.is_file():
            shutil.copy(path, dead / path.name)
    plane.close()
    wal = dead / "plane.sqlite-wal"
    flip(wal, wal.stat().st_size // 2, random.Random(SEED))
    with pytest.raises(DispatchError, match=r"plane\.sqlite-wal is damaged at byte"):
        Dispatch(dead / "plane.sqlite")


# --- the database


@pytest.mark.inventory("K-32")
def test_a_damaged_database_is_named_or_answers_rightly(crashed: Crashed, tmp_path: Path) -> None:
    """A page that lost its form is found; what a turned bit makes of a value is not, for pages have no checksum."""
    rng = random.Random(SEED)
    database, wal = crashed.copy()
    jobs(database)  # folds the WAL
    assert not wal.exists()
    whole = database.read_bytes()
    named = 0
    for start in range(0, len(whole), 4096):
        raw = bytearray(whole)
        raw[start : start + 4096] = rng.choice([bytes(4096), rng.randbytes(4096)])
        database.write_bytes(raw)
        try:
            jobs(database)
        except UnfitPlane as error:
            named += 1
            assert str(database) in str(error)
            assert "restore a backup" in str(error)
        Path(f"{database}-wal").unlink(missing_ok=True)
    assert named >= len(whole) // 4096 // 2


@pytest.mark.inventory("K-32")
@pytest.mark.parametrize("name", ["lakeshore.db", "lakeshore.db-wal", "records.db"])
def test_a_server_does_not_start_on_a_damaged_file_and_names_it(tmp_path: Path, name: str) -> None:
    with running(tmp_path / "run") as first:
        for _ in range(20):
            assert first.post("/v1/producer/submit", one()).status == 200
        if name.endswith("-wal"):
            first.process.kill()
            first.process.wait()
        else:
            assert first.stop() == 0
    path = tmp_path / "run" / "state" / name
    raw = bytearray(path.read_bytes())
    middle = len(raw) // 2 // 4096 * 4096
    raw[middle : middle + 4096] = b"\xff" * 4096
    path.write_bytes(raw)
    for _again in range(2):
        code, told = refused(tmp_path / "run")
        assert code == 1
        assert "Traceback" not in told
        assert str(path) in told
        assert "backup" in told


@pytest.mark.inventory("K-32")
def test_a_page_that_is_damaged_under_a_running_server_is_told_to_who_reads_it(tmp_path: Path) -> None:
    """A large database is not looked through at the start: whoever comes upon the damage hears of it."""
    with running(tmp_path / "run") as first:
        for _ in range(60):
            assert first.post("/v1/producer/submit", one(args_blob=b"a" * 3000)).status == 200
        assert first.stop() == 0
    database = tmp_path / "run" / "state" / "lakeshore.db"
    whole = database.read_bytes()
    with running(tmp_path / "run") as second:
        with database.open("r+b") as file:
            for start in range(4096, len(whole), 4096):
                file.seek(start)
                file.write(b"\xff" * 4096)
        answers = [second.get("/v1/namespaces/default/invocations"), second.post("/v1/producer/submit", one())]
        for answer in answers:
            assert answer.status in (200, 503), answer.body
            if answer.status == 503:
                assert "damaged" in answer.body["error"]
                assert "backup" in answer.body["error"]
        assert 503 in {answer.status for answer in answers}
        code = second.stop()
        assert "Traceback" not in second.said()
        assert code in (0, 1)


# --- blobs


def hurt(path: Path, how: str, rng: random.Random) -> None:
    size = path.stat().st_size
    if how == "turned":
        flip(path, rng.randrange(size), rng)
    else:
        os.truncate(path, rng.randrange(size))


@pytest.mark.inventory("K-32", "K-20")
@pytest.mark.parametrize("how", ["turned", "cut"])
def test_a_damaged_payload_of_a_plane_of_files_is_never_served(tmp_path: Path, how: str) -> None:
    rng = random.Random(SEED)
    plane = Dispatch(tmp_path / "plane.sqlite")
    blobs = tmp_path / "plane.sqlite.d" / "blobs"
    for _ in range(PLACES // 3):
        inv, result = new_id(), rng.randbytes(70_000)
        plane.submit("q", b"small", id=inv)
        job = plane.claim("q", "w")
        assert job is not None
        plane.ack(inv, "w", result=result, claim=job.claim)
        assert plane.result(inv) == result
        (path,) = blobs.rglob(f"{inv}.*.result")
        hurt(path, how, rng)
        with pytest.raises(DispatchError, match=f"{path.name} is damaged.*backup"):
            plane.result(inv)
    bad, good = new_id(), new_id()
    plane.submit("p", rng.randbytes(70_000), id=bad)
    plane.submit("p", b"fine", id=good)
    (path,) = blobs.rglob(f"{bad}.*.args")
    hurt(path, how, rng)
    job = plane.claim("p", "w")
    assert job is not None
    assert job.id == good, "a job whose arguments are damaged keeps nobody from the next"
    row = plane.get(bad)
    assert row is not None
    assert row["state"] == "failed"
    assert path.name in row["error"]["message"]
    plane.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with running(tmp_path_factory.mktemp("torn")) as served:
        yield served
        assert served.stop() == 0
        assert "Traceback" not in served.said()


def claim(server: Served, queue: str) -> dict[str, Any]:
    poll = {"worker_id": new_id(), "queue": queue, "session": "s", "n": 1, "timeout_s": 0}
    (run,) = [one["body"] for one in server.post("/v1/daemon/poll", poll).body["commands"] if one["kind"] == "run"]
    return run  # type: ignore[no-any-return]  # the body of a run command


@pytest.mark.inventory("K-32", "K-20")
@pytest.mark.parametrize("how", ["turned", "cut"])
@pytest.mark.parametrize("size", [70_000, 400_000], ids=["inside the answer", "beside it"])
def test_a_damaged_payload_of_a_server_is_never_taken_for_right(server: Served, how: str, size: int) -> None:
    rng = random.Random(SEED)
    plane = HttpDispatch(server.url, timeout=10.0)
    try:
        for _ in range(PLACES // 10):
            call, result = one(), rng.randbytes(size)
            server.post("/v1/producer/submit", call)
            run = claim(server, call["queue"])
            inv = run["invocation_id"]
            ack = {"invocation_id": inv, "claim": run["claim"], "state": "succeeded", "result_blob": result}
            assert server.post("/v1/daemon/ack", ack).body["result"] == "ok"
            assert plane.result(inv, timeout=60) == result
            (path,) = (server.state_dir / "blobs").rglob(f"x{inv}.*.result")
            hurt(path, how, rng)
            with pytest.raises(DispatchError, match=r"damaged"):
                plane.result(inv, timeout=60)
            if size < 256 * 1024 or how == "cut":
                assert f"{path.name} is damaged" in server.said()
    finally:
        plane.close()


@pytest.mark.inventory("K-32", "K-20")
def test_what_is_sent_again_is_not_answered_with_a_damaged_file(server: Served) -> None:
    rng = random.Random(SEED)
    call = one(args_blob=rng.randbytes(100_000))
    assert server.post("/v1/producer/submit", call).status == 200
    (path,) = (server.state_dir / "blobs").rglob(f"x{call['invocation_id']}.*.args")
    flip(path, rng.randrange(100_000), rng)
    assert server.post("/v1/producer/submit", call).status == 200
    assert claim(server, call["queue"])["args_blob"] == call["args_blob"]


# --- the journal


@pytest.mark.inventory("K-26", "K-32")
@pytest.mark.parametrize("how", ["turned", "cut"])
def test_a_damaged_segment_costs_the_frames_that_it_held_and_is_told(tmp_path: Path, how: str) -> None:
    rng = random.Random(SEED)
    with running(tmp_path / "run", "--lease-s", "600") as first:
        call = one()
        first.post("/v1/producer/submit", call)
        run = claim(first, call["queue"])
        inv = run["invocation_id"]
        frames = [wire.FrameWriter(seq).value(rng.randbytes(2000)) for seq in range(30)]
        for seq, data in enumerate(frames):
            chunk = {"invocation_id": inv, "claim": run["claim"], "seq": seq, "bytes": data}
            assert first.post("/v1/daemon/result-chunk", chunk).status == 200
        first.process.kill()
        first.process.wait()
    (segment,) = (tmp_path / "run" / "state" / "journal").iterdir()
    hurt(segment, how, rng)
    with running(tmp_path / "run", "--lease-s", "600") as second:
        last = wire.FrameWriter(30).value(b"after")
        chunk = {"invocation_id": inv, "claim": run["claim"], "seq": 30, "bytes": last}
        assert second.post("/v1/daemon/result-chunk", chunk).status == 200
        ack = {"invocation_id": inv, "claim": run["claim"], "state": "succeeded", "last_seq": 30}
        assert second.post("/v1/daemon/ack", ack).body["result"] == "ok"
        answer = second.get(f"/v1/producer/invocations/{inv}/result/stream")
        got = [frame.to_bytes() for frame in wire.FrameReader([answer.raw])]
        assert set(got[:-1]) < {*frames, last}
        assert got[-2] == last
        lost = 31 - len(got[:-1])
        assert lost == 1 if how == "turned" else lost >= 1
        assert f"lakeshore_damaged_frames_total {lost}" in second.get("/metrics").raw.decode()
        assert f"in segment {int(segment.stem)} at" in second.said()
        assert second.stop() == 0
        assert "Traceback" not in second.said()
