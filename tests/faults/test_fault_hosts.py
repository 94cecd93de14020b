"""Three hosts drain one queue; one is cut off and comes back, one loses its power.

Each is a network namespace with an sshd, and has its daemon from `daemon install`. `CUT_S` is how long the one is cut
off: two leases of 3 s here; CUT_S=120 is the documented two minutes, with the server's own lease of 60 s.
"""

from __future__ import annotations

import itertools
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import host_bodies as bodies
import pytest
from checker import check
from crew import until
from final_state import Served as ServedState
from final_state import StateDirectory
from history import History, Log
from hosts import Host, network
from one_file import ROOT, built_once
from served import ADMIN, Served, running

from lakeshore import wire
from lakeshore.sdk.http_dispatch import HttpDispatch

CUT_S = float(os.environ.get("CUT_S", "6"))
LEASE_S = min(60.0, CUT_S / 2)
LONG_S = 1.5 * LEASE_S
"""How long a body takes that is to be met by what happens to its host."""
PATIENCE_S = 60.0 + 4 * LEASE_S
QUEUE = "hosts"
HERE = Path(__file__).parent
Claim = tuple[str, int]


@dataclass
class Execution:
    """One body that began: on which host (a user's number), and the first and the last sign of its life."""

    kind: str
    host: int
    first: float
    last: float


class Watch:
    """The rows of the server's own file, looked at all the time: when a claim was seen to be over."""

    def __init__(self, database: Path) -> None:
        self._database, self._stop = database, threading.Event()
        self._running: set[Claim] = set()
        self.held_at: dict[Claim, float] = {}
        """Before this instant it was not over."""
        self.over_at: dict[Claim, float] = {}
        self._thread = threading.Thread(target=self._look, daemon=True)

    def _look(self) -> None:
        conn = sqlite3.connect(f"file:{self._database}?mode=ro", uri=True)
        while not self._stop.wait(0.01):
            before = time.monotonic()
            now = set(conn.execute("SELECT id, claim FROM invocation WHERE state = 'running'").fetchall())
            self.held_at.update(dict.fromkeys(now, before))
            self.over_at.update(dict.fromkeys(self._running - now, time.monotonic()))
            self._running = now
        conn.close()

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


@dataclass
class Ground:
    """The server, the hosts, and what is said by whom."""

    server: Served
    hosts: list[Host]
    place: Path
    log: Log
    plane: HttpDispatch
    rng: random.Random = field(default_factory=lambda: random.Random(7))
    sent: list[str] = field(default_factory=list)

    def submit(self, function: Any, for_s: float) -> str:
        seed = self.rng.randrange(1000)
        run_config = {"max_attempts": 1000, "env": {"PYTHONPATH": str(self.place)}}
        inv = str(
            function.submit(str(self.place), seed, for_s, _queue=QUEUE, _dispatch=self.plane, _run_config=run_config)
        )
        if function is bodies.streamed:
            self.log.submitted(inv, yields=[wire.pack(seed + step) for step in range(10)])
        else:
            result = seed * seed if function is bodies.steady else seed + 1
            self.log.submitted(inv, result=wire.pack(result))
        self.sent.append(inv)
        return inv

    def some(self) -> None:
        """Calls that take no time, one for each host that waits."""
        for function in (bodies.steady, bodies.streamed, bodies.stubborn):
            self.submit(function, 0.1)

    def executions(self) -> dict[Claim, Execution]:
        found = {}
        for path in self.place.glob("beats-*"):
            _, kind, inv, claim, host = path.name.split("-")
            beats = [float(line) for line in path.read_text().split("\n")[:-1]]
            if beats:
                found[inv, int(claim)] = Execution(kind, int(host), beats[0], beats[-1])
        return found

    def alive(self, host: Host) -> dict[Claim, Execution]:
        """What runs there."""
        recent = time.monotonic() - 1.0
        found = self.executions()
        return {claim: one for claim, one in found.items() if one.host == host.uid and one.last > recent}

    def is_busy(self, host: Host) -> bool:
        """Whether something long of each kind runs there: it began, and has most of its time before it."""
        latest = time.monotonic() - LONG_S / 4
        kinds = {one.kind for one in self.alive(host).values() if one.first > latest}
        return kinds >= {"steady", "stubborn", "streamed"}

    def keep_busy(self, *hosts: Host) -> None:
        """Submit long calls until each of these hosts has some."""

        def enough() -> bool:
            if all(self.is_busy(host) for host in hosts):
                return True
            if len(self.sent) < 90:
                for function in (bodies.steady, bodies.stubborn, bodies.streamed):
                    self.submit(function, LONG_S)
            time.sleep(0.3)
            return False

        until(enough, self.said, PATIENCE_S)

    def left(self) -> int:
        conn = sqlite3.connect(f"file:{self.server.state_dir / 'lakeshore.db'}?mode=ro", uri=True)
        try:
            return int(conn.execute("SELECT COUNT(*) FROM invocation WHERE finished_at IS NULL").fetchone()[0])
        finally:
            conn.close()

    def said(self) -> str:
        logs = [path for host in self.hosts for path in host.user.logs]
        return "\n".join(path.read_text()[-4000:] for path in [*logs, self.server.log])


