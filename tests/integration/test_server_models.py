"""Each model by its fields, as the routes show them and the files keep them; and the protocol that carries them."""

from __future__ import annotations

import re
import sqlite3
import threading
import time
from contextlib import closing
from typing import Any

import msgpack
import pytest
from served import JSON, MSGPACK, Answer, Served, new_id, one
from worker_peer import Daemon

from lakeshore.server.routes.table import TABLE
from lakeshore.wire.messages import AwaitOne

NS = "/v1/namespaces/default"
ISO = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d")
ULID = re.compile(r"[0-9A-HJKMNP-TV-Z]{26}")
OBJECT_ID = re.compile(r"[0-9a-f]{24}")


def asked(server: Served, method: str, path: str, body: Any = None, **more: Any) -> Answer:
    return server.call(method, path, body, encoding=JSON, **more)


def ok(answer: Answer) -> dict[str, Any]:
    assert answer.status in (200, 201), answer.raw
    found: dict[str, Any] = answer.body
    return found


def poll(server: Served, queue: str, worker: str = "w", **more: Any) -> list[dict[str, Any]]:
    told = ok(server.post("/v1/daemon/poll", {"worker_id": worker, "queue": queue, "timeout_s": 0, **more}))
    found: list[dict[str, Any]] = [command for command in told["commands"] if command["kind"] == "run"]
    return found


def row(server: Served, id_: str) -> dict[str, Any]:
    return ok(asked(server, "GET", f"{NS}/invocations/{id_}"))


# --- the surface


@pytest.mark.inventory("S-788")
@pytest.mark.parametrize(
    "route",
    [
        *("GET /readyz", "PATCH /v1/admin/namespaces/{slug}", "POST /v1/daemon/keys"),
        *(f"{method} /v1/namespaces/{{ns}}/enroll-tokens" for method in ("GET", "POST")),
        *("DELETE /v1/namespaces/{ns}/enroll-tokens/{id}", "GET /v1/namespaces/{ns}/workers/{id}/keys"),
        "POST /v1/namespaces/{ns}/workers/{id}/keys/{key_id}/revoke",
        "POST /v1/namespaces/{ns}/workers/{worker}/exec/{id}/result",
        *(f"{method} /v1/namespaces/{{ns}}/jobs/{{id}}/result" for method in ("GET", "POST")),
        *("GET /v1/namespaces/{ns}/exec/{id}/log", "GET /v1/namespaces/{ns}/exec/{id}/log/stream"),
    ],
)
def test_what_no_documented_client_asks_for_is_there_all_the_same(server: Served, route: str) -> None:
    assert route in {f"{row.method} {row.pattern}" for row in TABLE}
    method, path = re.sub(r"\{ns\}", "default", route).split(" ")
    answer = asked(server, method, re.sub(r"\{\w+\}", "none", path), None if method in ("GET", "DELETE") else {})
    assert (answer.status, answer.body.get("error")) != (404, "no such route"), answer.raw
    assert answer.status not in (405, 500, 501), answer.raw


@pytest.mark.inventory("S-786")
@pytest.mark.parametrize("path", ["agents", "agents/one", "agents/one/run"])
def test_agents_are_no_part_of_the_surface(server: Served, path: str) -> None:
    for method, body in (("GET", None), ("POST", {})):
        assert asked(server, method, f"{NS}/{path}", body).status == 404
    assert not [row.pattern for row in TABLE if "agent" in row.pattern]


# --- the protocol


@pytest.mark.inventory("S-001", "S-735")
def test_one_port_answers_producers_daemons_operators_and_the_admin(server: Served) -> None:
    assert server.post("/v1/producer/submit", one()).headers["content-type"].startswith(MSGPACK)
    assert server.post("/v1/daemon/poll", {"worker_id": "w", "timeout_s": 0}).headers["content-type"] == MSGPACK
    for path in (f"{NS}/queues", f"{NS}/providers", "/v1/admin/namespaces"):
        answer = server.get(path)
        assert (answer.status, answer.headers["content-type"].split(";")[0]) == (200, JSON), path


@pytest.mark.inventory("S-002", "S-005", "S-733")
def test_there_are_more_routes_than_the_original_had_and_a_daemons_are_all_posts() -> None:
    assert len(TABLE) >= 113
    assert sum(route.pattern.startswith(("/v1/namespaces/", "/v1/admin/")) for route in TABLE) >= 90
    assert {route.method for route in TABLE if route.pattern.startswith("/v1/daemon/")} == {"POST"}


