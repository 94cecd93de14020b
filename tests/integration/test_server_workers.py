"""Daemons as operators see them: rows, states, removal, events."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from served import ADMIN, JSON, Served, new_id, one, running
from worker_peer import Daemon, until

from lakeshore.server import serve


@pytest.fixture
def ns(server: Served) -> str:
    name = f"ns-{new_id()}"
    assert server.post("/v1/admin/namespaces", {"name": name}, encoding=JSON).status == 201
    return name


@pytest.fixture
def daemon(server: Served, ns: str) -> Daemon:
    made = Daemon(server, ns=ns)
    made.ask()
    return made


@pytest.fixture(scope="module")
def impatient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server that calls a worker gone after 0.4 s of silence."""
    with running(tmp_path_factory.mktemp("impatient"), env={"LAKESHORE_WORKER_GONE_S": "0.4"}) as served:
        yield served


def listed(server: Served, ns: str, query: str = "") -> list[dict[str, Any]]:
    answer = server.get(f"/v1/namespaces/{ns}/workers{query}")
    assert answer.status == 200, answer.body
    rows: list[dict[str, Any]] = answer.body["workers"]
    assert answer.body["count"] == len(rows)
    return rows


def events(server: Served, ns: str, query: str = "") -> dict[str, Any]:
    answer = server.get(f"/v1/namespaces/{ns}/events{query}")
    assert answer.status == 200, answer.body
    page: dict[str, Any] = answer.body
    return page


# --- rows


@pytest.mark.inventory("S-302", "S-303", "S-305")
def test_a_row_says_what_the_daemon_told_of_itself(server: Served, ns: str) -> None:
    queue = f"q-{new_id()}"
    daemon = Daemon(server, ns=ns, queue=queue)
    assert server.post("/v1/producer/submit", one(queue=queue), X_LS_Namespace=ns).status == 200
    assert daemon.kinds() == ["run"]
    (row,) = listed(server, ns)
    stated = {
        "id": daemon.id,
        "namespace": ns,
        "label": f"box-{daemon.machine[:6]}",
        "state": "active",
        "machineId": daemon.machine,
        "queues": [queue],
        "runners": ["process"],
        "tags": ["host=local", "gpu:none"],
        "version": "0.1.4",
        "inFlight": 1,
        "maxInvocations": 4,
        "providerName": None,
        "hostStatus": None,
        "composeProject": None,
        "serverNodeId": None,
        "hibernateUntil": None,
    }
    assert {name: row[name] for name in stated} == stated
    assert row["capabilities"]["workdir"] == "/w"
    assert row["capabilities"]["versions"] == row["versions"]
    assert row["versions"]["kernel"] == "6.1"
    seen = datetime.fromisoformat(row["lastSeenAt"])
    assert abs((datetime.now(UTC) - seen).total_seconds()) < 10
    assert row.items() <= daemon.row().items()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        pytest.param("machineId", "stable-machine", marks=pytest.mark.inventory("S-595")),
        pytest.param("label", "named", marks=pytest.mark.inventory("S-596")),
        pytest.param("state", "setting_up", marks=pytest.mark.inventory("S-597")),
        pytest.param("queues", ["a", "b*"], marks=pytest.mark.inventory("S-598", "S-375")),
        pytest.param("runners", ["process", "docker"], marks=pytest.mark.inventory("S-599", "S-376")),
        pytest.param("tags", ["gpu:h100", "k=v=w"], marks=pytest.mark.inventory("S-600", "S-374")),
        pytest.param("maxInvocations", 7, marks=pytest.mark.inventory("S-601", "S-377")),
        pytest.param("pendingSetupCommands", ["echo 1", "echo 2"], marks=pytest.mark.inventory("S-603")),
        pytest.param("hostStatus", None, marks=pytest.mark.inventory("S-604", "S-630")),
        pytest.param("composeProject", None, marks=pytest.mark.inventory("S-605", "S-180")),
        pytest.param("providerName", None, marks=pytest.mark.inventory("S-606")),
        pytest.param("serverNodeId", None, marks=pytest.mark.inventory("S-607", "S-769")),
    ],
)
def test_a_field_of_a_row_outlives_the_daemons_restart(server: Served, ns: str, name: str, expected: object) -> None:
    told = {
        "machine_id": "stable-machine",
        "label": "named",
        "tags": ["gpu:h100", "k=v=w"],
        "lanes": ["a", "b*"],
        "capabilities": {"runners": ["process", "docker"], "max_invocations": 7},
    }
    daemon = Daemon(server, ns=ns)
    daemon.hello(**told)
    daemon.script("echo 1")
    daemon.script("echo 2")
    for row in (daemon.row(), daemon.restarted(**told).row()):
        shown = row[name]
        assert ([one["script"] for one in shown] if name == "pendingSetupCommands" else shown) == expected


