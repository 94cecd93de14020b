"""Calls from submit to result, as producers, workers and operators see them."""

from __future__ import annotations

import base64
import threading
from typing import Any

import msgpack
import pytest
from served import JSON, Served, new_id, one


def claim(server: Served, queue: str, worker: str, session: str = "s", n: int = 1, **more: Any) -> dict[str, Any]:
    body = {"worker_id": worker, "queue": queue, "session": session, "n": n, "timeout_s": 5, **more}
    (command,) = server.post("/v1/daemon/poll", body).body["commands"]
    assert command["kind"] == "run"
    return dict(command["body"])


def settle(server: Served, run: dict[str, Any], state: str = "succeeded", **more: Any) -> dict[str, Any]:
    body = {"invocation_id": run["invocation_id"], "claim": run["claim"], "state": state, **more}
    answer = server.post("/v1/daemon/ack", body)
    assert answer.status == 200, answer.body
    return dict(answer.body)


@pytest.mark.inventory("S-349", "S-363", "S-439")
def test_a_call_goes_from_submit_to_result(server: Served) -> None:
    call = one(
        function={"module": "m", "qualname": "f", "version": "v1"},
        run_config={"priority": 1.5, "key": new_id(), "prefix": "p"},
        parent_invocation_id="root-1",
    )
    submitted = server.post("/v1/producer/submit", call)
    assert submitted.body == {"invocation_id": call["invocation_id"], "queue": call["queue"]}
    run = claim(server, call["queue"], new_id())
    assert run["args_blob"] == b"args"
    assert run["function"] == {"module": "m", "qualname": "f", "version": "v1"}
    assert (run["attempt"], run["first_seq"], run["prefix"]) == (1, 0, "p")
    assert (run["parent_invocation_id"], run["root_invocation_id"]) == ("root-1", "root-1")
    assert run["run_config"]["queue"] == call["queue"]
    assert settle(server, run, result_blob=b"result") == {"ok": True, "result": "ok", "state": "succeeded"}
    ended = server.post("/v1/producer/await", {"invocation_id": call["invocation_id"]}).body
    assert ended == {"state": "succeeded", "result_blob": b"result", "error": None, "attempt": 1}


@pytest.mark.inventory("S-807")
def test_a_producer_may_speak_json_with_base64(server: Served) -> None:
    call = {**one(), "args_blob": base64.b64encode(b"args").decode()}
    assert server.post("/v1/producer/submit", call, encoding=JSON).body["invocation_id"] == call["invocation_id"]
    run = claim(server, call["queue"], new_id())
    assert run["args_blob"] == b"args"
    settle(server, run, result_blob=b"\xff\x00")
    ended = server.post("/v1/producer/await", {"invocation_id": call["invocation_id"]}, encoding=JSON)
    assert ended.headers["content-type"] == JSON
    assert base64.b64decode(ended.body["result_blob"]) == b"\xff\x00"


def test_the_same_submit_is_the_same_in_both_encodings_and_in_any_order_of_its_config(server: Served) -> None:
    call = one(run_config={"a": 1, "b": 2})
    assert server.post("/v1/producer/submit", call).status == 200
    again = {**call, "args_blob": base64.b64encode(b"args").decode(), "run_config": {"b": 2, "a": 1}}
    assert server.post("/v1/producer/submit", again, encoding=JSON).status == 200


@pytest.mark.inventory("S-350", "S-351")
def test_a_submit_without_a_queue_goes_to_the_default_one(server: Served) -> None:
    call = {"invocation_id": new_id(), "args_blob": b""}
    assert server.post("/v1/producer/submit", call).body["queue"] == "default"
    server.post(f"/v1/producer/invocations/{call['invocation_id']}/cancel", {})


@pytest.mark.inventory("S-355")
@pytest.mark.parametrize(("given", "kept"), [(2, 2.0), (2.5, 2.5), ("7", 0.0), (True, 0.0), (float("inf"), 0.0)])
def test_a_priority_that_is_no_number_counts_as_zero_with_a_warning(server: Served, given: Any, kept: float) -> None:
    call = one(run_config={"priority": given})
    warned = server.post("/v1/producer/submit", call).body.get("warnings", [])
    row = server.get(f"/v1/namespaces/default/invocations/{call['invocation_id']}").body
    assert row["priority"] == kept
    assert bool(warned) is (kept == 0.0)