ROUTES = [
    pytest.param("producer/submit", {}, "queue", marks=pytest.mark.inventory("S-004", "S-007")),
    pytest.param("producer/await", {"timeout_s": 0}, "state", marks=pytest.mark.inventory("S-007")),
    pytest.param("daemon/poll", {"worker_id": "w", "timeout_s": 0}, "commands", marks=pytest.mark.inventory("S-006")),
    pytest.param("daemon/ack", {"worker_id": "w", "state": "failed"}, "ok", marks=pytest.mark.inventory("S-005")),
    pytest.param(
        "daemon/event",
        {"worker_id": "w", "kind": "invocation.log", "payload": {}},
        "ok",
        marks=pytest.mark.inventory("S-004", "S-723"),
    ),
]


@pytest.mark.parametrize("path, body, wanted", ROUTES)
def test_a_body_is_a_map_by_itself_in_msgpack_and_never_an_array(
    server: Served, path: str, body: dict[str, Any], wanted: str
) -> None:
    said = one()
    if path != "producer/submit":
        ok(server.post("/v1/producer/submit", said))
    if path == "daemon/ack":
        poll(server, said["queue"])
    sent = said if path == "producer/submit" else {"invocation_id": said["invocation_id"], **body}
    answer = server.post(f"/v1/{path}", sent, accept=MSGPACK)
    assert (answer.status, answer.headers["content-type"]) == (200, MSGPACK), answer.raw
    assert wanted in answer.body
    assert all(type(key) is str for key in answer.body)
    assert not {"v", "ts", "kind", "body"} & set(answer.body), "there is no envelope"
    assert server.post(f"/v1/{path}", list(sent.values())).status == 400


@pytest.mark.inventory("S-006", "S-009")
@pytest.mark.parametrize("protocol", ["1", "2"])
def test_the_version_of_the_protocol_is_a_field_of_hello(server: Served, protocol: str) -> None:
    said = {
        "machine_id": new_id(), "label": "", "tags": [], "capabilities": {"runners": []},
        "versions": {"daemon": "0.1.4", "protocol": protocol},
    }  # fmt: skip
    told = ok(server.post("/v1/daemon/hello", said))
    assert (told["reject"] or {}).get("code") == (None if protocol == "1" else "protocol_mismatch")
    del said["label"]
    refused = server.post("/v1/daemon/hello", said)
    assert (refused.status, refused.body["field"]) == (422, "label"), "names of fields are the protocol's"


@pytest.mark.inventory("S-058", "S-667", "S-758")
@pytest.mark.inventory("S-796", "S-724", "S-062")
def test_hello_says_a_session_that_nothing_keeps_and_a_worker_that_everything_knows(server: Served) -> None:
    daemon = Daemon(server)
    told = daemon.hello()
    assert ULID.fullmatch(told["session_token"])
    assert (told["session_ttl_s"], told["config"], told["cursor"]) == (86400, {}, None)
    assert (told["reject"], told["key_id"]) == (None, None), "without a key nothing is enrolled"
    assert OBJECT_ID.fullmatch(told["worker_id"])
    kept = b"".join(path.read_bytes() for path in server.state_dir.glob("*.db*"))
    assert told["worker_id"].encode() in kept
    assert told["session_token"].encode() not in kept


@pytest.mark.inventory("S-649")
def test_a_daemon_is_found_again_by_its_machine(server: Served) -> None:
    daemon = Daemon(server)
    first = daemon.hello(label="")
    assert daemon.hello(label="")["worker_id"] == first["worker_id"]
    assert daemon.row()["machineId"] == daemon.machine


