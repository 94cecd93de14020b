"""What a daemon's hello, poll and ack hold, field by field, as one that was written from the pages sends and reads it.

Reference: nymph/protocol; api/function-protocol.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

import pytest
from served import JSON, Served, new_id, one
from worker_peer import Daemon

HELLO: dict[str, Any] = {
    "machine_id": "bos14-login",
    "label": "box",
    "tags": [],
    "capabilities": {"runners": ["process"]},
    "versions": {"daemon": "0.1.4", "protocol": "1"},
}
ULID = re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]{25}")


def without(path: str) -> dict[str, Any]:
    """A hello that lacks one field."""
    body: dict[str, Any] = {**HELLO, "versions": {**HELLO["versions"]}, "capabilities": {**HELLO["capabilities"]}}
    *sections, name = path.split(".")
    within = body
    for section in sections:
        within = within[section]
    del within[name]
    return body


@pytest.mark.parametrize(
    "field",
    [
        pytest.param("machine_id", marks=pytest.mark.inventory("S-372")),
        pytest.param("label", marks=pytest.mark.inventory("S-373")),
        "tags",
        "capabilities.runners",
        "versions.daemon",
        pytest.param("versions.protocol", marks=pytest.mark.inventory("S-379")),
    ],
)
def test_a_hello_without_a_field_that_it_needs_is_told_which(server: Served, field: str) -> None:
    answer = server.post("/v1/daemon/hello", without(field))
    assert (answer.status, answer.body["field"]) == (422, field)


@pytest.mark.parametrize(
    ("field", "fits"),
    [
        pytest.param("worker_id", re.compile(r"[0-9a-f]{24}").fullmatch, marks=pytest.mark.inventory("S-384")),
        pytest.param("session_token", ULID.fullmatch, marks=pytest.mark.inventory("S-385")),
        pytest.param("session_ttl_s", lambda told: told == 86_400, marks=pytest.mark.inventory("S-386")),
        pytest.param("config", lambda told: told == {}, marks=pytest.mark.inventory("S-387")),
        pytest.param("cursor", lambda told: told is None, marks=pytest.mark.inventory("S-388")),
        pytest.param("reject", lambda told: told is None, marks=pytest.mark.inventory("S-389")),
        ("key_id", lambda told: told is None),
        pytest.param("key_rotation_max_age_s", lambda told: told == 2_592_000, marks=pytest.mark.inventory("S-391")),
        pytest.param(
            "server_time_epoch_s", lambda told: abs(told - time.time()) < 60, marks=pytest.mark.inventory("S-392")
        ),
    ],
)
def test_hello_is_answered_with_the_documented_field(server: Served, field: str, fits: Callable[[Any], Any]) -> None:
    answer = server.post("/v1/daemon/hello", {**HELLO, "machine_id": new_id()})
    assert answer.status == 200
    assert fits(answer.body[field]), answer.body[field]


@pytest.mark.inventory("S-389")
def test_a_hello_that_is_refused_is_told_a_code_and_a_sentence(server: Served) -> None:
    told = server.post("/v1/daemon/hello", {**HELLO, "versions": {"daemon": "1", "protocol": "2"}}).body
    assert told["worker_id"] is None
    assert set(told["reject"]) == {"code", "message"}


@pytest.mark.inventory("S-414")
def test_a_poll_names_a_queue_or_all_of_a_prefix(server: Served) -> None:
    prefix = f"q{new_id()}-"
    calls = [one(queue=f"{prefix}{name}") for name in "ab"]
    for call in calls:
        server.post("/v1/producer/submit", call)
    daemon = Daemon(server)
    told = daemon.ask(queue=f"{prefix}b", held=[])["commands"]
    assert [command["body"]["invocation_id"] for command in told] == [calls[1]["invocation_id"]]
    held = [[calls[1]["invocation_id"], told[0]["body"]["claim"], True]]
    told = daemon.ask(queue=f"{prefix}*", held=held)["commands"]
    assert [command["body"]["invocation_id"] for command in told] == [calls[0]["invocation_id"]]


@pytest.mark.inventory("S-416", "S-417", "S-419")
def test_a_poll_of_the_documented_shape_is_answered_with_commands_of_the_documented_shape(server: Served) -> None:
    call, worker = one(), new_id()
    server.post("/v1/producer/submit", call)
    poll = {"worker_id": worker, "queue": call["queue"], "timeout_s": 5, "cursor": None, "invocations": []}
    (command,) = server.post("/v1/daemon/poll", poll).body["commands"]
    assert set(command) == {"id", "kind", "body"}
    assert (command["kind"], command["body"]["invocation_id"]) == ("run", call["invocation_id"])
    status = {"invocation_id": call["invocation_id"], "state": "running", "started_at": time.time(), "exit_code": None}
    for tail in ("", "line 1\n"):
        again = {**poll, "timeout_s": 0, "invocations": [{**status, "stdout_tail": tail}]}
        answer = server.post("/v1/daemon/poll", again)
        assert (answer.status, answer.body["commands"]) == (200, [])
        assert "cursor" not in answer.body


@pytest.mark.inventory("S-425", "S-434")
def test_what_people_order_comes_as_the_documented_kinds_and_reset_backoff_has_nothing_to_say(server: Served) -> None:
    daemon = Daemon(server, queue=f"q-{new_id()}")
    daemon.ask()
    digest = "a" * 64
    orders = {
        "setup": {"script": "true"},
        "exec": {"command": "true"},
        "update": {"version": "9", "url": "https://releases.example/lakeshore", "sha256": digest},
        "reset": {},
        "hibernate": {"until_epoch_s": time.time() + 60},
    }
    for verb, body in orders.items():
        answer = daemon.order(verb, body)
        assert answer.status in (200, 201, 202), (verb, answer.body)
    told = {command["kind"]: command["body"] for command in daemon.ask()["commands"]}
    assert list(told) == ["setup", "exec", "ota_update", "reset_backoff", "hibernate"]
    assert told["reset_backoff"] == {}
    assert told["ota_update"] == orders["update"]


@pytest.mark.inventory("C-1399")
def test_a_command_is_no_invocation(server: Served) -> None:
    queue = f"q-{new_id()}"
    daemon = Daemon(server, queue=queue)
    assert daemon.order("exec", {"command": "true"}).status in (201, 202)
    assert daemon.kinds() == ["exec"]
    for by in (f"worker={daemon.id}", f"queue={queue}"):
        assert server.get(f"/v1/namespaces/default/invocations?{by}", encoding=JSON).body["invocations"] == []


# --- how a run ended


ERROR = {"type": "ValueError", "message": "no", "traceback": "line 1"}


@pytest.mark.inventory("S-445")
@pytest.mark.parametrize(
    ("state", "result", "error"),
    [
        pytest.param("succeeded", b"\x00as it is\xff", None, marks=pytest.mark.inventory("S-446")),
        pytest.param("failed", b"", ERROR, marks=pytest.mark.inventory("S-447")),
        ("killed", b"", None),
        ("timeout", None, {"type": "Timeout", "message": "too late"}),
    ],
)
def test_an_ack_says_how_it_ended_and_the_row_says_the_same(
    server: Served, state: str, result: bytes | None, error: dict[str, str] | None
) -> None:
    call, worker = one(run_config={"max_attempts": 1}), new_id()
    server.post("/v1/producer/submit", call)
    server.post("/v1/daemon/poll", {"worker_id": worker, "queue": call["queue"], "timeout_s": 5})
    ack = {"invocation_id": call["invocation_id"], "state": state, "result_blob": result, "error": error}
    assert server.post("/v1/daemon/ack", {**ack, "worker_id": worker}).body["result"] == "ok"
    told = server.post("/v1/producer/await", {"invocation_id": call["invocation_id"]}).body
    assert told["state"] == state
    assert told["result_blob"] == (result if state == "succeeded" else None)
    if error is not None:
        assert {name: told["error"].get(name) for name in error} == error


@pytest.mark.inventory("S-444", "S-447")
def test_an_ack_of_nothing_and_an_error_that_is_a_bare_string_are_refused_by_name(server: Served) -> None:
    nothing = server.post("/v1/daemon/ack", {"state": "succeeded", "worker_id": new_id()})
    assert (nothing.status, nothing.body["field"]) == (422, "invocation_id")
    bare = {"invocation_id": new_id(), "state": "failed", "error": "it broke", "worker_id": new_id()}
    told = server.post("/v1/daemon/ack", bare)
    assert (told.status, told.body["field"]) == (422, "error")


# --- lists for people


@pytest.mark.inventory("S-337", "S-340", "S-347")
def test_a_row_by_its_id_is_the_one_that_the_list_finds_by_queue_and_worker(server: Served) -> None:
    call, worker = one(), new_id()
    server.post("/v1/producer/submit", call)
    at = f"/v1/namespaces/default/invocations/{call['invocation_id']}"
    waits = server.get(at, encoding=JSON).body
    assert (waits["startedAt"], waits["finishedAt"], waits["submittedAt"][-1]) == (None, None, "Z")
    assert waits["rootInvocationId"] == call["invocation_id"]
    server.post("/v1/daemon/poll", {"worker_id": worker, "queue": call["queue"], "timeout_s": 5})
    rows = "/v1/namespaces/default/invocations?queue={}&worker={}"
    (found,) = server.get(rows.format(call["queue"], worker), encoding=JSON).body["invocations"]
    whole = server.get(at, encoding=JSON).body
    assert (found["id"], found["workerId"], found["runConfig"]["queue"]) == (whole["id"], worker, call["queue"])
    assert server.get(rows.format(call["queue"], new_id()), encoding=JSON).body["invocations"] == []
