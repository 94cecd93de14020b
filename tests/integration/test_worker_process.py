"""The worker as a process of its own, on the file that processes share: signals, deaths, poison, limits."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import worker_bodies as bodies

from lakeshore.sdk.dispatch import Dispatch
from lakeshore.sdk.entry.worker import main, read_settings
from lakeshore.sdk.errors import InvocationFailed
from lakeshore.sdk.functions import Thunk
from lakeshore.sdk.queues import SyncQueue

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
PATIENCE_S = 60.0


class Workers:
    """Starts worker processes, and ends at the test's end those that are left."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self._started: list[subprocess.Popen[bytes]] = []

    def start(self, *flags: str, module: str = "dreamlake.lakeshore.daemon", **env: str) -> subprocess.Popen[bytes]:
        log = (self.home / f"worker{len(self._started)}.log").open("wb")
        process = subprocess.Popen(
            [sys.executable, "-m", module, "--queue", "work", *flags],
            cwd=HERE,
            env={**os.environ, "PYTHONPATH": str(ROOT), **env},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
        log.close()
        self._started.append(process)
        return process

    def log(self, index: int = 0) -> str:
        return (self.home / f"worker{index}.log").read_text(errors="replace")

    def end(self) -> None:
        for process in self._started:
            if process.poll() is None:
                process.kill()
            process.wait(60)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LAKESHORE_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path


@pytest.fixture
def workers(home: Path) -> Iterator[Workers]:
    workers = Workers(home)
    yield workers
    workers.end()


@pytest.fixture
def q(home: Path) -> Iterator[SyncQueue]:
    plane = Dispatch(home / "dispatch.sqlite", durability="process")
    yield SyncQueue("work", dispatch=plane)
    plane.close()


def submit(q: SyncQueue, function: Any, *args: Any, **options: Any) -> str:
    return str(function.submit(*map(_plain, args), _queue=q.name, _dispatch=q.plane, **options))


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, Path) else value


def until(what: Callable[[], Any], told: str) -> Any:
    deadline = time.monotonic() + PATIENCE_S
    while not (found := what()):
        assert time.monotonic() < deadline, told
        time.sleep(0.01)
    return found


def started(path: Path) -> int:
    """The pid that the body wrote."""
    return int(until(lambda: path.exists() and path.read_text(), f"{path.name} never appeared"))


def state(q: SyncQueue, inv: str) -> str:
    row = q.plane.get(inv)
    assert row is not None
    return str(row["state"])


def error_of(q: SyncQueue, inv: str, ended: str = "failed") -> dict[str, Any]:
    with pytest.raises(InvocationFailed) as caught:
        q.result(inv, timeout=PATIENCE_S)
    assert caught.value.state == ended
    assert caught.value.error is not None
    return caught.value.error


# -- what it is told


@pytest.mark.parametrize(
    "wait",
    [
        "dls.udf(len, queue='idle')('four')",
        "dls.SyncQueue('idle').call(4)",
        "import asyncio; later = dls.udf(asyncio.sleep, queue='idle'); asyncio.run(later(4))",
    ],
)
def test_ctrl_c_in_a_wait_says_under_which_id_the_call_goes_on_and_shows_nothing_of_ours(
    tmp_path: Path, wait: str
) -> None:
    code = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "import dreamlake.lakeshore as dls\n"
        f"{wait}"
    )
    plane = Dispatch(tmp_path / "dispatch.sqlite")
    env = {**os.environ, "LAKESHORE_HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
    env.pop("LAKESHORE_URL", None)
    with subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True, env=env) as waiting:
        deadline = time.monotonic() + 60
        while not plane.count("idle"):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        waiting.send_signal(signal.SIGINT)
        said = waiting.communicate()[1]
    taken = plane.claim("idle", "a worker")
    plane.close()
    assert taken is not None
    assert f"\nThe wait ended, the call may go on: dls.SyncQueue('idle').result('{taken.id}')" in said
    assert "KeyboardInterrupt\n" in said
    assert f"{ROOT}/lakeshore/" not in said