@pytest.mark.inventory("S-008", "S-254", "S-266")
@pytest.mark.parametrize("encoding", [JSON, MSGPACK])
def test_presign_answers_in_the_encoding_of_its_request_with_a_key_of_the_servers(
    server: Served, encoding: str
) -> None:
    body = {"op": "put", "kind": "args", "size": 3, "contentType": "text/plain", "key": "mine"}
    answer = server.post(f"{NS}/payloads/presign", body, encoding=encoding)
    assert answer.headers["content-type"].startswith(encoding)
    told = ok(answer)
    assert set(told) == {"url", "bucket", "key", "expires_at"}
    assert told["key"].startswith("payloads/default/") and "mine" not in told["key"]
    sent = {"data": b"abc", "headers": {"Content-Type": "text/plain"}}
    assert server.raw("PUT", told["url"], sent["data"], sent["headers"]).status == 201  # type: ignore[arg-type]
    ref = {"bucket": told["bucket"], "key": told["key"], "size": 3, "content_type": "text/plain"}
    for named in (ref, {**ref, "contentType": ref["content_type"]}):
        said = {"invocation_id": new_id(), "queue": f"q-{new_id()}", "args_ref": named}
        ok(server.post("/v1/producer/submit", said))
        assert poll(server, said["queue"])[0]["body"]["args_blob"] == b"abc"


@pytest.mark.inventory("S-012", "S-578", "S-672")
def test_arguments_and_results_are_bytes_that_the_server_never_reads(server: Served) -> None:
    opaque = b"\xc1\xff{not msgpack" + bytes(range(256))
    said = one(args_blob=opaque)
    ok(server.post("/v1/producer/submit", said))
    (run,) = poll(server, said["queue"])
    assert run["body"]["args_blob"] == opaque
    ack = {"invocation_id": said["invocation_id"], "worker_id": "w", "state": "succeeded", "result_blob": opaque[::-1]}
    ok(server.post("/v1/daemon/ack", ack))
    ended = ok(server.post("/v1/producer/await", {"invocation_id": said["invocation_id"], "timeout_s": 5}))
    assert ended["result_blob"] == opaque[::-1]
    of_a_later_version = one(args_blob=msgpack.packb({"v": 99}))
    assert server.post("/v1/producer/submit", of_a_later_version).status == 200


# --- invocations


@pytest.mark.inventory("S-574", "S-061", "S-577")
@pytest.mark.inventory("S-575", "S-576", "S-584")
@pytest.mark.inventory("S-580", "S-581", "S-582")
@pytest.mark.inventory("S-585", "S-588", "S-073")
@pytest.mark.inventory("S-590")
def test_a_function_is_shown_with_the_signature_and_the_source_that_its_producer_sent(server: Served) -> None:
    named = {"module": "m", "qualname": "f", "version": "a" * 64}
    function = {**named, "signature": "(x: int) -> int", "source": "def f(x):\n    return x\n" * 200}
    said = one(queue=f"q{new_id()}", function=function)
    ok(server.post("/v1/producer/submit", said))
    assert row(server, said["invocation_id"])["function"] == function
    (listed,) = ok(asked(server, "GET", f"{NS}/invocations?queue={said['queue']}"))["invocations"]
    assert listed["function"] == {name: told for name, told in function.items() if name != "source"}, "lists are short"
    again = ok(server.post("/v1/producer/submit", {**said, "function": named}))
    assert again["invocation_id"] == said["invocation_id"], "the same call, though another producer says less of it"
    assert server.post("/v1/producer/submit", one(function={**named, "source": "x" * 65537})).status == 422


@pytest.mark.inventory("S-583", "S-782")
def test_what_a_daemon_told_of_a_run_last_is_on_its_row_while_it_runs(server: Served) -> None:
    daemon = Daemon(server, queue=f"q{new_id()}", session=None)
    said = one(queue=daemon.queue)
    ok(server.post("/v1/producer/submit", said))
    id_ = said["invocation_id"]
    assert row(server, id_)["progress"] is None
    (run,) = daemon.ask(queue=daemon.queue)["commands"]
    assert row(server, id_)["progress"] is None

    def tell(**more: Any) -> Any:
        daemon.ask(capacity=0, invocations=[{"invocation_id": id_, "state": "running", "started_at": 5.0, **more}])
        return row(server, id_)["progress"]

    assert tell(stdout_tail="epoch 1\n") == {"state": "running", "startedAt": 5.0, "stdoutTail": "epoch 1\n"}
    assert tell()["stdoutTail"] == "epoch 1\n", "nothing new"
    assert tell(stdout_tail="x" * 5000 + "end")["stdoutTail"] == ("x" * 5000 + "end")[-4096:]
    ack = {"worker_id": daemon.id, "invocation_id": id_, "claim": run["body"]["claim"], "state": "failed"}
    ok(server.post("/v1/daemon/ack", {**ack, "error": {"type": "E", "message": "m"}}))
    ended = row(server, id_)
    assert (ended["progress"], ended["error"]["type"]) == (None, "E")


