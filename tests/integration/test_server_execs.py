"""Commands on workers: what people ask for, what daemons are told, and how it ends, over HTTP with a real server."""

from __future__ import annotations

import base64
import contextlib
import signal
import sqlite3
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from exec_peer import POOL, Peer
from served import JSON, MSGPACK, Served, new_id, one, running, start
from vitals import until_parked

from lakeshore.server.backup import backup


@pytest.fixture
def peer(server: Served) -> Peer:
    return Peer(server)


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


# --- the way of one command


@pytest.mark.inventory("S-323", "S-431", "S-432")
def test_a_parked_poll_gets_the_command_at_once_with_all_that_it_needs(peer: Peer) -> None:
    poll = peer.polling()
    id_ = peer.run("jq .a", env={"A": "b"}, stdin=b64(b'{"a":1}'), workdir="/tmp", timeout_s=7, log=True)
    (command,) = poll.result(60)
    log = {"stdout_url": f"/v1/daemon/exec/{id_}/chunk", "stderr_url": f"/v1/daemon/exec/{id_}/chunk?stream=stderr"}
    body = command["body"]
    assert log.items() <= body.pop("log").items()
    asked = {"exec_id": id_, "command": "jq .a", "env": {"A": "b"}, "stdin": b'{"a":1}', "workdir": "/tmp"}
    assert (command["id"], command["kind"], body) == (id_, "exec", {**asked, "timeout_s": 7.0})


@pytest.mark.inventory("S-326", "S-592")
def test_stdin_comes_as_base64_lies_as_base64_and_goes_as_bytes(peer: Peer) -> None:
    data = b"\0\xff" + new_id().encode()
    for asked in ({"stdin": b64(data)}, {"stdin_b64": b64(data)}):
        peer.run("cat", **asked)
    answer = peer.server.post(peer.path(), {"command": "cat", "stdin": data, "worker_id": peer.id})
    assert answer.status == 202
    state = peer.server.state_dir
    assert b64(data).encode() in (state / "execs.db-wal").read_bytes() + (state / "execs.db").read_bytes()
    assert [command["body"]["stdin"] for command in peer.poll()] == [data] * 3


@pytest.mark.inventory("S-327", "S-628", "S-591")
@pytest.mark.parametrize(
    ("code", "status"),
    [
        pytest.param(0, "done"),
        pytest.param(3, "done", marks=pytest.mark.inventory("S-330")),
        pytest.param(-1, "failed", marks=pytest.mark.inventory("S-328")),
        pytest.param(-2, "timeout", marks=pytest.mark.inventory("S-329")),
    ],
)
def test_the_exit_code_says_which_state_it_ends_in(peer: Peer, code: int, status: str) -> None:
    id_ = peer.run()
    assert peer.show(id_)["status"] == "pending"
    peer.taken()
    assert peer.show(id_)["status"] == "running"
    assert peer.end(id_, code).body == {"ok": True, "status": status}
    row = peer.show(id_)
    assert (row["status"], row["exit_code"]) == (status, code)


@pytest.mark.inventory("S-331", "S-462", "S-594")
def test_who_waits_is_told_as_soon_as_it_ends_with_what_it_printed(peer: Peer) -> None:
    id_ = peer.run("false")
    peer.taken()
    waiting = POOL.submit(peer.show, id_, 20)
    time.sleep(0.05)
    began = time.monotonic()
    peer.end(id_, 1, stdout=b"out\xff", stderr=b"err", duration_ms=12, error="why")
    row = waiting.result(60)
    assert time.monotonic() - began < 15, "not when its twenty seconds are over"
    assert row | {"exec_id": id_, "worker_id": peer.id, "exit_code": 1, "error": "why", "duration_ms": 12} == row
    assert (row["stdout_b64"], row["stderr_b64"]) == (b64(b"out\xff"), b64(b"err"))
    assert row["created_at"] <= row["started_at"] <= row["finished_at"]


