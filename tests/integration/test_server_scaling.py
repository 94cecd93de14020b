"""What the elasticity controller does to daemons that are there, spoken by hand: who goes, who stays, and why."""

from __future__ import annotations

import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from daemons import until
from elastic import Fleet, Peer, Silent, settings
from served import ADMIN, JSON, Served, running
from worker_peer import Daemon


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with running(tmp_path_factory.mktemp("scaling"), env=settings(), token=ADMIN) as server:
        yield server


@pytest.fixture
def fleet(served: Served) -> Fleet:
    return Fleet(served)


def ids(fleet: Fleet) -> set[str]:
    return {row["id"] for row in fleet.workers()}


# --- who goes


@pytest.mark.inventory("S-529", "S-530", "S-761")
def test_idle_daemons_go_one_a_look_the_dearest_first_and_never_below_the_min(fleet: Fleet) -> None:
    fleet.queue("q", "fixed")
    said = {"runners": ["process"], "cost_weight": 0.5}
    cheap, dear = fleet.peer("q", tags=["gpu:a"], capabilities=said).serve(), fleet.peer("q", tags=["gpu:a"]).serve()
    old, new = fleet.peer("q").serve(), fleet.peer("q").serve()
    old.ask(), new.ask()
    fleet.patch("q", elasticity={"kind": "fully_elastic", "min": 1})
    until(lambda: len(fleet.workers()) == 1)
    fleet.looks(6)
    assert [row["after"]["worker"] for row in fleet.decisions("q")] == [dear.id, old.id, new.id]
    assert ids(fleet) == {cheap.id}
    assert fleet.reasons("q")[-1] == "at min=1"
    assert dear.raw_poll().body.get("status") == 410


@pytest.mark.inventory("S-528", "S-529")
def test_who_holds_a_call_or_a_command_or_says_that_it_runs_something_stays(fleet: Fleet) -> None:
    fleet.queue("q", "fixed")
    holds, commanded = fleet.peer("q").serve(), fleet.peer("q").serve()
    says = fleet.peer("q", capabilities={"runners": ["process"], "current_invocations": 1}).serve()
    fleet.submit("q")
    ((run,),) = [[one for one in holds.ask()["commands"] if one["kind"] == "run"]]
    told = fleet("POST", f"workers/{commanded.id}/exec", {"command": "true"})
    assert told.status in (200, 201, 202), told.body
    fleet.patch("q", elasticity={"kind": "max_count"})
    fleet.looks(5)
    assert ids(fleet) == {holds.id, commanded.id, says.id}
    assert fleet.actions("q") == []
    assert set(fleet.reasons("q")[1:] or fleet.reasons("q")) == {
        "fewer calls wait than there are daemons — no daemon is idle"
    }
    ack = {"invocation_id": run["body"]["invocation_id"], "claim": run["body"]["claim"], "state": "succeeded"}
    holds.ask(acks=[ack])
    until(lambda: ids(fleet) == {commanded.id, says.id})


def test_a_daemon_that_other_queues_need_stays(fleet: Fleet) -> None:
    fleet.queue("b", "fixed")
    fleet.queue("a", "fully_elastic")
    peer = fleet.peer("a", "b").serve()
    for policy, why in (
        ({"kind": "fixed"}, "which is fixed"),
        ({"kind": "fully_elastic", "min": 1}, "which needs it"),
        ({"kind": "pool_with_threshold", "min": 1}, "which needs it"),
    ):
        fleet.patch("b", elasticity=policy)
        until(lambda why=why: any(why in said for said in fleet.reasons("a")))
    fleet("POST", "queues/b/drain")
    until(lambda: any("queue b, which is draining" in said for said in fleet.reasons("a")))
    assert ids(fleet) == {peer.id}
    fleet("POST", "queues/b/unarchive")
    fleet.patch("b", elasticity={"kind": "fully_elastic"})
    until(lambda: ids(fleet) == set())