@pytest.mark.inventory("S-586", "S-589", "S-731")
@pytest.mark.inventory("S-359", "S-074", "S-646")
def test_a_call_is_shown_with_what_it_was_given_and_what_it_made(server: Served) -> None:
    function = {"module": "m", "qualname": "f", "version": "a" * 64}
    said = one(
        invocation_id="01JZ8X3Y7Q4V5W6R9T0B1C2D3E",
        queue="models",
        function=function,
        run_config={"queue": "models", "priority": 2.5, "key": "k"},
        parent_invocation_id="01JZ8X3Y7Q4V5W6R9T0B1C2D3F",
    )
    ok(server.post("/v1/producer/submit", said))
    queued = row(server, said["invocation_id"])
    assert queued["id"] == said["invocation_id"], "the producer names its call"
    assert (queued["state"], queued["workerId"], queued["startedAt"], queued["finishedAt"]) == (
        "queued",
        None,
        None,
        None,
    )
    assert ISO.match(queued["submittedAt"])
    assert (queued["queueName"], queued["priority"], queued["attempt"], queued["key"]) == ("models", 2.5, 0, "k")
    assert queued["runConfig"]["priority"] == 2.5
    assert "queueId" not in queued
    assert {name: queued["function"][name] for name in function} == function
    assert OBJECT_ID.fullmatch(queued["functionId"])
    assert queued["parentInvocationId"] == said["parent_invocation_id"]
    assert queued["rootInvocationId"] == queued["correlationId"] is not None
    (run,) = poll(server, "models", worker="models-w")
    running = row(server, said["invocation_id"])
    assert (running["state"], running["workerId"], running["attempt"]) == ("running", "models-w", 1)
    assert ISO.match(running["startedAt"])
    ok(server.post("/v1/daemon/ack", {"invocation_id": run["body"]["invocation_id"], "claim": 1, "state": "succeeded"}))
    ended = ok(asked(server, "GET", f"/v1/admin/invocations/{said['invocation_id']}"))
    assert (ended["state"], ended["workerId"]) == ("succeeded", "models-w")
    assert ISO.match(ended["finishedAt"])
    again = one(queue="models", function=function)
    ok(server.post("/v1/producer/submit", again))
    other = one(queue="models", function={**function, "version": "b" * 64})
    ok(server.post("/v1/producer/submit", other))
    ids = [row(server, call["invocation_id"])["functionId"] for call in (said, again, other)]
    assert ids[0] == ids[1] != ids[2], "module, qualname and version are the function"
    assert row(server, again["invocation_id"])["rootInvocationId"] == again["invocation_id"]


def test_why_a_call_failed_stays_with_its_row(server: Served) -> None:
    said = one()
    ok(server.post("/v1/producer/submit", said))
    poll(server, said["queue"])
    error = {"type": "ValueError", "message": "no", "traceback": "File x"}
    ok(
        server.post(
            "/v1/daemon/ack", {"invocation_id": said["invocation_id"], "claim": 1, "state": "failed", "error": error}
        )
    )
    assert row(server, said["invocation_id"])["error"] == error


@pytest.mark.inventory("S-648")
def test_a_key_names_one_call_of_its_queue_and_namespace(server: Served) -> None:
    first, second = one(), one()
    second["queue"] = first["queue"]
    for said in (first, second):
        said["run_config"] = {"key": "once"}
        assert ok(server.post("/v1/producer/submit", said))["invocation_id"] == first["invocation_id"]
    elsewhere = one(run_config={"key": "once"})
    assert ok(server.post("/v1/producer/submit", elsewhere))["invocation_id"] == elsewhere["invocation_id"]