def test_several_results_in_one_request_are_answered_each_by_itself(peer: Peer) -> None:
    first, second, running = peer.run(), peer.run(), peer.run()
    assert {command["id"] for command in peer.poll()} == {first, second, running}
    peer.end(first, 3)
    told = [
        {"exec_id": first, "exit_code": 3},
        {"exec_id": second, "exit_code": 0, "stdout": b"out"},
        {"exec_id": running, "exit_code": -7},
        {"exec_id": "nobody", "exit_code": 0},
        {"exit_code": 0},
    ]
    answer = peer.post("/v1/daemon/exec/results", {"results": told})
    assert answer.status == 200
    again, taken, wrong, unknown, nameless = answer.body["results"]
    assert again == {"exec_id": first, "ok": True, "status": "done", "ignored": True, "duplicate": True}
    assert taken == {"exec_id": second, "ok": True, "status": "done"}
    assert (wrong["exec_id"], wrong["refused"]["status"]) == (running, 422)
    assert (unknown["refused"]["status"], nameless["refused"]["status"]) == (404, 422)
    assert (peer.show(second)["stdout_b64"], peer.show(running)["status"]) == (b64(b"out"), "running")
    assert peer.post("/v1/daemon/exec/results", {"results": {}}).status == 422


def test_a_submit_that_waits_is_answered_with_the_end_or_when_its_time_is_over(peer: Peer) -> None:
    path = f"/v1/namespaces/default/workers/{peer.id}/exec"
    late = peer.server.post(f"{path}?wait_s=0.1", {"command": "true"}, encoding=JSON)
    assert (late.status, sorted(late.body)) == (202, ["exec_id", "worker_id"])
    assert peer.taken()["exec_id"] == late.body["exec_id"]
    parked = peer.polling()
    waiting = POOL.submit(peer.server.post, f"{path}?wait_s=20", {"command": "false"}, encoding=JSON)
    (command,) = parked.result(60)
    peer.end(command["id"], 1, stdout=b"said")
    answer = waiting.result(60)
    assert (answer.status, answer.body["exec_id"], answer.body["exit_code"]) == (200, command["id"], 1)
    assert answer.body["stdout_b64"] == b64(b"said")


@pytest.mark.inventory("S-332", "S-333", "S-713")
def test_one_that_has_not_ended_is_told_as_it_is_when_the_window_is_over(peer: Peer) -> None:
    id_ = peer.run("sleep 40")
    peer.taken()
    for _window in range(3):
        assert peer.show(id_, 0.2)["status"] == "running"
    peer.end(id_)
    assert peer.show(id_, 20)["status"] == "done"


@pytest.mark.inventory("S-461")
@pytest.mark.parametrize(
    ("encoding", "stdout"),
    [(JSON, b64(b"hi\n")), (MSGPACK, b"hi\n"), (JSON, list(b"hi\n")), (MSGPACK, list(b"hi\n"))],
)
def test_a_result_comes_as_json_or_as_msgpack(peer: Peer, encoding: str, stdout: Any) -> None:
    id_ = peer.run()
    peer.taken()
    assert (
        peer.end(
            id_,
            encoding=encoding,
            stdout=stdout,
            stderr=[] if type(stdout) is list else "" if encoding == JSON else b"",
        ).status
        == 200
    )
    assert peer.show(id_)["stdout_b64"] == b64(b"hi\n")


@pytest.mark.inventory("S-755", "S-324")
def test_an_end_is_for_good_and_is_told_under_the_workers_name_too(peer: Peer) -> None:
    id_ = peer.run()
    peer.taken()
    alias = f"/v1/namespaces/default/workers/{peer.id}/exec/{id_}/result"
    assert peer.post(alias.replace(peer.id, "f" * 24), {"exit_code": 0}).status == 404
    assert peer.post(alias, {"exit_code": 0, "stdout": b"first"}, encoding=MSGPACK).body == {
        "ok": True,
        "status": "done",
    }
    late = peer.end(id_, 0, stdout=b"second").body
    assert late == {"ok": True, "status": "done", "ignored": True, "duplicate": True}
    assert peer.end(id_, -1).body["duplicate"] is False
    assert peer.show(id_)["stdout_b64"] == b64(b"first")
    assert peer.chunk(id_, b"late").status == 409