@pytest.mark.inventory("S-300")
def test_the_list_is_a_namespaces_own_the_one_heard_of_last_first(server: Served, ns: str) -> None:
    daemons = [Daemon(server, ns=ns) for _ in range(3)]
    until(lambda: bool(daemons[1].ask()) and listed(server, ns)[0]["id"] == daemons[1].id)
    assert {row["id"] for row in listed(server, ns)} == {daemon.id for daemon in daemons}
    assert [row["id"] for row in listed(server, ns, "?state=active")] == [daemons[1].id]
    assert len(listed(server, ns, "?queue=default")) == 3
    assert listed(server, ns, "?compose_project=web") == []
    other = f"ns-{new_id()}"
    assert server.post("/v1/admin/namespaces", {"name": other}, encoding=JSON).status == 201
    assert listed(server, other) == []
    assert server.get(f"/v1/namespaces/{other}/workers/{daemons[0].id}").status == 404


@pytest.mark.inventory("S-301", "S-064")
def test_unknown_namespaces_and_workers_are_not_found(server: Served) -> None:
    for path in ("", "/none-such", "/%F0%9F%98%80"):
        assert server.get(f"/v1/namespaces/none-such/workers{path}").status == 404
    assert server.get("/v1/namespaces/default/workers/none-such").status == 404
    assert server.call("DELETE", "/v1/namespaces/default/workers/none-such").status == 404


@pytest.mark.inventory("S-418", "N-112")
def test_capabilities_of_a_poll_are_merged_into_the_row(daemon: Daemon) -> None:
    daemon.ask(updated_capabilities={"runners": ["process", "docker"], "versions": {"docker": "27.1"}})
    row = daemon.row()
    assert row["runners"] == ["process", "docker"]
    assert row["capabilities"]["workdir"] == "/w"
    assert (row["versions"]["docker"], row["versions"]["daemon"]) == ("27.1", "0.1.4")
    answer = daemon.raw_poll(updated_capabilities={"much": "x" * 70_000})
    assert answer.status == 413
    assert daemon.row()["runners"] == ["process", "docker"]


def test_a_drained_daemon_gets_no_more_and_ends_what_it_has_until_it_is_let_work_again(server: Served, ns: str) -> None:
    queue = f"q-{new_id()}"
    daemon = Daemon(server, ns=ns, queue=queue)
    first, second = one(queue=queue), one(queue=queue)
    assert server.post("/v1/producer/submit", first, X_LS_Namespace=ns).status == 200
    (run,) = daemon.ask()["commands"]
    held = [[first["invocation_id"], run["body"]["claim"], True]]
    asking = daemon.asking(held=held)
    told = daemon.order("drain").body
    assert told == {"id": daemon.id, "state": "draining", "inFlight": 1}
    assert asking.result(60)["commands"] == []  # at once: what it had parked would still have taken something
    assert server.post("/v1/producer/submit", second, X_LS_Namespace=ns).status == 200
    assert daemon.kinds(held=held) == []
    assert (daemon.state(), daemon.order("drain").body["state"]) == ("draining", "draining")
    body = {"worker_id": daemon.id, "session": daemon.session, "invocation_id": first["invocation_id"]}
    assert daemon.post("/v1/daemon/ack", {**body, "claim": run["body"]["claim"], "state": "succeeded"}).status == 200
    assert (daemon.row()["inFlight"], daemon.kinds()) == (0, [])
    assert daemon.order("drain", {"off": True}).body == {"id": daemon.id, "state": "joining", "inFlight": 0}
    assert (daemon.kinds(), daemon.state()) == (["run"], "active")
    assert daemon.order("drain", {"off": True}).body["state"] == "active"  # nothing to undo
    daemon.order("drain")
    assert daemon.restarted("2").row()["state"] == "joining"
    assert server.post(f"/v1/namespaces/{ns}/workers/none/drain", {}, encoding=JSON).status == 404
    assert daemon.order("drain", {"off": "yes"}).body["field"] == "off"