@pytest.mark.inventory("S-251", "S-587", "S-751")
def test_a_call_names_the_archive_of_the_commit_that_it_was_made_in(server: Served) -> None:
    body = {"name": f"code-{new_id()}", "kind": "s3", "config": {"bucket": f"b-{new_id()}"}}
    storage = asked(server, "POST", f"{NS}/storages", body)
    assert storage.status == 201, storage.raw
    remote, commit = f"git@host:{new_id()}", "c" * 40
    repo = {"remote": remote, "commit": commit, "archiveKey": "a.tar.gz", "storageName": body["name"]}
    known = ok(asked(server, "POST", f"{NS}/code-repos", repo))
    for code, wanted in (
        ({"remote": remote, "commit": commit}, known["id"]),
        ({"remote": remote, "commit": "d" * 40}, None),
        ({"remote": 1}, None),
        (None, None),
    ):
        said = one(code_context=code)
        ok(server.post("/v1/producer/submit", said))
        assert row(server, said["invocation_id"])["codeRepoId"] == wanted


@pytest.mark.inventory("S-721", "S-550")
def test_a_submit_goes_into_the_namespace_that_its_header_names(server: Served) -> None:
    said = one()
    ns = f"ns-{new_id()}"
    ok(server.post("/v1/producer/submit", said, x_ls_namespace=ns))
    assert ok(asked(server, "GET", f"/v1/namespaces/{ns}/invocations/{said['invocation_id']}"))["namespace"] == ns
    assert server.get(f"{NS}/invocations/{said['invocation_id']}").status == 404


@pytest.mark.inventory("S-722")
def test_a_producer_lists_queues_by_name_with_kind_and_state(server: Served) -> None:
    name = f"q-{new_id()}"
    ok(asked(server, "POST", f"{NS}/queues", {"name": name, "kind": "filo"}))
    told = ok(asked(server, "GET", "/v1/producer/queues"))["queues"]
    assert {"name": name, "kind": "filo", "state": "active"} in told
    assert "default" in [queue["name"] for queue in told]
    assert [queue["name"] for queue in told] == sorted(queue["name"] for queue in told)


@pytest.mark.inventory("S-669")
def test_an_await_lasts_a_minute_unless_it_says_how_long() -> None:
    assert AwaitOne(invocation_id="i").timeout_s == 60.0


@pytest.mark.inventory("S-072")
def test_the_admins_list_is_of_the_default_namespace_unless_it_names_another(server: Served) -> None:
    ns, here, there = f"ns-{new_id()}", one(), one()
    ok(server.post("/v1/producer/submit", here))
    ok(server.post("/v1/producer/submit", there, x_ls_namespace=ns))
    ids = [
        {call["id"] for call in ok(asked(server, "GET", f"/v1/admin/invocations{query}"))["invocations"]}
        for query in ("?limit=200", f"?limit=200&namespace={ns}")
    ]
    assert there["invocation_id"] not in ids[0]
    assert ids[1] == {there["invocation_id"]}


# --- claims