# --- at most once


@pytest.mark.inventory("S-781", "S-783")
def test_it_is_sent_again_until_an_answer_was_read_and_never_after(peer: Peer) -> None:
    id_ = peer.run()
    (lost,) = peer.poll(read=False)
    (again,) = peer.poll()
    assert lost == again
    assert lost["id"] == id_
    assert peer.poll() == []
    assert peer.poll() == []


def test_a_peer_without_sessions_gets_one_at_a_time_and_each_once(server: Served) -> None:
    peer = Peer(server, session=None)
    first, second = peer.run(), peer.run()
    assert [command["id"] for command in peer.poll(capacity=8)] == [first]
    assert [command["id"] for command in peer.poll(capacity=8)] == [second]
    assert peer.poll() == []
    peer.hello()
    assert peer.show(first)["error"] == peer.show(second)["error"] == "daemon restarted"


def test_a_poll_brings_no_more_than_its_capacity(peer: Peer) -> None:
    ids = [peer.run() for _ in range(3)]
    assert peer.poll(capacity=0) == []
    assert [command["id"] for command in peer.poll(capacity=2)] == ids[:2]
    assert [command["id"] for command in peer.poll(capacity=2)] == ids[2:]


def test_what_an_older_session_took_fails_and_what_waits_goes_to_the_newer_one(peer: Peer) -> None:
    taken, lost = peer.run(), peer.run()
    assert [command["id"] for command in peer.poll(capacity=1)] == [taken]
    assert [command["id"] for command in peer.poll(capacity=1, read=False)] == [lost]
    waits = peer.run()
    newer = peer.newer()
    for id_ in (taken, lost):
        row = peer.show(id_)
        assert (row["status"], row["exit_code"], row["error"]) == ("failed", -1, "daemon restarted")
    assert newer.end(taken, 0).body["ignored"] is True
    assert [command["id"] for command in newer.poll()] == [waits]


def test_a_server_that_is_killed_forgets_nothing_and_hands_nothing_out_twice(tmp_path: Path) -> None:
    server = start(tmp_path)
    try:
        waits, heard, lost, ended = peers = [Peer(server) for _ in range(4)]
        ids = [peer.run(env={"A": "b"}, stdin=b64(b"in")) for peer in peers]
        heard.poll()
        lost.poll(read=False)
        ended.taken()
        ended.end(ids[3], 0, stdout=b"kept")
        server.stop(signal.SIGKILL)
        server = start(tmp_path)
        for peer in peers:
            peer.server = server
        assert ended.show(ids[3])["stdout_b64"] == b64(b"kept")
        for peer, id_, told in zip(peers, ids, ([ids[0]], [], [ids[2]], []), strict=True):
            found = [(command["id"], command["body"]["env"], command["body"]["stdin"]) for command in peer.poll()]
            assert found == [(id_, {"A": "b"}, b"in")] * len(told)
        assert heard.end(ids[1]).body["status"] == "done"
        assert lost.newer().poll() == []
        assert lost.show(ids[2])["error"] == "daemon restarted"
        assert waits.end(ids[0]).body["status"] == "done"
        backup(server.state_dir, tmp_path / "copy")
    finally:
        server.stop(signal.SIGKILL)
    with contextlib.closing(sqlite3.connect(tmp_path / "copy" / "execs.db")) as copy:
        states = [state for (state,) in copy.execute("SELECT state FROM exec ORDER BY seq")]
    assert states == ["done", "done", "failed", "done"]


# --- cancel


def test_one_that_waits_is_cancelled_at_once_and_goes_nowhere(peer: Peer) -> None:
    id_ = peer.run()
    answer = peer.server.post(peer.path(f"/{id_}/cancel"), {})
    assert answer.status == 200
    row = peer.show(id_)
    assert (row["status"], row["exit_code"], row["error"]) == ("failed", -1, "cancelled")
    assert peer.poll() == []
    assert peer.server.post(peer.path(f"/{id_}/cancel"), {}).status == 200