@pytest.mark.inventory("S-284", "S-286", "S-298")
@pytest.mark.inventory("S-712")
def test_queues_are_edited_and_a_parked_poll_learns_of_it(server: Served, daemon: Daemon) -> None:
    queue = f"q-{new_id()}"
    unknown = daemon.order("queues", {"add": [queue]})
    assert (unknown.status, unknown.body["field"]) == (404, "add")
    assert server.post("/v1/producer/submit", one(queue=queue), X_LS_Namespace=daemon.ns).status == 200
    asking = daemon.asking()
    edited = daemon.order("queues", {"add": [queue]})
    assert edited.body == {"id": daemon.id, "queues": [queue]}
    found = [command["kind"] for command in asking.result(60)["commands"]]
    assert (found or daemon.kinds()) == ["run"]
    # The edit lasts over a restart, until the daemon's own file names other queues.
    assert daemon.restarted("2").row()["queues"] == [queue]
    assert daemon.order("queues", {"remove": [queue]}).body["queues"] == []
    assert daemon.restarted("3", lanes=["other"]).row()["queues"] == ["other"]


@pytest.mark.inventory("S-829", "S-499")
def test_a_poll_drains_the_workers_queues_and_the_one_that_it_names(server: Served, ns: str) -> None:
    mine, named = f"q-{new_id()}", f"n-{new_id()}"
    daemon, plain = Daemon(server, ns=ns, queue=mine), Daemon(server, ns=ns)
    for queue in (mine, named, "default"):
        assert server.post("/v1/producer/submit", one(queue=queue), X_LS_Namespace=ns).status == 200

    def taken(who: Daemon, **more: Any) -> list[str]:
        return sorted(command["body"]["queue"] for command in who.ask(read=False, held=[], **more)["commands"])

    assert taken(daemon) == [mine]
    assert taken(daemon, queue=named) == sorted([mine, named])
    assert taken(daemon, queue=f"{named[:3]}*") == sorted([mine, named])
    assert taken(plain) == ["default"]


# --- states


@pytest.mark.inventory("S-410", "S-423")
def test_a_hello_joins_and_the_first_poll_is_active(server: Served, ns: str) -> None:
    daemon = Daemon(server, ns=ns)
    assert daemon.state() == "joining"
    daemon.ask()
    assert daemon.state() == "active"
    daemon.hello()
    assert daemon.state() == "joining"
    daemon.ask()
    assert daemon.state() == "active"


@pytest.mark.inventory("S-748", "S-812")
def test_a_worker_drains_then_says_goodbye_and_is_gone_but_listed(daemon: Daemon) -> None:
    exec_id = daemon.run("sleep 9")
    daemon.ask(capacity=1)
    daemon.ask(draining=True, held=[("none-such", 1, True)])
    assert daemon.state() == "draining"
    assert daemon.show(exec_id)["status"] == "running"
    daemon.ask(draining=True)  # it holds no call, but runs a command
    assert (daemon.state(), daemon.show(exec_id)["status"]) == ("draining", "running")
    daemon.end(exec_id)
    daemon.ask(draining=True)
    assert daemon.state() == "gone"
    assert daemon.show(exec_id)["status"] == "done"
    assert [row["state"] for row in listed(daemon.server, daemon.ns)] == ["gone"]
    daemon.restarted().ask()
    assert daemon.state() == "active"


@pytest.mark.inventory("S-812", "S-727")
def test_who_is_silent_for_long_is_gone_and_comes_back_with_its_next_poll(impatient: Served) -> None:
    silent, alive = Daemon(impatient), Daemon(impatient)
    exec_ids: list[str] = []

    def is_submitted() -> bool:
        silent.ask()
        path = f"/v1/namespaces/{silent.ns}/workers/{silent.id}/exec"
        answer = impatient.post(path, {"command": "true"}, encoding=JSON)
        exec_ids.append(answer.body.get("exec_id", ""))
        return answer.status == 202  # 409 when a slow machine was silent for too long in between

    until(is_submitted)
    exec_id = exec_ids[-1]
    silent.ask(capacity=1)

    def is_gone() -> bool:
        alive.ask()
        return silent.state() == "gone"

    until(is_gone)
    assert alive.state() == "active"
    assert silent.show(exec_id)["error"] == "daemon gone"
    silent.ask()
    assert silent.state() == "active"