@pytest.mark.inventory("S-534", "S-535", "C-1090")
@pytest.mark.parametrize("verb", ["drain", "archive", "pause"])
def test_a_queue_that_is_not_active_keeps_what_it_has(fleet: Fleet, verb: str) -> None:
    fleet.queue("other", "fully_elastic")
    fleet.queue("q", "fixed")
    peer = fleet.peer("q").serve()
    if verb == "pause":
        fleet.patch("q", state="paused")
    else:
        fleet("POST", f"queues/q/{verb}")
    fleet.patch("q", elasticity={"kind": "max_count"})
    seen = fleet.decisions("q", noops=True)
    fleet.patch("other", elasticity={"kind": "fully_elastic", "min": 0, "max": 3})
    count = len(fleet.decisions("other", noops=True))
    fleet.patch("other", elasticity={"kind": "fully_elastic", "max": "many"})
    until(lambda: len(fleet.decisions("other", noops=True)) > count)
    assert fleet.decisions("q", noops=True)[: len(seen)] == seen
    assert all(row["reason"] == "fixed: no-op" for row in fleet.decisions("q", noops=True))
    assert ids(fleet) == {peer.id}
    if verb == "pause":
        fleet.patch("q", state="active")
    else:
        fleet("POST", "queues/q/unarchive")
    until(lambda: ids(fleet) == set())


@pytest.mark.inventory("S-514", "S-532", "S-762")
@pytest.mark.inventory("S-678")
def test_a_pool_counts_a_daemon_of_two_of_its_queues_once(fleet: Fleet) -> None:
    pool = {"kind": "fully_elastic", "pool": "p", "min": 1}
    fleet.queue("a", "fixed")
    both, one = fleet.peer("a", "b").serve(), fleet.peer("b").serve()
    for name in ("a", "b"):
        fleet("POST", "queues", {"name": name})
        fleet.patch(name, elasticity={"kind": "fixed"})
    fleet.patch("a", elasticity=pool)
    fleet.patch("b", elasticity={**pool, "max": 4})
    until(lambda: len(fleet.workers()) == 1)
    fleet.looks(5)
    (down,) = [row for row in fleet.decisions("pool:p") if row["before"]["daemon_count"] == 2]
    assert down["after"]["daemon_count"] == 1
    assert down["after"]["worker"] in (both.id, one.id)
    assert down["reason"].endswith("(members disagree: a decides)")
    events = fleet("GET", "queues/b/events").body["events"]
    assert "pool:p" in {row.get("queueName") for row in events}


def test_a_worker_without_a_row_counts_and_is_never_ended(fleet: Fleet) -> None:
    fleet.queue("q", "pool_with_threshold", min=1)
    body = {"worker_id": "sdk", "queue": "q", "capacity": 1, "timeout_s": 0, "session": "s", "n": 1}
    fleet.server.post("/v1/daemon/poll", body, X_LS_Namespace=fleet.ns)
    until(lambda: any("at min=1" in said for said in fleet.reasons("q")))
    assert fleet.actions("q") == []


# --- what is told


@pytest.mark.inventory("S-512", "S-517", "S-518")
@pytest.mark.inventory("S-676", "S-677")
def test_every_look_is_told_and_looks_that_say_the_same_are_one_row(fleet: Fleet) -> None:
    fleet.queue("still", "fixed")
    fleet.queue("odd", "fully_elastic", max="many")
    until(lambda: fleet.decisions("odd", noops=True))
    fleet.looks(3)
    assert fleet.reasons("still") == ["fixed: no-op"]
    (reason,) = fleet.reasons("odd")
    assert reason == "elasticity.max must be a whole number from 0, not 'many' — nothing is done"
    assert fleet.actions("odd") == []
    assert fleet("PATCH", "queues/odd", {"elasticity": {"kind": "max_count", "min": -1}}).body["warnings"] == [
        "elasticity.min must be a whole number from 0, not -1 — nothing is done"
    ]