def test_the_daemon_of_a_running_one_is_told_to_stop_it_until_it_has_heard(peer: Peer) -> None:
    id_ = peer.run("sleep 60")
    peer.taken()
    poll = peer.polling(capacity=0)
    answer = peer.server.post(peer.path(f"/{id_}/cancel"), {})
    assert (answer.status, answer.body["status"], answer.body["cancelling"]) == (202, "running", True)
    (command,) = poll.result(60)
    assert (command["kind"], command["body"]) == ("cancel", {"exec_id": id_})
    assert peer.poll(capacity=0, draining=True) == []
    peer.end(id_, -1, error="cancelled")
    assert peer.server.post(peer.path(f"/{id_}/cancel"), {}).body["error"] == "cancelled"
    other = Peer(peer.server)
    done = other.run()
    other.taken()
    other.end(done)
    assert peer.server.post(peer.path(f"/{done}/cancel"), {}).status == 409


def test_what_a_removed_daemon_had_and_what_waited_for_it_has_failed(peer: Peer) -> None:
    runs, waits = peer.run(), peer.run()
    peer.poll(capacity=1)
    assert peer.server.call("DELETE", f"/v1/namespaces/default/workers/{peer.id}").status == 200
    for id_ in (runs, waits):
        row = peer.show(id_)
        assert (row["status"], row["exit_code"], row["error"]) == ("failed", -1, "daemon killed")
    answer = peer.server.post(f"/v1/namespaces/default/workers/{peer.id}/exec", {"command": "true"}, encoding=JSON)
    assert answer.status == 404


def test_what_waits_for_a_daemon_that_left_is_its_own_when_it_is_back(peer: Peer) -> None:
    waits = peer.run()
    assert peer.poll(capacity=0, draining=True) == []
    refused = peer.server.post(f"/v1/namespaces/default/workers/{peer.id}/exec", {"command": "true"}, encoding=JSON)
    assert (refused.status, refused.body["state"]) == (409, "gone")
    assert peer.newer().taken()["exec_id"] == waits


def test_an_older_process_that_still_polls_takes_and_stops_nothing(peer: Peer) -> None:
    newer = peer.newer()
    id_ = newer.run("sleep 60")
    newer.taken()
    newer.poll()
    poll = newer.polling(capacity=0)
    old = peer.post(
        "/v1/daemon/poll",
        {"worker_id": peer.id, "session": peer.session, "n": 9, "seen": 0, "queue": "none", "timeout_s": 0},
    )
    assert old.status == 409 or old.body["commands"] == []
    newer.server.post(newer.path(f"/{id_}/cancel"), {})
    assert [command["kind"] for command in poll.result(60)] == ["cancel"]


# --- which daemon


@pytest.mark.inventory("S-320", "S-322")
@pytest.mark.inventory("C-256", "C-490")
def test_of_a_queues_members_the_least_busy_one_is_picked(server: Served) -> None:
    queue = f"q-{new_id()}"
    peers = {peer.id: peer for peer in (Peer(server, queue=queue), Peer(server, queue=f"{queue[:-2]}*"))}
    for peer in peers.values():
        peer.poll()
    Peer(server).poll()
    picked = []
    for _ in range(4):
        answer = server.post("/v1/namespaces/default/exec", {"command": "true", "queue": queue}, encoding=JSON)
        assert answer.status == 202
        picked.append(answer.body["worker_id"])
    assert picked[0] != picked[1]
    assert sorted(picked) == sorted(list(peers) * 2)


def test_a_queue_that_nobody_serves_and_a_worker_that_is_not_there_are_told_with_what_to_do(server: Served) -> None:
    queue = f"q-{new_id()}"
    for path, body in (
        ("exec", {"command": "true", "queue": queue}),
        ("exec", {"command": "true", "worker_id": "0" * 24}),
        (f"workers/{'0' * 24}/exec", {"command": "true"}),
    ):
        answer = server.post(f"/v1/namespaces/default/{path}", body, encoding=JSON)
        assert answer.status == 404
        assert "daemon list" in answer.body["hint"]