@pytest.mark.inventory("S-750", "K-17")
def test_a_repeated_key_answers_the_first_id(server: Served) -> None:
    first = one(run_config={"key": new_id()})
    server.post("/v1/producer/submit", first)
    second = {**first, "invocation_id": new_id()}
    answer = server.post("/v1/producer/submit", second).body
    assert answer == {"invocation_id": first["invocation_id"], "queue": first["queue"], "existing": True}


@pytest.mark.inventory("S-364", "K-22")
def test_pending_and_unknown_are_different_answers(server: Served) -> None:
    call = one()
    server.post("/v1/producer/submit", call)
    waited = server.post("/v1/producer/await", {"invocation_id": call["invocation_id"], "timeout_s": 0.05}).body
    assert waited == {"state": "pending", "row_state": "queued"}
    assert server.post("/v1/producer/await", {"invocation_id": new_id()}).body == {"state": "unknown"}
    elsewhere = server.post("/v1/producer/submit", one(), X_LS_Namespace="other").body["invocation_id"]
    assert server.post("/v1/producer/await", {"invocation_id": elsewhere}).body == {"state": "unknown"}


@pytest.mark.inventory("S-365")
def test_get_answers_at_once_with_the_row(server: Served) -> None:
    call = one()
    server.post("/v1/producer/submit", call)
    told = server.post("/v1/producer/await", {"invocation_id": call["invocation_id"], "get": True}).body
    assert told["state"] == "pending"
    assert told["invocation"]["queue"] == call["queue"]
    assert server.post("/v1/producer/await", {"invocation_id": new_id(), "get": True}).body["invocation"] is None


def test_a_held_await_is_answered_by_the_ack(server: Served) -> None:
    call = one()
    server.post("/v1/producer/submit", call)
    told: list[Any] = []
    waiting = threading.Thread(
        target=lambda: told.append(server.post("/v1/producer/await", {"invocation_id": call["invocation_id"]}).body)
    )
    waiting.start()
    settle(server, claim(server, call["queue"], new_id()), "failed", error={"type": "E", "message": "m"})
    waiting.join(60)
    assert told == [{"state": "failed", "error": {"type": "E", "message": "m"}, "attempt": 1, "result_blob": None}]


@pytest.mark.inventory("K-21")
def test_a_watched_set_reports_each_id_once(server: Served) -> None:
    session, queue = new_id(), f"q-{new_id()}"
    calls = [{**one(), "queue": queue} for _ in range(3)]
    done = server.post("/v1/producer/submit", {"invocations": calls, "watch": session}).body["results"]
    assert [result["status"] for result in done] == [200] * 3
    worker = new_id()
    ids = []
    for n in (1, 2):
        run = claim(server, queue, worker, n=n)
        settle(server, run, result_blob=b"r")
        ids.append(run["invocation_id"])
    seen: list[str] = []
    while len(seen) < 2:
        told = server.post("/v1/producer/await", {"watch": session, "timeout_s": 10}).body
        seen += [result["invocation_id"] for result in told["results"]]
    assert sorted(seen) == sorted(ids)
    unknown = new_id()
    told = server.post("/v1/producer/await", {"watch": session, "add": [unknown], "timeout_s": 0.2}).body
    assert [(result["invocation_id"], result["state"]) for result in told["results"]] == [(unknown, "unknown")]


@pytest.mark.inventory("K-9", "S-422")
def test_a_parked_poll_is_answered_by_a_submit(server: Served) -> None:
    call = one()
    got: list[Any] = []
    worker = threading.Thread(target=lambda: got.append(claim(server, call["queue"], new_id(), timeout_s=20)))
    worker.start()
    server.post("/v1/producer/submit", call)
    worker.join(60)
    assert got[0]["invocation_id"] == call["invocation_id"]