@pytest.mark.inventory("S-525", "S-528")
def test_without_a_provider_the_reason_says_so(fleet: Fleet) -> None:
    fleet.queue("q", "fully_elastic", provider=None, min=1)
    until(lambda: fleet.reasons("q"))
    assert fleet.reasons("q")[0] == 'queue "q" has no providerRef / daemonTemplate.provider — cannot launch'


@pytest.mark.inventory("S-789", "S-810", "C-1436")
def test_stats_say_that_the_controller_looks(fleet: Fleet) -> None:
    fleet.queue("q", "fully_elastic")
    until(lambda: fleet.stats("q")["controller"]["last_tick_at"])
    controller = fleet.stats("q")["controller"]
    assert (controller["enabled"], controller["tick_s"]) == (True, 0.1)


@pytest.mark.inventory("C-1098", "C-1209", "C-1436")
def test_the_command_line_shows_what_is_decided_and_why_there_is_no_daemon(
    fleet: Fleet, run: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("LAKESHORE_URL", fleet.server.url)
    monkeypatch.setenv("LAKESHORE_TOKEN", ADMIN)
    monkeypatch.setenv("LAKESHORE_ADMIN_TOKEN", ADMIN)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    fleet.queue("q", "fully_elastic", provider="none", min=1)
    until(lambda: fleet.stats("q")["last_launch_error"])
    code, out, err = run("queues", "stats", "q", "--namespace", fleet.ns)
    assert code == 0, err
    assert "on, every 0.1 s, last " in out
    assert "there is no provider 'none'" in out
    assert "next try" in out
    code, out, err = run("queues", "events", "q", "--verbose", "--namespace", fleet.ns)
    assert (code, "tick_noop" in out, "launch failed" in out) == (0, True, True), out + err
    code, out, err = run("queues", "events", "q", "--namespace", fleet.ns)
    assert (code, "tick_noop" in out) == (0, False)


# --- a provider that does not do it


@pytest.mark.inventory("S-528", "S-822")
def test_a_launch_that_hangs_keeps_nobody_waiting_and_one_that_fails_is_tried_later_and_later(
    tmp_path: Path,
) -> None:
    with (
        Silent() as provider,
        running(tmp_path, env=settings(AWS_ENDPOINT_URL_EC2=provider.url, AWS_MAX_ATTEMPTS="1"), token=ADMIN) as served,
    ):
        fleet = Fleet(served)
        fleet.queue("hangs", "fully_elastic", max=1)
        fleet.queue("goes", "fully_elastic")
        fleet.submit("hangs")
        until(lambda: provider.asked)
        fleet.peer("goes").serve()
        until(lambda: fleet.actions("goes") == ["scale_down"])
        assert [row["state"] for row in fleet.workers()] == ["pending"]
        assert fleet.actions("hangs") == []
        until(lambda: "the daemons that are missing are on their way" in fleet.reasons("hangs"))
        fleet.queue("fails", "fully_elastic", provider="none", min=2)
        until(lambda: any("no launch before" in said for said in fleet.reasons("fails")))
        fleet.looks(6)
        told = fleet.reasons("fails")
        assert len(told) <= 3, told
        assert "below min=2 — launch failed: " in told[0]
        assert "there is no provider 'none'" in told[0]
        assert told[0].endswith("next try in 10 s")
        error = fleet.stats("fails")["last_launch_error"]
        assert (error["failures"], "there is no provider 'none'" in error["error"]) == (1, True)


# --- between the look and the kill


class Busy:
    """A daemon that always asks, and does what it gets; one that is told to leave comes back."""

    def __init__(self, peer: Peer) -> None:
        self.peer, self.done, self.left, self.wrong = peer, 0, 0, list[str]()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Busy:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        peer: Daemon = self.peer
        acks, n = list[dict[str, Any]](), 100_000  # sessions are told apart by their order as texts
        dice = random.Random(7)
        while not self._over.is_set():
            told = peer.raw_poll(timeout_s=0.05, capacity=1, acks=acks).body
            acks = []
            runs = [one["body"] for one in told["commands"] if one["kind"] == "run"]
            if told.get("status") == 410:
                self.left += 1
                self.wrong += [run["invocation_id"] for run in runs]
                n += 1
                peer = peer.restarted(f"{n:06}", lanes=list(self.peer.queues))
            for run in runs:
                held = [[run["invocation_id"], run["claim"], True]]
                for _ in range(dice.randrange(3)):
                    if peer.raw_poll(capacity=0, held=held).body.get("status") == 410:
                        self.wrong.append(run["invocation_id"])
                acks.append({"invocation_id": run["invocation_id"], "claim": run["claim"], "state": "succeeded"})
                self.done += 1


def test_a_daemon_that_gets_a_call_between_the_look_and_the_kill_is_not_killed(tmp_path: Path) -> None:
    with running(tmp_path, env=settings(ELASTICITY_TICK_S="0.003"), token=ADMIN) as served:
        fleet = Fleet(served)
        fleet.queue("q", "max_count")
        dice, calls = random.Random(3), list[str]()
        with Busy(fleet.peer("q")) as one, Busy(fleet.peer("q")) as other:
            until_s = time.monotonic() + 6
            while time.monotonic() < until_s:
                calls.append(fleet.submit("q"))
                time.sleep(dice.random() * 0.03)  # the moment of a call is what is tried
            assert {fleet.ended(id_) for id_ in calls} == {"succeeded"}
        assert one.wrong + other.wrong == []
        assert one.done + other.done == len(calls), "a call was run twice"
        assert one.left + other.left > 5
        claims = [
            served.post("/v1/producer/await", {"invocation_id": id_, "get": True}, X_LS_Namespace=fleet.ns).body[
                "invocation"
            ]["attempt"]
            for id_ in calls
        ]
        assert set(claims) == {1}


@pytest.mark.inventory("S-533", "S-821")
def test_a_server_that_dies_in_the_midst_of_a_launch_counts_it_when_it_is_back(tmp_path: Path) -> None:
    with Silent() as provider:
        env = settings(AWS_ENDPOINT_URL_EC2=provider.url)
        with running(tmp_path, env=env, token=ADMIN) as served:
            fleet = Fleet(served)
            fleet.queue("q", "fully_elastic", max=1)
            fleet.submit("q")
            until(lambda: provider.asked)
            (launched,) = fleet.workers()
            served.stop(signal.SIGKILL)
        with running(tmp_path, env=env, token=ADMIN) as served:
            fleet = fleet.of(served)
            fleet.looks(5)
            assert [row["id"] for row in fleet.workers()] == [launched["id"]]
            assert fleet.stats("q")["last_launch_error"] is None
            assert fleet.decisions("q", noops=True)[-1]["before"]["in_flight"] == 1
            assert fleet.actions("q") == []


@pytest.mark.parametrize("number", [10**400, -(10**400), 2**64, 2**63 - 1])
@pytest.mark.parametrize("name", ["cost_weight", "current_invocations", "max_invocations", "other"])
def test_no_number_that_a_daemon_tells_ends_the_server(fleet: Fleet, name: str, number: int) -> None:
    fleet.queue("numbers", "fully_elastic", min=1)
    peer = fleet.peer("numbers").serve()
    asked = {"worker_id": peer.id, "timeout_s": 0, "capacity": 1, "updated_capabilities": {name: number}}
    told = fleet.server.post("/v1/daemon/poll", asked, encoding=JSON, X_LS_Namespace=fleet.ns)
    assert told.status in (200, 422), told.body
    fleet.patch("numbers", elasticity={"kind": "fully_elastic"})
    fleet.looks()
    assert fleet.server.call("GET", f"/v1/namespaces/{fleet.ns}/workers").status == 200
