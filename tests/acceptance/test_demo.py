"""`lakeshore demo`: the main job, as a user runs it first."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from snippets.processes import processes

from lakeshore.client.api import ApiClient

PROGRAM = str(Path(__file__).resolve().parents[2] / "lakeshore" / "__main__.py")


def command(*arguments: str) -> list[str]:
    return [sys.executable, PROGRAM, "demo", *arguments]


def environment(place: Path) -> dict[str, str]:
    """A caller whose own settings must not reach the demo."""
    return {
        **os.environ,
        "TMPDIR": str(place),
        "LAKESHORE_ADMIN_TOKEN": "x" * 20,
        "LAKESHORE_URL": "http://127.0.0.1:1",
    }


def nothing_left(place: Path) -> None:
    until = time.monotonic() + 60
    while processes(place) and time.monotonic() < until:
        time.sleep(0.05)
    assert processes(place) == []
    assert list(place.glob("lakeshore-demo-*")) == []


def started(place: Path) -> int:
    """The number of processes that the demo has started so far."""
    return len(processes(place))


def test_it_measures_real_text_with_real_workers_and_agrees_with_a_direct_computation(tmp_path: Path) -> None:
    done = subprocess.run(
        command("--json"), check=False, capture_output=True, text=True, env=environment(tmp_path), timeout=300
    )
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    assert told["matches_direct_computation"] is True
    assert told["workers"] == 2
    assert told["totals"]["modules"] >= 10
    assert told["totals"]["lines"] > 1000
    largest = [package["lines"] for package in told["packages"]]
    assert largest == sorted(largest, reverse=True)
    assert [part["lines"] for part in told["streamed"]] == largest
    assert told["seconds"]["one_worker"] > 0
    assert told["kept"] is None
    assert "2 workers: " in done.stderr
    nothing_left(tmp_path)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)])
def test_interrupted_it_leaves_no_process_and_no_file(tmp_path: Path, number: signal.Signals, code: int) -> None:
    with subprocess.Popen(
        command(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(tmp_path)
    ) as demo:
        until = time.monotonic() + 60
        while started(tmp_path) < 3 and demo.poll() is None:
            assert time.monotonic() < until
            time.sleep(0.02)
        demo.send_signal(number)
        _out, err = demo.communicate(timeout=60)
    assert demo.returncode == code, err
    assert "Traceback" not in err
    if number == signal.SIGKILL:
        until = time.monotonic() + 60
        while processes(tmp_path):
            assert time.monotonic() < until
            time.sleep(0.05)
    else:
        nothing_left(tmp_path)


def test_kept_it_goes_on_serving_and_says_how_to_stop_it(tmp_path: Path) -> None:
    done = subprocess.run(
        command("--keep", "--json", "--workers", "1"),
        check=False,
        capture_output=True,
        text=True,
        env=environment(tmp_path),
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    stop = told["kept"]["stop"]
    try:
        with ApiClient(told["url"], namespace="default") as api:
            # Each module is a job, and so is the stream; before them each worker has told its number.
            assert api.invocations(queue="demo", limit=200)["count"] >= min(told["totals"]["modules"] + 2, 200)
        assert f"\n  {stop}\n" in done.stderr
        assert f"\n  {shlex.join(command()[:-1])} jobs list " in done.stderr
    finally:
        stopped = subprocess.run(stop, shell=True, check=False, capture_output=True, text=True, timeout=60)
    assert (stopped.returncode, stopped.stdout, stopped.stderr) == (0, "", "")
    assert not any(Path(f"/proc/{pid}/cwd").exists() for pid in told["kept"]["pids"])
    assert list(tmp_path.glob("lakeshore-demo-*")) == []
