"""A real daemon before a real server: what is seen of its calls and of itself while they run."""

from __future__ import annotations

import contextlib
import json
import os
import re
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
from http_recorder import Recorder, recording
from served import JSON, Served

import dreamlake.lakeshore as dls
from lakeshore import HttpDispatch
from lakeshore._version import __version__

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a keeper counts processes in /proc")


ROUTES = re.compile(
    r"/v1/daemon/(hello|poll|ack|event|keys|log-chunk|result-chunk|exec/[^/]+/(result|chunk))"
    r"|/v1/namespaces/[^/]+/payloads/presign|/v1/blobs/.+"
)
"""All that a daemon calls by itself: the documented ones, and where its server's signed addresses lead."""
LOOKS = """#!/bin/sh
echo "asked $*" >>"$HOME/looks"
exit 1
"""


@pytest.fixture(scope="module")
def line(server: Served) -> Iterator[Recorder]:
    """What the daemon says to the server passes here."""
    with recording(server.url) as ears:
        yield ears


@pytest.fixture(scope="module")
def daemon(line: Recorder, tmp_path_factory: pytest.TempPathFactory) -> Iterator[d.Daemon]:
    place = tmp_path_factory.mktemp("live") / "host"
    tools = place / "tools"
    tools.mkdir(parents=True)
    (tools / "nvidia-smi").write_text(LOOKS)
    (tools / "nvidia-smi").chmod(0o755)
    sections = {"introspect": {"enabled": True, "port": 0}, "mounts": {"cache_dir": str(place / "cache")}}
    with d.daemon(line.url, place, sections, LAKESHORE_LOG_FORMAT="json") as one:
        one.env["PATH"] = f"{tools}:{one.env['PATH']}"
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
            assert follower.wait(60) == 0
        assert queue.result(id_) == [0, 1, 2, 3]
        if not number:
            daemon.until(lambda: [pid for pid in daemon.processes() if pid not in daemon.bodies()])


@pytest.mark.inventory("N-166", "N-167", "N-402")
def test_large_arguments_and_results_of_a_queues_function_travel_beside(queue: dls.SyncQueue) -> None:
    data = os.urandom(1 << 20)
    assert queue.result(submitted(queue, bodies.doubled, data), timeout=60.0) == data + data


@pytest.mark.inventory("N-253", "N-254", "N-372")
@pytest.mark.inventory("N-396", "C-1411", "C-1460")
def test_it_calls_the_documented_routes_and_no_others_and_signs_nothing_without_a_key(
    server: Served, daemon: d.Daemon, queue: dls.SyncQueue, line: Recorder, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    gate.touch()
    queue.result(submitted(queue, bodies.counted, 3, str(gate)), timeout=60.0)
    queue.result(submitted(queue, bodies.doubled, os.urandom(1 << 20)), timeout=60.0)
    worker = str(daemon.events("HelloAnswered")[-1]["answer"]["worker_id"])
    at = f"/v1/namespaces/default/workers/{worker}"
    for path, body in ((f"{at}/exec", {"command": "echo out"}), (f"{at}/setup", {"script": "true"})):
        assert server.post(path, body, encoding=JSON).status in (200, 201, 202)
    events = f"/v1/namespaces/default/events?type=setup&worker={worker}"
    daemon.until(lambda: server.get(events, encoding=JSON).body["events"])
    wanted = ("hello", "poll", "event", "result-chunk", "log-chunk")
    daemon.until(lambda: {f"/v1/daemon/{one}" for one in wanted} <= {heard.path for heard in line.requests()})
    daemon.until(lambda: [heard for heard in line.requests() if heard.path.endswith("/result")])
    for heard in line.requests():
        assert ROUTES.fullmatch(heard.path), heard.path
        assert heard.method == "POST" or heard.path.startswith("/v1/blobs/")
        assert not [name for name in heard.headers if name.startswith("x-ls-")]


@pytest.mark.inventory("N-012", "N-394")
def test_its_version_is_told_in_hello_and_that_it_does_not_sign_in_its_log(daemon: d.Daemon, line: Recorder) -> None:
    assert re.fullmatch(r"[0-9]+\.[0-9]+\.[0-9]+.*", __version__)
    (hello,) = line.to("/v1/daemon/hello")
    assert hello.body["versions"]["daemon"] == __version__
    assert daemon.said().count("requests are not signed") == 1, "once an hour"


@pytest.mark.inventory("N-065", "N-297")
def test_it_looked_at_its_host_once_and_has_made_no_cache_of_mounts(daemon: d.Daemon, queue: dls.SyncQueue) -> None:
    queue.result(submitted(queue, bodies.pair, 1, 2), timeout=60.0)
    looks = (daemon.directory / "looks").read_text().splitlines()
    assert looks and len(set(looks)) == len(looks)
    assert not (daemon.directory / "cache").exists()


@pytest.mark.inventory("N-011", "N-384")
def test_nobody_can_connect_to_it_but_to_its_page_from_its_own_host(daemon: d.Daemon) -> None:
    listening = {address for pid in daemon.processes() for address in listens(pid)}
    (url,) = [line["fields"]["url"] for line in logged(daemon) if line["fields"]["message"] == "status page"]
    port = int(url.rpartition(":")[2])
    assert listening == {f"0100007F:{port:04X}"}, "127.0.0.1"


def listens(pid: int) -> set[str]:
    """The addresses at which a process takes connections, as /proc has them."""
    inodes = set()
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
        for path in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                inodes.add(os.readlink(path))
    rows = [row.split() for name in ("tcp", "tcp6") for row in Path(f"/proc/net/{name}").read_text().splitlines()]
    return {row[1] for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in inodes}


def logged(daemon: d.Daemon) -> list[dict[str, Any]]:
    return [json.loads(line) for line in daemon.said().splitlines() if line.startswith("{")]


@pytest.mark.inventory("N-057", "N-059", "N-066")
@pytest.mark.inventory("N-277", "N-279", "N-293")
def test_the_daemon_shows_itself_on_its_page_and_in_its_log(
    daemon: d.Daemon, queue: dls.SyncQueue, tmp_path: Path
) -> None:
    lines = logged(daemon)
    (url,) = [line["fields"]["url"] for line in lines if line["fields"]["message"] == "status page"]

    def page(path: str) -> Any:
        with urllib.request.urlopen(f"{url}{path}", timeout=60) as answer:
            return json.loads(answer.read())

    found = page("/status")
    assert (found["queue"], found["run_state"], found["backoff_s"]) == (daemon.queue, "polling", 0.0)
    answered_at = found["last_poll_ok_ts"]  # none yet where this test is the first
    assert answered_at is None or abs(answered_at - time.time()) < 120
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