def test_a_queue_whose_members_have_all_left_says_so(server: Served) -> None:
    queue = f"q-{new_id()}"
    Peer(server, queue=queue).poll(draining=True, capacity=0)
    answer = server.post("/v1/namespaces/default/exec", {"command": "true", "queue": queue}, encoding=JSON)
    assert (answer.status, answer.body["field"]) == (409, "queue")
    assert "is gone" in answer.body["hint"]


@pytest.mark.inventory("S-428")
def test_commands_go_before_runs_and_share_their_slots(server: Served) -> None:
    peer = Peer(server, queue=f"q-{new_id()}")
    for _ in range(2):
        server.post("/v1/producer/submit", one(queue=peer.queue))
    id_ = peer.run()
    assert [command["kind"] for command in peer.poll(capacity=2)] == ["exec", "run"]
    assert peer.end(id_).status == 200


# --- what is refused


@pytest.mark.inventory("S-263", "S-264", "S-321")
@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        ({}, 422, "command"),
        ({"command": "a\0b"}, 422, "command"),
        ({"command": "x" * 131_072}, 413, "command"),
        ({"command": "cat", "stdin": b64(b"x" * (8 * 1024 * 1024 + 1))}, 413, "stdin"),
        ({"command": "cat", "stdin_b64": "no base64!"}, 422, "stdin_b64"),
        ({"command": "cat", "stdin": "", "stdin_b64": ""}, 422, "stdin_b64"),
        ({"command": "true", "env": {"A=B": "c"}}, 422, "env"),
        ({"command": "true", "env": {"A": "x" * 131_072}}, 413, "env"),
        ({"command": "true", "env": {"A": 1}}, 422, "env"),
        ({"command": "true", "timeout_s": 0}, 422, "timeout_s"),
        ({"command": "true", "workdir": ""}, 422, "workdir"),
        ({"command": "true", "queue": "x*"}, 422, "queue"),
        ({"command": "true", "queue": "q", "worker_id": "w"}, 422, "queue"),
        ({"payloadInline": b64(b"x" * 262_145)}, 413, "payloadInline"),
        ({"payloadInline": "", "payloadRef": {"key": "payloads/x", "size": 1}}, 422, "payloadRef"),
        ({"payloadRef": {"key": "exec/secret", "size": 1}}, 422, "payloadRef.key"),
    ],
)
def test_what_cannot_run_is_refused_by_name(server: Served, body: dict[str, Any], status: int, field: str) -> None:
    answer = server.post("/v1/namespaces/default/exec", body, encoding=JSON)
    assert (answer.status, answer.body["field"]) == (status, field)
    assert status != 413 or "limit" in answer.body["error"]


@pytest.mark.inventory("S-265", "S-593", "S-269")
def test_a_payload_travels_inline_or_as_a_signed_reference_and_a_result_likewise(peer: Peer) -> None:
    server, data = peer.server, b"\x81payload" * 50
    put = server.post("/v1/namespaces/default/payloads/presign", {"op": "put", "size": len(data)}, encoding=JSON).body
    assert server.raw("PUT", put["url"], data).status == 201
    peer.run("", payloadInline=b64(data))
    peer.run("cat", payloadRef={"bucket": put["bucket"], "key": put["key"], "size": len(data), "contentType": "x"})
    inline, ref = (command["body"] for command in peer.poll())
    assert inline["payload_inline"] == data
    assert server.raw("GET", ref["payload_ref"]["url"]).raw == data
    peer.end(inline["exec_id"], result_inline=b"typed")
    peer.end(ref["exec_id"], result_ref={"key": put["key"], "size": len(data)})
    assert peer.show(inline["exec_id"])["result_inline"] == b64(b"typed")
    assert peer.show(ref["exec_id"])["result_ref"]["key"] == put["key"]