@pytest.mark.inventory("K-8")
def test_an_older_poll_is_superseded(server: Served) -> None:
    body = {"worker_id": new_id(), "queue": new_id(), "session": "s", "timeout_s": 0}
    assert server.post("/v1/daemon/poll", {**body, "n": 2}).status == 200
    answer = server.post("/v1/daemon/poll", {**body, "n": 2})
    assert (answer.status, answer.body["error"]) == (409, "superseded")


@pytest.mark.inventory("S-442", "S-457", "K-5")
def test_a_foreign_worker_without_session_and_claims_gets_and_settles_a_job(server: Served) -> None:
    call = one()
    server.post("/v1/producer/submit", call)
    worker = new_id()
    poll = {"worker_id": worker, "queue": call["queue"], "timeout_s": 5, "cursor": None, "invocations": []}
    (command,) = server.post("/v1/daemon/poll", poll).body["commands"]
    assert command["body"]["args_blob"] == b"args"
    frame = {"invocation_id": call["invocation_id"], "seq": 0, "bytes": msgpack.packb([0, 0, 1, None]), "final": False}
    assert server.post("/v1/daemon/result-chunk", frame).body == {"ok": True, "seq": 0}
    assert server.post("/v1/daemon/result-chunk", frame).body == {"ok": True, "seq": 0, "duplicate": True}
    ack = {"invocation_id": call["invocation_id"], "state": "succeeded", "result_blob": b"r", "worker_id": worker}
    assert server.post("/v1/daemon/ack", {**ack, "worker_id": "someone"}).body["result"] == "stale"
    assert server.post("/v1/daemon/ack", ack).body["result"] == "ok"
    assert server.post("/v1/daemon/ack", {**ack, "state": "failed"}).body["ignored"] is True


@pytest.mark.inventory("K-24", "S-366", "S-369")
@pytest.mark.inventory("S-367", "S-368")
def test_frames_come_in_order_and_a_stream_replays_and_ends(server: Served) -> None:
    call = one()
    server.post("/v1/producer/submit", call)
    run = claim(server, call["queue"], new_id())
    frames = [msgpack.packb([0, seq, f"v{seq}", None]) for seq in range(3)]
    base = {"invocation_id": run["invocation_id"], "claim": run["claim"]}
    gap = server.post("/v1/daemon/result-chunk", {**base, "seq": 1, "bytes": frames[1]})
    assert (gap.status, gap.body["error"], gap.body["expected"]) == (409, "gap", 0)
    chunks = [{**base, "seq": seq, "bytes": frame} for seq, frame in enumerate(frames)]
    told = server.post("/v1/daemon/result-chunk", {"chunks": [*chunks, {**chunks[0], "claim": 99}]}).body["chunks"]
    assert [one_of["status"] for one_of in told] == [200, 200, 200, 409]
    early = server.post("/v1/daemon/ack", {**base, "state": "succeeded", "last_seq": 3})
    assert (early.status, early.body["expected"]) == (409, 3)
    settle(server, run, last_seq=2)
    path = f"/v1/producer/invocations/{run['invocation_id']}/result/stream"
    answer = server.get(path)
    assert answer.headers["content-type"] == "application/x-msgpack-stream"
    unpacker = msgpack.Unpacker()
    unpacker.feed(answer.raw)
    seen = list(unpacker)
    assert [frame[1] for frame in seen] == [0, 1, 2, 3]
    assert seen[-1][0] == 3
    later = msgpack.Unpacker()
    later.feed(server.get(f"{path}?since=1").raw)
    assert [frame[1] for frame in later] == [2, 3]
    assert server.post(f"/v1/producer/invocations/{run['invocation_id']}/trim", {"keep_last": 1}).body["trimmed"] == 3


@pytest.mark.inventory("K-25")
def test_a_topic_is_a_stream_with_seqs_of_the_server(server: Served) -> None:
    path = f"/v1/producer/queues/q-{new_id()}/topics/metrics%20of%20me"
    assert [server.post(path, {"bytes": msgpack.packb(value)}).body["seq"] for value in ("a", "b")] == [0, 1]
    assert server.post(path, {"bytes": b"", "final": True}).body["seq"] == 2
    unpacker = msgpack.Unpacker()
    unpacker.feed(server.get(f"{path}/stream?since=0").raw)
    assert [frame[:3] for frame in unpacker] == [[0, 1, "b"], [3, 2, None]]