def test_the_silence_that_is_too_long_must_be_a_number() -> None:
    for said in ("soon", "0", "-1", "nan", "inf"):
        with pytest.raises(serve.ServeError, match=f"LAKESHORE_WORKER_GONE_S='{said}' is no number of seconds"):
            serve._seconds_from({"LAKESHORE_WORKER_GONE_S": said}, "LAKESHORE_WORKER_GONE_S", 600.0)


@pytest.mark.inventory("S-313", "S-429")
@pytest.mark.inventory("S-711")
def test_a_worker_hibernates_once_it_was_told_and_wakes_with_its_next_poll(daemon: Daemon) -> None:
    past = daemon.order("hibernate", {"until_epoch_s": time.time() - 1})
    assert (past.status, past.body["field"]) == (400, "until")
    at = datetime.fromtimestamp(int(time.time()) + 3600, UTC)
    answer = daemon.order("hibernate", {"until": at.isoformat().replace("+00:00", "Z")})
    assert (answer.status, answer.body["until_epoch_s"]) == (202, at.timestamp())
    assert daemon.state() == "active"
    assert [one["kind"] for one in daemon.row()["orders"]] == ["hibernate"]
    (command,) = daemon.ask(read=False)["commands"]
    assert command["body"] == {"until_epoch_s": at.timestamp()}
    assert daemon.state() == "hibernating"
    assert datetime.fromisoformat(daemon.row()["hibernateUntil"]) == at
    # The answer got lost: it is told again. Then it sleeps, and only renews what it holds.
    assert daemon.kinds() == ["hibernate"]
    assert daemon.kinds(capacity=0) == []
    assert daemon.state() == "hibernating"
    assert daemon.kinds() == []
    assert daemon.state() == "active"


def test_a_hibernating_worker_is_not_gone_before_its_time(impatient: Served) -> None:
    daemon, silent = Daemon(impatient), Daemon(impatient)
    daemon.order("hibernate", {"until_epoch_s": time.time() + 600})
    assert daemon.kinds() == ["hibernate"]
    silent.ask()
    until(lambda: silent.state() == "gone")
    assert daemon.state() == "hibernating"
    answer = impatient.post(
        "/v1/namespaces/default/workers/cleanup", {"olderThanHours": 0.0001, "dryRun": True}, encoding=JSON
    )
    assert daemon.id not in [row["id"] for row in answer.body["deleted"]]


# --- removal


@pytest.mark.inventory("S-311", "S-778", "S-411")
@pytest.mark.inventory("S-711")
def test_a_killed_worker_is_told_to_leave_by_its_next_poll_and_a_new_hello_makes_a_new_row(daemon: Daemon) -> None:
    asking = daemon.asking()
    daemon.script("echo never")
    taken = [command["kind"] for command in asking.result(60)["commands"]]
    parked = daemon.asking(capacity=0) if taken else asking
    killed = daemon.server.call("DELETE", daemon.at("?keep_instance=1"))
    assert (killed.status, killed.body["deleted"], killed.body["terminated"]) == (200, True, False)
    told = parked.result(60)
    if told.get("status") != 410:  # it was answered just before
        told = daemon.ask()
    assert (told["status"], told["reason"]) == (410, "this worker was removed")
    assert daemon.server.get(daemon.at()).status == 404
    assert daemon.server.call("DELETE", daemon.at()).status == 404
    again = daemon.restarted()
    assert again.id == daemon.id
    assert "status" not in again.ask()
    assert again.row()["setups"][0]["state"] == "failed" if again.row()["setups"] else True