@pytest.mark.inventory("P-336", "P-344", "P-343")
def test_flags_win_and_the_environment_fills_the_gaps(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    defaults = read_settings([])
    assert (defaults.queue, defaults.root, defaults.url, defaults.namespace) == ("default", None, None, "default")
    assert (defaults.token, defaults.once, defaults.runtime_policy) == (None, False, "minor")
    for name, value in {
        "QUEUE": "env",
        "ROOT": str(tmp_path),
        "URL": "http://env",
        "NAMESPACE": "ns",
        "CLIENT_TOKEN": "secret",
        "RUNTIME_POLICY": "strict",
    }.items():
        monkeypatch.setenv(f"LAKESHORE_{name}", value)
    filled = read_settings([])
    assert (filled.queue, filled.root, filled.url, filled.namespace) == ("env", str(tmp_path), "http://env", "ns")
    assert (filled.token, filled.runtime_policy) == ("secret", "strict")
    flags = read_settings(["--queue", "q", "--url", "http://flag", "--token", "t", "--runtime-policy", "off", "--once"])
    assert (flags.queue, flags.url, flags.token, flags.runtime_policy) == ("q", "http://flag", "t", "off")
    assert flags.once


@pytest.mark.inventory("P-345", "P-346")
def test_functions_by_value_run_here_and_over_http_only_when_allowed() -> None:
    assert read_settings([]).allow_pickled
    assert not read_settings(["--url", "http://x"]).allow_pickled
    assert read_settings(["--url", "http://x", "--allow-pickled"]).allow_pickled


@pytest.mark.parametrize("flags", [["--nonsense"], ["--runtime-policy", "loose"], ["--root", "/no/such/place"]])
def test_what_cannot_be_meant_is_a_usage_error(flags: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(flags)
    assert caught.value.code == 2
    assert "error:" in capsys.readouterr().err


# -- running


@pytest.mark.inventory("P-341", "P-348", "P-337")
def test_once_runs_one_job_and_exits(q: SyncQueue, workers: Workers, tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    inv, other = submit(q, bodies.write_key, "x"), submit(q, bodies.add, 1, 2)
    assert workers.start("--once", "--root", str(root)).wait(PATIENCE_S) == 0
    assert q.result(inv, timeout=0) == "out.txt"
    assert (root / "out.txt").read_text() == "x"
    assert state(q, other) == "queued"
    assert re.search(r"queue 'work' on .*dispatch\.sqlite", workers.log())


def test_once_on_an_empty_queue_exits_at_once(q: SyncQueue, workers: Workers) -> None:
    assert workers.start("--once").wait(PATIENCE_S) == 0


@pytest.mark.inventory("P-763", "P-347")
def test_a_saved_login_is_named_and_not_used(q: SyncQueue, workers: Workers, home: Path) -> None:
    login = home / "config" / "lakeshore" / "auth.yml"
    login.parent.mkdir(parents=True)
    login.write_text("url: http://nowhere.invalid\n")
    assert workers.start("--once").wait(PATIENCE_S) == 0
    assert "--url and --token" in workers.log()


def test_a_body_sees_no_credential_of_its_worker(q: SyncQueue, workers: Workers) -> None:
    inv = submit(q, bodies.environment)
    secrets = dict.fromkeys(("LAKESHORE_CLIENT_TOKEN", "LAKESHORE_TOKEN", "LAKESHORE_ADMIN_TOKEN"), "s3cret")
    assert workers.start("--once", **secrets).wait(PATIENCE_S) == 0
    assert q.result(inv) == {"tokens": [], "root": str(HERE), "cwd": str(HERE)}


def test_a_function_of_the_submitters_script_runs_by_value(q: SyncQueue, workers: Workers) -> None:
    import cloudpickle

    by_value = lambda x: x + 1  # noqa: E731  # a lambda is what cannot travel by name
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    try:
        inv = q.submit(Thunk(by_value, (1,), {}))
    finally:
        cloudpickle.unregister_pickle_by_value(sys.modules[__name__])
    workers.start("--once").wait(PATIENCE_S)
    assert q.result(inv) == 2


@pytest.mark.inventory("P-335")
def test_two_workers_share_a_queue_and_each_job_runs_once(q: SyncQueue, workers: Workers, tmp_path: Path) -> None:
    go = tmp_path / "go"
    holds = [submit(q, bodies.wait_for, tmp_path / f"started{i}", go) for i in range(2)]
    rest = [submit(q, bodies.add, i, i) for i in range(20)]
    for _ in range(2):
        workers.start()
    assert len({started(tmp_path / f"started{i}") for i in range(2)}) == 2
    go.touch()
    assert len({q.result(inv) for inv in holds}) == 2
    assert [q.result(inv) for inv in rest] == [2 * i for i in range(20)]
    assert all(q.plane.get(inv)["attempt"] == 1 for inv in holds + rest)


# -- stopping


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_first_signal_lets_the_running_job_finish_and_takes_no_other(
    q: SyncQueue, workers: Workers, tmp_path: Path, number: signal.Signals
) -> None:
    inv, other = submit(q, bodies.wait_for, tmp_path / "started", tmp_path / "go"), submit(q, bodies.add, 1, 2)
    worker = workers.start()
    started(tmp_path / "started")
    worker.send_signal(number)
    (tmp_path / "go").touch()
    assert worker.wait(PATIENCE_S) == 0
    assert q.result(inv, timeout=0) == worker.pid
    assert state(q, other) == "queued"


def test_an_idle_worker_ends_at_the_first_signal(q: SyncQueue, workers: Workers) -> None:
    inv = submit(q, bodies.add, 1, 2)
    worker = workers.start()
    q.result(inv, timeout=PATIENCE_S)
    worker.terminate()
    assert worker.wait(PATIENCE_S) == 0
    assert "finishes" not in workers.log(), "nothing runs"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_the_second_signal_gives_the_job_back(
    q: SyncQueue, workers: Workers, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    inv = submit(q, bodies.hold_once, tmp_path / "started")
    worker = workers.start()
    started(tmp_path / "started")
    worker.send_signal(number)
    until(lambda: "finishes" in workers.log(), "the first signal was not noticed")
    worker.send_signal(number)
    assert worker.wait(PATIENCE_S) == code
    assert state(q, inv) == "queued"
    workers.start("--once").wait(PATIENCE_S)
    assert q.result(inv, timeout=0) == "again"


@pytest.mark.inventory("K-14", "K-6")
def test_the_job_of_a_killed_worker_runs_on_another(q: SyncQueue, workers: Workers, tmp_path: Path) -> None:
    inv = submit(q, bodies.hold_once, tmp_path / "started")
    doomed = workers.start()
    started(tmp_path / "started")
    doomed.kill()
    doomed.wait(PATIENCE_S)
    workers.start("--once").wait(PATIENCE_S)
    assert q.result(inv, timeout=0) == "again"
    assert q.plane.get(inv)["attempt"] == 2


# -- poison


@pytest.mark.inventory("K-7")
@pytest.mark.parametrize("poison", [bodies.exits_hard, bodies.segfaults])
def test_a_body_that_kills_its_worker_ends_as_lost_and_others_run(q: SyncQueue, workers: Workers, poison: Any) -> None:
    inv, after = submit(q, poison), submit(q, bodies.add, 1, 2)
    deaths = 0
    while state(q, inv) not in ("failed", "succeeded"):
        deaths += workers.start("--once").wait(PATIENCE_S) != 0
        assert deaths <= 3
    assert error_of(q, inv)["type"] == "WorkerLost"
    assert deaths == 3
    workers.start("--once").wait(PATIENCE_S)
    assert q.result(after) == 3


@pytest.mark.parametrize(
    ("poison", "args", "outcome"),
    [
        (bodies.recurses, (), "RecursionError"),
        (bodies.exits, (), "SystemExit"),
        (bodies.unpackable, (), "TypeError"),
        (bodies.changes_directory, ("/",), None),
        (bodies.takes_signals, (), None),
        (bodies.closes_standard_files, (), None),
        (bodies.starts_thread_that_stays, (), None),
        (bodies.floods, (8,), None),
    ],
)
def test_a_worker_outlives_poison_and_can_still_be_told_to_stop(
    q: SyncQueue, workers: Workers, poison: Any, args: tuple[Any, ...], outcome: str | None
) -> None:
    inv = submit(q, poison, *args)
    after, place = submit(q, bodies.who), submit(q, bodies.environment)
    worker = workers.start()
    if outcome is None:
        q.result(inv, timeout=PATIENCE_S)
    else:
        assert error_of(q, inv)["type"] == outcome
    assert q.result(after, timeout=PATIENCE_S) == worker.pid
    assert q.result(place, timeout=PATIENCE_S)["cwd"] == str(HERE)
    worker.terminate()
    assert worker.wait(PATIENCE_S) == 0


def test_a_worker_whose_files_a_body_closed_starts_afresh(q: SyncQueue, workers: Workers) -> None:
    inv, after = submit(q, bodies.closes_files), submit(q, bodies.who)
    worker = workers.start()
    assert q.result(after, timeout=PATIENCE_S) == worker.pid
    until(lambda: state(q, inv) in ("failed", "succeeded"), "the poison went round for ever")
    assert worker.poll() is None


# -- limits


@pytest.mark.inventory("K-35")
def test_the_worker_goes_on_after_a_time_limit(q: SyncQueue, workers: Workers) -> None:
    inv, after = submit(q, bodies.sleeps, 600, _run_config={"timeout_s": 0.2}), submit(q, bodies.who)
    worker = workers.start()
    assert error_of(q, inv, "timeout")["type"] == "Timeout"
    assert q.result(after, timeout=PATIENCE_S) == worker.pid


@pytest.mark.inventory("K-35")
def test_a_body_that_nothing_stops_is_timed_out_and_its_worker_starts_afresh(
    q: SyncQueue, workers: Workers, tmp_path: Path
) -> None:
    inv = submit(q, bodies.swallows, tmp_path / "started", _run_config={"timeout_s": 0.2})
    after = submit(q, bodies.add, 1, 2)
    worker = workers.start(module="short_grace_worker")
    assert error_of(q, inv, "timeout")["type"] == "Timeout"
    assert q.result(after, timeout=PATIENCE_S) == 3
    assert worker.poll() is None
    assert workers.log().count("queue 'work'") == 2
    worker.terminate()
    assert worker.wait(PATIENCE_S) == 0


@pytest.mark.inventory("K-35")
def test_a_body_that_locks_the_interpreter_past_its_limit_ends_its_worker(
    q: SyncQueue, workers: Workers, tmp_path: Path
) -> None:
    inv = submit(q, bodies.deaf, tmp_path / "started", _run_config={"timeout_s": 0.2, "max_attempts": 1})
    worker = workers.start(module="short_grace_worker")
    assert worker.wait(PATIENCE_S) == 1
    after = submit(q, bodies.add, 1, 2)
    assert workers.start("--once").wait(PATIENCE_S) == 0
    assert error_of(q, inv)["type"] == "WorkerLost"
    assert q.result(after, timeout=0) == 3
