"""`lakeshore worker` as a process: what becomes of its workers, whatever becomes of it."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from served import JSON, Served, environment

from lakeshore import HttpDispatch, SyncQueue
from lakeshore.cli.main import main
from lakeshore.client.api import ApiClient
from lakeshore.config.auth import write_saved_login

ROOT = Path(__file__).resolve().parents[2]
BODY = """
import os, signal, sys, time
from pathlib import Path
mode = os.environ["MODE"]
if mode == "deaf":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if mode == "drains":
    signal.signal(signal.SIGTERM, lambda *_: (Path("drained").write_text("yes"), sys.exit(0)))
with open("pids", "a") as pids:
    print(os.getpid(), file=pids, flush=True)
if mode.isdecimal():
    sys.exit(int(mode))
if mode == "first is refused" and Path("pids").read_text().split()[0] == str(os.getpid()):
    while len(Path("pids").read_text().split()) < 2:
        time.sleep(0.02)
    sys.exit(2)
if mode == "dies" and len(Path("pids").read_text().split()) < 3:
    os.kill(os.getpid(), signal.SIGKILL)
while True:
    time.sleep(60)
"""
JOBS = """
import time
import lakeshore as dls

@dls.udf
def double(x):
    return 2 * x

@dls.udf
def sleep(seconds):
    time.sleep(seconds)
"""
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start `lakeshore worker` over a worker of the test's own, in `tmp_path`."""
    (tmp_path / "body.py").write_text(BODY)
    started: list[subprocess.Popen[str]] = []

    def start(verb: str, mode: str, *arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, str(ROOT / "lakeshore" / "__main__.py"), "worker", verb, "--module", "body"]
        command += ["--python", sys.executable, "--env", f"MODE={mode}", *arguments]
        process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def eventually(found: Callable[[], bool], what: str, seconds: float = 30.0) -> None:
    until = time.monotonic() + seconds
    while not found():
        assert time.monotonic() < until, what
        time.sleep(0.02)


def pids(place: Path, count: int) -> list[int]:
    """The processes of so many workers, once they have started."""

    def read() -> list[int]:
        with contextlib.suppress(FileNotFoundError):
            return [int(pid) for pid in (place / "pids").read_text().splitlines()]
        return []

    eventually(lambda: len(read()) >= count, f"{count} workers started")
    return read()


def runs(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        try:
            os.kill(pid, 0)
        except OSError:
            return False
        return not Path("/proc/self").exists()
    return status.rsplit(")", 1)[1].split()[0] not in "ZX"


@pytest.mark.inventory("C-257")
@pytest.mark.parametrize("code", [0, 1, 2, 7])
def test_once_exits_as_its_worker_did(start: Start, code: int) -> None:
    assert start("once", str(code)).wait(60) == code


@pytest.mark.parametrize("code", [0, 2])
def test_a_worker_that_is_done_or_cannot_start_is_not_replaced(start: Start, tmp_path: Path, code: int) -> None:
    assert start("start", str(code)).wait(60) == code
    assert len(pids(tmp_path, 1)) == 1


def test_a_worker_that_dies_is_replaced(start: Start, tmp_path: Path) -> None:
    supervisor = start("start", "dies")
    third = pids(tmp_path, 3)[2]
    supervisor.send_signal(signal.SIGTERM)
    _out, err = supervisor.communicate(timeout=60)
    assert "was killed by SIGKILL; starting another in 0.5 s" in err
    assert "starting another in 1 s" in err
    assert not runs(third)
    assert supervisor.returncode == 0


def test_a_worker_that_fails_at_each_start_is_given_up(start: Start, tmp_path: Path) -> None:
    supervisor = start("start", "1")
    _out, err = supervisor.communicate(timeout=60)
    assert supervisor.returncode == 1
    assert len(pids(tmp_path, 3)) == 3
    assert "not starting another" in err


def test_what_one_worker_is_refused_for_ends_the_others_however_they_end(start: Start, tmp_path: Path) -> None:
    supervisor = start("start", "first is refused", "--procs", "2")  # the other dies of the TERM that it is sent
    _out, err = supervisor.communicate(timeout=60)
    assert supervisor.returncode == 2
    assert "starting another" not in err
    assert len(pids(tmp_path, 2)) == 2


def minted(server: Served, scope: str) -> dict[str, str]:
    body = {"name": secrets.token_hex(8), "scope": scope}
    row: dict[str, str] = server.post("/v1/namespaces/default/tokens", body, encoding=JSON).body
    return row


@pytest.mark.parametrize(
    ("scope", "verb", "said"),
    [
        ("none", "start", "invalid token"),
        ("none", "once", "invalid token"),
        ("submit", "start", "a token of scope 'submit' may not do this"),
    ],
)
def test_a_refused_token_ends_the_worker_at_once_with_the_servers_words(
    secured_server: Served, tmp_path: Path, scope: str, verb: str, said: str
) -> None:
    token = "wrong-token-altogether" if scope == "none" else minted(secured_server, scope)["plaintext"]
    environment = {**os.environ, "LAKESHORE_CLIENT_TOKEN": token}
    command = real(verb, "default", secured_server.url)
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, cwd=tmp_path, env=environment, timeout=120
    )
    assert done.returncode == 2
    assert done.stderr.count(said) == 1, done.stderr
    assert "starting another" not in done.stderr
    assert token not in done.stderr


