"""A slow disk, 5 ms more for each sync of the server: commits take more along, and who needs no disk waits for none.

The shim is benchmarks/harness/slow_sync.c, preloaded into the server; without a C compiler these tests skip.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import msgpack
import pytest
from disks import fast_directory
from served import MSGPACK, Served, one, running

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

from harness.slow_sync import NoSlowDisk, SlowDisk, compiled  # the benchmarks' directory first
from harness.stats import percentile

SLOW_MS = 5.0
CONNECTIONS = 16
EACH = 25
UNKNOWN = f"/v1/namespaces/default/invocations/{'0' * 24}"


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    try:
        return compiled(tmp_path_factory.mktemp("shim"))
    except NoSlowDisk as why:
        pytest.skip(str(why))


@pytest.fixture
def slow(shim: Path, tmp_path: Path) -> Iterator[tuple[Served, SlowDisk]]:
    """A server on a disk in memory: what is added to its syncs is all that they take."""
    disk = SlowDisk(shim, tmp_path / "book")
    with fast_directory(tmp_path) as place, running(place / "run", env=disk.environment) as server:
        yield server, disk


def test_the_shim_delays_and_counts_the_syncs_of_sqlite_and_of_python(shim: Path, tmp_path: Path) -> None:
    """A hook that slows nothing down would let every test here pass."""
    script = """
import os, sqlite3, sys, time
directory, commits = sys.argv[1], sqlite3.connect(sys.argv[1] + "/db", isolation_level=None)
commits.execute("PRAGMA journal_mode = WAL")
commits.execute("PRAGMA synchronous = FULL")
commits.execute("CREATE TABLE t (x)")
fd = os.open(directory + "/file", os.O_RDWR | os.O_CREAT)
for sync in (lambda: os.fsync(fd), lambda: os.fdatasync(fd), lambda: commits.execute("INSERT INTO t VALUES (1)")):
    began = time.monotonic()
    for _ in range(10):
        sync()
    print(time.monotonic() - began)
"""
    disk = SlowDisk(shim, tmp_path / "book", SLOW_MS)
    command = [sys.executable, "-c", script, str(tmp_path)]
    ran = subprocess.run(command, env={**os.environ, **disk.environment}, capture_output=True, text=True, check=True)
    assert all(float(took) >= 10 * SLOW_MS / 1000 for took in ran.stdout.split()), ran.stdout
    syncs = disk.syncs()
    assert syncs.count >= 30
    assert syncs.fsyncs >= 10
    assert syncs.seconds >= syncs.count * SLOW_MS / 1000


def submits(server: Served, failures: list[BaseException], acknowledged: list[str]) -> list[threading.Thread]:
    """CONNECTIONS clients, each with EACH submits one after the other on a connection of its own."""

    def submit() -> None:
        try:
            with contextlib.closing(server.connection()) as connection:
                for _ in range(EACH):
                    call = one(queue="slow")
                    connection.request("POST", "/v1/producer/submit", msgpack.packb(call), {"Content-Type": MSGPACK})
                    answer = connection.getresponse()
                    assert answer.status == 200, answer.read()
                    answer.read()
                    acknowledged.append(call["invocation_id"])
        except BaseException as exc:
            failures.append(exc)

    threads = [threading.Thread(target=submit) for _ in range(CONNECTIONS)]
    for thread in threads:
        thread.start()
    return threads


def asked_s(connection: http.client.HTTPConnection, path: str, status: int) -> float:
    began = time.monotonic()
    connection.request("GET", path)
    answer = connection.getresponse()
    answer.read()
    assert answer.status == status
    return time.monotonic() - began


@pytest.mark.inventory("K-30")
def test_concurrent_submits_share_the_syncs_of_a_slow_disk(slow: tuple[Served, SlowDisk]) -> None:
    server, disk = slow
    failures: list[BaseException] = []
    acknowledged: list[str] = []
    disk.slow_down(SLOW_MS)
    before, began = disk.syncs(), time.monotonic()
    for thread in submits(server, failures, acknowledged):
        thread.join(60)
    took, syncs = time.monotonic() - began, disk.syncs().count - before.count
    assert not failures
    assert len(set(acknowledged)) == CONNECTIONS * EACH
    print(f"{len(acknowledged)} submits, {syncs} syncs, {took:.2f} s")
    assert EACH <= syncs < len(acknowledged) / 3, "each client's submits come one after the other"
    assert server.get("/v1/producer/queues/slow/count").body["count"] == len(acknowledged)


@pytest.mark.inventory("K-30")
def test_who_needs_no_disk_does_not_wait_for_it_while_submits_pour_in(slow: tuple[Served, SlowDisk]) -> None:
    """The added time is so long that one request behind one sync stands out, whatever else the machine does."""
    server, disk = slow
    failures: list[BaseException] = []
    acknowledged: list[str] = []
    server.post("/v1/producer/submit", one())
    with contextlib.closing(server.connection()) as connection:
        asked_s(connection, "/healthz", 200)
        disk.slow_down(SLOW_MS)
        threads = submits(server, failures, acknowledged)
        while len(acknowledged) < CONNECTIONS and not failures:
            asked_s(connection, "/healthz", 200)  # by now commits are in their thread
        disk.slow_down(80 * SLOW_MS)
        before, took = disk.syncs().count, []
        while (syncs := disk.syncs().count - before) < 4:
            took += [asked_s(connection, "/healthz", 200), asked_s(connection, UNKNOWN, 404)]
        busy = any(thread.is_alive() for thread in threads)
        disk.slow_down(0)
    for thread in threads:
        thread.join(60)
    assert not failures
    assert busy, "the submits were over before the others had been asked"
    print(f"p50 {percentile(took, 0.5) * 1e3:.2f} ms, p90 {percentile(took, 0.9) * 1e3:.2f} ms, {syncs} syncs")
    assert percentile(took, 0.9) < 80 * SLOW_MS / 1000 / 4
