"""What changed since a number: told once, to whom it concerns, also over a crash; and the operator's poll over it."""

from __future__ import annotations

import concurrent.futures
import http.client
import os
import signal
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from exec_peer import Peer
from served import JSON, Served, new_id, one, running, start
from vitals import until_parked

Body = dict[str, Any]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server where nothing changes but by this module's tests, one at a time."""
    with running(tmp_path_factory.mktemp("changes")) as served:
        yield served


class Seen:
    """A namespace as one who watches it sees it."""

    def __init__(self, server: Served, ns: str | None = None, **query: Any) -> None:
        self.server = server
        self.ns = f"ns-{new_id()}" if ns is None else ns
        self.path = f"/v1/namespaces/{self.ns}/changes" if self.ns != "*" else "/v1/admin/changes"
        self.query = query
        if self.ns not in ("default", "*"):
            server.post("/v1/admin/namespaces", {"name": self.ns}, encoding=JSON)
        self.cursor: int = self.ask()["cursor"]

    def ask(self, **query: Any) -> Body:
        named = "&".join(f"{key}={said}" for key, said in {**self.query, **query}.items())
        answer = self.server.get(f"{self.path}?{named}")
        assert answer.status == 200, answer.body
        body: Body = answer.body
        return body

    def news(self, hold_s: float = 10.0) -> Body:
        body = self.ask(since=self.cursor, hold_s=hold_s)
        assert body["cursor"] >= self.cursor
        self.cursor = body["cursor"]
        return body

    def until(self, fits: Callable[[Body], bool]) -> Body:
        """The first change that fits."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            for change in self.news(2.0)["changes"]:
                if fits(change):
                    return dict(change)
        raise AssertionError("it was not told")

    def post(self, path: str, body: Body) -> Any:
        return self.server.post(path, body, X_LS_Namespace=self.ns)

    def submit(self, n: int = 1, **more: Any) -> list[Body]:
        calls = [one(**more) for _ in range(n)]
        body = calls[0] if n == 1 else {"invocations": calls}
        answer = self.post("/v1/producer/submit", body)
        assert answer.status == 200, answer.body
        return calls


def by_kind(body: Body) -> dict[str, list[str]]:
    told: dict[str, list[str]] = {}
    for change in body["changes"]:
        told.setdefault(change["kind"], []).append(change["id"])
    return told


def test_a_call_is_told_from_its_submit_to_its_end_and_its_queue_with_it(alone: Served) -> None:
    seen = Seen(alone)
    (call,) = seen.submit()
    assert by_kind(seen.news()) == {"invocations": [call["invocation_id"]], "queues": [call["queue"]]}
    poll = {"worker_id": "w", "queue": call["queue"], "session": "s", "n": 1, "timeout_s": 5}
    (command,) = seen.post("/v1/daemon/poll", poll).body["commands"]
    mine = lambda change: change["kind"] == "invocations"  # noqa: E731 - said three times
    row = seen.until(mine)["row"]
    assert (row["state"], row["workerId"]) == ("running", "w")
    ack = {"invocation_id": call["invocation_id"], "claim": command["body"]["claim"], "state": "succeeded"}
    assert seen.post("/v1/daemon/ack", ack).status == 200
    told = seen.until(mine)
    listed = alone.get(f"/v1/namespaces/{seen.ns}/invocations").body["invocations"]
    assert (told["row"], told["gone"], told["namespace"]) == (listed[0], False, seen.ns)
    assert told["row"]["state"] == "succeeded"


def test_what_is_gone_is_told_by_its_name(alone: Served) -> None:
    seen, peer = Seen(alone), Peer(alone)
    here = Seen(alone, "default")
    base = f"/v1/namespaces/{seen.ns}"
    alone.post(f"{base}/queues", {"name": "gpu"}, encoding=JSON)
    alone.post(f"{base}/modes", {"name": "big"}, encoding=JSON)
    (call,) = seen.submit()
    alone.post(f"{base}/invocations/bulk-cancel", {}, encoding=JSON)
    seen.news()
    assert alone.call("DELETE", f"{base}/queues/gpu").status == 200
    assert seen.until(lambda change: change["id"] == "gpu" and change["gone"])["kind"] == "queues"
    assert alone.call("DELETE", f"{base}/modes/big").status == 200
    assert seen.until(lambda change: change["id"] == "big" and change["gone"])["kind"] == "modes"
    alone.post(f"{base}/invocations/prune", {"olderThanHours": 0}, encoding=JSON)
    gone = seen.until(lambda change: change["id"] == call["invocation_id"] and change["gone"])
    assert gone["kind"] == "invocations" and "row" not in gone
    alone.call("DELETE", f"/v1/namespaces/default/workers/{peer.id}")
    assert here.until(lambda change: change["id"] == peer.id and change["gone"])["kind"] == "workers"


@pytest.mark.parametrize(
    ("kind", "path", "body", "id_"),
    [
        ("queues", "queues", {"name": "q1"}, "q1"),
        ("modes", "modes", {"name": "m1"}, "m1"),
        ("secrets", "secrets", {"name": "s1", "kind": "opaque", "plaintext": "v"}, "s1"),
        ("enroll-tokens", "enroll-tokens", {"label": "host"}, None),
        ("tokens", "tokens", {"name": "t1"}, None),
        ("events", "queues", {"name": "q2"}, ""),
    ],
)
def test_every_kind_of_resource_is_told(alone: Served, kind: str, path: str, body: Body, id_: str | None) -> None:
    seen = Seen(alone, kinds=kind)
    answer = alone.post(f"/v1/namespaces/{seen.ns}/{path}", body, encoding=JSON)
    assert answer.status in (200, 201), answer.body
    assert by_kind(seen.news()) == {kind: [answer.body["id"] if id_ is None else id_]}


def test_a_worker_and_its_command_are_told_with_their_rows(alone: Served) -> None:
    seen = Seen(alone, "default", kinds="workers,exec")
    peer = Peer(alone)
    row = seen.until(lambda change: change["id"] == peer.id)["row"]
    assert row["id"] == peer.id
    id_ = peer.run("true")
    row = seen.until(lambda change: change["id"] == id_)["row"]
    assert (row["exec_id"], row["status"]) == (id_, "pending")
    alone.post(f"/v1/namespaces/default/exec/{id_}/cancel", {}, encoding=JSON)
    assert seen.until(lambda change: change["id"] == id_)["row"]["status"] == "failed"


def test_how_much_a_worker_runs_is_told_though_no_write_says_it(alone: Served) -> None:
    peer, seen = Peer(alone), Seen(alone, "default", kinds="workers")
    (call,) = seen.submit()
    with concurrent.futures.ThreadPoolExecutor() as pool:
        busy = pool.submit(seen.until, lambda change: change["id"] == peer.id and change["row"]["inFlight"] == 1)
        time.sleep(1.5)  # it has been looked at, once
        poll = {"worker_id": peer.id, "queue": call["queue"], "session": "9", "n": 1, "timeout_s": 5}
        assert len(seen.post("/v1/daemon/poll", poll).body["commands"]) == 1
        assert busy.result(60)["row"]["state"] in ("active", "joining")


@pytest.mark.parametrize("rows", ["true", "false"])
def test_an_answer_that_is_cut_says_so_and_the_next_goes_on(alone: Served, rows: str) -> None:
    seen = Seen(alone, kinds="invocations", limit=3, rows=rows)
    calls = seen.submit(8)
    told: list[str] = []
    more = True
    while more:
        body = seen.news(0)
        assert len(body["changes"]) <= 3
        assert all(("row" in change) == (rows == "true") for change in body["changes"])
        told += [change["id"] for change in body["changes"]]
        more = body["more"]
    assert told == [call["invocation_id"] for call in calls], "each once, the oldest first"


def test_a_number_above_the_current_one_or_from_before_is_answered_at_once(alone: Served) -> None:
    seen = Seen(alone)
    before = time.monotonic()
    for since in (seen.cursor + 10**9, 2**53, seen.cursor - 1, 0):
        body = seen.ask(since=since, hold_s=30)
        assert "invocations" in body["reset"] and body["changes"] == []
    assert time.monotonic() - before < 20
    assert seen.news(0)["reset"] == []


def test_more_changes_than_are_remembered_reset_their_kind_alone(alone: Served) -> None:
    seen = Seen(alone, limit=500)
    alone.post(f"/v1/namespaces/{seen.ns}/modes", {"name": "big"}, encoding=JSON)
    for _ in range(5):
        seen.submit(850)
    body = seen.news()
    assert "invocations" in body["reset"] and "invocations" not in by_kind(body)
    assert body["more"] is False
    told = [*body["reset"], *by_kind(body)]
    assert "queues" in told and "modes" in told
    (call,) = seen.submit()
    assert by_kind(seen.news())["invocations"] == [call["invocation_id"]], "and then it goes on"


def test_nobody_is_woken_by_another_namespace_nor_by_another_kind(alone: Served) -> None:
    one_, other, workers = Seen(alone), Seen(alone), Seen(alone, kinds="workers")
    everything = Seen(alone, "*", kinds="invocations")
    with concurrent.futures.ThreadPoolExecutor() as pool:
        held = [pool.submit(seen.news, 2.0) for seen in (other, workers)]
        calls = one_.submit(3)
        before = time.monotonic()
        assert [future.result()["changes"] for future in held] == [[], []]
        assert time.monotonic() - before > 1, "they were held to the end"
    mine = [call["invocation_id"] for call in calls]
    assert by_kind(one_.news())["invocations"] == mine
    told = everything.news()["changes"]
    assert [(change["namespace"], change["id"]) for change in told] == [(one_.ns, id_) for id_ in mine]


def test_a_revoked_token_and_a_deleted_namespace_end_what_is_held(secured_server: Served) -> None:
    server = secured_server
    ns = f"ns-{new_id()}"
    server.post("/v1/admin/namespaces", {"name": ns}, encoding=JSON)
    tokens = [server.post(f"/v1/namespaces/{ns}/tokens", {"name": n}, encoding=JSON).body for n in ("a", "b")]
    path = f"/v1/namespaces/{ns}/changes"

    def held(token: Body, kinds: str) -> Any:
        cursor = server.get(path, token=token["plaintext"]).body["cursor"]
        return server.get(f"{path}?since={cursor}&hold_s=50&kinds={kinds}", token=token["plaintext"])

    with concurrent.futures.ThreadPoolExecutor() as pool:
        polls = [pool.submit(held, token, "workers") for token in tokens]
        until_parked(server, 2)
        server.call("DELETE", f"/v1/namespaces/{ns}/tokens/{tokens[0]['id']}")
        assert polls[0].result(15).status == 403
        while not server.call("DELETE", f"/v1/admin/namespaces/{ns}").body.get("deleted", True):
            pass
        assert polls[1].result(15).status in (401, 404)
    stranger = server.post("/v1/namespaces/default/tokens", {"name": new_id()}, encoding=JSON).body["plaintext"]
    assert server.get(f"/v1/namespaces/{ns}/changes", token=stranger).status in (403, 404)
    assert server.get("/v1/admin/changes", token=stranger).status == 403


def test_a_number_survives_kill_9_and_is_never_given_out_again(tmp_path: Path) -> None:
    cursors: list[int] = []
    for _ in range(2):
        with running(tmp_path) as server:
            seen = Seen(server, "default")
            if cursors:
                body = seen.ask(since=cursors[-1], hold_s=30)
                assert "invocations" in body["reset"], "what happened in between is not known"
            seen.submit(5)
            seen.news()
            cursors.append(seen.cursor)
            server.stop(signal.SIGKILL)
    with sqlite3.connect(tmp_path / "state" / "records.db") as records:
        ((mark,),) = records.execute("SELECT value FROM mark WHERE name = 'changes'").fetchall()
        assert mark > cursors[-1], "as far as numbers may have gone is written down before they do"
        ahead = mark + 10**15
        records.execute("UPDATE mark SET value = ?", (ahead,))  # as if the clock had been set back by thirty years
    records.close()
    with running(tmp_path) as server:
        assert Seen(server, "default").cursor > ahead
    assert cursors == sorted(set(cursors))


def test_hundreds_of_held_polls_cost_nothing_and_hear_of_a_change(alone: Served) -> None:
    seen = Seen(alone)
    polls: list[http.client.HTTPConnection] = []
    try:
        for _ in range(300):
            connection = alone.connection()
            connection.request("GET", f"{seen.path}?since={seen.cursor}&hold_s=50")
            polls.append(connection)
        until_parked(alone, 300)
        before = _cpu_s(alone.process.pid)
        time.sleep(1.0)
        idle = _cpu_s(alone.process.pid) - before
        assert idle < 0.3, "a second of 300 held polls"
        (call,) = seen.submit()
        for connection in polls:
            answer = connection.getresponse()
            assert call["invocation_id"].encode() in answer.read()
        assert _cpu_s(alone.process.pid) - before - idle < 3.0
    finally:
        for connection in polls:
            connection.close()


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_a_burst_is_told_in_few_answers_that_lose_nothing(alone: Served) -> None:
    seen = Seen(alone, kinds="invocations", limit=500)
    calls: list[str] = []
    began = time.monotonic()

    def produce() -> None:
        while time.monotonic() - began < 1.0:
            calls.extend(call["invocation_id"] for call in seen.submit())

    producer = threading.Thread(target=produce)
    producer.start()
    told: list[str] = []
    answers = 0
    while producer.is_alive() or len(told) < len(calls):
        told += by_kind(seen.news(1.0)).get("invocations", [])
        answers += 1
    took = time.monotonic() - began
    producer.join()
    assert sorted(told) == sorted(calls)
    assert answers <= took * 10 + 5


# --- the operator's poll


@pytest.mark.inventory("S-069", "S-071", "S-075")
@pytest.mark.inventory("S-360", "S-734")
@pytest.mark.inventory("C-867")
def test_the_operators_poll_is_held_until_a_submit_and_tells_what_changed(alone: Served) -> None:
    path = "/v1/admin/invocations"
    first = alone.get(path).body
    assert first["more"] is False and "reset" not in first
    with concurrent.futures.ThreadPoolExecutor() as pool:
        held = pool.submit(alone.get, f"{path}?cursor={first['cursor']}&timeout_s=30")
        until_parked(alone, 1)
        calls = [one() for _ in range(3)]
        alone.post("/v1/producer/submit", {"invocations": calls})
        told = held.result(60).body
    assert [row["id"] for row in told["invocations"]] == [call["invocation_id"] for call in reversed(calls)]
    fields = {"id", "queueName", "functionQualname", "state", "workerId", "submittedAt", "startedAt", "finishedAt"}
    assert {*fields, "progress"} <= set(told["invocations"][0])
    nothing = alone.get(f"{path}?cursor={told['cursor']}&timeout_s=0").body
    assert (nothing["invocations"], nothing["more"]) == ([], False)


@pytest.mark.inventory("S-663", "S-777")
@pytest.mark.inventory("C-1456")
@pytest.mark.inventory("C-867")
def test_the_operators_poll_is_cut_names_a_namespace_and_does_not_wait_above_its_number(alone: Served) -> None:
    seen, path = Seen(alone), "/v1/admin/invocations"
    cursor = alone.get(f"{path}?namespace={seen.ns}").body["cursor"]
    everywhere = alone.get(f"{path}?namespace=*").body["cursor"]
    calls = [call["invocation_id"] for call in seen.submit(5)]
    told: list[str] = []
    more = True
    while more:
        body = alone.get(f"{path}?namespace={seen.ns}&cursor={cursor}&limit=2&timeout_s=5").body
        told += [row["id"] for row in body["invocations"]]
        cursor, more = body["cursor"], body["more"]
    assert sorted(told) == sorted(calls)
    assert {row["namespace"] for row in alone.get(f"{path}?timeout_s=0").body["invocations"]} <= {"default"}
    body = alone.get(f"{path}?namespace=*&cursor={everywhere}&timeout_s=5").body
    assert {row["id"] for row in body["invocations"]} == set(calls)
    before = time.monotonic()
    body = alone.get(f"{path}?namespace={seen.ns}&cursor={2**52}&timeout_s=60").body
    assert body["reset"] is True and {row["id"] for row in body["invocations"]} == set(calls)
    assert time.monotonic() - before < 20
    assert alone.get(f"{path}?namespace=nobody-has-this").status == 404
    assert alone.get(f"{path}?limit=501").status == 422


# --- events by their own cursor


@pytest.mark.inventory("S-675")
def test_events_are_paged_both_ways_and_followed_by_their_cursor(alone: Served) -> None:
    seen, other = Seen(alone), Seen(alone)
    base = f"/v1/namespaces/{seen.ns}"
    for k in range(5):
        alone.post(f"{base}/queues", {"name": f"q{k}"}, encoding=JSON)
    newest = alone.get(f"{base}/events?limit=2").body
    older = alone.get(f"{base}/events?limit=2&before={newest['next']}").body
    assert [row["queueName"] for row in (*newest["events"], *older["events"])] == ["q4", "q3", "q2", "q1"]
    after, told = 0, []
    while page := alone.get(f"{base}/events?after={after}&limit=2").body["events"]:
        after = page[-1]["seq"]
        told += [row["queueName"] for row in page]
    assert told == ["q0", "q1", "q2", "q3", "q4"]
    with concurrent.futures.ThreadPoolExecutor() as pool:
        held = pool.submit(alone.get, f"{base}/events?after={after}&hold_s=30&queue=wanted")
        apart = pool.submit(alone.get, f"/v1/namespaces/{other.ns}/events?after=0&hold_s=1")
        until_parked(alone, 1)
        for name in ("passed-over", "wanted"):
            alone.post(f"{base}/queues", {"name": name}, encoding=JSON)
        body = held.result(60).body
        assert [row["queueName"] for row in body["events"]] == ["wanted"]
        assert body["next"] > after
        assert apart.result(60).body["events"] == []


def test_a_server_that_goes_down_answers_what_is_held(tmp_path: Path) -> None:
    server = start(tmp_path)
    try:
        seen = Seen(server, "default")
        with concurrent.futures.ThreadPoolExecutor() as pool:
            held = pool.submit(seen.news, 50.0)
            until_parked(server, 1)
            assert server.stop() == 0
            assert held.result(60)["changes"] == []
    finally:
        server.stop(signal.SIGKILL)
