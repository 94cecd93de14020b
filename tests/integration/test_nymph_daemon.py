"""The daemon as a process of its own before a real server: jobs, every way out, and what is left behind."""

from __future__ import annotations

import base64
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import daemons as d
import entry_bodies as bodies
import pytest
from daemons import NOTHING, Daemon
from ports import free_port
from served import ADMIN, JSON, Served, running

from lakeshore.nymph.keeping import processes
from lakeshore.nymph.recording import replay

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts processes in /proc")
LEASE_S = 4.0


@pytest.fixture
def daemon(server: Served, tmp_path: Path) -> Iterator[Daemon]:
    with d.daemon(server.url, tmp_path / "host") as one:
        yield one


@pytest.fixture(scope="module")
def short_leases(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with running(tmp_path_factory.mktemp("short"), "--lease-s", str(LEASE_S)) as served:
        yield served


def endless(server: Served, daemon: Daemon, **config: object) -> tuple[str, Path]:
    """A job that runs until it is stopped: (its id, the file that it made)."""
    begun = daemon.directory / f"begun-{time.monotonic_ns()}"
    return d.submit(server, daemon.queue, bodies.waits_for_ever, str(begun), **config), begun


@pytest.mark.inventory("N-001", "N-192", "N-245")
@pytest.mark.inventory("N-241", "N-204", "N-064")
def test_it_runs_functions_and_leaves_nothing_and_its_run_replays(server: Served, daemon: Daemon) -> None:
    daemon.start()
    ids = [d.submit(server, daemon.queue, bodies.pair, n, 2) for n in range(4)]
    for id_ in ids:
        found = d.ended(server, id_)
        assert (found["state"], found["attempt"], found["error"]) == ("succeeded", 1, None), daemon.said()
    assert daemon.stop() == 0
    assert daemon.left() == NOTHING
    lines = daemon.record.read_text().splitlines()
    assert len(list(replay(lines))) == len(lines) - 1


@pytest.mark.inventory("N-190", "N-413", "K-27")
def test_a_job_that_fails_is_too_slow_or_is_cancelled_ends_so_and_leaves_no_process(
    server: Served, daemon: Daemon
) -> None:
    daemon.start()
    failing = d.submit(server, daemon.queue, bodies.fails, max_attempts=1)
    late, _ = endless(server, daemon, timeout_s=0.5)
    nowhere = d.submit(server, daemon.queue, bodies.pair, 1, 2, runner="moon")
    cancelled, begun = endless(server, daemon)
    daemon.until(begun.exists)
    daemon.until(lambda: d.row(server, cancelled)["attempt"] == 1)
    assert server.post(f"/v1/producer/invocations/{cancelled}/cancel", {}).body["cancelling"] is True
    assert d.ended(server, cancelled)["state"] == "killed"
    assert d.ended(server, late)["state"] == "timeout"
    assert d.ended(server, nowhere)["error"]["message"] == "unknown runner kind: moon"
    assert d.ended(server, failing)["error"]["type"] == "ValueError"
    assert daemon.stop() == 0
    left = daemon.left()
    assert (left["processes"], left["jobs"]) == ([], [])
    assert failing in left["directories"]


@pytest.mark.inventory("N-242", "N-246")
def test_told_to_leave_it_takes_nothing_more_and_lets_what_runs_end_in_its_grace(
    server: Served, daemon: Daemon
) -> None:
    daemon.start()
    gate = daemon.directory / "gate"
    runs = d.submit(server, daemon.queue, bodies.counted, 4, str(gate))
    daemon.until(lambda: daemon.events("JobStarted"))
    os.kill(daemon.process.pid, signal.SIGTERM)
    daemon.until(lambda: daemon.events("Signalled"))
    waits = d.submit(server, daemon.queue, bodies.pair, 1, 2)
    gate.touch()
    assert daemon.process.wait(d.PATIENCE_S) == 0
    assert d.ended(server, runs)["state"] == "succeeded"
    assert d.row(server, waits)["state"] == "queued"
    assert daemon.left() == NOTHING


@pytest.mark.inventory("N-243", "N-244", "N-198")
def test_the_second_signal_stops_what_runs_and_tells_it(server: Served, daemon: Daemon) -> None:
    daemon.start()
    id_, begun = endless(server, daemon)
    daemon.until(begun.exists)
    os.kill(daemon.process.pid, signal.SIGINT)
    daemon.until(lambda: daemon.events("Signalled"))
    os.kill(daemon.process.pid, signal.SIGTERM)
    assert daemon.process.wait(d.PATIENCE_S) == 0
    found = d.ended(server, id_)
    assert (found["state"], found["error"]["message"]) == ("killed", "daemon shutdown grace expired")
    assert daemon.left()["processes"] == []


@pytest.mark.inventory("K-15")
def test_killed_and_started_again_it_goes_on_with_its_job(server: Served, daemon: Daemon) -> None:
    daemon.start()
    gate = daemon.directory / "gate"
    id_ = d.submit(server, daemon.queue, bodies.counted, 6, str(gate))
    daemon.until(lambda: daemon.events("JobStarted"))
    daemon.until(lambda: d.row(server, id_)["attempt"] == 1)
    daemon.stop(signal.SIGKILL)
    daemon.record = daemon.directory / "second.jsonl"
    daemon.start().polls()
    gate.touch()
    found = d.ended(server, id_)
    assert (found["state"], found["attempt"]) == ("succeeded", 1)
    assert daemon.stop() == 0
    assert daemon.left() == NOTHING


def test_what_ended_while_no_daemon_ran_is_told_by_the_next(server: Served, daemon: Daemon) -> None:
    daemon.start()
    gate = daemon.directory / "gate"
    id_ = d.submit(server, daemon.queue, bodies.counted, 2, str(gate))
    daemon.until(lambda: daemon.events("JobStarted"))
    daemon.stop(signal.SIGKILL)
    gate.touch()
    daemon.until(lambda: list(daemon.directory.glob(".local/state/lakeshore/nymph/*/jobs/*/exit.json")))
    daemon.start()
    found = d.ended(server, id_)
    assert (found["state"], found["attempt"]) == ("succeeded", 1)
    assert daemon.stop() == 0
    assert daemon.left() == NOTHING


@pytest.mark.inventory("K-11", "K-5")
def test_killed_for_good_its_jobs_end_before_another_daemon_has_them(short_leases: Served, tmp_path: Path) -> None:
    with d.daemon(short_leases.url, tmp_path / "a") as gone, d.daemon(short_leases.url, tmp_path / "b") as other:
        other.queue = gone.queue
        gone.start()
        heart = tmp_path / "heart"
        id_ = d.submit(short_leases, gone.queue, bodies.beats, str(heart), max_attempts=2)
        gone.until(heart.exists)
        gone.until(lambda: d.row(short_leases, id_)["attempt"] == 1)
        (kept,) = gone.bodies()
        beat = os.open(heart, os.O_RDONLY)  # the next one's is another file
        heart.unlink()
        gone.stop(signal.SIGKILL)
        other.start()
        other.until(lambda: processes.look(kept) is None, "the keeper does not end what nobody listens to")
        began, *_ = other.until(lambda: other.events("JobStarted"))
        assert float(os.read(beat, 32)) < began["now"]
        os.close(beat)
        other.until(lambda: not gone.processes())
        assert d.row(short_leases, id_)["attempt"] in (1, 2)
        server_says = short_leases.post(f"/v1/producer/invocations/{id_}/cancel", {}).body
        assert server_says["cancelling"] is True or server_says["cancelled"] is True
        assert d.ended(short_leases, id_)["state"] == "killed"
        assert other.stop() == 0
        assert other.left()["processes"] == []


@pytest.mark.inventory("K-12", "K-11")
def test_a_daemon_that_is_frozen_has_its_jobs_ended_by_the_keeper(short_leases: Served, tmp_path: Path) -> None:
    with d.daemon(short_leases.url, tmp_path / "host") as daemon:
        daemon.start()
        id_, begun = endless(short_leases, daemon, max_attempts=1)
        daemon.until(begun.exists)
        daemon.until(lambda: d.row(short_leases, id_)["attempt"] == 1)
        polls = len(daemon.events("PollAnswered"))
        daemon.until(lambda: len(daemon.events("PollAnswered")) > polls)
        (kept,) = daemon.bodies()
        os.kill(daemon.process.pid, signal.SIGSTOP)
        daemon.until(lambda: processes.look(kept) is None, "the job outlives its lease")
        os.kill(daemon.process.pid, signal.SIGCONT)
        assert d.ended(short_leases, id_)["error"]["type"] == "WorkerLost"
        assert daemon.stop() == 0
        assert daemon.left()["processes"] == []


@pytest.mark.inventory("K-7")
def test_a_keeper_that_is_killed_costs_an_attempt_and_another_takes_its_place(server: Served, daemon: Daemon) -> None:
    daemon.start()
    gate = daemon.directory / "gate"
    id_ = d.submit(server, daemon.queue, bodies.counted, 2, str(gate))
    daemon.until(lambda: daemon.events("JobStarted"))
    daemon.until(lambda: d.row(server, id_)["attempt"] == 1)
    (job,) = daemon.bodies()
    found = processes.look(job)
    assert found is not None
    os.kill(found.parent, signal.SIGKILL)
    daemon.until(lambda: len(daemon.events("JobStarted")) == 2)
    gate.touch()
    done = d.ended(server, id_)
    assert (done["state"], done["attempt"]) == ("succeeded", 2)
    assert daemon.stop() == 0
    assert daemon.left() == NOTHING


@pytest.mark.parametrize("whom", ["the keeper", "its guard"])
def test_a_keeper_that_is_told_to_end_by_a_signal_costs_an_attempt_not_the_call(
    server: Served, daemon: Daemon, whom: str
) -> None:
    daemon.start()
    gate = daemon.directory / "gate"
    id_ = d.submit(server, daemon.queue, bodies.counted, 2, str(gate))
    daemon.until(lambda: daemon.events("JobStarted"))
    daemon.until(lambda: d.row(server, id_)["attempt"] == 1)
    (job,) = daemon.bodies()
    found = processes.look(job)
    keeper = None if found is None else processes.look(found.parent)
    assert found is not None and keeper is not None
    if whom == "the keeper":
        os.kill(found.parent, signal.SIGTERM)
    else:
        os.kill(keeper.parent, signal.SIGKILL)
    daemon.until(lambda: len(daemon.events("JobStarted")) == 2)
    gate.touch()
    done = d.ended(server, id_)
    assert (done["state"], done["attempt"]) == ("succeeded", 2)
    assert daemon.stop() == 0
    assert daemon.left() == NOTHING


@pytest.mark.inventory("N-122")
def test_a_server_that_is_restarted_gets_its_answers_afterwards(tmp_path: Path) -> None:
    port = str(free_port())
    with running(tmp_path / "server", "--port", port) as first, d.daemon(first.url, tmp_path / "host") as daemon:
        daemon.start()
        gate = daemon.directory / "gate"
        id_ = d.submit(first, daemon.queue, bodies.counted, 2, str(gate))
        daemon.until(lambda: daemon.events("JobStarted"))
        first.stop()
        daemon.until(lambda: daemon.events("PollFailed"))
        with running(tmp_path / "server", "--port", port) as second:
            gate.touch()
            assert d.ended(second, id_)["state"] == "succeeded"
            assert daemon.stop() == 0
        assert daemon.left() == NOTHING


@pytest.mark.inventory("N-130", "N-132")
def test_without_work_it_leaves_by_itself(server: Served, tmp_path: Path) -> None:
    sections = {"runtime": {"keep_alive_s": 0}, "poll": {"wait_max_s": 0.2}}
    with d.daemon(server.url, tmp_path / "host", sections) as daemon:
        assert daemon.start().process.wait(d.PATIENCE_S) == 0
        assert "draining: idle" in daemon.said()
        assert daemon.left() == NOTHING


def test_a_second_daemon_of_the_same_name_is_refused_and_says_what_to_do(server: Served, daemon: Daemon) -> None:
    daemon.start().polls()
    first = daemon.process
    daemon.record = daemon.directory / "second.jsonl"
    assert daemon.start().process.wait(d.PATIENCE_S) == 1
    assert "give this one a label" in daemon.said()
    daemon.process = first
    assert daemon.stop() == 0


@pytest.mark.inventory("N-068")
def test_without_the_key_that_it_is_configured_for_it_does_not_start(server: Served, tmp_path: Path) -> None:
    key = tmp_path / "daemon.key"
    key.write_text("not a key\n")
    key.chmod(0o600)
    with d.daemon(server.url, tmp_path / "host", {"identity": {"enabled": True, "key_file": str(key)}}) as daemon:
        assert daemon.start().process.wait(d.PATIENCE_S) == 1
        assert "there is no key to sign with" in daemon.said()
        assert not daemon.events("HelloAnswered")
        assert daemon.left() == NOTHING


@pytest.mark.inventory("N-067", "N-100")
def test_a_hello_that_is_rejected_ends_it(server: Served, tmp_path: Path) -> None:
    section = {"identity": {"enabled": True, "key_file": str(tmp_path / "daemon.key")}}
    with d.daemon(server.url, tmp_path / "host", section) as daemon:
        assert daemon.start().process.wait(d.PATIENCE_S) == 1
        assert "enroll_token_required" in daemon.said()
        assert daemon.left() == NOTHING


@pytest.mark.inventory("N-025")
def test_a_configuration_that_is_wrong_is_the_usage_exit(server: Served, tmp_path: Path) -> None:
    with d.daemon(server.url, tmp_path / "host") as daemon:
        daemon.config.write_text("[relay]\n")
        assert daemon.start().process.wait(d.PATIENCE_S) == 2
        assert "[relay]" in daemon.said()


# ---- what people order


def worker_id(daemon: Daemon) -> str:
    daemon.polls()
    return str(daemon.events("HelloAnswered")[-1]["answer"]["worker_id"])


def told(server: Served, path: str, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    return dict(d.until(lambda: (found := server.get(path, encoding=JSON).body) and wanted(found) and found))


@pytest.mark.inventory("N-391", "N-146", "N-157")
@pytest.mark.inventory("N-139", "N-142", "N-417")
def test_commands_and_scripts_run_and_a_removed_worker_leaves(server: Served, daemon: Daemon) -> None:
    daemon.start()
    at = f"/v1/namespaces/default/workers/{worker_id(daemon)}"
    asked = server.post(f"{at}/exec", {"command": "echo out; echo err >&2; exit 3"}, encoding=JSON)
    assert asked.status in (200, 201, 202), asked.raw
    ran = told(
        server, f"/v1/namespaces/default/exec/{asked.body['exec_id']}?wait_s=20", lambda it: it["exit_code"] == 3
    )
    assert (base64.b64decode(ran["stdout_b64"]), base64.b64decode(ran["stderr_b64"])) == (b"out\n", b"err\n")
    made = daemon.directory / "made"
    body = {"script": f"touch {made}", "refresh_capabilities": True}
    assert server.post(f"{at}/setup", body, encoding=JSON).status in (200, 201, 202)
    events = "/v1/namespaces/default/events?type=setup&worker=" + at.rpartition("/")[2]
    told(server, events, lambda it: it["events"] and it["events"][0]["payload"]["exit_code"] == 0)
    assert made.exists()
    daemon.until(lambda: daemon.events("HostDetected"))
    assert server.call("DELETE", at, encoding=JSON).status == 200
    assert daemon.process.wait(d.PATIENCE_S) == 0
    assert daemon.left() == NOTHING
    lines = daemon.record.read_text().splitlines()
    assert len(list(replay(lines))) == len(lines) - 1


@pytest.mark.inventory("K-34")
def test_a_command_of_a_daemon_that_was_killed_is_told_as_such_and_ended(server: Served, daemon: Daemon) -> None:
    daemon.start()
    at = f"/v1/namespaces/default/workers/{worker_id(daemon)}"
    begun = daemon.directory / "begun"
    asked = server.post(f"{at}/exec", {"command": f"touch {begun}; exec sleep 1000"}, encoding=JSON).body
    daemon.until(begun.exists)
    daemon.stop(signal.SIGKILL)
    daemon.start()
    ended = told(
        server, f"/v1/namespaces/default/exec/{asked['exec_id']}?wait_s=20", lambda it: it["exit_code"] is not None
    )
    assert (ended["exit_code"], ended["error"]) == (-1, "daemon restarted")
    daemon.until(lambda: len(daemon.processes()) <= 3)  # the daemon, its keeper, the keeper's guard
    assert daemon.stop() == 0
    assert daemon.left() == NOTHING


# ---- who it is


@pytest.mark.inventory("N-098", "N-264", "N-180")
@pytest.mark.inventory("N-061", "N-070", "N-181")
def test_with_an_identity_everything_is_signed_and_the_key_is_rotated(tmp_path: Path) -> None:
    env = {
        "LAKESHORE_ADMIN_TOKEN": ADMIN,
        "LAKESHORE_REQUIRE_DAEMON_SIGNATURES": "true",
        "LAKESHORE_DAEMON_KEY_MAX_AGE_S": "6",
    }
    with running(tmp_path / "server", env=env, token=ADMIN) as server:
        minted = server.post("/v1/namespaces/default/enroll-tokens", {"label": "host"}, encoding=JSON)
        assert minted.status in (200, 201), minted.raw
        key = tmp_path / "daemon.key"
        section = {"enabled": True, "key_file": str(key), "enroll_token": minted.body["plaintext"]}
        sections = {"identity": section, "poll": {"wait_max_s": 0.5}}
        with d.daemon(server.url, tmp_path / "host", sections, LAKESHORE_TOKEN=ADMIN) as daemon:
            daemon.start()
            id_ = d.submit(server, daemon.queue, bodies.pair, 1, 2)
            assert d.ended(server, id_)["state"] == "succeeded", daemon.said()
            assert key.stat().st_mode & 0o777 == 0o600
            before = key.read_text()
            daemon.until(lambda: daemon.events("KeyRotated"))
            assert key.read_text() != before
            again = d.submit(server, daemon.queue, bodies.pair, 1, 2)
            assert d.ended(server, again)["state"] == "succeeded", daemon.said()
            assert daemon.stop() == 0
            assert daemon.left() == NOTHING