@pytest.mark.inventory("S-753", "S-370")
def test_counts_and_queues_are_told_to_producers(server: Served) -> None:
    queue = f"q-{new_id()}"
    for _ in range(3):
        server.post("/v1/producer/submit", {**one(), "queue": queue})
    assert server.get(f"/v1/producer/queues/{queue}/count").body == {"count": 3}
    assert server.get(f"/v1/producer/queues/{queue}/count?state=running").body == {"count": 0}
    assert server.get(f"/v1/producer/queues/{queue}/count?state=nope").status == 422
    queues = server.get("/v1/producer/queues").body["queues"]
    assert {"name": queue, "kind": "fifo", "state": "active"} in queues
    assert "default" in [row["name"] for row in queues]


@pytest.mark.inventory("S-335", "S-339", "S-346")
@pytest.mark.inventory("S-348")
def test_a_listing_is_newest_first_and_filters(server: Served) -> None:
    queue, worker = f"q-{new_id()}", new_id()
    ids = []
    for _ in range(4):
        call = {**one(), "queue": queue}
        server.post("/v1/producer/submit", call)
        ids.append(call["invocation_id"])
    run = claim(server, queue, worker)
    base = f"/v1/namespaces/default/invocations?queue={queue}"
    page = server.get(f"{base}&limit=2&offset=1").body
    assert ([row["id"] for row in page["invocations"]], page["count"]) == (ids[::-1][1:3], 2)
    assert (page["limit"], page["offset"]) == (2, 1)
    running = server.get(f"{base}&worker={worker}&state=running&state=failed").body["invocations"]
    assert [row["id"] for row in running] == [run["invocation_id"]]
    row = running[0]
    assert row["workerId"] == worker
    assert row["queueName"] == row["queue"] == row["runConfig"]["queue"] == queue
    assert (row["state"], row["attempt"], row["maxAttempts"], row["finishedAt"]) == ("running", 0, 3, None)
    assert row["rootInvocationId"] == row["id"]
    assert row["submittedAt"].endswith("Z")


@pytest.mark.inventory("S-341", "S-343", "S-344")
def test_delete_kills_what_is_queued_and_conflicts_with_what_has_ended(server: Served) -> None:
    call = one()
    server.post("/v1/producer/submit", call)
    path = f"/v1/namespaces/default/invocations/{call['invocation_id']}"
    killed = server.call("DELETE", path)
    assert (killed.status, killed.body["state"]) == (200, "killed")
    assert killed.body["finishedAt"] is not None
    again = server.call("DELETE", path)
    assert (again.status, again.body["state"]) == (409, "killed")
    queue = f"q-{new_id()}"
    for _ in range(3):
        server.post("/v1/producer/submit", {**one(), "queue": queue})
    path = f"/v1/namespaces/default/invocations/bulk-cancel?queue={queue}"
    assert server.post(path, {}).body == {"cancelled": 3}
    assert server.call("POST", path).body == {"cancelled": 0}


@pytest.mark.inventory("S-752", "K-27")
def test_delete_of_a_running_one_asks_its_holder(server: Served) -> None:
    call = one()
    server.post("/v1/producer/submit", call)
    worker = new_id()
    run = claim(server, call["queue"], worker)
    pair = [run["invocation_id"], run["claim"], True]
    poll = {"worker_id": worker, "queue": call["queue"], "session": "s", "timeout_s": 0, "capacity": 0}
    server.post("/v1/daemon/poll", {**poll, "n": 2, "held": [pair]})
    asked = server.call("DELETE", f"/v1/namespaces/default/invocations/{run['invocation_id']}")
    assert (asked.status, asked.body["state"], asked.body["workerId"]) == (202, "cancelling", worker)
    told = server.post("/v1/daemon/poll", {**poll, "n": 3, "held": [pair]}).body
    assert [(command["kind"], command["body"]) for command in told["commands"]] == [
        ("cancel", {"invocation_id": run["invocation_id"], "claim": run["claim"]})
    ]
    settle(server, run, "killed")
    assert server.post("/v1/producer/await", {"invocation_id": run["invocation_id"]}).body["state"] == "killed"


