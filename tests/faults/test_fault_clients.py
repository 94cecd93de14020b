"""Clients that disagree, at once: one of them is right, all are told so, and none sees into another's namespace."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from served import JSON, MSGPACK, Answer, Served, new_id, one, running

from lakeshore import wire

CLIENTS = 20
ROUNDS = 25
Call = Callable[[], Answer]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with running(tmp_path_factory.mktemp("clients")) as served:
        yield served
        assert served.stop() == 0
        assert "Traceback" not in served.said()


def at_once(*calls: Call) -> list[Answer]:
    """Every call from a thread of its own, all let go together."""
    gate, answers = threading.Barrier(len(calls)), [None] * len(calls)

    def run(k: int) -> None:
        gate.wait(60)
        answers[k] = calls[k]()  # type: ignore[call-overload]

    threads = [threading.Thread(target=run, args=(k,)) for k in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert all(answer is not None for answer in answers)
    return answers  # type: ignore[return-value]


def claimed(server: Served, queue: str, *, started: bool, ns: str = "default") -> dict[str, Any]:
    """Take the queue's one job as a worker of its own; the run body, with `worker` in it."""
    worker = f"w-{new_id()}"
    poll = {"worker_id": worker, "queue": queue, "session": "s", "timeout_s": 0}
    (command,) = server.post("/v1/daemon/poll", {**poll, "n": 1}, X_LS_Namespace=ns).body["commands"]
    run = {**command["body"], "worker": worker}
    held = [[run["invocation_id"], run["claim"], started]]
    server.post("/v1/daemon/poll", {**poll, "n": 2, "held": held, "capacity": 0}, X_LS_Namespace=ns)
    return run


def ended(server: Served, inv: str) -> dict[str, Any]:
    return dict(server.post("/v1/producer/await", {"invocation_id": inv, "timeout_s": 0}).body)


def shown(server: Served, inv: str) -> dict[str, Any]:
    """The row."""
    return dict(server.post("/v1/producer/await", {"invocation_id": inv, "get": True}).body["invocation"])


@pytest.mark.inventory("K-16")
def test_one_id_with_two_contents_is_one_row_and_a_conflict_for_the_others(server: Served) -> None:
    base = one()
    contents = [f"content {k % 4}".encode() * (1 if k % 2 else 9000) for k in range(CLIENTS)]
    answers = at_once(
        *(lambda data=data: server.post("/v1/producer/submit", {**base, "args_blob": data}) for data in contents)
    )
    won = {contents[k] for k, answer in enumerate(answers) if answer.status == 200}
    assert len(won) == 1
    assert all((answer.status == 200) == (contents[k] in won) for k, answer in enumerate(answers))
    assert {answer.status for answer in answers} == {200, 409}
    assert claimed(server, base["queue"], started=False)["args_blob"] == won.pop()
    assert server.get(f"/v1/producer/queues/{base['queue']}/count").body == {"count": 0}


@pytest.mark.inventory("K-17")
def test_one_key_from_twenty_clients_is_one_row_in_whatever_form_it_comes(server: Served) -> None:
    queue, key = f"q-{new_id()}", "the same key"

    def single(encoding: str) -> Answer:
        args = b"" if encoding == MSGPACK else ""
        call = one(queue=queue, args_blob=args, run_config={"key": key})
        return server.post("/v1/producer/submit", call, encoding=encoding)

    def batch() -> Answer:
        calls = [one(queue=queue, args_blob=b"", run_config={"key": key}) for _ in range(3)]
        return server.post("/v1/producer/submit", {"invocations": calls})

    forms: list[Call] = [lambda: single(MSGPACK), lambda: single(JSON), batch]
    answers = at_once(*(forms[k % 3] for k in range(CLIENTS)))
    told = [item for answer in answers for item in answer.body.get("results", [answer.body])]
    assert {answer.status for answer in answers} == {200}
    assert len({item["invocation_id"] for item in told}) == 1
    assert sum(1 for item in told if not item.get("existing")) == 1
    assert server.get(f"/v1/producer/queues/{queue}/count").body == {"count": 1}
    assert (
        server.post("/v1/producer/submit", one(queue=f"q-{new_id()}", run_config={"key": key})).body.get("existing")
        is None
    ), "a key belongs to its queue"


