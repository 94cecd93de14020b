"""What is wrong is refused with its status, in the request's encoding, naming the field."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest
from served import JSON, MSGPACK, Served, new_id, one


@pytest.mark.inventory("S-023")
def test_an_unknown_route_is_not_found(server: Served) -> None:
    answer = server.get("/v1/nothing/here")
    assert (answer.status, answer.body["error"]) == (404, "no such route")
    assert "without /v1" not in answer.body["hint"]


def test_a_url_that_ends_in_the_version_is_told_so(server: Served) -> None:
    for path in ("/v1/v1/producer/submit", "/v1/v1/namespaces/default/invocations"):
        answer = server.get(path)
        assert answer.status == 404
        assert answer.body["hint"] == f"GET {path} is not part of this API; the server's URL stands without /v1"


def test_another_method_names_those_that_the_path_answers(server: Served) -> None:
    answer = server.call("DELETE", "/v1/producer/submit")
    assert (answer.status, answer.headers["allow"]) == (405, "POST")


@pytest.mark.inventory("S-003")
@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "application/cbor", ""])
def test_another_encoding_is_unsupported(server: Served, kind: str) -> None:
    answer = server.raw("POST", "/v1/producer/submit", b"{}", {"Content-Type": kind} if kind else {})
    assert answer.status == 415
    assert "application/x-msgpack" in answer.body["hint"]


WHOLE = msgpack.packb({"invocation_id": "a", "queue": "q", "args_blob": b"args"})
NO_MAPS = {
    "nothing": b"",
    "truncated": WHOLE[:-3],
    "never used": b"\xc1",
    "more after it": WHOLE + b"\x00",
    "an array": msgpack.packb([1, 2]),
    "nil": msgpack.packb(None),
    "nested too deeply": b"\x91" * 4000,
    "a map of 4 billion": b"\xdf\xff\xff\xff\xff",
    "a key that is no text": b"\x81\xa1\xff\x01",
}


@pytest.mark.parametrize("raw", list(NO_MAPS.values()), ids=list(NO_MAPS))
def test_bytes_that_are_no_map_are_a_bad_request_in_msgpack(server: Served, raw: bytes) -> None:
    answer = server.raw("POST", "/v1/producer/submit", raw, {"Content-Type": MSGPACK})
    assert answer.status == 400
    assert answer.headers["content-type"] == MSGPACK
    assert msgpack.unpackb(answer.raw)["error"]


@pytest.mark.parametrize(
    "raw",
    [b"", b"{", b"[]", b"\xff", b'{"a":1} x', b"[" * 100_000, b"null"],
    ids=["nothing", "truncated", "an array", "no UTF-8", "more after it", "nested too deeply", "null"],
)
def test_text_that_is_no_object_is_a_bad_request_in_json(server: Served, raw: bytes) -> None:
    answer = server.raw("POST", "/v1/producer/submit", raw, {"Content-Type": JSON})
    assert answer.status == 400
    assert answer.headers["content-type"] == JSON
    assert answer.body["error"]


WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("/v1/producer/submit", {"invocation_id": None}, "invocation_id"),
    ("/v1/producer/submit", {"invocation_id": 7}, "invocation_id"),
    ("/v1/producer/submit", {"invocation_id": "a/b"}, "invocation_id"),
    ("/v1/producer/submit", {"invocation_id": "x" * 65}, "invocation_id"),
    ("/v1/producer/submit", {"queue": 7}, "queue"),
    ("/v1/producer/submit", {"queue": ""}, "queue"),
    ("/v1/producer/submit", {"queue": "a/b"}, "queue"),
    ("/v1/producer/submit", {"queue": "gpu*"}, "queue"),
    ("/v1/producer/submit", {"args_blob": "text"}, "args_blob"),
    ("/v1/producer/submit", {"args_blob": None}, "args_blob"),
    ("/v1/producer/submit", {"args_ref": {"key": 1, "size": 1}}, "args_ref.key"),
    ("/v1/producer/submit", {"args_ref": {"key": "payloads/default/x", "size": 1}}, "args_ref"),
    ("/v1/producer/submit", {"function": "f"}, "function"),
    ("/v1/producer/submit", {"function": {"module": "m"}}, "function.qualname"),
    ("/v1/producer/submit", {"run_config": []}, "run_config"),
    ("/v1/producer/submit", {"run_config": {"max_attempts": 0}}, "run_config.max_attempts"),
    ("/v1/producer/submit", {"run_config": {"max_attempts": True}}, "run_config.max_attempts"),
    ("/v1/producer/submit", {"run_config": {"timeout_s": "1"}}, "run_config.timeout_s"),
    ("/v1/producer/submit", {"run_config": {"key": 3}}, "run_config.key"),
    ("/v1/producer/submit", {"parent_invocation_id": ""}, "parent_invocation_id"),
    ("/v1/producer/submit", {"invocations": {}}, "invocations"),
    ("/v1/producer/await", {"invocation_id": "x", "timeout_s": "1"}, "timeout_s"),
    ("/v1/producer/await", {"invocation_id": "x", "timeout_s": float("nan")}, "timeout_s"),
    ("/v1/producer/await", {"watch": 1}, "watch"),
    ("/v1/producer/await", {"watch": "w", "add": ["a", 1]}, "add[1]"),
    ("/v1/producer/invocations/x/trim", {"keep_last": -1}, "keep_last"),
    ("/v1/producer/queues/q/topics/t", {"bytes": b""}, "bytes"),
    ("/v1/producer/queues/q/topics/t", {"bytes": b"\x01\x02"}, "bytes"),
    ("/v1/daemon/poll", {"worker_id": 1}, "worker_id"),
    ("/v1/daemon/poll", {"worker_id": ""}, "worker_id"),
    ("/v1/daemon/poll", {"worker_id": "w", "session": "s"}, "n"),
    ("/v1/daemon/poll", {"worker_id": "w", "session": "s", "n": 1.5}, "n"),
    ("/v1/daemon/poll", {"worker_id": "w", "held": [["a", 1, True], ["b", "2", True]]}, "held[1]"),
    ("/v1/daemon/poll", {"worker_id": "w", "capacity": "1"}, "capacity"),
    ("/v1/daemon/poll", {"worker_id": "w", "kind": "lifo"}, "kind"),
    ("/v1/daemon/poll", {"worker_id": "w", "queue": "a/b"}, "queue"),
    ("/v1/daemon/poll", {"worker_id": "w", "acks": 1}, "acks"),
    ("/v1/daemon/ack", {"invocation_id": "x", "state": "done", "claim": 1}, "state"),
    ("/v1/daemon/ack", {"invocation_id": "x", "state": "succeeded"}, "claim"),
    ("/v1/daemon/ack", {"invocation_id": "x", "state": "failed", "claim": 1, "error": "boom"}, "error"),
    ("/v1/daemon/ack", {"invocation_id": "x", "state": "failed", "claim": 2**64 - 1}, "claim"),
    ("/v1/daemon/result-chunk", {"invocation_id": "x", "seq": "0", "bytes": b""}, "seq"),
    ("/v1/daemon/result-chunk", {"invocation_id": "x", "seq": 0, "bytes": b"frame"}, "bytes"),
    ("/v1/daemon/hello", {"machine_id": "m", "label": "l", "tags": []}, "capabilities"),
    ("/v1/namespaces/default/payloads/presign", {"op": "move"}, "op"),
    ("/v1/namespaces/default/payloads/presign", {"op": "put"}, "size"),
    ("/v1/namespaces/default/payloads/presign", {"op": "put", "size": 1, "kind": "../x"}, "kind"),
    ("/v1/namespaces/default/payloads/presign", {"op": "put", "size": 1, "jobId": ".."}, "jobId"),
    ("/v1/namespaces/default/payloads/presign", {"op": "get"}, "key"),
    ("/v1/namespaces/default/payloads/presign", {"op": "get", "key": "exec/x"}, "key"),
]


@pytest.mark.inventory("S-383")
@pytest.mark.parametrize(("path", "change", "field"), WRONG)
def test_a_wrong_value_is_unprocessable_and_its_field_is_named(
    server: Served, path: str, change: dict[str, Any], field: str
) -> None:
    body = {**one(), **change} if path.endswith("submit") else change
    answer = server.post(path, body)
    assert answer.status == 422, answer.body
    assert answer.body["field"] == field
    assert answer.body["error"]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"args_blob": "not base64!"}, "args_blob"),
        ({"args_blob": 5}, "args_blob"),
        ({"invocation_id": "\ud800"}, "invocation_id"),
        ({"invocation_id": 10**30}, "invocation_id"),
        ({"run_config": {"key": "\ud800"}}, "run_config.key"),
    ],
)
def test_json_is_as_strict_as_msgpack(server: Served, change: dict[str, Any], field: str) -> None:
    answer = server.post("/v1/producer/submit", {**one(), "args_blob": "", **change}, encoding=JSON)
    assert (answer.status, answer.body["field"]) == (422, field)


@pytest.mark.inventory("S-336", "S-338", "S-661")
@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("limit=0", "limit"),
        ("limit=201", "limit"),
        ("limit=x", "limit"),
        ("offset=-1", "offset"),
        ("state=done", "state"),
        ("state=queued&state=nope", "state"),
    ],
)
def test_a_listing_with_a_bad_query_names_the_parameter(server: Served, query: str, field: str) -> None:
    answer = server.get(f"/v1/namespaces/default/invocations?{query}")
    assert (answer.status, answer.body["field"]) == (422, field)


@pytest.mark.inventory("S-259", "K-20")
def test_more_than_100_mib_is_refused_before_a_byte_is_read(server: Served) -> None:
    size = 101 * 1024 * 1024
    presigned = server.post("/v1/namespaces/default/payloads/presign", {"op": "put", "size": size}, encoding=JSON)
    assert presigned.status == 413
    assert presigned.body["limit"] == 100 * 1024 * 1024
    connection = server.connection()
    try:
        connection.putrequest("POST", "/v1/producer/submit")
        connection.putheader("Content-Type", MSGPACK)
        connection.putheader("Content-Length", str(size))
        connection.endheaders()
        answer = connection.getresponse()
        assert answer.status == 413
        assert "payloads/presign" in msgpack.unpackb(answer.read())["hint"]
    finally:
        connection.close()


@pytest.mark.inventory("K-18")
def test_one_bad_item_of_a_batch_costs_only_itself(server: Served) -> None:
    good, taken = one(), one()
    server.post("/v1/producer/submit", taken)
    items = [good, {"queue": "q"}, "nothing", {**taken, "args_blob": b"other"}, one(queue=1)]
    results = server.post("/v1/producer/submit", {"invocations": items}).body["results"]
    assert [result["status"] for result in results] == [200, 422, 422, 409, 422]
    assert results[0]["invocation_id"] == good["invocation_id"]
    assert results[1]["field"] == "invocation_id"


@pytest.mark.inventory("K-28")
def test_one_bad_ack_of_a_poll_is_refused_by_itself_and_answered_at_once(server: Served) -> None:
    call = one()
    server.post("/v1/producer/submit", call)
    poll = {"worker_id": new_id(), "queue": call["queue"], "session": "s", "timeout_s": 20}
    (run,) = server.post("/v1/daemon/poll", {**poll, "n": 1}).body["commands"]
    claim = run["body"]["claim"]
    acks = [
        {"invocation_id": call["invocation_id"], "claim": claim, "state": "nonsense"},
        {"invocation_id": call["invocation_id"], "claim": claim, "state": "succeeded", "result_blob": b"r"},
    ]
    answer = server.post(
        "/v1/daemon/poll", {**poll, "n": 2, "held": [[call["invocation_id"], claim, True]], "acks": acks}
    ).body
    assert [ack["result"] for ack in answer["acks"]] == ["refused", "ok"]
    assert answer["acks"][0]["field"] == "state"


def test_a_conflicting_id_is_a_conflict_and_another_namespaces_id_too(server: Served) -> None:
    call = one()
    assert server.post("/v1/producer/submit", call).status == 200
    assert server.post("/v1/producer/submit", call).status == 200
    assert server.post("/v1/producer/submit", {**call, "args_blob": b"other"}).status == 409
    assert server.post("/v1/producer/submit", call, X_LS_Namespace="elsewhere").status == 409


@pytest.mark.inventory("K-22")
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/producer/invocations/nope/result/stream"),
        ("POST", "/v1/producer/invocations/nope/cancel"),
        ("GET", "/v1/namespaces/default/invocations/nope"),
        ("DELETE", "/v1/namespaces/default/invocations/nope"),
        ("POST", "/v1/namespaces/default/invocations/nope/retry"),
    ],
)
def test_an_unknown_invocation_is_not_found(server: Served, method: str, path: str) -> None:
    answer = server.call(method, path, {} if method == "POST" else None)
    assert answer.status == 404
    assert "nope" in answer.body["error"]


def test_nothing_is_ever_a_500_and_the_log_has_no_arguments(server: Served) -> None:
    marker = f"secret-{new_id()}"
    for body in ({"invocation_id": marker, "args_blob": 5}, one(args_blob=marker.encode())):
        server.post("/v1/producer/submit", body)
    assert marker not in server.said()
    assert "Traceback" not in server.said()
