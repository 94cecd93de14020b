"""A call that is waited for is one request, and means what a submit and a wait mean."""

from __future__ import annotations

import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import served
from ports import free_port
from served import Served, new_id, one

import dreamlake.lakeshore as dls
from lakeshore.sdk.errors import InvocationFailed, Timeout
from lakeshore.sdk.http_dispatch import HttpDispatch
from lakeshore.sdk.queues import SyncQueue

PATIENCE_S = 60.0


@dls.udf
def twice(x: int) -> int:
    return 2 * x


def hand(q: SyncQueue) -> Any:
    """The next job of a queue, as soon as there is one."""
    deadline = time.monotonic() + PATIENCE_S
    while (job := q.claim()) is None:
        assert time.monotonic() < deadline, "nothing was submitted"
        time.sleep(0.005)
    return job


@pytest.mark.inventory("K-16", "K-22")
def test_the_answer_of_a_submit_that_waits_says_how_it_ended(server: Served) -> None:
    call = {**one(), "wait_s": 60}
    with ThreadPoolExecutor(1) as thread:
        asked = thread.submit(server.post, "/v1/producer/submit", call)
        poll = {"worker_id": new_id(), "queue": call["queue"], "session": "s", "n": 1, "timeout_s": 20}
        (command,) = server.post("/v1/daemon/poll", poll).body["commands"]
        assert not asked.done()
        ack = {"invocation_id": call["invocation_id"], "claim": command["body"]["claim"], "state": "succeeded"}
        server.post("/v1/daemon/ack", {**ack, "result_blob": b"r"})
        ended = {"state": "succeeded", "result_blob": b"r", "error": None, "attempt": 1}
        answer = {"invocation_id": call["invocation_id"], "queue": call["queue"], "ended": ended}
        assert asked.result(PATIENCE_S).body == answer
    again = server.post("/v1/producer/submit", call).body
    assert again == answer, "the same call, sent again"


@pytest.mark.inventory("K-22", "K-18")
def test_a_submit_whose_wait_is_over_and_one_in_a_batch_are_stored_all_the_same(server: Served) -> None:
    call = {**one(), "wait_s": 0.01}
    assert server.post("/v1/producer/submit", call).body == {
        "invocation_id": call["invocation_id"],
        "queue": call["queue"],
    }
    batch = {"invocations": [{**one(), "wait_s": 600}]}
    assert server.post("/v1/producer/submit", batch).body["results"][0]["status"] == 200
    for wrong in ("soon", True, [1]):
        refused = server.post("/v1/producer/submit", {**one(), "wait_s": wrong})
        assert (refused.status, refused.body["field"]) == (422, "wait_s")


@pytest.mark.inventory("K-18", "K-21")
def test_a_submit_that_is_sent_again_after_its_end_is_told_to_its_watch_at_once(server: Served) -> None:
    call = {**one(), "watch": new_id()}
    server.post("/v1/producer/submit", call)
    poll = {"worker_id": new_id(), "queue": call["queue"], "session": "s", "n": 1, "timeout_s": 20}
    (command,) = server.post("/v1/daemon/poll", poll).body["commands"]
    ack = {"invocation_id": call["invocation_id"], "claim": command["body"]["claim"], "state": "succeeded"}
    server.post("/v1/daemon/ack", {**ack, "result_blob": b"r"})
    for watch in (call["watch"], new_id()):  # the answer was lost, or the server was started anew
        server.post("/v1/producer/submit", {**call, "watch": watch})
        told = server.post("/v1/producer/await", {"watch": watch, "timeout_s": 20, "waiting": 1}).body["results"]
        assert [one["invocation_id"] for one in told] == [call["invocation_id"]]
    batch = {"invocations": [{**call, "watch": "third"}]}
    server.post("/v1/producer/submit", batch)
    assert server.post("/v1/producer/await", {"watch": "third", "timeout_s": 20}).body["results"]


def test_remote_gives_the_value_and_raises_what_the_body_ended_with(server: Served) -> None:
    plane = HttpDispatch(server.url)
    q = SyncQueue(f"q-{new_id()}", dispatch=plane)
    with ThreadPoolExecutor(4) as threads:
        many = [threads.submit(twice.remote, n, _queue=q.name, _dispatch=plane, _timeout=PATIENCE_S) for n in range(4)]
        for _ in many:
            job = hand(q)
            q.ack(job, 2 * job.payload.unpack_args()[0])
        assert [asked.result(PATIENCE_S) for asked in many] == [0, 2, 4, 6]
        fails = threads.submit(twice.remote, 1, _queue=q.name, _dispatch=plane, _timeout=PATIENCE_S)
        q.nack(hand(q), error=ValueError("odd"), retry=False)
        with pytest.raises(InvocationFailed, match="ValueError: odd"):
            fails.result(PATIENCE_S)
    with pytest.raises(Timeout, match=r"still 'queued' after 0\.05s"):
        twice.remote(1, _queue=q.name, _dispatch=plane, _timeout=0.05)
    assert q.count() == 1
    plane.close()


@pytest.mark.inventory("K-16", "K-21")
def test_a_call_that_is_waited_for_outlives_the_server(tmp_path: Path) -> None:
    port = str(free_port())
    first = served.start(tmp_path / "server", "--port", port)
    plane = HttpDispatch(f"http://127.0.0.1:{port}")
    q = SyncQueue("work", dispatch=plane)
    results: list[Any] = []

    def ask() -> None:
        results.append(twice.remote(21, _queue=q.name, _dispatch=plane, _timeout=PATIENCE_S))

    asking = threading.Thread(target=ask)
    asking.start()
    job = hand(q)
    first.process.send_signal(signal.SIGKILL)
    first.process.wait()
    second = served.start(tmp_path / "server", "--port", port)
    q.ack(job, 42)
    asking.join(PATIENCE_S)
    assert results == [42]
    assert q.count("succeeded") == 1
    plane.close()
    second.process.kill()
    second.process.wait()