@pytest.mark.inventory("K-27", "K-2")
@pytest.mark.parametrize("started", [True, False], ids=["begun", "not begun"])
def test_a_cancel_that_races_an_ack_leaves_one_ending_and_both_know_it(server: Served, started: bool) -> None:
    seen: Counter[tuple[str, str]] = Counter()
    for _ in range(ROUNDS):
        call = one()
        server.post("/v1/producer/submit", call)
        run = claimed(server, call["queue"], started=started)
        inv = run["invocation_id"]
        ack = {"invocation_id": inv, "claim": run["claim"], "state": "succeeded", "result_blob": b"r"}
        cancel, said = at_once(
            lambda inv=inv: server.post(f"/v1/producer/invocations/{inv}/cancel", {}),
            lambda ack=ack: server.post("/v1/daemon/ack", ack),
        )
        assert (cancel.status, said.status) == (200, 200)
        end = ended(server, inv)
        seen[cancel.body["state"], said.body["result"]] += 1
        if said.body["result"] == "ok":
            assert (end["state"], end["result_blob"]) == ("succeeded", b"r")
            assert cancel.body["cancelled"] is False
        else:
            assert (said.body["result"], said.body["ignored"], end["state"]) == ("stale", True, "killed")
            assert cancel.body["cancelled"] is True
        again = server.post("/v1/daemon/ack", ack).body
        assert again["result"] == ("duplicate" if end["state"] == "succeeded" else "stale")
        assert ended(server, inv) == end, "an ending is not changed by what comes after it"
    print(dict(seen))


@pytest.mark.inventory("K-2", "K-5")
def test_two_endings_of_one_claim_that_race_settle_it_once(server: Served) -> None:
    for _ in range(ROUNDS):
        call = one(run_config={"max_attempts": 1})
        server.post("/v1/producer/submit", call)
        run = claimed(server, call["queue"], started=True)
        said = {"invocation_id": run["invocation_id"], "claim": run["claim"]}
        good = {**said, "state": "succeeded", "result_blob": b"r"}
        bad = {**said, "state": "failed", "error": {"type": "E", "message": "m"}}
        answers = at_once(*(lambda body=body: server.post("/v1/daemon/ack", body) for body in (good, bad) * 4))
        results = Counter((k % 2, answer.body["result"]) for k, answer in enumerate(answers))
        state = ended(server, run["invocation_id"])["state"]
        winner = 0 if state == "succeeded" else 1
        assert results == {(winner, "ok"): 1, (winner, "duplicate"): 3, (1 - winner, "stale"): 4}


def failed(server: Served) -> tuple[dict[str, Any], int]:
    """A submit that has failed, and the claim number of its row."""
    call = one(run_config={"max_attempts": 1})
    server.post("/v1/producer/submit", call)
    run = claimed(server, call["queue"], started=True)
    ack = {"invocation_id": run["invocation_id"], "claim": run["claim"], "state": "failed"}
    server.post("/v1/daemon/ack", {**ack, "error": {"type": "E", "message": "m"}})
    row = shown(server, run["invocation_id"])
    assert row["state"] == "failed"
    return call, row["claim"]


@pytest.mark.inventory("K-17")
def test_a_retry_that_races_retries_is_one_retry(server: Served) -> None:
    call, claim = failed(server)
    path = f"/v1/namespaces/default/invocations/{call['invocation_id']}/retry"
    answers = at_once(*(lambda k=k: server.post(path, {"claim": claim} if k % 2 else {}) for k in range(CLIENTS)))
    assert Counter(answer.status for answer in answers) == {200: 1, 409: CLIENTS - 1}
    row = shown(server, call["invocation_id"])
    assert (row["state"], row["claim"], row["attempt"]) == ("queued", claim + 1, 0)
    assert server.get(f"/v1/producer/queues/{call['queue']}/count").body == {"count": 1}


@pytest.mark.inventory("K-17")
def test_resent_retries_with_one_nonce_apply_once_even_after_the_next_failure(server: Served) -> None:
    call, claim = failed(server)
    retry = {**call, "retry_failed": "one nonce"}
    answers = at_once(*(lambda: server.post("/v1/producer/submit", retry) for _ in range(CLIENTS)))
    assert {answer.status for answer in answers} == {200}
    assert shown(server, call["invocation_id"])["claim"] == claim + 1
    run = claimed(server, call["queue"], started=True)
    ack = {"invocation_id": run["invocation_id"], "claim": run["claim"], "state": "failed"}
    server.post("/v1/daemon/ack", {**ack, "error": {"type": "E", "message": "again"}})
    assert server.post("/v1/producer/submit", retry).status == 200
    assert shown(server, call["invocation_id"])["state"] == "failed", "a late copy of the first retry is no second one"


