"""Queues over HTTP: rows, validation, members, an organisation's, events, stats; what waits says why."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from served import JSON, Answer, Served, new_id
from worker_peer import Daemon

NS = "/v1/namespaces/default"


def called(server: Served, method: str, path: str, body: Any = None, **more: Any) -> Answer:
    return server.call(method, path, body, encoding=JSON, **more)


class Queue:
    """One new queue of a server, and what is done with it."""

    def __init__(self, server: Served, ns: str = "default", **fields: Any) -> None:
        self.server = server
        self.ns = f"/v1/namespaces/{ns}"
        self.name = f"q-{new_id()}"
        made = called(server, "POST", f"{self.ns}/queues", {"name": self.name, **fields}, x_ls_namespace=ns)
        assert made.status == 201, made.raw
        self.made: dict[str, Any] = made.body

    def do(self, verb: str = "", body: Any = None, method: str | None = None) -> Answer:
        path = f"{self.ns}/queues/{self.name}{verb}"
        return called(self.server, method or ("GET" if body is None else "POST"), path, body)

    def patch(self, **fields: Any) -> dict[str, Any]:
        answer = self.do("", fields, "PATCH")
        assert answer.status == 200, answer.raw
        found: dict[str, Any] = answer.body
        return found

    def submit(self, **more: Any) -> Answer:
        body = {"invocation_id": new_id(), "queue": self.name, "args_blob": "", **more}
        return called(self.server, "POST", "/v1/producer/submit", body)

    def queued(self, **more: Any) -> str:
        answer = self.submit(**more)
        assert answer.status == 200, answer.raw
        return str(answer.body["invocation_id"])

    def poll(self, worker: str = "w", **more: Any) -> list[dict[str, Any]]:
        body = {"worker_id": f"{worker}-{self.name}", "queue": self.name, "timeout_s": 0, **more}
        answer = called(self.server, "POST", "/v1/daemon/poll", body)
        assert answer.status == 200, answer.raw
        found: list[dict[str, Any]] = answer.body["commands"]
        return found

    def row(self, id_: str) -> dict[str, Any]:
        found: dict[str, Any] = called(self.server, "GET", f"{self.ns}/invocations/{id_}").body
        return found

    def reason(self, id_: str) -> str | None:
        waits = self.row(id_).get("waits")
        return None if waits is None else waits["reason"]


def until(what: Callable[[], Any], patience_s: float = 60.0) -> Any:
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        if found := what():
            return found
        time.sleep(0.02)
    raise AssertionError("it did not come to pass")


# --- rows


@pytest.mark.inventory("S-272", "S-274", "S-294")
def test_a_queue_is_kept_as_it_was_made_and_shown_with_its_members(server: Served) -> None:
    fields = {
        "description": "urgent first",
        "kind": "priority",
        "kindParams": {"priority_field": "p"},
        "elasticity": {"kind": "fully_elastic", "max": 8, "pool": "mixed", "unknown": [1]},
        "admission": {"max_depth": 9, "on_full": "block", "rate_limit": 2.5, "deadline_cutoff_s": 60.0},
        "providerRef": "my-gpu",
        "daemonTemplate": {"instance_type": "p4d", "image_id": "ami-1", "runner": "docker"},
        "runConfig": {"timeout_s": 9},
    }
    queue = Queue(server, **fields)
    shown = queue.do().body
    assert {name: shown[name] for name in fields} == fields
    assert (shown["name"], shown["state"], shown["members"]) == (queue.name, "active", [])
    queue.poll()
    assert [member["id"] for member in queue.do().body["members"]] == [f"w-{queue.name}"]


@pytest.mark.parametrize("last_word", [{"ended": {"code": 3}}, {"draining": True}])
def test_a_worker_whose_process_is_dead_or_leaves_serves_its_queue_no_more(
    server: Served, last_word: dict[str, Any]
) -> None:
    queue = Queue(server)
    queue.poll()
    assert [member["id"] for member in queue.do().body["members"]] == [f"w-{queue.name}"]
    queue.poll(capacity=0, **last_word)
    assert queue.do().body["members"] == []


@pytest.mark.parametrize("last_word", [{"ended": {"code": 3}}, {"draining": True}])
def test_the_late_last_word_of_an_older_process_takes_no_live_one_out_of_its_queue(
    server: Served, last_word: dict[str, Any]
) -> None:
    queue = Queue(server)
    queue.poll(session="1-old", n=1)
    queue.poll(session="2-new", n=1)
    queue.poll(session="1-old", n=2, capacity=0, **last_word)
    assert [member["id"] for member in queue.do().body["members"]] == [f"w-{queue.name}"]
    queue.poll(session="2-new", n=2, capacity=0, **last_word)
    assert queue.do().body["members"] == []


@pytest.mark.inventory("S-275")
def test_a_patch_replaces_whole_objects_and_null_clears(server: Served) -> None:
    queue = Queue(server, elasticity={"kind": "fixed", "max": 2}, providerRef="p", admission={"max_depth": 3})
    row = queue.patch(elasticity={"kind": "max_count"}, providerRef="", admission=None, description="new")
    assert row["elasticity"] == {"kind": "max_count"}
    assert (row["providerRef"], row["admission"], row["description"]) == (None, None, "new")
    assert queue.patch(description=None)["description"] is None


BAD = [
    pytest.param({"kind": "lifo"}, "kind", marks=pytest.mark.inventory("S-290")),
    ({"kindParams": {"temperature": 0}}, "kindParams.temperature"),
    ({"kindParams": {"priority_field": 3}}, "kindParams.priority_field"),
    pytest.param({"elasticity": {"kind": "fully-elastic"}}, "elasticity.kind", marks=pytest.mark.inventory("S-292")),
    ({"elasticity": "fixed"}, "elasticity"),
    pytest.param({"admission": {"on_full": "wait"}}, "admission.on_full", marks=pytest.mark.inventory("S-726")),
    ({"admission": {"max_depth": 0}}, "admission.max_depth"),
    ({"admission": {"max_depth": True}}, "admission.max_depth"),
    ({"admission": {"rate_limit": -1}}, "admission.rate_limit"),
    ({"admission": {"deadline_cutoff_s": "1"}}, "admission.deadline_cutoff_s"),
    ({"admission": {"max_dept": 1}}, "admission.max_dept"),
    ({"daemonTemplate": {"runner": 1}}, "daemonTemplate.runner"),
    ({"runConfig": {"key": "k"}}, "runConfig.key"),
    ({"runConfig": {"max_attempts": 0}}, "runConfig.max_attempts"),
    ({"providerRef": "No"}, "providerRef"),
    ({"description": "a\nb"}, "description"),
]


@pytest.mark.parametrize(("fields", "field"), BAD)
def test_a_field_that_cannot_be_is_named(server: Served, fields: dict[str, Any], field: str) -> None:
    for method, path in (("POST", f"{NS}/queues"), ("PATCH", f"{NS}/queues/default")):
        answer = called(server, method, path, {"name": f"q-{new_id()}", **fields} if method == "POST" else fields)
        assert (answer.status, answer.body["field"]) == (422, field)


@pytest.mark.inventory("S-650", "S-639")
def test_names_are_slugs_and_taken_once(server: Served) -> None:
    queue = Queue(server)
    assert called(server, "POST", f"{NS}/queues", {"name": queue.name}).status == 409
    for name in ("Big", "a_b", "", None, "-a"):
        answer = called(server, "POST", f"{NS}/queues", {"name": name})
        assert (answer.status, answer.body["field"]) == (422, "name")


@pytest.mark.inventory("S-358")
def test_a_submit_makes_its_queue_and_an_operator_decides_later_what_it_is(server: Served) -> None:
    name, id_ = f"q-{new_id()}", new_id()
    body = {"invocation_id": id_, "queue": name, "args_blob": ""}
    assert called(server, "POST", "/v1/producer/submit", body).status == 200
    assert called(server, "GET", f"{NS}/queues/{name}").body["kind"] == "fifo"
    made = called(server, "POST", f"{NS}/queues", {"name": name, "kind": "filo"})
    assert (made.status, made.body["kind"], made.body["queued"]) == (201, "filo", 1)
    assert called(server, "POST", f"{NS}/queues", {"name": name}).status == 409


@pytest.mark.inventory("S-276", "S-277", "S-278")
@pytest.mark.inventory("S-624")
def test_a_queue_goes_through_its_states_and_tells_of_each(server: Served) -> None:
    queue = Queue(server)
    for verb, state in (("/drain", "draining"), ("/unarchive", "active"), ("/archive", "archived")):
        assert queue.do(verb, {}).body["state"] == state
    assert queue.patch(state="active")["state"] == "active"
    assert queue.patch(state="paused")["state"] == "paused"
    refused = queue.do("", {"state": "draining"}, "PATCH")
    assert (refused.status, refused.body["field"]) == (422, "state")
    told = [event["payload"]["to"] for event in queue.do("/events").body["events"] if event["kind"] == "queue.state"]
    assert told == ["paused", "active", "archived", "active", "draining"]


@pytest.mark.inventory("S-779")
def test_what_became_of_a_queues_calls_is_told_beside_its_states_to_who_asks(server: Served) -> None:
    queue = Queue(server)
    assert queue.submit().status == 200
    assert queue.patch(state="active")["state"] == "active"
    assert queue.patch(state="paused")["state"] == "paused"
    assert queue.patch(state="active")["state"] == "active"

    def told(query: str = "?invocations=true") -> list[dict[str, Any]]:
        events: list[dict[str, Any]] = queue.do(f"/events{query}").body["events"]
        return [event for event in events if event["kind"] != "queue.created"]

    def kinds(query: str = "?invocations=true") -> list[str]:
        return [event["kind"] for event in told(query)]

    assert kinds() == ["queue.state", "queue.state", "invocation.queued"]
    said = {"worker_id": "w", "queue": queue.name, "timeout_s": 0}
    (run,) = server.post("/v1/daemon/poll", said).body["commands"]
    assert kinds()[0] == "invocation.running"
    body = run["body"]
    ack = {"worker_id": "w", "invocation_id": body["invocation_id"], "claim": body["claim"], "state": "succeeded"}
    assert server.post("/v1/daemon/ack", {**ack, "result_blob": b"\xc0"}).status == 200
    newest = told()
    wanted = ["invocation.succeeded", "invocation.running", "queue.state", "queue.state", "invocation.queued"]
    assert [event["kind"] for event in newest] == wanted
    assert {event["invocationId"] for event in newest} == {body["invocation_id"], None}
    assert [event["workerId"] for event in newest][:2] == ["w", "w"]
    assert newest[0]["payload"] == {"state": "succeeded", "attempt": 1}
    assert kinds("?invocations=true&limit=2") == wanted[:2]
    assert kinds("") == ["queue.state"] * 2, "nobody else hears of calls"


@pytest.mark.inventory("S-282", "S-662")
def test_events_are_the_queues_own_and_bounded(server: Served) -> None:
    queue = Queue(server)
    tell = {"worker_id": "w", "kind": "invocation.event", "queue": queue.name, "payload": {}}
    assert called(server, "POST", "/v1/daemon/event", tell).status == 200
    queue.patch(description="a")
    found = queue.do("/events?limit=1&verbose=true").body["events"]
    assert [(event["kind"], event["payload"]["fields"]) for event in found] == [("queue.changed", ["description"])]
    assert len(queue.do("/events").body["events"]) == 2
    assert queue.do("/events?limit=201").status == 422


@pytest.mark.inventory("S-288", "S-289")
def test_the_default_queue_is_there_and_stays(server: Served) -> None:
    row = called(server, "GET", f"{NS}/queues/default").body
    assert (row["kind"], row["description"]) == (
        "fifo",
        "Default queue (auto-created). Cannot be archived or deleted.",
    )
    assert called(server, "POST", f"{NS}/queues/default/archive", {}).status == 409
    assert called(server, "DELETE", f"{NS}/queues/default?force=true").status == 409


@pytest.mark.inventory("S-273", "S-296")
def test_a_listing_is_filtered_by_state_and_read_in_pages(server: Served) -> None:
    made = sorted(Queue(server).name for _ in range(5))
    called(server, "POST", f"{NS}/queues/{made[0]}/archive", {})
    found: list[str] = []
    cursor = ""
    while True:
        page = called(server, "GET", f"{NS}/queues?limit=2{cursor}").body
        assert len(page["queues"]) <= 2
        found += [row["name"] for row in page["queues"]]
        if page["next"] is None:
            break
        cursor = f"&cursor={page['next']}"
    assert found == sorted(set(found)) and set(made) <= set(found) and "default" in found
    archived = called(server, "GET", f"{NS}/queues?state=archived&limit=1000").body["queues"]
    assert made[0] in [row["name"] for row in archived] and {row["state"] for row in archived} == {"archived"}
    assert called(server, "GET", f"{NS}/queues?state=open").status == 422


@pytest.mark.inventory("S-541", "S-299", "C-188")
def test_a_listing_has_the_queues_of_the_whole_organisation(secured_server: Served) -> None:
    server, org = secured_server, f"org-{new_id()}"
    names = [f"ns-{new_id()}" for _ in range(2)]
    for name in names:
        assert called(server, "POST", "/v1/admin/namespaces", {"name": name, "orgId": org}).status == 201
        assert (
            called(server, "POST", f"/v1/namespaces/{name}/queues", {"name": "same", "description": name}).status == 201
        )
    stranger = f"ns-{new_id()}"
    called(server, "POST", "/v1/admin/namespaces", {"name": stranger})
    called(server, "POST", f"/v1/namespaces/{stranger}/queues", {"name": "same"})
    token = called(server, "POST", f"/v1/namespaces/{names[0]}/tokens", {"name": "t"}).body["plaintext"]
    rows = called(server, "GET", f"/v1/namespaces/{names[0]}/queues", token=token).body["queues"]
    same = {row["namespace"]: row["description"] for row in rows if row["name"] == "same"}
    assert same == {name: name for name in names}


@pytest.mark.inventory("S-287", "S-546", "C-189")
@pytest.mark.parametrize("path", ["queues", "queues/q", "queues/q/stats", "queues/q/events"])
def test_an_unknown_namespace_is_not_made(secured_server: Served, path: str) -> None:
    assert called(secured_server, "GET", f"/v1/namespaces/none-{new_id()}/{path}").status == 404


def test_a_namespace_that_is_made_anew_has_no_queue_of_the_old_one(server: Served) -> None:
    ns = f"ns-{new_id()}"
    for _ in range(2):
        assert called(server, "POST", "/v1/admin/namespaces", {"name": ns}).status == 201
        assert called(server, "GET", f"/v1/namespaces/{ns}/queues/kept").status == 404
        body = {"invocation_id": new_id(), "queue": "kept", "args_blob": ""}
        assert called(server, "POST", "/v1/producer/submit", body, x_ls_namespace=ns).status == 200
        session = new_id()
        poll = {"worker_id": session, "session": session, "capacity": 1, "timeout_s": 0}
        first = {**poll, "n": 1, "queue": "other"}
        assert called(server, "POST", "/v1/daemon/poll", first, x_ls_namespace=ns).body["commands"] == []
        second = {**poll, "n": 2, "queue": "kept"}  # of a known session: what is in memory answers it, if it can
        (run,) = called(server, "POST", "/v1/daemon/poll", second, x_ls_namespace=ns).body["commands"]
        ended = {"invocation_id": body["invocation_id"], "claim": run["body"]["claim"], "state": "succeeded"}
        ack = {"worker_id": session, **ended, "result_blob": ""}
        assert called(server, "POST", "/v1/daemon/ack", ack, x_ls_namespace=ns).status == 200
        assert called(server, "PATCH", f"/v1/namespaces/{ns}/queues/kept", {"state": "paused"}).status == 200
        assert called(server, "DELETE", f"/v1/admin/namespaces/{ns}").body["deleted"] is True


# --- members


@pytest.mark.inventory("S-280", "S-281", "S-279")
def test_a_queue_with_members_goes_by_force_and_out_of_their_rows(server: Served) -> None:
    queue = Queue(server)
    daemon = Daemon(server)
    daemon.hello(lanes=[queue.name, "other"])
    refused = queue.do(method="DELETE")
    assert (refused.status, refused.body["members"]) == (409, 1)
    assert queue.do("?force=true", method="DELETE").body["deleted"] is True
    assert queue.do().status == 404
    assert daemon.row()["queues"] == ["other"]


@pytest.mark.inventory("S-279")
def test_a_queue_with_calls_is_not_deleted_under_them(server: Served) -> None:
    queue = Queue(server)
    first, second = queue.queued(), queue.queued()
    (run,) = queue.poll()
    assert queue.do(method="DELETE").status == 409
    assert queue.do("?force=true", method="DELETE").status == 409, "one of them runs"
    assert queue.row(second)["state"] == "queued"
    ack = {"worker_id": f"w-{queue.name}", "invocation_id": first, "claim": run["body"]["claim"], "state": "succeeded"}
    assert called(server, "POST", "/v1/daemon/ack", {**ack, "result_blob": ""}).status == 200
    assert queue.do("?force=true", method="DELETE").status == 200
    assert (queue.row(first)["state"], queue.row(second)["state"]) == ("succeeded", "killed")


@pytest.mark.inventory("S-283")
@pytest.mark.inventory("S-789")
def test_stats_count_what_is_there(server: Served) -> None:
    queue = Queue(server)
    for _ in range(3):
        queue.queued()
    queue.queued(delay_s=300)
    queue.poll()
    found = queue.do("/stats").body
    assert {name: found[name] for name in ("pending", "delayed", "running", "daemon_count", "utilization")} == {
        "pending": 2,
        "delayed": 1,
        "running": 1,
        "daemon_count": 1,
        "utilization": 1.0,
    }
    assert found["oldest_age_s"] >= 0
    assert found["controller"] == {"enabled": False, "tick_s": None, "last_tick_at": None}


# --- admission


@pytest.mark.inventory("K-18", "S-746")
@pytest.mark.inventory("S-740")
@pytest.mark.inventory("C-1432")
def test_a_full_queue_is_one_items_429_and_no_batch_is_held(server: Served) -> None:
    queue = Queue(server, admission={"max_depth": 2, "on_full": "block"})
    items = [{"invocation_id": new_id(), "queue": queue.name, "args_blob": ""} for _ in range(5)]
    results = called(server, "POST", "/v1/producer/submit", {"invocations": items}).body["results"]
    assert [result["status"] for result in results] == [200, 200, 429, 429, 429]
    assert {name: results[2][name] for name in ("error", "queue", "max_depth", "on_full")} == {
        "error": "queue full",
        "queue": queue.name,
        "max_depth": 2,
        "on_full": "block",
    }
    assert results[2]["retry_after_s"] > 0


@pytest.mark.inventory("K-19")
def test_a_held_submit_ends_with_429_at_its_deadline_and_so_do_its_copies(server: Served) -> None:
    queue = Queue(server, admission={"max_depth": 1, "on_full": "block"})
    queue.queued()
    same, answers = new_id(), dict[str, Answer]()

    def hold(name: str, hold_s: float) -> threading.Thread:
        def send() -> None:
            answers[name] = queue.submit(invocation_id=same, hold_s=hold_s)

        thread = threading.Thread(target=send)
        thread.start()
        return thread

    patient = hold("patient", 60)
    until(lambda: queue.do("/stats").body["held_submits"] == 1)
    hold("hasty", 0.2).join(60)
    patient.join(60)
    assert {name: answer.status for name, answer in answers.items()} == {"patient": 429, "hasty": 429}
    assert answers["hasty"].headers["retry-after"]
    queue.poll()
    assert queue.row(same).get("state") is None, "what was refused was stored later"
    assert queue.do("/stats").body["held_submits"] == 0


@pytest.mark.inventory("K-19")
def test_held_submits_come_in_in_their_order_as_there_is_room(server: Served) -> None:
    queue = Queue(server, admission={"max_depth": 1, "on_full": "block"})
    queue.queued()
    stored: list[int] = []
    threads = []
    for n in range(3):

        def send(n: int = n) -> None:
            assert queue.submit(hold_s=60).status == 200
            stored.append(n)

        threads.append(threading.Thread(target=send))
        threads[-1].start()
        until(lambda n=n: queue.do("/stats").body["held_submits"] == n + 1)
    for n in range(3):
        assert queue.poll(worker=f"w{n}")
        until(lambda n=n: len(stored) == n + 1)
    for thread in threads:
        thread.join(60)
    assert stored == [0, 1, 2]


@pytest.mark.inventory("K-19")
def test_more_depth_lets_held_submits_in(server: Served) -> None:
    queue = Queue(server, admission={"max_depth": 1, "on_full": "block"})
    queue.queued()
    answers: list[Answer] = []
    threads = [threading.Thread(target=lambda: answers.append(queue.submit(hold_s=60))) for _ in range(2)]
    for thread in threads:
        thread.start()
    until(lambda: queue.do("/stats").body["held_submits"] == 2)
    queue.patch(admission={"max_depth": 9, "on_full": "block"})
    for thread in threads:
        thread.join(60)
    assert [answer.status for answer in answers] == [200, 200]


# --- parked polls


def commits(server: Served) -> float:
    text = server.get("/metrics").raw.decode()
    return float(next(line.split()[-1] for line in text.splitlines() if line.startswith("lakeshore_commits_total")))


@pytest.mark.inventory("S-747")
def test_a_poll_that_waits_beside_a_paused_queue_costs_nothing_and_is_answered_when_it_goes_on(server: Served) -> None:
    queue = Queue(server)
    queue.patch(state="paused")
    waiting = queue.queued()
    found: list[list[dict[str, Any]]] = []
    thread = threading.Thread(target=lambda: found.append(queue.poll(timeout_s=50)))
    thread.start()
    until(lambda: queue.do().body["memberCount"] == 1)
    queue.queued()  # a fresh row, which the poll does not get
    before = commits(server)
    time.sleep(0.5)
    assert commits(server) - before < 20, "the writer goes round and round"
    queue.patch(state="active")
    thread.join(60)
    assert [run["body"]["invocation_id"] for run in found[0]] == [waiting]


def test_a_poll_that_waits_gets_a_paced_queues_next_call_in_its_turn(server: Served) -> None:
    queue = Queue(server, admission={"rate_limit": 4})
    ids = [queue.queued() for _ in range(3)]
    begun = time.monotonic()
    got = [queue.poll(worker=f"w{n}", timeout_s=20)[0]["body"]["invocation_id"] for n in range(3)]
    assert got == ids
    assert time.monotonic() - begun > 0.4


# --- why it waits


def test_a_queued_row_says_why_it_waits(server: Served) -> None:
    queue = Queue(server)
    waiting = queue.queued()
    assert queue.reason(waiting) == "no_worker"
    assert f"--queue {queue.name}" in queue.row(waiting)["why"]
    later = queue.queued(delay_s=300)
    assert queue.reason(later) == "delayed"
    (run,) = queue.poll()
    assert run["body"]["invocation_id"] == waiting and queue.reason(waiting) is None
    behind = queue.queued()
    assert queue.reason(behind) == "busy"
    queue.patch(state="paused")
    assert queue.reason(behind) == "paused"
    queue.do("/archive", {})
    assert queue.reason(behind) == "archived"
    queue.do("/unarchive", {})
    queue.patch(admission={"rate_limit": 0.01})
    assert queue.poll(worker="w2")
    third = queue.queued()
    assert queue.reason(third) == "rate"
    listed = called(server, "GET", f"{NS}/invocations?queue={queue.name}&state=queued").body["invocations"]
    assert {row["id"]: row["waits"]["reason"] for row in listed} == {third: "rate", later: "delayed"}


def test_a_daemon_that_is_away_or_lacks_the_runner_is_named(server: Served) -> None:
    queue = Queue(server)
    daemon = Daemon(server)
    daemon.hello(lanes=[queue.name], capabilities={"runners": ["process"]})
    told = queue.submit(run_config={"runner": "docker"}).body
    assert "docker" in told["warnings"][0], "nobody who is known can run it"
    row = queue.row(told["invocation_id"])
    assert row["waits"]["reason"] == "away", "it has not polled"
    daemon.ask(capacity=0, timeout_s=0)
    row = queue.row(told["invocation_id"])
    assert (row["waits"]["reason"], row["waits"]["workers"][0]["why"]) == ("no_runner", "has process")
    assert "warnings" not in queue.submit(run_config={"runner": "process"}).body