@pytest.mark.inventory("S-342")
def test_delete_of_one_that_a_foreign_worker_runs_is_a_conflict_that_names_it(server: Served) -> None:
    call = one()
    server.post("/v1/producer/submit", call)
    worker = new_id()
    server.post("/v1/daemon/poll", {"worker_id": worker, "queue": call["queue"], "timeout_s": 5})
    answer = server.call("DELETE", f"/v1/namespaces/default/invocations/{call['invocation_id']}")
    assert (answer.status, answer.body["workerId"]) == (409, worker)


def test_a_failed_one_is_retried_by_hand_and_only_under_the_claim_that_was_seen(server: Served) -> None:
    call = one()
    server.post("/v1/producer/submit", call)
    run = claim(server, call["queue"], new_id())
    settle(server, run, "failed", error={"type": "E", "message": "m"})
    path = f"/v1/namespaces/default/invocations/{run['invocation_id']}/retry"
    assert server.post(path, {"claim": run["claim"] + 1}).status == 409
    again = server.post(path, {"claim": run["claim"]}, encoding=JSON)
    assert (again.status, again.body["state"], again.body["error"]) == (200, "queued", None)
    assert server.post(path, {}).status == 409


@pytest.mark.inventory("S-371", "S-375", "S-829")
def test_a_hello_names_the_worker_and_its_lanes_decide_what_it_drains(server: Served) -> None:
    lane, other = f"lane-{new_id()}", f"q-{new_id()}"
    hello = {
        "machine_id": new_id(),
        "label": "box",
        "tags": [],
        "lanes": [lane],
        "capabilities": {"runners": ["process"], "extra": 1},
        "versions": {"daemon": "1.0", "protocol": "1"},
        "session": "s1",
    }
    told = server.post("/v1/daemon/hello", hello).body
    assert told["reject"] is None
    assert told["lost"] == []
    assert told["session_ttl_s"] == 86400
    assert len(told["worker_id"]) == 24
    assert server.post("/v1/daemon/hello", hello).body["worker_id"] == told["worker_id"]
    for queue in (lane, other):
        server.post("/v1/producer/submit", {**one(), "queue": queue})
    run = claim(server, "default", told["worker_id"], session="s1")
    assert run["queue"] == lane
    row = server.get(f"/v1/namespaces/default/invocations/{run['invocation_id']}").body
    assert (row["workerId"], row["worker"]) == (told["worker_id"], "box")


@pytest.mark.inventory("S-393", "S-394", "S-798")
def test_a_hello_of_another_protocol_is_rejected_in_a_200(server: Served) -> None:
    hello = {
        "machine_id": "m",
        "label": "l",
        "tags": [],
        "capabilities": {"runners": []},
        "versions": {"daemon": "1.0", "protocol": "2"},
    }
    answer = server.post("/v1/daemon/hello", hello)
    assert (answer.status, answer.headers["x-ls-reject"]) == (200, "protocol_mismatch")
    assert answer.body["reject"]["code"] == "protocol_mismatch"


@pytest.mark.inventory("S-068", "S-070", "S-777")
def test_the_operators_listing_waits_for_a_change(server: Served) -> None:
    now = server.get("/v1/admin/invocations?timeout_s=0").body
    call = one()
    server.post("/v1/producer/submit", call)
    told = server.get(f"/v1/admin/invocations?cursor={now['cursor']}&timeout_s=10&limit=500").body
    assert told["cursor"] > now["cursor"]
    assert told["invocations"][0]["id"] == call["invocation_id"]
    assert server.get(f"/v1/admin/invocations/{call['invocation_id']}").body["queueName"] == call["queue"]
    assert "invocations" in server.get("/v1/admin/invocations?timeout_s=0&namespace=*").body


