"""A worker's claims live as long as it does, however busy its body is, and not a moment longer (K-9, K-11, K-12)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import guarded_bodies as bodies
import msgpack
import pytest
import served

from lakeshore.sdk.http_dispatch import HttpDispatch
from lakeshore.sdk.queues import SyncQueue

LEASE_S = 1.5
PATIENCE_S = 60.0
START = Callable[[], "subprocess.Popen[bytes]"]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[served.Served]:
    with served.running(tmp_path / "server", "--lease-s", str(LEASE_S)) as running:
        yield running


@pytest.fixture
def q(server: served.Served) -> Iterator[SyncQueue]:
    plane = HttpDispatch(server.url)
    yield SyncQueue("work", dispatch=plane)
    plane.close()


@pytest.fixture
def start(server: served.Served, tmp_path: Path) -> Iterator[START]:
    begun: list[subprocess.Popen[bytes]] = []
    log = (tmp_path / "worker.log").open("ab")

    def start() -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "dreamlake.lakeshore.daemon", "--queue", "work", "--url", server.url]
        process = subprocess.Popen(
            command,
            cwd=Path(__file__).parent,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
        begun.append(process)
        return process

    yield start
    for process in begun:
        if process.poll() is None:
            process.kill()
        process.wait(60)
    log.close()


def submit(q: SyncQueue, function: Any, *args: Any) -> str:
    return str(function.submit(*args, _queue=q.name, _dispatch=q.plane))


def until(what: Callable[[], Any], told: str) -> Any:
    deadline = time.monotonic() + PATIENCE_S
    while not (found := what()):
        assert time.monotonic() < deadline, told
        time.sleep(0.005)
    return found


def row(q: SyncQueue, inv_id: str) -> dict[str, Any]:
    found: dict[str, Any] | None = q.plane.get(inv_id)
    assert found is not None
    return found


@pytest.mark.inventory("K-11", "K-12")
@pytest.mark.parametrize("body", [bodies.sleeps, bodies.keeps_the_interpreter], ids=["sleeps", "keeps-the-gil"])
def test_a_body_may_run_for_many_leases(q: SyncQueue, start: START, tmp_path: Path, body: Any) -> None:
    start()
    inv_id = submit(q, body, 3 * LEASE_S, str(tmp_path / "began"))
    q.result(inv_id, timeout=PATIENCE_S)
    assert (row(q, inv_id)["claim"], row(q, inv_id)["attempt"]) == (1, 1)


@pytest.mark.inventory("K-9", "P-335")
def test_what_waits_behind_a_long_job_goes_to_another_worker(q: SyncQueue, start: START, tmp_path: Path) -> None:
    """Nine quick jobs are prefetched behind a long one; a second worker that is free does not leave them there."""
    began, go = tmp_path / "began", tmp_path / "go"
    long_one = submit(q, bodies.until_told, str(began), str(go))
    quick = [submit(q, bodies.quick, n) for n in range(9)]
    start()
    until(began.exists, "the long job never began")
    start()
    for n, inv_id in enumerate(quick):
        assert q.result(inv_id, timeout=PATIENCE_S)[0] == n
    assert row(q, long_one)["state"] == "running"
    assert [row(q, inv_id)["attempt"] for inv_id in quick] == [1] * 9
    go.touch()
    assert q.result(long_one, timeout=PATIENCE_S) == "told"
    assert (row(q, long_one)["claim"], row(q, long_one)["attempt"]) == (1, 1)


@pytest.mark.inventory("K-12", "K-6")
def test_the_death_of_a_worker_is_told_long_before_its_lease_ends(tmp_path: Path) -> None:
    with served.running(tmp_path / "patient", "--lease-s", "3600") as server:
        plane = HttpDispatch(server.url)
        q = SyncQueue("work", dispatch=plane)
        began = tmp_path / "began"
        command = [sys.executable, "-m", "dreamlake.lakeshore.daemon", "--queue", "work", "--url", server.url]
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
        with (tmp_path / "worker.log").open("ab") as log:
            worker = subprocess.Popen(command, cwd=Path(__file__).parent, env=environment, stdout=log, stderr=log)
        behind = [submit(q, bodies.sleeps, 600.0, str(began)), *(submit(q, bodies.quick, n) for n in range(3))]
        until(began.exists, "the body never began")
        worker.send_signal(signal.SIGKILL)
        worker.wait(60)
        until(lambda: all(row(q, inv_id)["state"] == "queued" for inv_id in behind), "nobody told of the death")
        assert [row(q, inv_id)["attempt"] for inv_id in behind] == [1, 0, 0, 0]
        plane.close()


@pytest.mark.inventory("K-11", "K-12")
def test_a_worker_that_thaws_begins_nothing_that_is_no_longer_its_own(
    q: SyncQueue, start: START, tmp_path: Path
) -> None:
    began, first = tmp_path / "began", start()
    inv_id = submit(q, bodies.sleeps, 1.0, str(began))
    until(began.exists, "the body never began")
    guardians = _children(first.pid)
    for pid in (first.pid, *guardians):
        os.kill(pid, signal.SIGSTOP)
    until(lambda: row(q, inv_id)["state"] == "queued", "the lease of a frozen worker never ended")
    start()
    assert q.result(inv_id, timeout=PATIENCE_S) == "slept"
    settled = row(q, inv_id)
    for pid in (first.pid, *guardians):
        os.kill(pid, signal.SIGCONT)
    marker = submit(q, bodies.quick, 1)
    q.result(marker, timeout=PATIENCE_S)
    assert row(q, inv_id) == settled
    assert settled["claim"] == 2


def _children(pid: int) -> list[int]:
    until(lambda: Path(f"/proc/{pid}/task/{pid}/children").read_text().split(), "no guardian was started")
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.inventory("K-12", "K-10")
def test_a_hand_written_worker_is_guarded_too(q: SyncQueue) -> None:
    inv_id = q.submit({"any": "payload"})
    job = q.claim()
    assert job is not None
    deadline = time.monotonic() + 3 * LEASE_S
    until(lambda: time.monotonic() > deadline, "time stood still")
    q.ack(job, "done")
    assert q.result(inv_id) == "done"
    assert row(q, inv_id)["claim"] == 1


@pytest.mark.inventory("K-12", "K-8")
def test_the_death_of_a_worker_that_had_spoken_since_is_told_too(tmp_path: Path) -> None:
    """Its guardian was last told of a job that has long been settled; the next one is running when it is killed."""
    with served.running(tmp_path / "patient", "--lease-s", "3600") as server:
        plane = HttpDispatch(server.url)
        q = SyncQueue("work", dispatch=plane)
        command = [sys.executable, "-m", "dreamlake.lakeshore.daemon", "--queue", "work", "--url", server.url]
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
        with (tmp_path / "worker.log").open("ab") as log:
            worker = subprocess.Popen(command, cwd=Path(__file__).parent, env=environment, stdout=log, stderr=log)
        for n in range(3):
            assert q.result(submit(q, bodies.quick, n), timeout=PATIENCE_S)[0] == n
        guardians = _children(worker.pid)
        until(lambda: all(_idle(pid) for pid in guardians), "an idle worker's guardian never rests")
        began = tmp_path / "began"
        inv_id = submit(q, bodies.sleeps, 600.0, str(began))
        until(began.exists, "the body never began")
        worker.send_signal(signal.SIGKILL)
        worker.wait(60)
        until(lambda: row(q, inv_id)["state"] == "queued", "nobody told of the death")
        plane.close()


def _idle(pid: int) -> bool:
    """Whether the process switched no more than twice within half a second."""
    before = _switches(pid)
    deadline = time.monotonic() + 0.5
    until(lambda: time.monotonic() > deadline, "time stood still")
    return _switches(pid) - before <= 2


def _switches(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if "ctxt_switches" in line)


@pytest.mark.inventory("P-341", "P-321")
def test_a_worker_that_ends_at_once_leaves_nothing_behind(q: SyncQueue, server: served.Served) -> None:
    """It is gone before its guardian is up: nobody complains, nothing is held, no file stays."""
    command = [sys.executable, "-m", "dreamlake.lakeshore.daemon", "--queue", "work", "--url", server.url, "--once"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    for n in range(3):
        inv_id = submit(q, bodies.quick, n)
        done = subprocess.run(command, cwd=Path(__file__).parent, env=environment, capture_output=True, timeout=60)
        assert done.returncode == 0
        assert b"Traceback" not in done.stderr
        assert q.result(inv_id)[0] == n
        assert row(q, inv_id)["attempt"] == 1


@pytest.mark.inventory("K-12")
def test_a_guardian_stays_as_small_as_it_was_however_much_it_is_told() -> None:
    plane = {"url": "http://127.0.0.1:9", "token": None, "namespace": "default", "pid": os.getpid()}
    nothing = {"begun": [], "ready": [], "batch": 0, "slate": False}
    told = msgpack.packb({"session": "s", "worker": "w", "queue": "work", "n": 1, "lease_s": 60.0, **nothing})
    guardian = subprocess.Popen(
        [sys.executable, "-m", "lakeshore.sdk.entry.guardian"], env=served.environment(), stdin=subprocess.PIPE
    )
    try:
        assert guardian.stdin is not None
        guardian.stdin.write(msgpack.packb(plane))
        sizes = []
        for messages in (3000, 20_000):
            for _ in range(messages):
                guardian.stdin.write(told)
            guardian.stdin.flush()
            until(lambda: _idle(guardian.pid), "it never rests")
            sizes.append(int(Path(f"/proc/{guardian.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE"))
        assert sizes[1] - sizes[0] < 256 * 1024, sizes
        guardian.stdin.close()
        assert guardian.wait(PATIENCE_S) == 0
    finally:
        guardian.kill()
        guardian.wait()
