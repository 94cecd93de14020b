"""A real daemon before a real server: what is seen of its calls and of itself while they run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import daemons as d
import entry_bodies as bodies
import pytest
from served import Served

import dreamlake.lakeshore as dls
from lakeshore import HttpDispatch

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a keeper counts processes in /proc")


@pytest.fixture(scope="module")
def daemon(server: Served, tmp_path_factory: pytest.TempPathFactory) -> Iterator[d.Daemon]:
    sections = {"introspect": {"enabled": True, "port": 0}}
    place = tmp_path_factory.mktemp("live") / "host"
    with d.daemon(server.url, place, sections, LAKESHORE_LOG_FORMAT="json") as one:
        yield one.start().polls()


@pytest.fixture
def queue(server: Served, daemon: d.Daemon) -> Iterator[dls.SyncQueue]:
    plane = HttpDispatch(server.url)
    yield dls.SyncQueue(daemon.queue, dispatch=plane)
    plane.close()


def submitted(queue: dls.SyncQueue, function: Any, *arguments: Any) -> str:
    return str(function.submit(*arguments, _dispatch=queue.plane, _queue=queue.name, _run_config=d.PYTHON))


@pytest.mark.inventory("N-377", "N-295", "N-401")
def test_output_and_yields_are_there_while_the_call_runs(
    server: Served, daemon: d.Daemon, queue: dls.SyncQueue, tmp_path: Path
) -> None:
    for number in range(2):  # cold, and warm
        gate = tmp_path / f"gate{number}"
        id_ = submitted(queue, bodies.counted, 4, str(gate))
        argv = [sys.executable, "-u", "-m", "lakeshore", "jobs", "logs", id_, "--follow"]
        env = {**os.environ, "PYTHONPATH": str(d.ROOT), "LAKESHORE_URL": server.url}
        with subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, text=True) as follower:
            assert follower.stdout is not None
            assert [follower.stdout.readline() for _ in range(2)] == ["line 0\n", "line 1\n"]
            stream = queue.stream(id_, timeout=30.0)
            assert [next(stream), next(stream)] == [0, 1]
            assert d.row(server, id_)["state"] == "running"
            gate.touch()
            assert list(stream) == [2, 3]
            assert follower.stdout.read() == "line 2\nline 3\n"
            assert follower.wait(30) == 0
        assert queue.result(id_) == [0, 1, 2, 3]
        if not number:
            daemon.until(lambda: [pid for pid in daemon.processes() if pid not in daemon.bodies()])


@pytest.mark.inventory("N-166", "N-167")
def test_large_arguments_and_results_travel_beside(queue: dls.SyncQueue) -> None:
    data = os.urandom(1 << 20)
    assert queue.result(submitted(queue, bodies.doubled, data), timeout=60.0) == data + data


@pytest.mark.inventory("N-057", "N-059", "N-066")
@pytest.mark.inventory("N-277", "N-279", "N-293")
def test_the_daemon_shows_itself_on_its_page_and_in_its_log(
    daemon: d.Daemon, queue: dls.SyncQueue, tmp_path: Path
) -> None:
    lines = [json.loads(line) for line in daemon.said().splitlines() if line.startswith("{")]
    (url,) = [line["fields"]["url"] for line in lines if line["fields"]["message"] == "status page"]

    def page(path: str) -> Any:
        with urllib.request.urlopen(f"{url}{path}", timeout=10) as answer:
            return json.loads(answer.read())

    found = page("/status")
    assert (found["queue"], found["run_state"], found["backoff_s"]) == (daemon.queue, "polling", 0.0)
    assert abs(found["last_poll_ok_ts"] - time.time()) < 120
    gate = tmp_path / "gate"
    id_ = submitted(queue, bodies.counted, 2, str(gate))
    daemon.until(lambda: page("/status")["inflight"]["count"] == 1)
    gate.touch()
    queue.result(id_, timeout=60.0)
    daemon.until(lambda: page("/status")["inflight"]["count"] == 0)
    told = page("/events?limit=500")["events"]
    assert [line["fields"]["message"] for line in lines] == [event["message"] for event in told][: len(lines)]
    assert lines[0]["target"].startswith("nymph")
    record = json.loads((Path(daemon.env["HOME"]) / ".config/dreamlake/daemons/local.json").read_text())
    assert (record["pid"], record["worker_id"]) == (daemon.process.pid, found["worker_id"])