@pytest.mark.inventory("K-21", "K-16")
def test_another_namespaces_ids_look_unknown_whatever_is_asked(server: Served) -> None:
    ours, theirs = f"ns-{new_id()}", f"ns-{new_id()}"
    call, watch = one(watch="one session"), {"watch": "one session", "timeout_s": 0}
    inv = call["invocation_id"]
    server.post("/v1/producer/submit", one(), X_LS_Namespace=theirs)
    assert server.post("/v1/producer/submit", call, X_LS_Namespace=ours).status == 200
    run = claimed(server, call["queue"], started=True, ns=ours)
    unknown = server.post("/v1/producer/await", {**watch, "add": [inv, "never"]}, X_LS_Namespace=theirs).body
    assert [(r["invocation_id"], r["state"]) for r in unknown["results"]] == [(inv, "unknown"), ("never", "unknown")]
    assert unknown["results"][0].keys() == unknown["results"][1].keys()
    conflict = server.post("/v1/producer/submit", {**call, "watch": "one session"}, X_LS_Namespace=theirs)
    assert conflict.status == 409
    frame = wire.FrameWriter(0).value(1)
    said = {"invocation_id": inv, "claim": run["claim"], "worker_id": run["worker"]}
    poll = {"worker_id": run["worker"], "queue": call["queue"], "session": "t", "n": 1, "timeout_s": 0}
    ack = {**said, "state": "succeeded", "result_blob": b"forged"}
    before = shown_in(server, ours, inv)
    for name, answer in {
        "await": server.post("/v1/producer/await", {"invocation_id": inv, "timeout_s": 0}, X_LS_Namespace=theirs),
        "get": server.post("/v1/producer/await", {"invocation_id": inv, "get": True}, X_LS_Namespace=theirs),
        "stream": server.get(f"/v1/producer/invocations/{inv}/result/stream", X_LS_Namespace=theirs),
        "cancel": server.post(f"/v1/producer/invocations/{inv}/cancel", {}, X_LS_Namespace=theirs),
        "trim": server.post(f"/v1/producer/invocations/{inv}/trim", {}, X_LS_Namespace=theirs),
        "ack": server.post("/v1/daemon/ack", ack, X_LS_Namespace=theirs),
        "chunk": server.post("/v1/daemon/result-chunk", {**said, "seq": 0, "bytes": frame}, X_LS_Namespace=theirs),
        "show": server.get(f"/v1/namespaces/{theirs}/invocations/{inv}"),
        "delete": server.call("DELETE", f"/v1/namespaces/{theirs}/invocations/{inv}"),
        "retry": server.post(f"/v1/namespaces/{theirs}/invocations/{inv}/retry", {}),
    }.items():
        told = answer.body
        assert answer.status == 404 or told.get("state") in ("unknown", None), (name, told)
        assert told.get("result") in (None, "stale"), (name, told)
        assert told.get("invocation") is None, (name, told)
    listed = server.post("/v1/daemon/poll", {**poll, "held": [[inv, run["claim"], True]]}, X_LS_Namespace=theirs).body
    assert (listed["lost"], listed["commands"]) == ([[inv, run["claim"]]], [])
    assert shown_in(server, ours, inv) == before
    good = {**said, "state": "succeeded", "result_blob": b"ours"}
    assert server.post("/v1/daemon/ack", good, X_LS_Namespace=ours).body["result"] == "ok"
    ended_there = server.post("/v1/producer/await", watch, X_LS_Namespace=theirs).body
    assert ended_there["results"] == []
    ended_here = server.post("/v1/producer/await", watch, X_LS_Namespace=ours).body
    assert [(r["invocation_id"], r["result_blob"]) for r in ended_here["results"]] == [(inv, b"ours")]


@pytest.mark.inventory("K-21", "K-9")
def test_another_namespaces_word_that_a_body_began_is_not_taken_for_its_workers(server: Served) -> None:
    ours, theirs = f"ns-{new_id()}", f"ns-{new_id()}"
    call = one()
    server.post("/v1/producer/submit", call, X_LS_Namespace=ours)
    run = claimed(server, call["queue"], started=False, ns=ours)
    poll = {"worker_id": run["worker"], "queue": call["queue"], "session": "s", "timeout_s": 0, "capacity": 0}
    begun = {**poll, "held": [[run["invocation_id"], run["claim"], True]]}
    for n in (1, 2):
        told = server.post("/v1/daemon/poll", {**begun, "n": n}, X_LS_Namespace=theirs).body
        assert told["lost"] == [[run["invocation_id"], run["claim"]]]
        assert shown_in(server, ours, run["invocation_id"])["invocation"]["attempt"] == 0
    assert server.post("/v1/daemon/poll", {**begun, "n": 3}, X_LS_Namespace=ours).body["lost"] == []
    row = shown_in(server, ours, run["invocation_id"])["invocation"]
    assert (row["started"], row["attempt"]) == (1, 1), "it began, and a lost worker costs an attempt"


def shown_in(server: Served, ns: str, inv: str) -> Any:
    return server.post("/v1/producer/await", {"invocation_id": inv, "get": True}, X_LS_Namespace=ns).body


@pytest.mark.inventory("K-21")
def test_two_processes_with_one_watch_session_name_do_not_lose_each_other(server: Served) -> None:
    """The older poll of a set is answered when a newer one comes, and an ending is told to one of them at least."""
    call = one(watch="shared")
    server.post("/v1/producer/submit", call)
    run = claimed(server, call["queue"], started=True)
    ack = {"invocation_id": call["invocation_id"], "claim": run["claim"], "state": "succeeded", "result_blob": b"r"}
    wait = {"watch": "shared", "timeout_s": 5}
    answers = at_once(
        *(lambda: server.post("/v1/producer/await", wait) for _ in range(4)), lambda: server.post("/v1/daemon/ack", ack)
    )
    told = [r["invocation_id"] for answer in answers[:4] for r in answer.body["results"]]
    assert told == [call["invocation_id"]]
