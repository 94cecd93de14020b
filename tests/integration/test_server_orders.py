"""Orders ride on a worker's poll: at once, in their order, again until they were read."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from served import JSON, Served, new_id, one, running
from worker_peer import Daemon, until


@pytest.fixture
def daemon(server: Served) -> Daemon:
    made = Daemon(server)
    assert made.kinds() == []
    return made


def _parked(server: Served) -> float:
    lines = server.get("/metrics").raw.decode().splitlines()
    return float(next(line.split()[1] for line in lines if line.startswith("lakeshore_parked_polls ")))


@pytest.mark.inventory("S-022", "S-315")
@pytest.mark.parametrize("session", ["1", None])
def test_a_parked_poll_is_answered_at_once_with_what_is_put(server: Served, session: str | None) -> None:
    daemon = Daemon(server, session=session)
    before = _parked(server)
    asking = daemon.asking()
    until(lambda: _parked(server) > before)
    began = time.monotonic()
    answer = daemon.order("reset")
    assert answer.status == 202
    (command,) = asking.result(60)["commands"]
    assert time.monotonic() - began < 15, "not when its twenty seconds are over"
    assert (command["id"], command["kind"], command["body"]) == (answer.body["id"], "reset_backoff", {})


@pytest.mark.inventory("S-781", "S-799")
def test_what_was_not_read_comes_again_with_its_id_and_what_was_read_does_not(daemon: Daemon) -> None:
    id_ = daemon.order("reset").body["id"]
    for _ in range(3):
        (command,) = daemon.ask(read=False)["commands"]
        assert command["id"] == id_
    (command,) = daemon.ask()["commands"]
    assert command["id"] == id_
    assert daemon.kinds() == []


@pytest.mark.inventory("S-314", "S-427", "S-430")
def test_scripts_leave_one_a_poll_in_the_order_in_which_they_came(daemon: Daemon) -> None:
    ids = [daemon.script(f"echo {n}", name=f"n{n}", sudo=n == 1, refresh_capabilities=n == 2) for n in range(3)]
    bodies = [
        {"script": "echo 0", "name": "n0"},
        {"script": "echo 1", "name": "n1", "sudo": True},
        {"script": "echo 2", "name": "n2", "refresh_capabilities": True},
    ]
    assert [(one["id"], one["script"]) for one in daemon.row()["pendingSetupCommands"]] == [
        (id_, body["script"]) for id_, body in zip(ids, bodies, strict=True)
    ]
    for id_, body in zip(ids, bodies, strict=True):
        (command,) = daemon.ask()["commands"]
        assert (command["id"], command["kind"], command["body"]) == (id_, "setup", body)
    assert daemon.kinds() == []
    assert [(one["id"], one["state"]) for one in daemon.row()["setups"]] == [(id_, "delivered") for id_ in ids[::-1]]


@pytest.mark.inventory("S-424", "S-426", "S-827")
def test_a_worker_is_setting_up_and_gets_no_job_until_its_scripts_were_taken(server: Served) -> None:
    daemon = Daemon(server, queue=f"q-{new_id()}")
    daemon.ask()
    daemon.script("echo 1")
    daemon.script("echo 2")
    job = one(queue=daemon.queue)
    assert server.post("/v1/producer/submit", job).status == 200
    assert daemon.state() == "setting_up"
    assert [daemon.kinds(), daemon.state()] == [["setup"], "setting_up"]
    assert [daemon.kinds(), daemon.state()] == [["setup"], "setting_up"]
    assert [daemon.kinds(), daemon.state()] == [["run"], "active"]


def test_the_commands_of_an_answer_stand_in_the_order_in_which_they_are_followed(server: Served) -> None:
    daemon = Daemon(server, queue=f"q-{new_id()}")
    daemon.ask()
    assert daemon.order("hibernate", {"until_epoch_s": time.time() + 60}).status == 202
    assert server.post("/v1/producer/submit", one(queue=daemon.queue)).status == 200
    daemon.order("reset")
    daemon.run("true")
    assert daemon.kinds(read=False) == ["exec", "reset_backoff", "run", "hibernate"]
    daemon.script()
    assert daemon.kinds(held=[]) == ["setup", "exec", "reset_backoff", "hibernate"]


@pytest.mark.inventory("K-34")
def test_a_new_process_gets_the_script_that_was_not_read_and_nothing_that_was_for_the_old_one(daemon: Daemon) -> None:
    taken, unread = daemon.script("echo taken"), daemon.script("echo unread")
    daemon.order("reset")
    daemon.ask()
    daemon.ask(read=False)
    second = daemon.restarted()
    (command,) = second.ask()["commands"]
    assert command["id"] == unread
    # What the old process had taken, and not reported, is lost.
    states = {one["id"]: (one["state"], one.get("error")) for one in second.row()["setups"]}
    assert states[taken] == ("failed", "daemon restarted")
    assert daemon.ask()["status"] == 410


def test_a_peer_without_sessions_has_read_an_answer_when_it_polls_again(server: Served) -> None:
    daemon = Daemon(server, session=None, queue=f"q-{new_id()}")
    assert server.post("/v1/producer/submit", one(queue=daemon.queue)).status == 200
    daemon.order("reset")
    assert daemon.kinds() == ["reset_backoff"]
    assert daemon.kinds() == ["run"]


def test_who_says_no_seen_has_read_an_answer_when_it_polls_again(daemon: Daemon) -> None:
    daemon.order("reset")
    assert daemon.kinds(seen=None) == ["reset_backoff"]
    assert daemon.kinds(seen=None) == []


def test_who_drains_gets_no_orders(daemon: Daemon) -> None:
    held = [("none-such", 1, True)]
    daemon.order("reset")
    assert daemon.kinds(draining=True, held=held) == []
    assert daemon.state() == "draining"
    assert daemon.kinds() == ["reset_backoff"]


def test_orders_outlive_the_server_and_so_do_a_worker_and_when_it_was_seen(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        daemon = Daemon(server)
        daemon.ask()
        first, second = daemon.script("echo 1"), daemon.script("echo 2")
        assert [one["id"] for one in daemon.ask()["commands"]] == [first]
        before = daemon.row()
        assert server.stop() == 0
    with running(tmp_path) as server:
        daemon.server = server
        after = daemon.row()
        not_kept = {"setups", "state", "authMode", "lastPollSigned", "unsignedRequests"}  # how it asked this server
        assert {key: after[key] for key in after.keys() - not_kept} == {
            key: before[key] for key in before.keys() - not_kept
        }
        assert after.keys() == before.keys()
        assert (before["state"], after["state"]) == ("setting_up", "setting_up")
        # Nothing says any more that the first was read: it comes again, under its id, and the daemon knows that.
        assert [one["id"] for one in daemon.ask()["commands"]] == [first]
        assert [one["id"] for one in daemon.ask()["commands"]] == [second]
        assert daemon.kinds() == []
        assert [one["id"] for one in daemon.row()["setups"]] == [second, first]


def test_no_more_than_a_hundred_orders_wait_for_one_worker(daemon: Daemon) -> None:
    for _ in range(100):
        assert daemon.order("reset").status == 202
    refused = daemon.order("reset")
    assert refused.status == 429
    assert "daemon show" in refused.body["hint"]


@pytest.mark.parametrize(
    ("verb", "body", "status", "field"),
    [
        ("setup", {}, 422, "script"),
        ("setup", {"script": " "}, 422, "script"),
        ("setup", {"script": "true", "sudo": "yes"}, 422, "sudo"),
        ("setup", {"script": "true", "name": "\n"}, 422, "name"),
        ("setup", {"script": "#" * (256 * 1024 + 1)}, 413, "script"),
        ("hibernate", {}, 400, "until"),
        ("hibernate", {"until": "tomorrow"}, 400, "until"),
        ("hibernate", {"until_epoch_s": True}, 400, "until_epoch_s"),
        ("queues", {}, 422, "add"),
        ("queues", {"add": "q"}, 422, "add"),
    ],
)
def test_an_order_that_makes_no_sense_is_refused(
    daemon: Daemon, verb: str, body: object, status: int, field: str
) -> None:
    answer = daemon.order(verb, body)
    assert (answer.status, answer.body["field"]) == (status, field)
    assert daemon.kinds() == []


def test_nobody_orders_a_worker_that_is_not_there(server: Served) -> None:
    for verb in ("setup", "hibernate", "reset", "queues"):
        answer = server.post(f"/v1/namespaces/default/workers/none/{verb}", {"script": "true"}, encoding=JSON)
        assert answer.status == 404
        assert "daemon list" in answer.body["hint"]