@pytest.mark.inventory("S-267", "S-268", "S-801")
def test_what_a_command_gave_back_is_published_once_and_heard_by_who_waits(peer: Peer) -> None:
    id_ = peer.run()
    peer.taken()
    path = f"/v1/namespaces/default/jobs/{id_}/result"
    before = peer.server.get(path)
    assert (before.status, before.body["resultInline"], before.body["status"]) == (200, None, "running")
    waiting = POOL.submit(lambda: peer.server.get(f"{path}?wait=20"))
    assert peer.post(path, {"resultInline": b64(b"typed")}, encoding=JSON).body == {"ok": True, "status": "running"}
    heard = waiting.result(15)
    assert (heard.status, heard.body["resultInline"], heard.body["status"]) == (200, b64(b"typed"), "running")
    assert peer.post(path, {"result_inline": b"late"}).body["ignored"] is True
    peer.end(id_, 3, result_inline=b"later")
    ended = peer.server.get(path).body
    assert (ended["resultInline"], ended["exit_code"], ended["resultRef"]) == (b64(b"typed"), 3, None)
    assert peer.show(id_)["result_inline"] == b64(b"typed")


@pytest.mark.inventory("S-331", "S-801")
def test_who_waits_for_the_end_is_not_answered_by_what_it_gave_back_before(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        peer = Peer(server)
        id_ = peer.run()
        peer.taken()
        waiting = POOL.submit(peer.show, id_, 20)
        until_parked(server, 1)
        peer.post(f"/v1/namespaces/default/jobs/{id_}/result", {"resultInline": b64(b"typed")}, encoding=JSON)
        peer.end(id_, 3)
        row = waiting.result(60)
    assert (row["status"], row["exit_code"], row["result_inline"]) == ("done", 3, b64(b"typed"))


@pytest.mark.inventory("S-268", "S-801")
def test_a_result_is_what_was_uploaded_or_comes_with_the_end_or_not_at_all(peer: Peer) -> None:
    server, data = peer.server, b"r" * 300_000
    put = server.post("/v1/namespaces/default/payloads/presign", {"op": "put", "size": len(data)}, encoding=JSON).body
    assert server.raw("PUT", put["url"], data).status == 201
    jobs = [f"/v1/namespaces/default/jobs/{peer.run()}/result" for _ in range(3)]
    published, with_end, silent = jobs
    ids = [path.split("/")[-2] for path in jobs]
    peer.poll()
    peer.end(ids[0])
    assert server.get(published).body["resultInline"] is None
    ref = {"bucket": put["bucket"], "key": put["key"], "size": len(data)}
    assert peer.post(published, {"resultRef": ref}).body == {"ok": True, "status": "done"}, "after its end, too"
    assert server.raw("GET", server.get(published).body["resultRef"]["url"]).raw == data
    waiting = [POOL.submit(lambda path=path: server.get(f"{path}?wait=20")) for path in (with_end, silent)]
    peer.end(ids[1], result_ref={"key": put["key"], "size": len(data)})
    peer.end(ids[2], 1)
    assert waiting[0].result(15).body["resultRef"]["key"] == put["key"]
    none = waiting[1].result(15)
    assert (none.status, none.body["exit_code"], none.body["resultInline"]) == (200, 1, None)


@pytest.mark.inventory("S-267")
@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        ({}, 422, "resultInline"),
        ({"resultInline": b64(b"a"), "resultRef": {"key": "payloads/x", "size": 1}}, 422, "resultInline"),
        ({"resultInline": b64(b"a" * (256 * 1024 + 1))}, 413, "resultInline"),
        ({"resultRef": {"key": "exec/secret", "size": 1}}, 422, "resultRef.key"),
    ],
)
def test_a_result_that_is_none_is_refused_by_name(peer: Peer, body: dict[str, Any], status: int, field: str) -> None:
    id_ = peer.run()
    answer = peer.post(f"/v1/namespaces/default/jobs/{id_}/result", body, encoding=JSON)
    assert (answer.status, answer.body["field"]) == (status, field)
    unknown = peer.server.get("/v1/namespaces/default/jobs/none/result")
    assert (unknown.status, unknown.body["field"]) == (404, "id")


