"""`HttpDispatch` on the wire: which route each verb speaks, what it sends, and what a control plane makes of it."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Iterator
from typing import Any

import msgpack
import pytest
import worker_bodies as bodies
from http_recorder import Recorder, recording
from served import Served, new_id, one

import dreamlake.lakeshore as dls
from lakeshore import wire

PATIENCE_S = 60.0
SUBMIT, AWAIT = "/v1/producer/submit", "/v1/producer/await"
POLL, ACK, CHUNK = "/v1/daemon/poll", "/v1/daemon/ack", "/v1/daemon/result-chunk"


@pytest.fixture(scope="module")
def recorder(server: Served) -> Iterator[Recorder]:
    with recording(server.url) as made:
        yield made


@pytest.fixture(scope="module")
def plane(recorder: Recorder) -> Iterator[dls.HttpDispatch]:
    made = dls.HttpDispatch(recorder.url, token="not-checked-in-open-mode", namespace="default")
    yield made
    made.close()


@pytest.fixture
def q(plane: dls.HttpDispatch) -> dls.SyncQueue:
    return dls.SyncQueue(f"q-{new_id()}", dispatch=plane)


def about(recorder: Recorder, path: str, inv: str) -> list[dict[str, Any]]:
    """The bodies that were sent to a path and name this invocation, batches taken apart."""
    found = []
    for heard in recorder.to(path):
        assert heard.method == "POST"
        body = heard.body
        items = body.get("invocations") if isinstance(body.get("invocations"), list) else None
        found += [item for item in (items or [body]) if isinstance(item, dict) and item.get("invocation_id") == inv]
    return found


@pytest.mark.inventory("P-295")
def test_the_constructor_is_the_documented_one() -> None:
    parameters = list(inspect.signature(dls.HttpDispatch).parameters.values())
    assert [(p.name, p.default, p.kind is p.KEYWORD_ONLY) for p in parameters] == [
        ("base_url", inspect.Parameter.empty, False),
        ("token", None, True),
        ("namespace", "default", True),
        ("timeout", 30.0, True),
    ]


@pytest.mark.inventory("P-297", "P-305", "S-784")
@pytest.mark.inventory("S-353", "S-354", "S-356")
def test_submit_posts_the_envelope_as_opaque_bytes(q: dls.SyncQueue, recorder: Recorder) -> None:
    inv = bodies.add.submit(1, 2, _queue=q.name, _dispatch=q.plane, _key="k", _priority=1.5)
    (sent,) = about(recorder, SUBMIT, inv)
    envelope = wire.Envelope.from_bytes(sent["args_blob"])
    assert (envelope.id, envelope.key, envelope.unpack_args()) == (inv, "k", (1, 2))
    assert sent["function"].pop("name") == "worker_bodies.add", "beside the documented stub, for people"
    assert {name: value for name, value in sent.items() if name not in ("watch", "hold_s")} == {
        "invocation_id": inv,
        "queue": q.name,
        "function": {"module": "_native_wire", "qualname": "_native_wire.envelope", "version": "v1"},
        "args_blob": sent["args_blob"],
        "run_config": {"queue": q.name, "priority": 1.5, "key": "k"},
        "code_context": {},
    }
    child = bodies.add.submit(1, 2, _queue=q.name, _dispatch=q.plane, _parent=inv)
    assert about(recorder, SUBMIT, child)[0]["parent_invocation_id"] == inv
    job = q.claim()
    assert job is not None
    assert job.payload.to_bytes() == sent["args_blob"], "it comes out as it went in"


@pytest.mark.inventory("P-296", "P-492")
def test_bodies_are_msgpack_and_every_request_names_namespace_and_bearer(q: dls.SyncQueue, recorder: Recorder) -> None:
    q.submit("x")
    sent = recorder.to(SUBMIT)[-1]
    assert sent.headers["content-type"] == "application/x-msgpack"
    assert sent.headers["authorization"] == "Bearer not-checked-in-open-mode"
    assert sent.headers["x-ls-namespace"] == "default"


@pytest.mark.inventory("P-298", "P-314")
def test_result_and_get_post_to_await_and_results_are_packed_values(q: dls.SyncQueue, recorder: Recorder) -> None:
    inv, before = q.submit("x"), len(recorder.to(AWAIT))
    row = q.plane.get(inv)
    assert row is not None
    assert row["state"] == "queued"
    job = q.claim()
    assert job is not None
    q.ack(job, {"pair": (1, 2)})
    assert q.result(inv, timeout=PATIENCE_S) == {"pair": (1, 2)}
    assert len(recorder.to(AWAIT)) >= before + 2
    (ack,) = about(recorder, ACK, inv)
    assert wire.unpack(ack["result_blob"]) == {"pair": (1, 2)}


@pytest.mark.inventory("P-299", "P-300", "P-313")
@pytest.mark.inventory("S-451")
def test_claim_polls_and_ack_and_nack_post_their_endings(q: dls.SyncQueue, recorder: Recorder) -> None:
    good, bad = q.submit(1), q.submit(2)
    jobs = [q.claim(), q.claim()]
    polls = [heard.body for heard in recorder.to(POLL) if heard.body["queue"] == q.name]
    assert {poll["worker_id"] for poll in polls} == {q.worker_id}
    assert jobs[0] is not None
    assert jobs[1] is not None
    q.ack(jobs[0], 7)
    q.nack(jobs[1], error={"type": "ValueError", "message": "no", "traceback": "line 1"}, retry=False)
    (acked,), (nacked,) = about(recorder, ACK, good), about(recorder, ACK, bad)
    assert (acked["state"], acked["worker_id"], acked.get("error")) == ("succeeded", q.worker_id, None)
    assert (nacked["state"], nacked["error"]) == (
        "failed",
        {"type": "ValueError", "message": "no", "traceback": "line 1"},
    )


@pytest.mark.inventory("P-301", "P-302", "P-317")
def test_frames_are_posted_and_streamed_and_a_resume_asks_by_the_frames_own_seq(
    q: dls.SyncQueue, recorder: Recorder
) -> None:
    inv = q.submit(None)
    job = q.claim()
    assert job is not None
    for value in ("a", "b", "c"):
        q.post(inv, value)
    q.ack(job)
    chunks = about(recorder, CHUNK, inv)
    assert [(chunk["seq"], chunk["final"]) for chunk in chunks] == [(0, False), (1, False), (2, False)]
    assert [wire.Frame.from_bytes(chunk["bytes"]).body for chunk in chunks] == ["a", "b", "c"]
    seqs = [seq for seq, _ in itertools.islice(q.plane.journal_read(inv, timeout=PATIENCE_S), 2)]
    assert list(q.stream(inv, since=seqs[-1], timeout=PATIENCE_S)) == ["c"]
    asked = recorder.to(f"/v1/producer/invocations/{inv}/result/stream")
    assert [(heard.method, heard.query["since"]) for heard in asked] == [("GET", "-1"), ("GET", "1")]


@pytest.mark.inventory("P-303", "P-421", "P-745")
def test_cancel_and_count_are_there_and_give_what_the_local_plane_gives(q: dls.SyncQueue) -> None:
    ids = [q.submit(n) for n in range(2)]
    assert (q.count(), q.count("cancelled")) == (2, 0)
    assert q.cancel(ids[0]) is True
    assert q.cancel(ids[0]) is False
    assert (q.count(), q.count("cancelled"), q.count("killed")) == (1, 1, 1)


@pytest.mark.inventory("P-306", "P-307")
@pytest.mark.inventory("S-358", "S-361")
def test_a_submit_is_answered_with_its_queue_which_is_made_when_it_is_new(server: Served) -> None:
    call = one()
    known = [row["name"] for row in server.get("/v1/producer/queues").body["queues"]]
    assert call["queue"] not in known
    assert server.post(SUBMIT, call).body == {"invocation_id": call["invocation_id"], "queue": call["queue"]}
    known = [row["name"] for row in server.get("/v1/producer/queues").body["queues"]]
    assert call["queue"] in known
    nameless = {"invocation_id": new_id(), "args_blob": b""}
    assert server.post(SUBMIT, nameless).body["queue"] == "default"
    server.post(f"/v1/producer/invocations/{nameless['invocation_id']}/cancel", {})


@pytest.mark.inventory("P-308", "P-723")
@pytest.mark.parametrize(("given", "kept"), [(2.75, 2.75), ("seven", 0.0), (float("nan"), 0.0)])
def test_priority_is_a_float_and_what_is_no_number_counts_as_zero(server: Served, given: Any, kept: float) -> None:
    call = one(run_config={"priority": given})
    server.post(SUBMIT, call)
    assert server.get(f"/v1/namespaces/default/invocations/{call['invocation_id']}").body["priority"] == kept


@pytest.mark.inventory("P-309")
@pytest.mark.inventory("S-357")
def test_the_root_of_a_child_is_the_root_of_its_parent(server: Served) -> None:
    root, child, grandchild = one(), one(), one()
    child["parent_invocation_id"] = root["invocation_id"]
    grandchild["parent_invocation_id"] = child["invocation_id"]
    for call in (root, child, grandchild):
        server.post(SUBMIT, call)
    rows = [
        server.get(f"/v1/namespaces/default/invocations/{call['invocation_id']}").body
        for call in (root, child, grandchild)
    ]
    assert {row["rootInvocationId"] for row in rows} == {root["invocation_id"]}
    assert rows[2]["parentInvocationId"] == child["invocation_id"]


@pytest.mark.inventory("P-311")
@pytest.mark.inventory("S-362")
def test_await_answers_pending_after_its_time_and_the_ending_at_once(server: Served) -> None:
    call, worker = one(), new_id()
    server.post(SUBMIT, call)
    asked = {"invocation_id": call["invocation_id"]}
    assert server.post(AWAIT, {**asked, "timeout_s": 0.05}).body["state"] == "pending"
    poll = {"worker_id": worker, "queue": call["queue"], "timeout_s": 5}
    server.post(POLL, poll)
    server.post(ACK, {**asked, "state": "failed", "error": {"type": "E", "message": "m"}, "worker_id": worker})
    told = server.post(AWAIT, asked).body
    assert (told["state"], told["result_blob"], told["error"]) == ("failed", None, {"type": "E", "message": "m"})


@pytest.mark.inventory("P-312", "P-709", "P-710")
def test_a_poll_of_a_worker_that_nobody_registered_brings_a_run_with_its_attempt(server: Served) -> None:
    call, worker = one(run_config={"prefix": "scenes/0007"}), new_id()
    server.post(SUBMIT, call)
    poll = {"worker_id": worker, "queue": call["queue"], "timeout_s": 5}
    (command,) = server.post(POLL, poll).body["commands"]
    run = command["body"]
    assert (command["kind"], bool(command["id"])) == ("run", True)
    assert run["invocation_id"] == call["invocation_id"]
    assert (run["args_blob"], run["prefix"], run["attempt"]) == (b"args", "scenes/0007", 1)
    assert run["run_config"]["queue"] == call["queue"]
    assert "function" in run
    ack = {"invocation_id": call["invocation_id"], "worker_id": worker, "error": {"type": "E", "message": "m"}}
    assert server.post(ACK, {**ack, "state": "failed", "retry": True}).body["state"] == "queued"
    (again,) = server.post(POLL, poll).body["commands"]
    assert again["body"]["attempt"] == 2


@pytest.mark.inventory("P-315", "P-316")
@pytest.mark.inventory("S-459")
def test_a_frame_that_comes_again_is_a_duplicate_and_the_stream_is_frames_verbatim(server: Served) -> None:
    call, worker = one(), new_id()
    server.post(SUBMIT, call)
    server.post(POLL, {"worker_id": worker, "queue": call["queue"], "timeout_s": 5})
    frames = [msgpack.packb([0, seq, f"v{seq}", None]) for seq in range(4)]
    for seq, data in enumerate(frames):
        post = {"invocation_id": call["invocation_id"], "seq": seq, "bytes": data, "final": False}
        assert server.post(CHUNK, post).body == {"ok": True, "seq": seq}
    assert server.post(CHUNK, post).body == {"ok": True, "seq": 3, "duplicate": True}
    server.post(ACK, {"invocation_id": call["invocation_id"], "state": "succeeded", "worker_id": worker, "last_seq": 3})
    answer = server.get(f"/v1/producer/invocations/{call['invocation_id']}/result/stream?since=1")
    assert answer.headers["content-type"] == "application/x-msgpack-stream"
    assert answer.raw.startswith(frames[2] + frames[3])
    assert msgpack.unpackb(answer.raw[len(frames[2] + frames[3]) :])[:2] == [3, 4]


@pytest.mark.inventory("P-318", "P-760")
def test_delete_kills_what_is_queued_and_says_409_for_what_no_worker_can_stop(server: Served) -> None:
    queued, running = one(), one()
    for call in (queued, running):
        server.post(SUBMIT, call)
    base = "/v1/namespaces/default/invocations/"
    assert server.call("DELETE", base + queued["invocation_id"]).status == 200
    server.post(POLL, {"worker_id": new_id(), "queue": running["queue"], "timeout_s": 5})
    frame = {"invocation_id": running["invocation_id"], "seq": 0, "bytes": msgpack.packb([0, 0, 1, None])}
    server.post(CHUNK, frame)  # its body has begun, and its worker keeps no list of what it holds
    answer = server.call("DELETE", base + running["invocation_id"])
    assert answer.status == 409, answer.body


@pytest.mark.inventory("P-319")
@pytest.mark.parametrize("path", [SUBMIT, AWAIT, POLL, ACK, CHUNK])
def test_producer_and_daemon_routes_want_a_bearer_like_every_other(secured_server: Served, path: str) -> None:
    assert secured_server.post(path, {}, token="").status == 401


@pytest.mark.inventory("P-759")
@pytest.mark.inventory("S-449", "S-450")
def test_an_ack_may_carry_more_than_the_plane_reads_which_keeps_its_own_times(server: Served) -> None:
    call, worker = one(), new_id()
    server.post(SUBMIT, call)
    server.post(POLL, {"worker_id": worker, "queue": call["queue"], "timeout_s": 5})
    more = {"started_at": 1.0, "finished_at": 2.0, "stdout_uri": "s3://bucket/out", "metrics": {"rss": 1}}
    ack = {"invocation_id": call["invocation_id"], "worker_id": worker, "state": "succeeded", **more}
    assert server.post(ACK, ack).body["result"] == "ok"
    row = server.get(f"/v1/namespaces/default/invocations/{call['invocation_id']}").body
    assert row["submittedAt"] <= row["startedAt"] <= row["finishedAt"]


@pytest.mark.inventory("P-719", "P-746")
def test_the_same_key_is_the_same_invocation_on_the_control_plane(q: dls.SyncQueue) -> None:
    first = bodies.add.submit(1, 2, _queue=q.name, _dispatch=q.plane, _key="once")
    assert bodies.add.submit(1, 2, _queue=q.name, _dispatch=q.plane, _key="once") == first
    assert q.count() == 1


@pytest.mark.inventory("P-721", "P-725")
def test_an_ending_that_comes_too_late_changes_nothing(server: Served) -> None:
    call, first, second = one(), new_id(), new_id()
    server.post(SUBMIT, call)

    def claim(worker: str) -> int:
        poll = {"worker_id": worker, "queue": call["queue"], "timeout_s": 5}
        return int(server.post(POLL, poll).body["commands"][0]["body"]["claim"])

    def settle(worker: str, claim: int, state: str, **more: Any) -> dict[str, Any]:
        body = {"invocation_id": call["invocation_id"], "worker_id": worker, "claim": claim, "state": state, **more}
        return dict(server.post(ACK, body).body)

    one_claim = claim(first)
    assert settle(first, one_claim, "failed", retry=True, error={"type": "E", "message": "m"})["state"] == "queued"
    two = claim(second)
    assert settle(first, one_claim, "succeeded")["result"] == "stale"
    assert settle(second, two, "killed")["state"] == "killed"
    row = server.get(f"/v1/namespaces/default/invocations/{call['invocation_id']}").body
    assert settle(second, two, "succeeded")["ignored"] is True
    assert server.get(f"/v1/namespaces/default/invocations/{call['invocation_id']}").body == row


@pytest.mark.inventory("P-770")
def test_a_payload_over_256_kib_travels_beside_the_call(q: dls.SyncQueue, recorder: Recorder) -> None:
    large = b"x" * (256 * 1024 + 1)
    inv = q.submit(large)
    (sent,) = about(recorder, SUBMIT, inv)
    assert "args_blob" not in sent
    assert sent["args_ref"]["size"] > len(large)
    small = q.submit(b"x" * 1024)
    assert "args_ref" not in about(recorder, SUBMIT, small)[0]
    job = q.claim()
    assert job is not None
    assert job.payload == large
