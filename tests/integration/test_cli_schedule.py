"""`lakeshore schedule` against a real server, and one that is killed in the middle."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import served

from lakeshore import HttpDispatch
from lakeshore.wire import unpack
from lakeshore.wire.envelope import Envelope

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def no_saved_login(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, run: Run) -> Run:
    def run_at(url: str, *arguments: str) -> tuple[int, str, str]:
        monkeypatch.setenv("LAKESHORE_URL", url)
        return run(*arguments)

    return run_at


def listed(run: Run, url: str) -> list[dict[str, Any]]:
    code, out, _err = run(url, "schedule", "list", "--json")
    assert code == 0
    rows: list[dict[str, Any]] = json.loads(out)
    return rows


def runs(server: served.Served) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = server.get("/v1/namespaces/default/invocations?limit=200").body["invocations"]
    return found


def until(what: Callable[[], Any], told: str, patience_s: float = 60.0) -> Any:
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        found = what()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError(told)


def test_a_schedule_is_added_listed_paused_and_removed(server: served.Served, run: Run) -> None:
    url = server.url
    call = ("jobs.nightly:clean", "--queue", "cron", "--args", '[1, "two"]', "--kwarg", "n=3", "--kwarg", "who=me")
    when = ("--cron", "30 2 * * *", "--tz", "Europe/Oslo")
    code, out, err = run(url, "schedule", "add", "nightly", *call, *when)
    assert (code, err) == (0, "")
    assert out.startswith("nightly runs jobs.nightly:clean 30 2 * * * Europe/Oslo; next in ")
    code, out, _err = run(url, "schedule", "add", "nightly", *call, *when, "--json")
    assert code == 0, "the same again is the same one"
    assert json.loads(out) in listed(run, url)
    code, _out, err = run(url, "schedule", "add", "nightly", *call, "--every", "5m")
    assert code == 1
    assert "there is a schedule 'nightly' already" in err and "schedule rm nightly" in err
    (row,) = (row for row in listed(run, url) if row["name"] == "nightly")
    shown = {key: row[key] for key in ("queue", "function", "cron", "tz", "catchUp", "overlap", "paused", "lastId")}
    assert shown == {
        "queue": "cron",
        "function": "jobs.nightly:clean",
        "cron": "30 2 * * *",
        "tz": "Europe/Oslo",
        "catchUp": "last",
        "overlap": "skip",
        "paused": False,
        "lastId": None,
    }
    assert run(url, "schedule", "pause", "nightly")[:2] == (0, "nightly paused\n")
    assert "paused" in run(url, "schedule", "list")[1]
    assert run(url, "schedule", "resume", "nightly")[1].startswith("nightly goes on; next in ")
    assert run(url, "schedule", "rm", "nightly")[:2] == (0, "nightly removed\n")
    for verb in ("rm", "pause", "resume"):
        code, _out, err = run(url, "schedule", verb, "nightly")
        assert code == 1 and "no schedule 'nightly'" in err and "schedule list" in err


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ((), "say when: either --every 5m or --cron"),
        (("--every", "5m", "--cron", "* * * * *"), "say when"),
        (("--every", "soon"), "no length of time"),
        (("--every", "5m", "--tz", "Europe/Oslo"), "--tz is for --cron"),
        (("--every", "5m", "--args", "{}"), "JSON array"),
        (("--every", "5m", "--args", "[1"), "no JSON"),
        (("--every", "5m", "--kwarg", "x"), "name=value"),
    ],
)
def test_a_mistake_on_the_command_line_is_said_before_anything_is_sent(
    run: Run, asked: tuple[str, ...], says: str
) -> None:
    code, _out, err = run("http://127.0.0.1:9", "schedule", "add", "x", "m:f", *asked)
    assert code == 2 and says in err


def test_what_only_the_server_knows_is_refused_with_a_sentence(server: served.Served, run: Run) -> None:
    for asked, says in (
        (("m:f", "--cron", "61 * * * *"), "no cron expression"),
        (("m:f", "--cron", "0 0 31 2 *"), "no cron expression"),
        (("m:f", "--cron", "* * * * *", "--tz", "Atlantis/Capital"), "knows no time zone 'Atlantis/Capital'"),
        (("m:f", "--every", "0.5s"), "from 1 to"),
        (("m:f", "--every", "5m", "--catch-up", "all", "--overlap", "skip"), "use allow"),
    ):
        code, _out, err = run(server.url, "schedule", "add", "wrong", *asked)
        assert code == 1 and says in err, err
    assert "wrong" not in {row["name"] for row in listed(run, server.url)}
    pickled = Envelope.build(id="x", fn={"kind": "pickle", "blob": b"x"}).to_bytes()
    body = {"name": "wrong", "queue": "q", "every": 5, "envelope": pickled}
    answer = server.post("/v1/namespaces/default/schedules", body)
    assert answer.status == 422 and "by reference" in answer.body["error"]


def test_a_worker_runs_what_a_schedule_submits_with_the_source_it_has(
    server: served.Served, run: Run, tmp_path: Path
) -> None:
    (tmp_path / "periodic.py").write_text(
        "import dreamlake.lakeshore as dls\n@dls.udf(queue='periodic')\ndef total(*n, times=1): return sum(n) * times\n"
    )
    worker = subprocess.Popen(
        [sys.executable, "-m", "dreamlake.lakeshore.daemon", "--queue", "periodic", "--url", server.url],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        stderr=subprocess.DEVNULL,
    )
    call = ("periodic:total", "--queue", "periodic", "--args", "[1, 2, 3]", "--kwarg", "times=7", "--every", "1s")
    try:
        assert run(server.url, "schedule", "add", "sum", *call)[0] == 0

        def twice() -> list[dict[str, Any]]:
            ended = [one for one in runs(server) if one["queue"] == "periodic" and one["state"] == "succeeded"]
            return ended if len(ended) >= 2 else []

        ended = until(twice, "the worker ran nothing")
        plane = HttpDispatch(server.url)
        assert {unpack(plane.result(one["id"])) for one in ended} == {42}
        plane.close()
        (row,) = (row for row in listed(run, server.url) if row["name"] == "sum")
        assert row["lastAt"] and row["lastId"] and row["error"] is None
    finally:
        run(server.url, "schedule", "rm", "sum")
        worker.terminate()
        worker.wait(60)


def test_a_schedule_goes_on_after_kill_9_and_runs_each_instant_once(tmp_path: Path, run: Run) -> None:
    with served.running(tmp_path) as server:
        code, _out, err = run(
            server.url, "schedule", "add", "tick", "m:f", "--queue", "q", "--every", "1s", "--overlap", "allow"
        )
        assert code == 0, err
        until(lambda: len(runs(server)) >= 2, "no run came")
        server.stop(signal.SIGKILL)
    time.sleep(3.2)  # an outage of three instants
    with served.running(tmp_path) as server:
        until(lambda: len(runs(server)) >= 5, "it did not go on")
        (row,) = listed(run, server.url)
        plane = HttpDispatch(server.url)
        assert plane.count("q") == len(runs(server))
        plane.close()
        server.stop(signal.SIGKILL)
    with served.running(tmp_path) as server:
        assert run(server.url, "schedule", "rm", "tick")[0] == 0
        found = runs(server)
    keys = Counter(str(one["key"]) for one in found)
    assert set(keys.values()) == {1}, "an instant ran twice"
    assert all(key.startswith("schedule:tick:") for key in keys)
    assert row["lastId"] in {one["id"] for one in found}
    instants = sorted(_seconds(key) for key in keys)
    gaps = [round(b - a) for a, b in itertools.pairwise(instants)]
    assert max(gaps) >= 3, "the outage was made up for by one run"


def _seconds(key: str) -> float:
    return datetime.fromisoformat(key.split(":", 2)[2].replace("Z", "+00:00")).timestamp()
