"""A full disk: what was acknowledged stays, what is refused says why, and all goes on once there is space."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fault_bodies as bodies
import pytest
from disks import SmallDisk, small_disk
from ports import free_port
from served import Answer, Served, environment, new_id, one, running

from lakeshore import wire
from lakeshore.sdk.dispatch import Dispatch
from lakeshore.sdk.errors import DispatchError
from lakeshore.sdk.http_dispatch import HttpDispatch

PATIENCE_S = 60.0
AWAY_S = 35.0 if "SOAK_S" in os.environ else 2.0
"""A soak waits longer than any one verb keeps trying."""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with small_disk(tmp_path / "disk") as disk:
        yield disk


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, SmallDisk]]:
    """One server for many fillings. Its ready file and log are elsewhere: only its state is on the small disk."""
    run = tmp_path_factory.mktemp("small")
    with small_disk(run / "state", megabytes=16) as disk, running(run, "--lease-s", "600") as served:
        yield served, disk
        assert served.stop() == 0, served.said()
        assert "Traceback" not in served.said()


@pytest.fixture
def server(small: tuple[Served, SmallDisk]) -> Served:
    return small[0]


@pytest.fixture
def its_disk(small: tuple[Served, SmallDisk]) -> Iterator[SmallDisk]:
    yield small[1]
    small[1].empty()


def frame(seq: int, size: int) -> bytes:
    return wire.FrameWriter(seq).value(b"f" * size)


def claim(server: Served, queue: str, n: int, session: str = "s") -> dict[str, Any] | None:
    poll = {"worker_id": f"w-{queue}", "queue": queue, "session": session, "n": n, "timeout_s": 0, "held": []}
    answer = server.post("/v1/daemon/poll", poll)
    assert answer.status == 200, answer.body
    runs = [command["body"] for command in answer.body["commands"] if command["kind"] == "run"]
    return runs[0] if runs else None


def check_full(answer: Answer) -> None:
    assert answer.status == 507, answer.body
    assert "space" in answer.body["error"]
    assert answer.body["hint"]


@pytest.mark.inventory("K-32", "K-30")
@pytest.mark.parametrize("size", [100, 20_000, 100_000], ids=["in the row", "beside the row", "in a file"])
def test_submits_until_the_disk_is_full_lose_none_that_was_acknowledged(
    server: Served, its_disk: SmallDisk, size: int
) -> None:
    its_disk.fill(leave=400_000)
    queue, kept = f"q-{new_id()}", {}
    refused = None
    for number in range(20_000):
        call = one(queue=queue, args_blob=str(number).encode().ljust(size, b"a"))
        answer = server.post("/v1/producer/submit", call)
        if answer.status != 200:
            refused = call
            check_full(answer)
            break
        kept[call["invocation_id"]] = call["args_blob"]
    assert refused is not None
    assert kept
    batch = server.post("/v1/producer/submit", {"invocations": [refused, one(args_blob=b"x" * 100_000)]}).body
    assert {result["status"] for result in batch["results"]} <= {200, 507}
    assert server.get("/readyz").status == 200
    assert server.get(f"/v1/producer/queues/{queue}/count").body["count"] >= len(kept)
    its_disk.empty()
    assert server.post("/v1/producer/submit", refused).status == 200
    kept[refused["invocation_id"]] = refused["args_blob"]
    for n, inv in enumerate(kept, 1):
        run = claim(server, queue, n, session="reads")
        assert run is not None
        assert (run["invocation_id"], run["args_blob"]) == (inv, kept[inv])
        ack = {"invocation_id": inv, "claim": run["claim"], "state": "succeeded", "result_blob": b"r"}
        assert server.post("/v1/daemon/ack", ack).body["result"] == "ok"
        if n == 40:
            break


@pytest.mark.inventory("K-32", "K-24", "K-26")
def test_frames_and_an_ack_on_a_full_disk_are_refused_whole_and_taken_later(
    server: Served, its_disk: SmallDisk
) -> None:
    call = one()
    server.post("/v1/producer/submit", call)
    run = claim(server, call["queue"], 1)
    assert run is not None
    inv, number = run["invocation_id"], run["claim"]
    its_disk.fill(leave=300_000)
    stored = []
    while True:
        data = frame(len(stored), 10_000)
        chunk = {"invocation_id": inv, "claim": number, "seq": len(stored), "bytes": data}
        answer = server.post("/v1/daemon/result-chunk", chunk)
        if answer.status != 200:
            check_full(answer)
            break
        stored.append(data)
        assert len(stored) < 1000
    its_disk.fill()
    many = {"chunks": [chunk, {**chunk, "seq": len(stored) + 1, "bytes": frame(len(stored) + 1, 10)}]}
    batch = server.post("/v1/daemon/result-chunk", many)
    assert batch.status in (200, 507), batch.body
    ack = {"invocation_id": inv, "claim": number, "state": "succeeded", "last_seq": len(stored)}
    large = server.post("/v1/daemon/ack", {**ack, "result_blob": b"r" * 200_000})
    check_full(large)
    assert server.get("/readyz").status == 200
    row = server.get(f"/v1/namespaces/default/invocations/{inv}").body
    assert row["state"] == "running"
    its_disk.empty()
    assert server.post("/v1/daemon/result-chunk", chunk).status == 200
    stored.append(chunk["bytes"])
    assert server.post("/v1/daemon/ack", {**ack, "result_blob": b"r" * 200_000}).body["result"] == "ok"
    answer = server.get(f"/v1/producer/invocations/{inv}/result/stream")
    frames = list(wire.FrameReader([answer.raw]))
    assert [frame.to_bytes() for frame in frames[:-1]] == stored
    assert frames[-1].kind.name == "END"
    waited = server.post("/v1/producer/await", {"invocation_id": inv, "timeout_s": 5}).body
    assert (waited["state"], waited["result_blob"]) == ("succeeded", b"r" * 200_000)


@pytest.mark.inventory("K-32")
def test_whatever_is_called_on_a_full_disk_is_answered_and_the_server_lives(
    server: Served, its_disk: SmallDisk
) -> None:
    """Also the routes that write the small books: namespaces, tokens, workers, uploads, topics, cancel."""
    calls = [one() for _ in range(3)]
    for call in calls:
        server.post("/v1/producer/submit", call)
    minted = server.post("/v1/namespaces/default/tokens", {"name": "t"}).body["plaintext"]
    its_disk.fill()
    upload = {"op": "put", "size": 100_000, "jobId": "j"}
    hello = {
        "machine_id": "m",
        "label": "l",
        "tags": [],
        "session": "s",
        "capabilities": {"runners": []},
        "versions": {"daemon": "1", "protocol": "1"},
    }
    poll = {"worker_id": "w", "queue": calls[0]["queue"], "session": "s", "n": 1, "timeout_s": 0}
    seen = {}
    for round_ in range(30):
        for name, answer in {
            "submit": server.post("/v1/producer/submit", one(args_blob=b"a" * 50_000)),
            "another namespace": server.post("/v1/producer/submit", one(), X_LS_Namespace=f"ns-{new_id()}"),
            "with a token": server.post("/v1/producer/submit", one(), token=minted),
            "token": server.post("/v1/namespaces/default/tokens", {"name": f"t-{new_id()}"}),
            "namespace": server.post("/v1/admin/namespaces", {"name": f"ns-{new_id()}"}),
            "hello": server.post("/v1/daemon/hello", {**hello, "session": f"s{round_}"}),
            "poll": server.post("/v1/daemon/poll", {**poll, "worker_id": f"w{round_}"}),
            "topic": server.post("/v1/producer/queues/q/topics/t", {"bytes": b"\xc4\x64" + b"t" * 100}),
            "cancel": server.post(f"/v1/producer/invocations/{calls[1]['invocation_id']}/cancel", {}),
            "retry": server.post(f"/v1/namespaces/default/invocations/{calls[1]['invocation_id']}/retry", {}),
            "upload": server.raw(
                "PUT", server.post("/v1/namespaces/default/payloads/presign", upload).body["url"], b"u" * 100_000
            ),
            "store": server.raw("POST", "/v1/namespaces/default/payloads", b"s" * 100_000),
            "await": server.post("/v1/producer/await", {"invocation_id": calls[2]["invocation_id"], "timeout_s": 0}),
            "list": server.get("/v1/namespaces/default/invocations"),
            "metrics": server.get("/metrics"),
        }.items():
            seen.setdefault(name, set()).add(answer.status)
            assert answer.status < 500 or answer.status in (503, 507), (name, answer.status, answer.raw)
            if answer.status == 507:
                check_full(answer)
    assert 507 in seen["submit"]
    assert seen["await"] == seen["list"] == seen["metrics"] == {200}
    its_disk.empty()
    assert server.post("/v1/producer/submit", one(), X_LS_Namespace=f"ns-{new_id()}").status == 200
    assert server.post("/v1/daemon/hello", {**hello, "session": "t"}).status == 200


@pytest.mark.inventory("K-32")
def test_the_sdk_says_that_the_disk_of_the_server_is_full(server: Served, its_disk: SmallDisk) -> None:
    plane = HttpDispatch(server.url, timeout=2.0)
    its_disk.fill()
    try:
        for size in (100_000, 300_000):
            with pytest.raises(DispatchError, match="space"):
                plane.submit("q", b"e" * size, id=new_id())
        its_disk.empty()
        inv = plane.submit("q", b"e" * 300_000, id=new_id())
        job = plane.claim("q", "w")
        assert job is not None
        assert (job.id, job.envelope) == (inv, b"e" * 300_000)
    finally:
        plane.close()


@pytest.mark.inventory("K-8", "K-32")
@pytest.mark.parametrize("trouble", ["full disk", "server away"])
def test_what_a_body_has_made_waits_until_its_server_can_take_it(disk: SmallDisk, tmp_path: Path, trouble: str) -> None:
    """The result and the frames of bodies that ended in bad times arrive once they are over; nothing runs again."""
    port = str(free_port())
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "state").symlink_to(disk.root)
    with running(tmp_path / "run", "--port", port) as first, (tmp_path / "log").open("wb") as log:
        plane = HttpDispatch(first.url)
        options = {"_queue": "work", "_dispatch": plane, "_run_config": {"max_attempts": 1}}
        large = bodies.large_after_go.submit(str(tmp_path), "0", **options)
        streamed = bodies.streamed_after_go.submit(str(tmp_path), "1", **options)
        command = [sys.executable, "-m", "dreamlake.lakeshore.daemon", "--queue", "work", "--url", first.url]
        workers = [
            subprocess.Popen(command, cwd=Path(__file__).parent, env=environment(), stdout=log, stderr=log)
            for _ in range(2)
        ]
        try:
            until(lambda: all((tmp_path / f"began-{n}").exists() for n in range(2)))
            if trouble == "full disk":
                disk.fill()
            else:
                first.process.kill()
                first.process.wait()
            (tmp_path / "go").touch()
            if trouble == "full disk":
                until(lambda: (tmp_path / "log").read_text().count("trying again") > 1)
                disk.empty()
                assert wire.unpack(plane.result(large, timeout=PATIENCE_S)) == b"r" * bodies.BIG
                check_stream(plane, streamed)
            else:
                time.sleep(AWAY_S)  # the outage itself is what is tested
                with running(tmp_path / "run", "--port", port):
                    assert wire.unpack(plane.result(large, timeout=PATIENCE_S)) == b"r" * bodies.BIG
                    check_stream(plane, streamed)
        finally:
            for worker in workers:
                worker.kill()
                worker.wait()
            plane.close()
    assert sorted((tmp_path / "runs").read_text().split()) == ["0", "1"]


def check_stream(plane: HttpDispatch, inv: str) -> None:
    frames = [wire.Frame.from_bytes(data) for _seq, data in plane.journal_read(inv, timeout=PATIENCE_S)]
    assert [frame.body for frame in frames[:-1]] == [bytes([step]) * 50_000 for step in range(3)]
    assert frames[-1].kind.name == "END"


def until(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.inventory("K-32")
def test_a_server_whose_disk_runs_short_says_so_until_there_is_space(disk: SmallDisk, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "state").symlink_to(disk.root)
    with running(tmp_path / "run", "--reserve-bytes", "2000000") as server:
        doctor = [sys.executable, "-m", "lakeshore", "doctor", "--url", server.url]
        for _ in range(2):
            assert server.get("/readyz").body == {"ok": True}
            disk.fill(leave=1_000_000)
            until(lambda: server.get("/readyz").body == {"ok": True, "full": True})
            check_full(server.post("/v1/producer/submit", one()))
            told = subprocess.run(doctor, env=environment(), capture_output=True, text=True, timeout=PATIENCE_S)
            assert told.returncode == 1
            assert "new calls are refused" in told.stdout
            disk.empty()
            until(lambda: server.post("/v1/producer/submit", one()).status == 200)
        said = server.said()
        assert (said.count("new calls are refused"), said.count("taken again")) == (2, 2), said


@pytest.mark.inventory("K-32")
def test_a_server_starts_on_a_full_disk_or_says_why_not(disk: SmallDisk, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "state").symlink_to(disk.root)
    call = one(args_blob=b"a" * 1000)
    with running(tmp_path / "run") as first:
        assert first.post("/v1/producer/submit", call).status == 200
        first.process.kill()
        first.process.wait()
    disk.fill()
    try:
        with running(tmp_path / "run") as second:
            assert second.get(f"/v1/producer/queues/{call['queue']}/count").body == {"count": 1}
    except AssertionError as error:
        assert "Traceback" not in str(error), error
        assert "space" in str(error) or "full" in str(error), error
    disk.empty()
    with running(tmp_path / "run") as third:
        run = claim(third, call["queue"], 1)
        assert run is not None
        assert run["args_blob"] == call["args_blob"]


@pytest.mark.inventory("K-32", "K-30")
def test_a_file_plane_on_a_full_disk_refuses_in_its_own_words_and_keeps_what_it_took(disk: SmallDisk) -> None:
    dp = Dispatch(disk.root / "plane.sqlite")
    first = dp.submit("q", b"first", id="first")
    job = dp.claim("q", "w1")
    assert job is not None
    disk.fill(leave=300_000)
    kept = []
    sizes = [200, 30_000, 100_000]
    while len(kept) < 5000:
        inv = f"job-{len(kept)}"
        try:
            dp.submit("q", inv.encode().ljust(sizes[len(kept) % 3]), id=inv)
        except DispatchError as error:
            assert "space" in str(error), error
            break
        kept.append(inv)
    assert kept
    disk.fill()
    with pytest.raises(DispatchError, match="space"):
        dp.submit("q", b"x" * 100_000, id="in a file")
    with pytest.raises(DispatchError, match="space"):
        dp.ack(first, "w1", result=b"r" * 100_000)
    with pytest.raises(DispatchError, match="space"):
        for _ in range(1000):
            dp.journal_append(first, None, frame(0, 5000))
    said = dp.count("q", "running")
    assert said == 1
    disk.empty()
    before = len([seq for seq, _ in _read(dp, first)])
    dp.journal_append(first, before, frame(before, 10))
    dp.ack(first, "w1", result=b"r" * 100_000)
    assert dp.result(first, timeout=5) == b"r" * 100_000
    for n, inv in enumerate(kept):
        job = dp.claim("q", "w1")
        assert job is not None
        assert (job.id, job.envelope) == (inv, inv.encode().ljust(sizes[n % 3]))
        dp.ack(job.id, "w1", claim=job.claim)
    dp.close()


def _read(dp: Dispatch, inv: str) -> list[tuple[int, bytes]]:
    found = []
    with pytest.raises(TimeoutError):
        for seq, data in dp.journal_read(inv, timeout=0.05):
            found.append((seq, data))
    return found


@pytest.mark.inventory("K-33", "K-30")
def test_a_file_plane_whose_wal_cannot_be_folded_still_answers_truly(tmp_path: Path) -> None:
    """The verb that happens to tidy up has been committed: it may not fail for what comes after it."""
    with small_disk(tmp_path / "disk", megabytes=32) as disk:
        dp = Dispatch(disk.root / "plane.sqlite", durability="process")
        for n in range(250):
            dp.submit("q", b"x" * 20_000, id=f"a-{n}")
        disk.fill(leave=600_000)
        kept = []
        while True:
            inv = f"b-{len(kept)}"
            try:
                dp.submit("q", b"x", id=inv)
            except DispatchError as error:
                assert "space" in str(error), error
                assert dp.get(inv) is None, "it was refused, and is there"
                break
            kept.append(inv)
        assert len(kept) >= 6, "the 256th write, which folds, is among them"
        assert all(dp.get(inv) is not None for inv in kept)
        disk.empty()
        dp.submit("q", b"x" * 100_000, id="after")
        dp.close()