def test_a_token_that_is_revoked_ends_every_worker_that_lives_by_it(secured_server: Served, tmp_path: Path) -> None:
    row = minted(secured_server, "worker")
    queue = f"q-{secrets.token_hex(6)}"
    command = [*real("start", queue, secured_server.url), "--procs", "2"]
    environment = {**os.environ, "LAKESHORE_CLIENT_TOKEN": row["plaintext"]}
    log = tmp_path / "log"
    with log.open("wb") as err, subprocess.Popen(command, stderr=err, cwd=tmp_path, env=environment) as process:
        try:
            eventually(lambda: log.read_text().count(f"queue {queue!r}") == 2, "two workers")
            secured_server.call("DELETE", f"/v1/namespaces/default/tokens/{row['id']}")
            assert process.wait(120) == 2
        finally:
            process.kill()
    assert "token revoked" in log.read_text()
    assert "starting another" not in log.read_text()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_the_first_signal_drains_every_worker(start: Start, tmp_path: Path, number: signal.Signals, code: int) -> None:
    supervisor = start("start", "drains", "--procs", "2")
    workers = pids(tmp_path, 2)
    supervisor.send_signal(number)
    assert supervisor.wait(60) == code
    assert (tmp_path / "drained").exists()
    assert not any(map(runs, workers))


@pytest.mark.inventory("C-762")
def test_a_worker_that_does_not_listen_is_killed_after_the_timeout(start: Start, tmp_path: Path) -> None:
    supervisor = start("start", "deaf", "--kill-timeout", "0.2")
    (worker,) = pids(tmp_path, 1)
    supervisor.send_signal(signal.SIGTERM)
    assert supervisor.wait(60) == 128 + signal.SIGKILL
    assert not runs(worker)


@pytest.mark.parametrize("mode", ["drains", "deaf"])
def test_no_worker_outlives_a_supervisor_that_was_killed(start: Start, tmp_path: Path, mode: str) -> None:
    supervisor = start("start", mode, "--procs", "2", "--kill-timeout", "0.5")
    workers = pids(tmp_path, 2)
    supervisor.kill()
    eventually(lambda: not any(map(runs, workers)), "the workers ended")
    assert (tmp_path / "drained").exists() == (mode == "drains")


def test_a_missing_interpreter_is_bad_usage(start: Start) -> None:
    supervisor = start("start", "0", "--python", "/no/such/python")
    _out, err = supervisor.communicate(timeout=60)
    assert supervisor.returncode == 2
    assert "cannot start /no/such/python" in err
    assert "--python" in err