@pytest.mark.inventory("S-312")
def test_a_killed_worker_still_ends_what_it_holds_and_gets_nothing_new(server: Served, ns: str) -> None:
    queue = f"q-{new_id()}"
    daemon = Daemon(server, ns=ns, queue=queue)
    jobs = [one(queue=queue) for _ in range(2)]
    for job in jobs:
        assert server.post("/v1/producer/submit", job, X_LS_Namespace=ns).status == 200
    (run,) = daemon.ask(capacity=1)["commands"]
    id_, claim = run["body"]["invocation_id"], run["body"]["claim"]
    waiting = daemon.run("true")
    assert server.call("DELETE", daemon.at()).status == 200
    assert (daemon.show(waiting)["status"], daemon.show(waiting)["error"]) == ("failed", "daemon killed")
    held = [(id_, claim, True)]
    assert daemon.ask(held=held)["status"] == 410
    ack = {"invocation_id": id_, "claim": claim, "state": "succeeded", "result_blob": b"\x01"}
    told = daemon.ask(acks=[ack], draining=True)
    assert (told["acks"][0]["result"], told["status"], told["commands"]) == ("ok", 410, [])
    states = {row["id"]: row["state"] for row in server.get(f"/v1/namespaces/{ns}/invocations").body["invocations"]}
    assert states == {
        id_: "succeeded",
        **{job["invocation_id"]: "queued" for job in jobs if job["invocation_id"] != id_},
    }


def test_a_peer_without_sessions_that_was_killed_is_refused(server: Served, ns: str) -> None:
    daemon = Daemon(server, ns=ns, session=None)
    assert server.call("DELETE", daemon.at()).status == 200
    answer = daemon.raw_poll()
    assert (answer.status, answer.body["error"]) == (410, "this worker was removed")
    daemon.hello()
    assert daemon.raw_poll().status == 200


def test_a_daemons_token_goes_with_it(secured_server: Served) -> None:
    server = secured_server
    minted = server.post(
        "/v1/namespaces/default/tokens", {"name": f"t-{new_id()}", "scope": "daemon"}, encoding=JSON
    ).body
    daemon = Daemon(server, token=minted["plaintext"])
    daemon.ask()
    assert server.call("DELETE", daemon.at(), token=ADMIN).status == 200
    assert daemon.ask()["status"] == 410
    body = {
        "machine_id": daemon.machine,
        "label": f"box-{daemon.machine[:6]}",
        "tags": [],
        "capabilities": {"runners": []},
    }
    hello = daemon.post("/v1/daemon/hello", {**body, "versions": {"daemon": "1", "protocol": "1"}})
    assert (hello.status, hello.body["error"]) == (403, "this worker was removed")
    daemon.ask(draining=True)
    refused = daemon.raw_poll()
    assert refused.status == 403
    assert "revoked" in refused.body["error"]


@pytest.mark.inventory("S-308", "S-309")
def test_cleanup_removes_who_was_silent_for_longer_or_says_who_that_is(server: Served, ns: str) -> None:
    old, fresh = Daemon(server, ns=ns), Daemon(server, ns=ns)

    def clean(**more: Any) -> Any:
        return server.post(f"/v1/namespaces/{ns}/workers/cleanup", {"olderThanHours": 0.0003, **more}, encoding=JSON)

    def found() -> list[str]:
        fresh.ask()
        return [row["id"] for row in clean(dryRun=True).body["deleted"]]

    until(lambda: found() == [old.id])
    assert {row["id"] for row in listed(server, ns)} == {old.id, fresh.id}
    fresh.ask()
    told = clean().body
    assert (told["count"], told["deleted"][0]["label"]) == (1, f"box-{old.machine[:6]}")
    assert [row["id"] for row in listed(server, ns)] == [fresh.id]
    assert old.ask()["status"] == 410


@pytest.mark.inventory("S-310")
@pytest.mark.parametrize("hours", [0, -1, 168.1, None, "24", True, float("nan")])
@pytest.mark.inventory("S-665")
def test_a_cleanup_that_is_too_wide_or_too_narrow_is_refused(server: Served, hours: object) -> None:
    answer = server.post("/v1/namespaces/default/workers/cleanup", {"olderThanHours": hours})
    assert (answer.status, answer.body["field"]) == (400, "olderThanHours")


@pytest.mark.inventory("S-716")
def test_a_namespace_that_is_deleted_takes_its_workers_orders_and_events_along(server: Served, ns: str) -> None:
    daemon, gone = Daemon(server, ns=ns), Daemon(server, ns=ns)
    daemon.script()
    daemon.post("/v1/daemon/event", {"worker_id": daemon.id, "payload": {"a": 1}})
    assert server.call("DELETE", gone.at()).status == 200
    assert server.call("DELETE", f"/v1/admin/namespaces/{ns}").status == 200
    assert server.post("/v1/admin/namespaces", {"name": ns}, encoding=JSON).status == 201
    assert listed(server, ns) == []
    assert events(server, ns)["events"] == []
    assert "status" not in gone.ask()
    daemon.hello()
    assert daemon.kinds() == []