def test_metrics_count_invocations_by_state_and_show_the_plane(server: Served) -> None:
    server.post("/v1/producer/submit", one())
    text = server.get("/metrics").raw.decode()
    assert 'lakeshore_invocations{namespace="default",state="queued"}' in text
    for name in ("parked_polls", "damaged_frames_total", "commit_seconds_average", "http_connections"):
        assert f"\nlakeshore_{name} " in text


@pytest.mark.inventory("K-15", "K-9")
def test_a_parked_poll_of_a_session_that_is_replaced_learns_it_and_gets_no_work(server: Served) -> None:
    queue, worker = f"q-{new_id()}", f"w-{new_id()}"

    def poll(session: str, n: int, timeout_s: float) -> Any:
        body = {"worker_id": worker, "queue": queue, "timeout_s": timeout_s, "session": session, "n": n, "capacity": 1}
        return server.post("/v1/daemon/poll", body).body

    assert poll("01A", 1, 0)["commands"] == []
    told: list[Any] = []
    parked = threading.Thread(target=lambda: told.append(poll("01A", 2, 20)))
    parked.start()
    while "lakeshore_parked_polls 1" not in server.get("/metrics").raw.decode():
        assert parked.is_alive()
    assert poll("01B", 1, 0)["commands"] == []
    parked.join(60)
    assert told[0]["status"] == 410
    assert (
        server.post("/v1/producer/submit", {"invocation_id": new_id(), "queue": queue, "args_blob": b""}).status == 200
    )
    assert poll("01A", 3, 0)["commands"] == []
    assert [command["kind"] for command in poll("01B", 2, 0)["commands"]] == ["run"]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "olderThanHours"),
        ({"olderThanHours": -1}, "olderThanHours"),
        ({"olderThanHours": True}, "olderThanHours"),
        ({"olderThanHours": float("nan")}, "olderThanHours"),
        ({"olderThanHours": 1, "states": ["running"]}, "states[0]"),
        ({"olderThanHours": 1, "states": [["failed"]]}, "states[0]"),
        ({"olderThanHours": 1, "states": "failed"}, "states"),
        ({"olderThanHours": 1, "queue": 3}, "queue"),
        ({"olderThanHours": 1, "queue": ""}, "queue"),
        ({"olderThanHours": 1, "dryRun": "yes"}, "dryRun"),
        ({"olderThanHours": 1, "cursor": "soon"}, "cursor"),
        ({"olderThanHours": 1, "cursor": "1/two"}, "cursor"),
    ],
)
def test_a_prune_that_makes_no_sense_names_the_field_and_deletes_nothing(
    server: Served, body: dict[str, object], field: str
) -> None:
    answer = server.post("/v1/namespaces/default/invocations/prune", body)
    assert (answer.status, answer.body["field"]) == (422, field)
    cursor = {"olderThanHours": 10**6, "cursor": f"inf/{-(10**30)}"}
    assert server.post("/v1/namespaces/default/invocations/prune", cursor).body["count"] == 0


@pytest.mark.inventory("S-344")
@pytest.mark.parametrize(
    ("query", "body"),
    [
        ("?queue=", {}),
        ("?queues={queue}", {}),
        ("?Queue={queue}", {}),
        ("?queue={queue}", {"queue": "another"}),
        ("", {"queue": ""}),
        ("", {"queue_name": "{queue}"}),
        ("", {"queue": ["{queue}"]}),
    ],
)
def test_cancelling_at_once_never_takes_a_slip_for_every_queue(
    server: Served, query: str, body: dict[str, Any]
) -> None:
    call = one()
    server.post("/v1/producer/submit", call)
    calls = "/v1/namespaces/default/invocations"
    answer = server.post(f"{calls}/bulk-cancel{query.format(queue=call['queue'])}", body)
    assert (answer.status, bool(answer.body["field"])) == (422, True)
    assert server.get(f"{calls}/{call['invocation_id']}").body["state"] == "queued"
    assert server.post(f"{calls}/bulk-cancel", {"queue": call["queue"]}).body == {"cancelled": 1}
    assert server.get(f"{calls}/{call['invocation_id']}").body["state"] == "killed"
