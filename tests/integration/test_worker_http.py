"""The worker as a process of its own, draining a queue of a real server."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import served
import worker_bodies as bodies

from lakeshore import wire
from lakeshore.sdk import http_source
from lakeshore.sdk.errors import InvocationFailed
from lakeshore.sdk.functions import Thunk
from lakeshore.sdk.http_dispatch import HttpDispatch
from lakeshore.sdk.queues import SyncQueue
from lakeshore.sdk.sources import Ending
from lakeshore.wire.messages import MAX_PREFETCH

PATIENCE_S = 60.0
START = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[served.Served]:
    with served.running(
        tmp_path / "server", env={"LAKESHORE_ADMIN_TOKEN": served.ADMIN}, token=served.ADMIN
    ) as running:
        yield running


@pytest.fixture
def q(server: served.Served) -> Iterator[SyncQueue]:
    plane = HttpDispatch(server.url, token=served.ADMIN)
    yield SyncQueue("work", dispatch=plane)
    plane.close()


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "worker.log"


@pytest.fixture
def start(server: served.Served, log: Path) -> Iterator[START]:
    begun: list[subprocess.Popen[bytes]] = []

    def start(*flags: str, token: str = served.ADMIN, url: str = server.url) -> subprocess.Popen[bytes]:
        with log.open("ab") as out:
            process = subprocess.Popen(
                [sys.executable, "-m", "dreamlake.lakeshore.daemon", "--queue", "work", "--url", url, *flags],
                cwd=Path(__file__).parent,
                env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "LAKESHORE_CLIENT_TOKEN": token},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
            )
        begun.append(process)
        return process

    yield start
    for process in begun:
        if process.poll() is None:
            process.kill()
        process.wait(60)


def submit(q: SyncQueue, function: Any, *args: Any, **options: Any) -> str:
    return str(function.submit(*args, _queue=q.name, _dispatch=q.plane, **options))


def until(what: Callable[[], Any], told: str) -> Any:
    deadline = time.monotonic() + PATIENCE_S
    while not (found := what()):
        assert time.monotonic() < deadline, told
        time.sleep(0.01)
    return found


def error_of(q: SyncQueue, inv: str, state: str = "failed") -> dict[str, Any]:
    with pytest.raises(InvocationFailed) as caught:
        q.result(inv, timeout=PATIENCE_S)
    assert caught.value.state == state
    assert caught.value.error is not None
    return caught.value.error


@pytest.mark.inventory("P-338", "P-340", "P-329")
def test_a_worker_drains_a_servers_queue_values_and_streams(q: SyncQueue, start: START) -> None:
    values = [submit(q, bodies.add, i, i) for i in range(20)]
    stream = submit(q, bodies.acount, 3)
    worker = start()
    assert [q.result(inv, timeout=PATIENCE_S) for inv in values] == [2 * i for i in range(20)]
    assert q.result(stream, timeout=PATIENCE_S) == [0, 1, 2]
    frames = [wire.Frame.from_bytes(data) for _seq, data in q.plane.journal_read(stream, timeout=60)]
    assert [frame.kind.name for frame in frames] == ["VALUE", "VALUE", "VALUE", "END"]
    worker.terminate()
    assert worker.wait(PATIENCE_S) == 0


@pytest.mark.inventory("P-747", "P-471")
def test_what_a_body_submits_goes_to_the_plane_of_its_worker_as_its_child(q: SyncQueue, start: START) -> None:
    start()
    outer = submit(q, bodies.child, 1)
    inner = q.result(outer, timeout=PATIENCE_S)
    row = q.plane.get(inner)
    assert row is not None
    assert (row["parent"], row["root"]) == (outer, outer)


@pytest.mark.inventory("P-346", "K-36")
def test_a_function_by_value_is_refused_unless_allowed(q: SyncQueue, start: START) -> None:
    thunk = Thunk(lambda x: x + 1, (1,), {})
    refused = q.submit(thunk)
    assert start("--once").wait(PATIENCE_S) == 0
    assert "--allow-pickled" in error_of(q, refused)["message"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_idle_worker_that_waits_at_the_server_ends_at_the_first_signal(
    q: SyncQueue, start: START, number: signal.Signals
) -> None:
    inv = submit(q, bodies.add, 1, 2)
    worker = start()
    q.result(inv, timeout=PATIENCE_S)
    began = time.monotonic()
    worker.send_signal(number)
    assert worker.wait(PATIENCE_S) == 0
    assert time.monotonic() - began < 15


def test_the_first_signal_lets_the_running_job_finish(q: SyncQueue, start: START, tmp_path: Path) -> None:
    inv = submit(q, bodies.wait_for, str(tmp_path / "started"), str(tmp_path / "go"))
    worker = start()
    until((tmp_path / "started").exists, "the body never started")
    other = submit(q, bodies.add, 1, 2)
    worker.terminate()
    (tmp_path / "go").touch()
    assert worker.wait(PATIENCE_S) == 0
    assert q.result(inv) == worker.pid
    row = q.plane.get(other)
    assert row is not None
    assert row["state"] == "queued"


@pytest.mark.inventory("K-27", "K-11")
def test_a_cancelled_body_is_stopped_where_it_is(q: SyncQueue, start: START, tmp_path: Path) -> None:
    inv = submit(q, bodies.hold_once, str(tmp_path / "started"))
    after = submit(q, bodies.who)
    worker = start()
    until((tmp_path / "started").exists, "the body never started")
    q.cancel(inv)
    error_of(q, inv, "killed")
    assert q.result(after, timeout=PATIENCE_S) == worker.pid


@pytest.mark.inventory("K-12")
def test_the_job_of_a_killed_worker_runs_on_another(q: SyncQueue, start: START, tmp_path: Path) -> None:
    inv = submit(q, bodies.hold_once, str(tmp_path / "started"))
    doomed = start()
    until((tmp_path / "started").exists, "the body never started")
    doomed.kill()
    start()
    assert q.result(inv, timeout=PATIENCE_S) == "again"


@pytest.mark.inventory("K-35")
def test_a_time_limit_holds_on_a_servers_queue(q: SyncQueue, start: START) -> None:
    inv = submit(q, bodies.sleeps, 600, _run_config={"timeout_s": 0.3})
    start()
    assert error_of(q, inv, "timeout")["type"] == "Timeout"


def test_a_token_that_is_refused_ends_the_worker_with_the_reason(start: START, log: Path) -> None:
    assert start(token="wrong").wait(PATIENCE_S) == 2
    assert "token" in log.read_text().lower()


def test_a_worker_waits_for_a_server_that_is_not_there_yet(start: START, log: Path) -> None:
    worker = start(url="http://127.0.0.1:9")
    until(lambda: log.exists() and "trying again" in log.read_text(), "nothing was said")
    assert worker.poll() is None
    worker.terminate()
    assert worker.wait(PATIENCE_S) == 0


class FarAway:
    """A way to a server on which answers take `AWAY_S` longer. `asked` counts the requests of who came first."""

    AWAY_S = 0.02

    def __init__(self, url: str) -> None:
        self._server = tuple(url.removeprefix("http://").split(":"))
        self._door = socket.create_server(("127.0.0.1", 0))
        self._open = [self._door]
        self.url = f"http://127.0.0.1:{self._door.getsockname()[1]}"
        self.asked = 0
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        first = True
        while True:
            try:
                near = self._door.accept()[0]
            except OSError:
                return
            far = socket.create_connection(self._server)
            self._open += [near, far]
            for source, to, asks in ((near, far, first), (far, near, False)):
                threading.Thread(target=self._carry, args=(source, to, asks, source is far), daemon=True).start()
            first = False

    def _carry(self, source: socket.socket, to: socket.socket, asks: bool, slowly: bool) -> None:
        try:
            while data := source.recv(1 << 20):
                self.asked += data.count(b"POST ") if asks else 0
                if slowly:
                    time.sleep(self.AWAY_S)
                to.sendall(data)
            to.shutdown(socket.SHUT_WR)
        except OSError:
            return  # one of them has gone

    def close(self) -> None:
        for end in self._open:
            end.close()


@pytest.mark.inventory("K-8")
def test_a_worker_asks_a_slow_server_less_often(q: SyncQueue, server: served.Served) -> None:
    ids = [submit(q, bodies.add, 1, n) for n in range(100)]
    way = FarAway(server.url)
    plane = HttpDispatch(way.url, token=served.ADMIN)
    source = plane.source(q.name, "w", once=False, kind="fifo", temperature=1.0, retries=1, poll_s=0.05)
    try:
        worked_s = 0.0
        for _ in ids:
            job = source.next(PATIENCE_S)
            began = time.monotonic()
            source.begin(job, lambda why: None)
            time.sleep(0.001)
            source.end(job, Ending(outcome="succeeded", result=wire.pack(1)))
            worked_s += time.monotonic() - began
    finally:
        asked = way.asked
        source.close()
        plane.close()
        way.close()
    # What it was given at the first, and one that it did not know how slow the server is; then one for each 10 ms.
    assert asked <= 3 + worked_s / http_source.LATEST_FLUSH_S + len(ids) / MAX_PREFETCH


@pytest.mark.inventory("K-6", "K-9")
def test_what_has_ended_is_told_while_the_next_body_runs_which_may_wait_for_it(
    q: SyncQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_source, "FLUSH_S", 60.0)  # the first body took no time, however slow this machine is
    ids = [submit(q, bodies.add, 1, n) for n in range(3)]
    source = q.plane.source(q.name, "w", once=False, kind="fifo", temperature=1.0, retries=1, poll_s=0.05)
    try:
        first = source.next(PATIENCE_S)
        source.begin(first, lambda why: None)
        source.end(first, Ending(outcome="succeeded", result=wire.pack(1)))
        second = source.next(0.0)
        assert [first.id, second.id] == ids[:2]
        source.begin(second, lambda why: None)
        assert wire.unpack(q.plane.result(first.id, timeout=PATIENCE_S)) == 1
        # What waits behind it is back as well.
        assert until(lambda: q.plane.claim(q.name, "other"), "it waited behind a long body").id == ids[2]
        source.end(second, Ending(outcome="succeeded", result=wire.pack(2)))
        assert source.next(0.0) is None
        assert wire.unpack(q.plane.result(second.id, timeout=PATIENCE_S)) == 2
    finally:
        source.close()