# --- events


@pytest.mark.inventory("S-452", "S-673", "S-780")
def test_events_are_logged_and_read_in_pages_both_ways(server: Served, daemon: Daemon) -> None:
    kinds = ("invocation.progress", "invocation.log", "invocation.event")
    for n in range(7):
        item = {"worker_id": daemon.id, "kind": kinds[n % 3], "queue": "q", "payload": {"n": n, "bytes": b"\xff"}}
        body = item if n else {"events": [item]}
        assert daemon.post("/v1/daemon/event", body).body["ok"] is True
    newest = events(server, daemon.ns, "?limit=3")
    assert [row["payload"]["n"] for row in newest["events"]] == [6, 5, 4]
    assert newest["events"][0]["payload"]["bytes"] == "/w=="
    older = events(server, daemon.ns, f"?limit=9&before={newest['next']}")
    assert [row["payload"]["n"] for row in older["events"]] == [3, 2, 1, 0]
    assert "next" not in older
    forward = events(server, daemon.ns, "?after=0&limit=5")
    assert [row["payload"]["n"] for row in forward["events"]] == [0, 1, 2, 3, 4]
    rest = events(server, daemon.ns, f"?after={forward['next']}")
    assert [row["payload"]["n"] for row in rest["events"]] == [5, 6]
    assert events(server, daemon.ns, f"?after={rest['next']}") == {
        "events": [],
        "count": 0,
        "limit": 50,
        "next": rest["next"],
    }
    logs = events(server, daemon.ns, f"?kind=invocation.log&worker={daemon.id}&queue=q")["events"]
    assert [(row["payload"]["n"], row["workerId"], row["queueName"]) for row in logs] == [
        (4, daemon.id, "q"),
        (1, daemon.id, "q"),
    ]
    assert events(server, daemon.ns, "?worker=other")["events"] == []


@pytest.mark.parametrize(
    ("item", "status", "field"),
    [
        ({}, 422, "worker_id"),
        ({"worker_id": "w", "kind": "queue.state"}, 422, "kind"),
        ({"worker_id": "w", "type": ""}, 422, "type"),
        ({"worker_id": "w", "payload": {"much": ["x" * 10] * 9000}}, 413, "payload"),
        ({"worker_id": "w", "queue": ""}, 422, "queue"),
    ],
)
def test_an_event_that_makes_no_sense_is_refused(server: Served, item: object, status: int, field: str) -> None:
    answer = server.post("/v1/daemon/event", item)
    assert (answer.status, answer.body["field"]) == (status, field)


@pytest.mark.inventory("N-417")
def test_how_a_script_ended_is_shown_once_however_often_it_is_told(server: Served, daemon: Daemon) -> None:
    good, bad = daemon.script("true", name="docker"), daemon.script("false")
    assert [daemon.kinds(), daemon.kinds(), daemon.kinds()] == [["setup"], ["setup"], []]

    def tell(id_: str, code: int, **more: Any) -> None:
        payload = {"type": "setup", "setup_id": id_, "exit_code": code, "duration_ms": 12, **more}
        answer = daemon.post("/v1/daemon/event", {"worker_id": daemon.id, "ts": time.time(), "payload": payload})
        assert answer.status == 200, answer.body

    tell(good, 0, stdout=b"x" * 40_000 + b"end", stderr=b"\xff")
    tell(bad, 3, error="exit status 3")
    tell(bad, 0)
    shown = {one["id"]: one for one in daemon.row()["setups"]}
    assert (shown[good]["name"], shown[good]["state"], shown[good]["exitCode"]) == ("docker", "done", 0)
    assert len(shown[good]["stdout"]) == 16_384
    assert shown[good]["stdout"].endswith("xend")
    assert shown[good]["stderr"] == "\ufffd"
    assert (shown[bad]["state"], shown[bad]["exitCode"], shown[bad]["error"]) == ("failed", 3, "exit status 3")
    assert events(server, daemon.ns, "?type=setup")["count"] == 2
