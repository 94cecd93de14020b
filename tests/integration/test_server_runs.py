"""A run of frames in one request: all or none of them, each stored once, each served byte for byte (K-24)."""

from __future__ import annotations

import base64
import itertools
import threading
from typing import Any

import msgpack
import pytest
from served import JSON, Served, new_id, one


def frame(seq: int, value: Any = "") -> bytes:
    return bytes(msgpack.packb([0, seq, value or f"value {seq}", None]))


def claimed(server: Served, queue: str | None = None, session: str = "s", n: int = 1) -> dict[str, Any]:
    """A running call: the part that names it and its claim."""
    if queue is None:
        call = one(run_config={"max_attempts": 3})
        assert server.post("/v1/producer/submit", call).status == 200
        queue = str(call["queue"])
    poll = {"worker_id": f"worker-of-{queue}", "queue": queue, "session": session, "n": n, "timeout_s": 5}
    (command,) = server.post("/v1/daemon/poll", poll).body["commands"]
    return {"invocation_id": command["body"]["invocation_id"], "claim": command["body"]["claim"]}


def post(server: Served, run: dict[str, Any], first: int, frames: list[bytes], **more: Any) -> Any:
    return server.post("/v1/daemon/result-chunk", {**run, "seq": first, "frames": b"".join(frames), **more})


def stored(server: Served, run: dict[str, Any], since: int = -1) -> bytes:
    """What a reader gets once the call has ended; the END is left out."""
    assert server.post("/v1/daemon/ack", {**run, "state": "succeeded"}).body["result"] in ("ok", "duplicate")
    raw = server.get(f"/v1/producer/invocations/{run['invocation_id']}/result/stream?since={since}").raw
    unpacker = msgpack.Unpacker()
    unpacker.feed(raw)
    ends = [unpacker.tell() for _ in unpacker]
    return bytes(raw[: ends[-2]] if len(ends) > 1 else b"")


@pytest.mark.inventory("K-24", "K-26")
def test_a_run_is_stored_and_served_byte_for_byte_and_from_any_seq(server: Served) -> None:
    run = claimed(server)
    frames = [frame(seq, "x" * (seq * 37 % 4000 + 1)) for seq in range(3000)]
    assert post(server, run, 0, frames[:1000]).body == {"ok": True, "seq": 999}
    assert post(server, run, 1000, frames[1000:]).body == {"ok": True, "seq": 2999}
    assert stored(server, run) == b"".join(frames)
    for since in (0, 998, 999, 1000, 2998):
        assert stored(server, run, since) == b"".join(frames[since + 1 :])


@pytest.mark.inventory("K-24")
def test_what_is_stored_of_a_run_already_is_skipped_and_the_rest_is_taken(server: Served) -> None:
    run = claimed(server)
    frames = [frame(seq) for seq in range(9)]
    assert post(server, run, 0, frames[:4]).body == {"ok": True, "seq": 3}
    assert post(server, run, 0, frames[:4]).body == {"ok": True, "seq": 3, "duplicate": True}
    assert post(server, run, 1, frames[1:3]).body == {"ok": True, "seq": 2, "duplicate": True}
    assert post(server, run, 2, frames[2:7]).body == {"ok": True, "seq": 6}
    single = {**run, "seq": 7, "bytes": frames[7]}
    assert server.post("/v1/daemon/result-chunk", single).body == {"ok": True, "seq": 7}
    assert post(server, run, 7, frames[7:]).body == {"ok": True, "seq": 8}
    assert stored(server, run) == b"".join(frames)


@pytest.mark.inventory("K-24", "K-5")
@pytest.mark.inventory("S-832")
def test_a_run_with_a_gap_or_of_another_claim_is_refused_as_a_whole(server: Served) -> None:
    run = claimed(server)
    gap = post(server, run, 1, [frame(1), frame(2)])
    assert (gap.status, gap.body["error"], gap.body["expected"]) == (409, "gap", 0)
    assert post(server, run, 0, [frame(0), frame(1)]).status == 200
    stale = post(server, {**run, "claim": run["claim"] + 1}, 2, [frame(2)])
    assert (stale.status, stale.body["error"]) == (409, "stale")
    other = post(server, {**run, "claim": run["claim"] + 1}, 0, [frame(0)])
    assert (other.status, other.body["error"]) == (409, "stale")
    unknown = post(server, {**run, "invocation_id": new_id()}, 0, [frame(0)])
    assert unknown.status == 404
    assert stored(server, run) == frame(0) + frame(1)


