"""Workers that freeze, are cut off, have another time or die unseen: what lives is not run again, what is dead is, and
what comes too late is refused and recorded (K-2, K-8, K-11, K-13).
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import fault_bodies as bodies
import pytest
import served
from crew import HERE, PATIENCE_S, Crew, crew, until
from cutting import NEVER, cutting

from lakeshore import wire
from lakeshore.sdk.http_dispatch import HttpDispatch

LEASE_S = 1.5
SEED = int(os.environ.get("LOST_SEED", "7"))
CUTS = int(os.environ.get("LOST_CUTS", "12"))
"""Places where the line is cut, in each direction; more by LOST_CUTS."""


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
def workers(server: served.Served, tmp_path: Path) -> Iterator[Crew]:
    with crew(tmp_path, "--queue", "work", "--url", server.url) as made:
        yield made


def slow(plane: HttpDispatch, directory: Path, number: str, seconds: float) -> str:
    inv = bodies.slow.submit(str(directory), number, seconds, _queue="work", _dispatch=plane)
    return str(inv)


def begun(plane: HttpDispatch, inv: str, directory: Path, number: str) -> None:
    """Its body runs, and the server knows: only then is a loss an attempt (K-6)."""
    until((directory / f"began-{number}").exists, "the body never began")
    until(lambda: row(plane, inv)["attempt"] == 1, "nobody told that the body began")


def runs(directory: Path) -> Counter[str]:
    path = directory / "runs"
    return Counter(path.read_text().split() if path.exists() else ())


def row(plane: HttpDispatch, inv: str) -> dict[str, Any]:
    found = plane.get(inv)
    assert found is not None
    return found


def stale_reports(server: served.Served) -> int:
    lines = server.get("/metrics").raw.decode().splitlines()
    return int(float(next(x.split()[1] for x in lines if x.startswith("lakeshore_stale_reports_total "))))


def guardians_of(pid: int) -> list[int]:
    path = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(child) for child in until(lambda: path.read_text().split(), "no guardian was started")]


def send(number: int, *pids: int) -> None:
    for pid in pids:
        os.kill(pid, number)


@pytest.mark.inventory("K-2", "K-11")
def test_the_late_ack_of_a_worker_that_thaws_is_refused_and_recorded(
    server: served.Served, plane: HttpDispatch, workers: Crew, tmp_path: Path
) -> None:
    """It alone thaws, and not the guardian that would have told it: its body ends as if nothing had been."""
    first = workers.start()
    inv = slow(plane, tmp_path, "0", 1.0)
    begun(plane, inv, tmp_path, "0")
    guardians = guardians_of(first.pid)
    send(signal.SIGSTOP, first.pid, *guardians)
    until(lambda: row(plane, inv)["state"] == "queued", "the lease of a frozen worker never ended")
    workers.start()
    assert plane.result(inv, timeout=PATIENCE_S) == wire.pack("0")
    settled = row(plane, inv)
    assert (settled["claim"], settled["attempt"], stale_reports(server)) == (2, 2, 0)
    send(signal.SIGCONT, first.pid)
    until(lambda: stale_reports(server) > 0, "the late ack never came")
    send(signal.SIGCONT, *guardians)
    assert f"stale report of {inv} (claim 1)" in server.said()
    assert row(plane, inv) == settled
    assert runs(tmp_path) == {"0": 2}
    workers.workers[1].kill()
    assert plane.result(slow(plane, tmp_path, "1", 0.0), timeout=PATIENCE_S) == wire.pack("1"), "it works no more"


@pytest.mark.inventory("K-13", "K-4")
@pytest.mark.parametrize("hours", [1, -1])
def test_a_worker_whose_clock_is_an_hour_off_keeps_its_claims(
    server: served.Served, plane: HttpDispatch, tmp_path: Path, hours: int
) -> None:
    flags = ("--queue", "work", "--url", server.url)
    program = (str(HERE / "shifted.py"), str(hours * 3600), "dreamlake.lakeshore.daemon")
    with crew(tmp_path, *flags, program=program) as workers:
        workers.start()
        inv = slow(plane, tmp_path, "0", 3 * LEASE_S)
        assert plane.result(inv, timeout=PATIENCE_S) == wire.pack("0")
        quick = [slow(plane, tmp_path, str(n), 0.0) for n in range(1, 9)]
        for n, other in enumerate(quick, 1):
            assert plane.result(other, timeout=PATIENCE_S) == wire.pack(str(n))
    assert (row(plane, inv)["claim"], row(plane, inv)["attempt"]) == (1, 1)
    assert runs(tmp_path) == {str(n): 1 for n in range(9)}
    assert abs(row(plane, inv)["finished_at"] - time.time()) < 600, "a worker's clock is on the row"


@pytest.mark.inventory("K-13")
@pytest.mark.parametrize("hours", [1, -1])
def test_a_jump_of_the_servers_clock_runs_nothing_again_that_lives_and_the_dead_all_the_same(
    tmp_path: Path, hours: int
) -> None:
    jump_s = str(hours * 3600)
    ready = tmp_path / "ready"
    command = [sys.executable, str(HERE / "shifted.py"), jump_s, "lakeshore.server.serve", "--port", "0"]
    more = ["--state-dir", str(tmp_path / "state"), "--ready-file", str(ready), "--lease-s", str(LEASE_S)]
    with (tmp_path / "log").open("ab") as log:
        process = subprocess.Popen([*command, *more], env=served.environment(), stdout=log, stderr=log)
    try:
        until(ready.exists, lambda: (tmp_path / "log").read_text())
        url = ready.read_text().strip()
        plane = HttpDispatch(url)
        with crew(tmp_path, "--queue", "work", "--url", url) as workers:
            for _ in range(2):
                workers.start()
            ids = [slow(plane, tmp_path, number, 4 * LEASE_S) for number in ("0", "1")]
            for number, inv in enumerate(ids):
                begun(plane, inv, tmp_path, str(number))
            doomed = workers.workers[1]
            of_doomed = next(inv for inv in ids if str(doomed.pid) in str(row(plane, inv)["worker"]))
            send(signal.SIGKILL, *guardians_of(doomed.pid), doomed.pid)
            send(signal.SIGUSR2, process.pid)
            for number, inv in enumerate(ids):
                assert plane.result(inv, timeout=PATIENCE_S) == wire.pack(str(number))
            for inv in ids:
                assert row(plane, inv)["attempt"] == (2 if inv == of_doomed else 1)
        plane.close()
    finally:
        process.kill()
        process.wait()
    assert sorted(runs(tmp_path).values()) == [1, 2]


@pytest.mark.inventory("K-13", "K-12")
def test_after_an_outage_the_living_go_on_and_the_dead_are_run_again(
    server: served.Served, plane: HttpDispatch, workers: Crew, tmp_path: Path
) -> None:
    """Its worker dies with its guardian while the server is away: nobody tells, the lease after the return does."""
    for _ in range(2):
        workers.start()
    ids = [slow(plane, tmp_path, number, 4 * LEASE_S) for number in ("0", "1")]
    for number, inv in enumerate(ids):
        begun(plane, inv, tmp_path, str(number))
    doomed = workers.workers[0]
    of_doomed = next(inv for inv in ids if str(doomed.pid) in str(row(plane, inv)["worker"]))
    guardians = guardians_of(doomed.pid)
    send(signal.SIGSTOP, server.process.pid)
    send(signal.SIGKILL, *guardians, doomed.pid)
    time.sleep(2 * LEASE_S)  # the outage itself is what is tested
    send(signal.SIGCONT, server.process.pid)
    for number, inv in enumerate(ids):
        assert plane.result(inv, timeout=PATIENCE_S) == wire.pack(str(number))
    for inv in ids:
        assert row(plane, inv)["attempt"] == (2 if inv == of_doomed else 1)
    assert sorted(runs(tmp_path).values()) == [1, 2]


@pytest.mark.inventory("K-8", "K-28")
@pytest.mark.parametrize("direction", ["up", "down"])
def test_a_line_that_is_cut_anywhere_loses_nothing_and_runs_nothing_twice(tmp_path: Path, direction: str) -> None:
    """Its polls carry the acks, so a cut on the way up is one in an ack, on the way down one in a poll's answer."""
    rng = random.Random(f"{SEED} {direction}")
    print(f"LOST_SEED={SEED}")
    with served.running(tmp_path / "server", "--lease-s", "60") as server:
        plane = HttpDispatch(server.url)
        parts = urlsplit(server.url)
        with (
            cutting(str(parts.hostname), int(parts.port or 0)) as line,
            crew(tmp_path, "--queue", "work", "--url", line.url) as workers,
        ):
            workers.start()
            ids: list[str] = []
            for number in range(CUTS):
                before, place = line.cuts, rng.randrange(1, rng.choice((300, 900, 3000)))
                setattr(line, direction, place if number else NEVER)
                ids += [slow(plane, tmp_path, str(len(ids) + n), 0.0) for n in range(3)]
                if number:
                    until(lambda: line.cuts > before, "nothing was cut")  # noqa: B023  # called at once
                setattr(line, direction, NEVER)
                for n, inv in enumerate(ids[-3:], len(ids) - 3):
                    assert plane.result(inv, timeout=PATIENCE_S) == wire.pack(str(n)), workers.log()
            print(f"cut {line.cuts} times")
            assert workers.dismiss() == [0]
        for inv in ids:
            assert row(plane, inv)["attempt"] == 1
        assert runs(tmp_path) == {str(n): 1 for n in range(len(ids))}
        assert stale_reports(server) == 0
        plane.close()