def submitted(place: Path, url: str, queue: str, call: str) -> str:
    """The id of a call of a function in a module that lies beside the worker."""
    module = place / "jobs_of_mine.py"
    if not module.exists():  # a file that changes under a worker is refused by it
        module.write_text(JOBS)
    name, _, value = call.partition(" ")
    program = (
        "import jobs_of_mine\nfrom lakeshore import HttpDispatch\n"
        f"print(jobs_of_mine.{name}.submit({value}, _queue={queue!r}, _dispatch=HttpDispatch({url!r})))"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=place, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def real(verb: str, queue: str, url: str) -> list[str]:
    command = [sys.executable, str(ROOT / "lakeshore" / "__main__.py"), "worker", verb, "--queue", queue]
    return [*command, "--url", url, "--python", sys.executable]


@pytest.mark.inventory("C-1430", "C-1404")
def test_a_saved_login_is_not_used_and_the_worker_says_what_to_pass_and_serves_the_default_namespace(
    tmp_path: Path,
) -> None:
    write_saved_login("http://127.0.0.1:9", "team", "dlk_planted", {"XDG_CONFIG_HOME": str(tmp_path)})
    env = environment(XDG_CONFIG_HOME=str(tmp_path), LAKESHORE_HOME=str(tmp_path / "home"))
    command = [sys.executable, "-m", "lakeshore", "worker", "start", "--queue", "q", "--python", sys.executable]
    with subprocess.Popen(command, cwd=tmp_path, env=env, stderr=subprocess.PIPE, text=True) as worker:
        assert worker.stderr is not None
        enough = threading.Timer(60.0, worker.terminate)  # for a worker that says nothing more
        enough.start()
        lines = [worker.stderr.readline(), worker.stderr.readline()]
        enough.cancel()
        worker.send_signal(signal.SIGTERM)
        rest = worker.stderr.read()
    said = "".join([*lines, rest])
    assert re.search(r"queue 'q' on .*dispatch\.sqlite \(namespace default\)", said), said
    assert "a saved login exists and is not used here; pass --url and --token" in said
    assert "planted" not in said


@pytest.mark.inventory("C-257", "C-754", "C-263")
def test_a_real_worker_runs_a_real_job_and_its_status_is_forwarded(server: Served, tmp_path: Path) -> None:
    queue = f"q-{secrets.token_hex(6)}"
    invocation = submitted(tmp_path, server.url, queue, "double 21")
    done = subprocess.run(
        real("once", queue, server.url), check=False, capture_output=True, text=True, cwd=tmp_path, timeout=120
    )
    assert done.returncode == 0, done.stderr
    plane = HttpDispatch(server.url)
    assert SyncQueue(queue, dispatch=plane).result(invocation) == 42
    plane.close()


@pytest.mark.inventory("C-1431")
def test_a_running_job_is_stopped_by_kill_and_its_worker_goes_on(
    server: Served, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    queue = f"q-{secrets.token_hex(6)}"
    invocation = submitted(tmp_path, server.url, queue, "sleep 600")
    plane = HttpDispatch(server.url)
    jobs = SyncQueue(queue, dispatch=plane)
    api = ApiClient(server.url, namespace="default")
    with subprocess.Popen(real("start", queue, server.url), cwd=tmp_path, stderr=subprocess.DEVNULL) as supervisor:
        try:
            eventually(lambda: api.invocation(invocation)["startedAt"] is not None, "the job runs", 60)
            assert main(["jobs", "kill", invocation, "--url", server.url]) == 0
            assert capsys.readouterr().out.startswith(f"{invocation} stopping on worker ")
            eventually(lambda: jobs.count("killed") == 1, "the job was stopped", 60)
            after = submitted(tmp_path, server.url, queue, "double 4")
            assert jobs.result(after, timeout=60) == 8
        finally:
            supervisor.terminate()
    assert supervisor.returncode == 0
    api.close()
    plane.close()