@pytest.mark.inventory("S-025", "S-495", "S-500")
def test_of_many_pollers_at_once_one_gets_a_call_and_the_others_nothing(server: Served) -> None:
    said = one()
    ok(server.post("/v1/producer/submit", said))
    got: list[list[dict[str, Any]]] = []
    start = threading.Barrier(8)

    def claim(worker: str) -> None:
        start.wait()
        got.append(poll(server, said["queue"], worker=worker))

    threads = [threading.Thread(target=claim, args=(f"racer-{n}",)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(map(len, got)) == [0] * 7 + [1]


@pytest.mark.inventory("S-496")
def test_who_names_no_queue_is_in_the_default_one(server: Served) -> None:
    ns = f"ns-{new_id()}"
    said = {"invocation_id": new_id(), "args_blob": b""}
    assert ok(server.post("/v1/producer/submit", said, x_ls_namespace=ns))["queue"] == "default"
    told = ok(server.post("/v1/daemon/poll", {"worker_id": "w", "timeout_s": 0}, x_ls_namespace=ns))
    assert [command["body"]["invocation_id"] for command in told["commands"]] == [said["invocation_id"]]


@pytest.mark.inventory("S-498", "S-738")
def test_under_a_prefix_the_most_urgent_goes_first_and_then_the_oldest(server: Served) -> None:
    at = f"p-{new_id()}"
    sent = []
    for queue, priority in (("a", 0), ("b", 5), ("a", 5), ("b", 0)):
        said = one(queue=f"{at}-{queue}", run_config={"priority": priority})
        ok(server.post("/v1/producer/submit", said))
        sent.append(said["invocation_id"])
    got = [poll(server, f"{at}-*")[0]["body"]["invocation_id"] for _ in sent]
    assert got == [sent[1], sent[2], sent[0], sent[3]]


@pytest.mark.inventory("S-502", "S-360", "S-421")
def test_work_is_claimed_at_once_whether_it_came_before_during_or_between_polls(server: Served) -> None:
    queue = f"q-{new_id()}"
    ok(server.post("/v1/producer/submit", one(queue=queue)))
    assert len(poll(server, queue)) == 1, "queued before"
    assert poll(server, queue) == []
    ok(server.post("/v1/producer/submit", one(queue=queue)))
    assert len(poll(server, queue)) == 1, "between two"
    assert min(woken_after_s(server, f"q-{new_id()}") for _ in range(3)) < 4.5, "no slice of five seconds is waited for"


def woken_after_s(server: Served, queue: str) -> float:
    """Seconds from a submit to the answer of a poll that was parked before it."""
    ok(server.post("/v1/producer/submit", one(queue=queue)))
    assert len(poll(server, queue)) == 1, "the queue is known from now on"
    got: list[float] = []

    def wait() -> None:
        assert len(poll(server, queue, worker="parked", timeout_s=20)) == 1
        got.append(time.monotonic())

    parked = threading.Thread(target=wait)
    parked.start()
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and "parked" not in {
        member["id"] for member in ok(asked(server, "GET", f"{NS}/queues/{queue}"))["members"]
    }:
        time.sleep(0.01)
    sent = time.monotonic()
    ok(server.post("/v1/producer/submit", one(queue=queue)))
    parked.join(60)
    return got[0] - sent


@pytest.mark.inventory("S-297", "S-797")
def test_default_among_the_queues_of_a_daemon_is_the_default_queue(server: Served) -> None:
    ns = f"ns-{new_id()}"
    daemon = Daemon(server, ns=ns)
    daemon.hello(lanes=["default", "own"])
    said = {"invocation_id": new_id(), "args_blob": b""}
    ok(server.post("/v1/producer/submit", said, x_ls_namespace=ns))
    assert daemon.kinds() == ["run"]
    ok(asked(server, "POST", f"/v1/namespaces/{ns}/queues", {"name": "more"}))
    assert daemon.order("queues", {"add": ["more"]}).body["queues"] == ["own", "more"]


@pytest.mark.inventory("S-285")
@pytest.mark.parametrize("verb", ["add", "remove"])
def test_the_default_queue_is_neither_joined_nor_left(server: Served, verb: str) -> None:
    daemon = Daemon(server)
    daemon.hello()
    refused = daemon.order("queues", {verb: ["default"]})
    assert (refused.status, refused.body["field"].startswith(verb)) == (422, True)


# --- queues


QUEUE_FIELDS = [
    pytest.param({"description": "d"}, marks=pytest.mark.inventory("S-566")),
    pytest.param({"kind": "boltzmann"}, marks=pytest.mark.inventory("S-567")),
    pytest.param({"kindParams": {"temperature": 0.5}}, marks=pytest.mark.inventory("S-568", "S-291")),
    pytest.param({"kindParams": {"priority_field": "p"}}, marks=pytest.mark.inventory("S-291")),
    pytest.param(
        {
            "elasticity": {
                "kind": "pool_with_threshold", "min": 0, "max": 4, "threshold": 0.8, "threshold_low": 0.2, "pool": "p",
                "match": {"tags": ["gpu:*"], "runners": ["docker"]}, "steal_delay_s": 3, "cost_weight": 2.0,
            }
        },
        marks=pytest.mark.inventory("S-569", "S-293"),
    ),
    pytest.param(
        {"admission": {"max_depth": 3, "on_full": "block", "rate_limit": 2, "deadline_cutoff_s": 9}},
        marks=pytest.mark.inventory("S-570", "S-740"),
    ),
    pytest.param({"providerRef": "box"}, marks=pytest.mark.inventory("S-571")),
    pytest.param(
        {"daemonTemplate": {"instance_type": "p4d", "image_id": "ami", "runner": "docker"}},
        marks=pytest.mark.inventory("S-572", "S-295"),
    ),
    pytest.param({"state": "active"}, marks=pytest.mark.inventory("S-573", "S-732")),
]  # fmt: skip


@pytest.mark.parametrize("fields", QUEUE_FIELDS)
def test_a_field_of_a_queue_is_kept_shown_and_empty_where_nobody_said_it(
    server: Served, fields: dict[str, Any]
) -> None:
    plain, name = f"q-{new_id()}", f"q-{new_id()}"
    empty = ok(asked(server, "POST", f"{NS}/queues", {"name": plain}))
    (field,) = fields
    assert empty[field] == {"kind": "fifo", "state": "active"}.get(field)
    assert empty["providerRef"] is None
    made = ok(asked(server, "POST", f"{NS}/queues", {"name": name, **({} if field == "state" else fields)}))
    assert {field: made[field]} == fields
    assert "warnings" not in made
    assert ok(asked(server, "GET", f"{NS}/queues/{name}"))[field] == fields[field]
    assert not {"modeId", "minHosts", "maxHosts", "policy"} & set(made)


@pytest.mark.inventory("S-573", "S-624")
def test_a_queue_has_four_states_and_each_verb_leads_to_its_own(server: Served) -> None:
    at = f"{NS}/queues/q-{new_id()}"
    ok(asked(server, "POST", f"{NS}/queues", {"name": at.rpartition("/")[2]}))
    for verb, state in (("drain", "draining"), ("archive", "archived"), ("unarchive", "active")):
        assert ok(asked(server, "POST", f"{at}/{verb}"))["state"] == state
    assert ok(asked(server, "PATCH", at, {"state": "paused"}))["state"] == "paused"


@pytest.mark.inventory("S-763")
def test_what_of_an_elasticity_nobody_reads_is_warned_of(server: Served) -> None:
    name = f"q-{new_id()}"
    made = ok(asked(server, "POST", f"{NS}/queues", {"name": name, "elasticity": {"kind": "fixed", "mx": 1, "max": 2}}))
    assert made["warnings"] == ["elasticity.mx is stored, and nobody reads it"]
    assert made["elasticity"] == {"kind": "fixed", "mx": 1, "max": 2}
    changed = ok(asked(server, "PATCH", f"{NS}/queues/{name}", {"elasticity": {"kind": "fixed", "b": 1, "a": 1}}))
    assert [said.split()[0] for said in changed["warnings"]] == ["elasticity.a", "elasticity.b"]
    assert "warnings" not in ok(asked(server, "PATCH", f"{NS}/queues/{name}", {"description": "d"}))


@pytest.mark.inventory("S-805")
@pytest.mark.parametrize("said, meant", [("fully-elastic", "fully_elastic"), ("max-count", "max_count"), ("big", None)])
def test_a_hyphen_in_a_kind_of_elasticity_is_refused_with_the_right_word(
    server: Served, said: str, meant: str | None
) -> None:
    refused = asked(server, "POST", f"{NS}/queues", {"name": f"q-{new_id()}", "elasticity": {"kind": said}})
    assert (refused.status, refused.body["field"]) == (422, "elasticity.kind")
    assert refused.body.get("hint") == (None if meant is None else f"write {meant}")


@pytest.mark.inventory("S-737")
@pytest.mark.parametrize("name", ["train/gpu", "prod/*", "Train"])
def test_a_slash_is_in_no_name_of_a_queue(server: Served, name: str) -> None:
    refused = asked(server, "POST", f"{NS}/queues", {"name": name})
    assert (refused.status, refused.body["field"]) == (422, "name")


# --- other models


@pytest.mark.inventory("S-563", "S-654", "S-707")
def test_a_secret_is_its_name_kind_description_and_times_and_64_kib_at_most(server: Served) -> None:
    name = f"s-{new_id()}"
    body = {"name": name, "kind": "opaque", "plaintext": "x", "description": "d"}
    made = ok(asked(server, "POST", f"{NS}/secrets", body))
    assert (made["name"], made["kind"], made["description"]) == (name, "opaque", "d")
    assert ISO.match(made["createdAt"]) and ISO.match(made["updatedAt"])
    assert "plaintext" not in made
    assert asked(server, "PUT", f"{NS}/secrets/{name}", {"plaintext": "y"}).status == 200
    for method, path in (("PUT", f"/{name}"), ("POST", "")):
        large = {"plaintext": "y" * (64 * 1024 + 1), **({} if path else {"name": f"s-{new_id()}", "kind": "opaque"})}
        assert asked(server, method, f"{NS}/secrets{path}", large).status == 413
    assert asked(server, "DELETE", f"{NS}/secrets/{name}").status in (200, 204)


KWARGS: dict[str, dict[str, Any]] = {
    "SSH": {"ip": "h"}, "SLURM": {"host": "h"}, "EC2": {"region": "us-east-1"}, "GCE": {"project": "p", "zone": "z"},
    "Kube": {},
}  # fmt: skip


@pytest.mark.inventory("S-124", "S-125", "S-608")
@pytest.mark.parametrize("launcher", [*KWARGS, "ssh", "Ec2", "KUBE", "Docker"])
def test_a_launcher_is_one_of_five_words_written_so(server: Served, launcher: str) -> None:
    body = {"name": f"p-{new_id()}", "launcher": launcher, "kwargs": KWARGS.get(launcher, {})}
    answer = asked(server, "POST", f"{NS}/providers", body)
    if launcher in KWARGS:
        made = ok(answer)
        assert (made["name"], made["launcher"]) == (body["name"], launcher)
        assert body["kwargs"].items() <= made["kwargs"].items()
    else:
        assert (answer.status, answer.body["field"]) == (400, "launcher")


@pytest.mark.inventory("S-602")
def test_a_worker_says_when_it_was_heard_of_last(server: Served) -> None:
    daemon = Daemon(server)
    daemon.hello()
    first = daemon.row()["lastSeenAt"]
    daemon.ask()
    assert ISO.match(first)
    assert daemon.row()["lastSeenAt"] >= first


@pytest.mark.inventory("S-619", "S-674")
def test_an_event_is_its_queues_kind_and_payload(server: Served) -> None:
    name = f"q-{new_id()}"
    ok(asked(server, "POST", f"{NS}/queues", {"name": name}))
    ok(asked(server, "POST", f"{NS}/queues/{name}/drain"))
    newest = ok(asked(server, "GET", f"{NS}/queues/{name}/events"))["events"][0]
    assert (newest["kind"], newest["queueName"]) == ("queue.state", name)
    assert (newest["payload"]["from"], newest["payload"]["to"]) == ("active", "draining")


@pytest.mark.inventory("S-621", "S-645", "S-681")
@pytest.mark.inventory("S-458", "S-019", "S-729")
def test_a_frame_is_stored_once_under_its_number_and_is_on_disk_when_it_is_answered(server: Served) -> None:
    said = one()
    ok(server.post("/v1/producer/submit", said))
    poll(server, said["queue"])
    frame = msgpack.packb([1, 0, b"body", {}])
    chunk = {"invocation_id": said["invocation_id"], "claim": 1, "seq": 0, "bytes": frame, "final": False}
    assert "duplicate" not in ok(server.post("/v1/daemon/result-chunk", chunk))
    assert ok(server.post("/v1/daemon/result-chunk", chunk))["duplicate"] is True
    with closing(sqlite3.connect(f"file:{server.state_dir / 'lakeshore.db'}?mode=ro", uri=True)) as conn:
        kept = conn.execute(
            "SELECT count(*) FROM frame JOIN invocation ON invocation.seq = frame.channel WHERE invocation.id = ?",
            (said["invocation_id"],),
        ).fetchone()
    assert kept == (1,)


NOT_OF_A_NAMESPACE = {"namespace", "nonce", "nymph_release", "mark", "args", "result", "frame"}


@pytest.mark.inventory("S-549", "S-550", "S-613")
def test_every_model_has_a_table_and_every_row_its_namespace(server: Served) -> None:
    tables: dict[str, set[str]] = {}
    for name in ("lakeshore.db", "records.db", "execs.db"):
        with closing(sqlite3.connect(f"file:{server.state_dir / name}?mode=ro", uri=True)) as conn:
            for (table,) in conn.execute(
                "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'"
            ):
                tables.setdefault(table, set()).update(
                    column[1] for column in conn.execute(f"PRAGMA table_info({table})")
                )
    wanted = (
        "namespace token enroll_token daemon_key secret tunnel queue invocation exec worker provider mode storage "
        "mount code_repo event elasticity_event frame nymph_release"
    )
    assert set(wanted.split()) <= set(tables)
    assert {table for table, columns in tables.items() if not columns & {"ns"}} <= NOT_OF_A_NAMESPACE
    assert "queue_server" not in tables