@pytest.mark.inventory("K-5", "K-23", "K-24")
def test_a_run_resent_over_the_frames_of_a_later_claim_is_stale_and_changes_nothing(server: Served) -> None:
    call = one(run_config={"max_attempts": 3})
    server.post("/v1/producer/submit", call)
    first = claimed(server, call["queue"])
    assert post(server, first, 0, [frame(0), frame(1)]).status == 200
    server.post("/v1/daemon/ack", {**first, "state": "failed", "retry": True, "retries": 2})
    second = claimed(server, call["queue"], n=2)
    assert post(server, second, 2, [frame(2, "second"), frame(3, "second")]).status == 200
    assert post(server, first, 0, [frame(0), frame(1)]).body == {"ok": True, "seq": 1, "duplicate": True}
    late = post(server, first, 0, [frame(0), frame(1), frame(2), frame(3)])
    assert (late.status, late.body["error"]) == (409, "stale")
    assert stored(server, second) == b"".join([frame(0), frame(1), frame(2, "second"), frame(3, "second")])


@pytest.mark.parametrize(
    "frames",
    [
        b"",
        b"\x94",
        frame(0)[:-1],
        frame(0) + b"\x00",
        frame(0) + frame(1)[:-1],
        frame(0) + msgpack.packb([0, 1, None]),
        msgpack.packb({"a": 1}),
        b"\xc1",
    ],
)
def test_bytes_that_are_not_whole_frames_are_refused_and_nothing_is_stored(server: Served, frames: bytes) -> None:
    run = claimed(server)
    refused = server.post("/v1/daemon/result-chunk", {**run, "seq": 0, "frames": frames})
    assert (refused.status, refused.body["field"]) == (422, "frames")
    assert post(server, run, 0, [frame(0)]).body == {"ok": True, "seq": 0}


@pytest.mark.parametrize(
    ("field", "value"), [("seq", None), ("seq", -1), ("claim", None), ("frames", "text"), ("invocation_id", 7)]
)
def test_a_run_with_a_wrong_field_is_refused_by_its_name(server: Served, field: str, value: Any) -> None:
    body = {**claimed(server), "seq": 0, "frames": frame(0), field: value}
    refused = server.post("/v1/daemon/result-chunk", body)
    assert (refused.status, refused.body["field"]) == (422, field)


def test_a_run_of_more_than_ten_thousand_frames_is_refused(server: Served) -> None:
    refused = server.post("/v1/daemon/result-chunk", {**claimed(server), "seq": 0, "frames": b"\x94\0\0\0\0" * 10_001})
    assert (refused.status, refused.body["field"]) == (413, "frames")


@pytest.mark.inventory("S-807")
def test_a_run_may_come_as_json(server: Served) -> None:
    run = claimed(server)
    body = {**run, "seq": 0, "frames": base64.b64encode(frame(0) + frame(1)).decode()}
    assert server.post("/v1/daemon/result-chunk", body, encoding=JSON).body == {"ok": True, "seq": 1}
    assert stored(server, run) == frame(0) + frame(1)


@pytest.mark.inventory("K-24", "S-366")
def test_a_live_reader_gets_runs_and_single_frames_once_and_in_order_whenever_it_joins(server: Served) -> None:
    run = claimed(server)
    frames = [frame(seq, "y" * 3000) for seq in range(600)]
    path = f"/v1/producer/invocations/{run['invocation_id']}/result/stream"
    got: dict[int, bytes] = {}

    def read(since: int) -> None:
        got[since] = server.get(f"{path}?since={since}").raw

    readers = [threading.Thread(target=read, args=(since,)) for since in (-1, 100, 450)]
    waiting = iter(readers)
    at = 0
    for size in (1, 7, 200, 1, 1, 150, 40, 200):
        for thread in itertools.islice(waiting, 1):
            thread.start()  # they join while frames come, each from a place of its own
        assert post(server, run, at, frames[at : at + size]).status == 200
        assert post(server, run, at, frames[at : at + size]).body["duplicate"] is True
        at += size
    whole = stored(server, run)
    for thread in readers:
        thread.join(60)
    assert whole == b"".join(frames[:at])
    assert sorted(got) == [-1, 100, 450]
    for since, raw in got.items():
        rest = b"".join(frames[since + 1 : at])
        assert raw[: len(rest)] == rest
        assert msgpack.unpackb(raw[len(rest) :])[:2] == [3, at], "the END follows, and nothing else"
