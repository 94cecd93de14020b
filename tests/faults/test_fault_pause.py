"""A server that is stopped for longer than a lease: whoever was running goes on, and nothing is run again (K-13).

`OUTAGE_S=600` makes the longest stop ten minutes.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fault_bodies as bodies
import pytest
import served
from ports import free_port

from lakeshore import wire
from lakeshore.sdk.http_dispatch import HttpDispatch

HERE = Path(__file__).parent
LEASE_S = 1.5
OUTAGE_S = float(os.environ.get("OUTAGE_S", "0"))
PATIENCE_S = 60.0


@pytest.fixture
def server(tmp_path: Path) -> Iterator[served.Served]:
    with served.running(tmp_path / "server", "--lease-s", str(LEASE_S)) as running:
        yield running


@pytest.fixture
def plane(server: served.Served) -> Iterator[HttpDispatch]:
    plane = HttpDispatch(server.url)
    yield plane
    plane.close()


@pytest.fixture
def workers(server: served.Served, tmp_path: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    command = [sys.executable, "-m", "dreamlake.lakeshore.daemon", "--queue", "work", "--url", server.url]
    with (tmp_path / "log").open("ab") as log:
        started = [
            subprocess.Popen(command, cwd=HERE, env=served.environment(), stdout=log, stderr=log) for _ in range(2)
        ]
    yield started
    for worker in started:
        worker.kill()
        worker.wait()


def until(what: Callable[[], Any], told: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not what():
        assert time.monotonic() < deadline, told
        time.sleep(0.01)


@pytest.mark.inventory("K-13", "K-11")
@pytest.mark.parametrize("pause_s", [2 * LEASE_S, max(OUTAGE_S, 4 * LEASE_S)], ids=["short", "long"])
def test_jobs_that_run_while_the_server_is_stopped_are_not_run_again(
    server: served.Served,
    plane: HttpDispatch,
    workers: list[subprocess.Popen[bytes]],
    tmp_path: Path,
    pause_s: float,
) -> None:
    ids = [
        bodies.slow.submit(str(tmp_path), str(number), pause_s + 2.0, _queue="work", _dispatch=plane)
        for number in range(2)
    ]
    for number in range(2):
        until((tmp_path / f"began-{number}").exists, "the body never began")
    claims = {inv: claim_of(plane, inv) for inv in ids}  # one of the two may have been prefetched and given back
    os.kill(server.process.pid, signal.SIGSTOP)
    time.sleep(pause_s)  # the pause itself is what is tested
    os.kill(server.process.pid, signal.SIGCONT)
    for number, inv in enumerate(ids):
        assert plane.result(inv, timeout=PATIENCE_S) == wire.pack(str(number))
    assert {inv: claim_of(plane, inv) for inv in ids} == claims
    assert Counter((tmp_path / "runs").read_text().split()) == {"0": 1, "1": 1}
    assert "expired" not in server.said()


def claim_of(plane: HttpDispatch, inv: str) -> int:
    """The number of the one claim that has executed."""
    row = plane.get(inv)
    assert row is not None
    assert row["attempt"] <= 1
    return int(row["claim"])


@pytest.mark.inventory("K-13", "K-29")
def test_a_server_that_is_killed_and_comes_back_after_a_lease_runs_nothing_again(tmp_path: Path) -> None:
    """The workers keep their jobs over the outage; a full lease is theirs once it is over."""
    port = str(free_port())
    outage_s = max(OUTAGE_S, 1.5 * LEASE_S)
    flags = ("--lease-s", str(LEASE_S), "--port", port)
    with served.running(tmp_path / "server", *flags) as first:
        plane = HttpDispatch(first.url)
        command = [sys.executable, "-m", "dreamlake.lakeshore.daemon", "--queue", "work", "--url", first.url]
        with (tmp_path / "log").open("ab") as log:
            worker = subprocess.Popen(command, cwd=HERE, env=served.environment(), stdout=log, stderr=log)
        try:
            inv = bodies.slow.submit(str(tmp_path), "0", outage_s + 1.75, _queue="work", _dispatch=plane)
            until((tmp_path / "began-0").exists, "the body never began")
            first.process.kill()
            first.process.wait()
            time.sleep(outage_s)  # the outage itself is what is tested
            with served.running(tmp_path / "server", *flags):
                assert plane.result(inv, timeout=PATIENCE_S) == wire.pack("0")
                assert claim_of(plane, inv) == 1
        finally:
            plane.close()
            worker.kill()
            worker.wait()
    assert (tmp_path / "runs").read_text().split() == ["0"]