# --- output


@pytest.mark.inventory("S-463", "S-464", "S-325")
def test_output_is_followed_while_it_comes_and_the_stream_ends_with_the_command(peer: Peer) -> None:
    id_ = peer.run("make", log=True)
    peer.taken()
    got: dict[str, bytes] = {}

    def follow(stream: str, first: threading.Event) -> None:
        with contextlib.closing(peer.server.connection()) as connection:
            connection.request("GET", peer.path(f"/{id_}/log/stream?stream={stream}"))
            answer = connection.getresponse()
            assert answer.headers["content-type"] == "application/octet-stream"
            got[stream] = answer.read(1)
            first.set()
            got[stream] += answer.read()

    events = {stream: threading.Event() for stream in ("stdout", "stderr", "all")}
    readers = [POOL.submit(follow, stream, event) for stream, event in events.items()]
    assert peer.chunk(id_, b"one\xff", offset=0).body == {"ok": True, "offset": 4}
    peer.chunk(id_, b"err", stream="stderr")
    assert all(event.wait(60) for event in events.values())
    assert not any(reader.done() for reader in readers)
    peer.chunk(id_, b"one\xfftwo", offset=0)  # sent again, with more
    peer.end(id_)
    for reader in readers:
        reader.result(60)
    assert got == {"stdout": b"one\xfftwo", "stderr": b"err", "all": b"one\xfferrtwo"}
    row = peer.show(id_)
    assert (row["stdout_b64"], row["stderr_b64"], row["error"]) == (b64(b"one\xfftwo"), b64(b"err"), None)


@pytest.mark.inventory("S-714")
def test_a_reader_that_comes_back_goes_on_where_it_was(peer: Peer) -> None:
    id_ = peer.run(log=True)
    peer.taken()
    peer.chunk(id_, b"0123456789")
    first = peer.server.get(peer.path(f"/{id_}/log?offset=4")).body
    assert [base64.b64decode(part["bytes"]) for part in first["parts"]] == [b"456789"]
    assert (first["offset"], first["end"], first["status"]) == (10, False, "running")
    waiting = POOL.submit(lambda: peer.server.get(peer.path(f"/{id_}/log?offset=10&wait_s=20")).body)
    peer.chunk(id_, b"ab")
    assert waiting.result(60)["parts"][0]["position"] == 10
    peer.end(id_)
    assert peer.server.raw("GET", peer.path(f"/{id_}/log/stream?offset=8")).raw == b"89ab"
    assert peer.server.get(peer.path(f"/{id_}/log?offset=12&wait_s=20")).body["end"] is True


def test_of_a_long_output_the_beginning_and_the_last_8_mib_are_kept_and_what_is_missing_shows(peer: Peer) -> None:
    id_ = peer.run(log=True)
    peer.taken()
    piece = bytes(range(256)) * 4096
    for place in range(12):
        peer.chunk(id_, piece, offset=place * len(piece))
    peer.end(id_)
    whole = piece * 12
    found = peer.server.raw("GET", peer.path(f"/{id_}/log/stream"))
    assert found.raw == whole[: len(found.raw)]
    assert 262_144 <= len(found.raw) < 2 * len(piece)
    rest = peer.server.raw("GET", peer.path(f"/{id_}/log/stream?offset={len(found.raw)}"))
    begins = int(rest.headers["x-ls-offset"])
    assert len(found.raw) < begins <= len(whole) - 8 * 1024 * 1024
    assert rest.raw == whole[begins:]
    row = peer.show(id_)
    assert (row["error"], row["stdout_bytes"]) == ("stdout truncated", len(whole))
    assert base64.b64decode(row["stdout_b64"]) == whole[: len(found.raw)]


def test_what_a_result_brings_is_its_log_too(peer: Peer) -> None:
    id_ = peer.run()
    peer.taken()
    peer.end(id_, stdout=b"out" * 500_000, stderr=b"err")
    row = peer.show(id_)
    assert (len(base64.b64decode(row["stdout_b64"])), row["error"]) == (1024 * 1024, "stdout truncated")
    log = peer.server.get(peer.path(f"/{id_}/log?offset=1048576")).body
    assert [(part["stream"], part["bytes"]) for part in log["parts"]] == [("stderr", b64(b"err"))]
    assert log["end"] is True