def install(server: Served, host: Host, pyz: Path) -> None:
    flags = (
        "--binary",
        str(pyz),
        "--ssh-config",
        str(host.sshd.config),
        "--queue",
        QUEUE,
        "--python",
        "/usr/bin/python3",
    )
    done = subprocess.run(
        [sys.executable, "-m", "lakeshore", "daemon", "install", host.alias, *flags],
        env={**os.environ, "PYTHONPATH": str(ROOT), "LAKESHORE_URL": server.url, "LAKESHORE_ADMIN_TOKEN": ADMIN},
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def ground(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    pyz = built_once(tmp_path_factory.getbasetemp())
    place = Path(tempfile.mkdtemp(prefix="lakeshore-hosts-"))  # the hosts' users read and write there
    place.chmod(0o777)
    for name in ("host_bodies.py", "history.py"):
        shutil.copy(HERE / name, place)
    flags = ("--lease-s", f"{LEASE_S:g}")
    try:
        with (
            network(tmp_path, ("cut", "killed", "spared")) as (address, hosts),
            running(
                tmp_path / "cp", "--host", address, *flags, env={"LAKESHORE_ADMIN_TOKEN": ADMIN}, token=ADMIN
            ) as cp,
        ):
            with ThreadPoolExecutor(3) as pool:
                list(pool.map(lambda host: install(cp, host, pyz), hosts))
            plane = HttpDispatch(cp.url, token=ADMIN)
            yield Ground(cp, hosts, place, Log(place, "producer"), plane)
            plane.close()
    finally:
        shutil.rmtree(place, ignore_errors=True)


@pytest.mark.inventory("K-5", "K-11", "K-12")
def test_of_hosts_that_are_cut_off_or_killed_nothing_is_lost_and_nothing_runs_twice_at_once(ground: Ground) -> None:
    cut, killed, _ = ground.hosts
    with Watch(ground.server.state_dir / "lakeshore.db") as watch:
        ground.keep_busy(cut, killed)
        cut_at = time.monotonic()
        cut.cut_off()
        killed.kill()
        killed_at = time.monotonic()
        on_cut, on_killed = ground.alive(cut), ground.alive(killed)
        assert on_cut
        assert on_killed
        while time.monotonic() < cut_at + CUT_S:
            ground.some()
            time.sleep(CUT_S / 12)
        back_at = time.monotonic()
        cut.come_back()

        def works_again() -> bool:
            ground.some()
            time.sleep(max(0.3, CUT_S / 40))
            return any(one.host == cut.uid and one.first > back_at for one in ground.executions().values())

        until(works_again, ground.said, PATIENCE_S)
        again_at = time.monotonic()
        until(lambda: ground.left() == 0, ground.said, PATIENCE_S)
        for inv in ground.sent:
            ground.log.told(inv, "succeeded", ground.plane.result(inv, timeout=PATIENCE_S))

    found = ground.executions()
    assert {one.host for one in found.values()} == {host.uid for host in ground.hosts}
    # Who was killed is not heard of again; who was cut off stopped before anybody could be given what it had.
    assert max(one.last for one in found.values() if one.host == killed.uid) < killed_at
    for claim, one in found.items():
        if one.host == cut.uid and one.first < cut_at:
            assert one.last < watch.over_at[claim], f"{claim} ran on for {one.last - watch.over_at[claim]:.3f} s"
    for where in (on_cut, on_killed):
        assert any((inv, claim + 1) in found for inv, claim in where), "nobody was given anything of it"
    one_after_the_other(found)

    history = History.read(ground.place)
    with ServedState(ground.server.url, token=ADMIN) as final:
        check(history, final).must_hold()
    assert ground.server.stop() == 0
    with StateDirectory(ground.server.state_dir) as final:
        verdict = check(history, final)
    verdict.must_hold()
    assert set(verdict.states) == {"succeeded"}

    by_host = {host.alias: sum(one.host == host.uid for one in found.values()) for host in ground.hosts}
    last = [(found[claim].last, watch.held_at[claim]) for claim in on_cut]
    print(f"CUT_S={CUT_S:g}, lease {LEASE_S:g} s: {len(found)} executions of {len(ground.sent)} calls, {by_host}")
    print(f"running when it happened: {len(on_cut)} on the host that was cut off, {len(on_killed)} on the killed one")
    print(f"stopped {min(last)[0] - cut_at:.2f} … {max(last)[0] - cut_at:.2f} s after the cut, ", end="")
    print(f"{min(held - beat for beat, held in last):.2f} s or more before they were given away; ", end="")
    print(f"a call began there {again_at - back_at:.2f} s after the link was back")
    print(verdict.report())


def one_after_the_other(found: dict[Claim, Execution]) -> None:
    """No execution of a call began while an earlier one lived."""
    by_call: dict[str, list[tuple[int, Execution]]] = defaultdict(list)
    for (inv, claim), one in sorted(found.items(), key=lambda item: item[0]):
        by_call[inv].append((claim, one))
    for inv, several in by_call.items():
        for (_, before), (claim, after) in itertools.pairwise(several):
            assert before.last < after.first, f"{inv}: claim {claim} began while the one before ran"