@pytest.mark.inventory("S-018")
def test_a_stream_breaks_off_when_the_server_goes_down_and_what_was_printed_is_there_again(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        peer = Peer(server)
        id_ = peer.run(log=True)
        peer.taken()
        peer.chunk(id_, b"before")
        with contextlib.closing(server.connection()) as connection:
            connection.request("GET", peer.path(f"/{id_}/log/stream"))
            answer = connection.getresponse()
            assert answer.read(6) == b"before"
            began = time.monotonic()
            assert server.stop() == 0
            assert time.monotonic() - began < 30
    with running(tmp_path) as server:
        peer.server = server
        assert peer.chunk(id_, b"before after", offset=0).body["offset"] == 12
        assert peer.end(id_).body["status"] == "done"
        assert peer.show(id_)["stdout_b64"] == b64(b"before after")


# --- who may, and what is seen


def test_lists_show_what_was_asked_and_no_secrets_and_neither_does_the_servers_log(server: Served) -> None:
    ns = f"ns-{new_id()}"
    server.post("/v1/admin/namespaces", {"name": ns}, encoding=JSON)
    peer = Peer(server, ns=ns)
    ids = [peer.run(env={"KEY": "planted-secret"}, stdin=b64(b"planted-secret")) for _ in range(3)]
    peer.poll(capacity=1)

    def seen(query: str) -> list[str]:
        return [row["exec_id"] for row in server.get(peer.path(query)).body["execs"]]

    assert seen("") == ids[::-1]
    assert seen("?state=running") == ids[:1]
    assert seen("?state=pending,failed&limit=1&offset=1") == ids[1:2]
    assert seen("?worker=none") == []
    assert server.get(peer.path("?state=no")).status == 422
    peer.end(ids[0])
    everything = server.get(peer.path()).raw + server.get(peer.path(f"/{ids[0]}")).raw + server.said().encode()
    assert b"planted-secret" not in everything
    assert b64(b"planted-secret").encode() not in everything


def test_a_daemons_own_token_speaks_for_its_worker_only(secured_server: Served) -> None:
    ns = f"ns-{new_id()}"
    assert secured_server.post("/v1/admin/namespaces", {"name": ns}, encoding=JSON).status == 201

    def token() -> str:
        body = {"name": f"t-{new_id()}", "scope": "daemon"}
        minted = secured_server.post(f"/v1/namespaces/{ns}/tokens", body, encoding=JSON).body
        return str(minted["plaintext"])

    owner, other = (Peer(secured_server, ns=ns, token=token()) for _ in range(2))
    id_ = owner.run()
    owner.taken()
    assert other.end(id_).status == other.chunk(id_, b"x").status == 403
    assert Peer(secured_server, token=None).end(id_).status == 404  # of another namespace
    assert owner.server.post(owner.path(), {"command": "true"}, token=owner.token, encoding=JSON).status == 403
    assert owner.show(id_)["status"] == "running"
    assert owner.end(id_).status == 200


def test_a_namespace_goes_with_its_commands_once_none_is_open(server: Served) -> None:
    ns = f"ns-{new_id()}"
    server.post("/v1/admin/namespaces", {"name": ns}, encoding=JSON)
    peer = Peer(server, ns=ns)
    id_ = peer.run()
    refused = server.call("DELETE", f"/v1/admin/namespaces/{ns}")
    assert refused.status == 409
    assert "commands" in refused.body["error"]
    peer.taken()
    peer.end(id_)
    assert server.call("DELETE", f"/v1/admin/namespaces/{ns}").status == 200
    server.post("/v1/admin/namespaces", {"name": ns}, encoding=JSON)
    assert server.get(peer.path()).body["execs"] == []
    assert server.get(peer.path(f"/{id_}")).status == 404
