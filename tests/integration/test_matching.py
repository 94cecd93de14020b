"""Tags, runners and `match` decide which worker gets a call; what waits says which worker lacks what."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import daemons as d
import entry_bodies as bodies
import pytest
from served import JSON, Served, new_id
from test_server_queues import Queue, called, until
from worker_peer import Daemon

from dreamlake.lakeshore import HttpDispatch
from lakeshore.plane.runs import MOST_RUNS
from lakeshore.sdk import warned

NS = "/v1/namespaces/default"


def box(server: Served, queue: Queue, *tags: str, runners: tuple[str, ...] = ("process",), **more: Any) -> Daemon:
    one = Daemon(server)
    one.hello(lanes=[queue.name], tags=list(tags), capabilities={"runners": list(runners)}, **more)
    return one


def runs(answer: dict[str, Any]) -> list[str]:
    return [command["body"]["invocation_id"] for command in answer["commands"] if command["kind"] == "run"]


@pytest.fixture
def queue(server: Served) -> Queue:
    return Queue(server)


# --- who gets it


@pytest.mark.inventory("C-782", "S-374", "S-505")
@pytest.mark.parametrize("parked", [True, False])
def test_a_call_goes_to_a_worker_that_has_all_its_tags(server: Served, queue: Queue, parked: bool) -> None:
    plain, gpu = box(server, queue, "zone=a"), box(server, queue, "gpu:h100", "zone=a")
    waiting = [one.asking() for one in (plain, gpu)] if parked else []
    if parked:
        until(lambda: len(called(server, "GET", f"{NS}/queues/{queue.name}").body["members"]) == 2)
    first = queue.queued(run_config={"tags": ["gpu:h100", "zone=a"]})
    second = queue.queued(
        run_config={"match": {"tags": ["gpu:h100"], "runners": ["process"]}}, delay_s=3600 if parked else 0.05
    )
    for id_ in (first, second) if not parked else (first,):
        if parked:
            assert runs(waiting[1].result(60)) == [id_]
        else:
            until(lambda id_=id_: queue.reason(id_) in ("away", "next", "busy"))
    if not parked:
        until(lambda: queue.row(second)["state"] == "queued" and queue.reason(second) != "delayed")
        assert runs(plain.ask()) == []
        assert runs(gpu.ask()) == [first, second]
    own = queue.queued()
    assert runs(waiting[0].result(60) if parked else plain.ask()) == [own], "what asks for nothing is for everybody"


@pytest.mark.parametrize("kind", ["fifo", "filo", "boltzmann"])
def test_what_nobody_there_can_run_holds_nothing_up(server: Served, kind: str) -> None:
    queue = Queue(server, kind=kind)
    plain = box(server, queue)
    stuck = [queue.queued(run_config={"tags": ["moon"], "priority": 9}) for _ in range(3)]
    own = [queue.queued() for _ in range(3)]
    assert sorted(runs(plain.ask(capacity=8))) == sorted(own)
    parked = plain.asking(held=[[id_, 1, True] for id_ in own])
    late = queue.queued(run_config={"runner": "subprocess"})
    assert runs(parked.result(60)) == [late]
    assert [queue.reason(id_) for id_ in stuck] == ["no_match"] * 3
    moon = box(server, queue, "moon")
    assert sorted(runs(moon.ask(capacity=8))) == sorted(stuck)


def test_a_server_with_calls_that_nobody_present_can_run_rests(server: Served, queue: Queue) -> None:
    plain = box(server, queue)
    parked = plain.asking(timeout_s=3.0)
    queue.queued(run_config={"tags": ["moon"]})

    def commits() -> float:
        text = server.get("/metrics").raw.decode()
        return float(next(line.split()[-1] for line in text.splitlines() if line.startswith("lakeshore_commits_total")))

    before = commits()
    assert runs(parked.result(60)) == []
    assert commits() - before < 40, "a row that fits nobody is not tried again and again"


def test_a_worker_has_the_tags_that_it_said_last(server: Served, queue: Queue) -> None:
    one = box(server, queue)
    id_ = queue.queued(run_config={"tags": ["late"]})
    assert runs(one.ask()) == []
    one.ask(updated_capabilities={"tags": ["late"]}, capacity=0)
    assert one.row()["tags"] == ["late"]
    assert runs(one.ask()) == [id_]


@pytest.mark.inventory("N-142")
def test_a_worker_that_learns_a_runner_gets_what_waits_for_it(server: Served, queue: Queue) -> None:
    one = box(server, queue)
    id_ = queue.queued(run_config={"runner": "docker"})
    assert runs(one.ask()) == []
    assert runs(one.ask(updated_capabilities={"runners": ["process", "docker"]})) == [id_]


@pytest.mark.inventory("S-299", "C-784")
def test_a_queues_own_run_config_asks_too_and_lies_below_the_calls(server: Served) -> None:
    queue = Queue(server, runConfig={"tags": ["gpu"], "env": {"A": "queue", "B": "queue"}})
    plain, gpu = box(server, queue), box(server, queue, "gpu")
    theirs = queue.queued(run_config={"env": {"B": "call"}})
    own = queue.queued(run_config={"tags": []})
    assert runs(plain.ask()) == [own]
    (command,) = gpu.ask()["commands"]
    assert command["body"]["invocation_id"] == theirs
    assert command["body"]["run_config"]["env"] == {"A": "queue", "B": "call"}


# --- what is said of it


def test_a_call_that_waits_says_what_each_worker_lacks(server: Served, queue: Queue) -> None:
    plain, docker = box(server, queue, "zone=a"), box(server, queue, "gpu", runners=("docker",))
    for one in (plain, docker):
        one.ask()
    told = queue.submit(run_config={"tags": ["gpu"], "runner": "process"}).body
    assert told["warnings"] == [
        f"no known worker of queue {queue.name!r} has the tag 'gpu' and the runner 'process'; it waits until one comes"
    ]
    waits = queue.row(told["invocation_id"])["waits"]
    assert waits["reason"] == "no_match"
    assert {one["id"]: one["why"] for one in waits["workers"]} == {
        plain.id: "lacks the tag gpu",
        docker.id: "has docker",
    }
    assert "box-" in waits["message"] and "(lacks the tag gpu)" in waits["message"]
    fit = queue.submit(run_config={"tags": ["gpu"]}).body
    assert "warnings" not in fit
    assert queue.row(fit["invocation_id"])["waits"]["message"] == (
        f"the one worker of queue {queue.name!r} with the tag 'gpu' is busy"
    )


def test_each_call_of_a_batch_is_warned_of_by_itself(server: Served, queue: Queue) -> None:
    box(server, queue, "gpu").ask()
    configs = [{}, {"tags": ["moon"]}, {"tags": ["gpu"]}, {"mounts": ["data"]}, {"tags": "gpu"}] * 2
    items = [
        {"invocation_id": new_id(), "queue": queue.name, "args_blob": "", "run_config": config} for config in configs
    ]
    results = called(server, "POST", "/v1/producer/submit", {"invocations": items}).body["results"]
    warned_of = [[text.partition(" ")[0] for text in one.get("warnings", ())] for one in results]
    assert warned_of == [[], ["no"], [], ["run_config.mounts:"], []] * 2
    assert [one.get("field") for one in results] == [None, None, None, None, "run_config.tags"] * 2


@pytest.mark.inventory("S-764", "N-385")
def test_mounts_that_nobody_mounts_are_warned_of_and_others_are_not(server: Served, queue: Queue) -> None:
    one = box(server, queue)
    (told,) = queue.submit(run_config={"mounts": ["data"]}).body["warnings"]
    assert told.startswith(f"run_config.mounts: no known worker of queue {queue.name!r} mounts anything")
    one.ask(updated_capabilities={"mounts": ["bind"]}, capacity=0)
    assert "warnings" not in queue.submit(run_config={"mounts": ["data"]}).body


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("queues", {"runConfig": {"tags": [1]}}, "runConfig.tags[0]"),
        ("queues", {"runConfig": {"match": {"tag": []}}}, "runConfig.match.tag"),
        ("modes", {"match": {"tags": "gpu"}}, "match.tags"),
        ("modes", {"match": ["gpu"]}, "match"),
    ],
)
def test_what_asks_nonsense_is_not_stored(server: Served, path: str, body: dict[str, Any], field: str) -> None:
    answer = called(server, "POST", f"{NS}/{path}", {"name": f"n-{new_id().lower()}", **body})
    assert (answer.status, answer.body["field"]) == (422, field)


def test_the_sdk_passes_a_warning_on_once_at_the_line_that_submitted(server: Served, queue: Queue) -> None:
    box(server, queue).ask()
    plane = HttpDispatch(server.url)
    how: dict[str, Any] = {"_dispatch": plane, "_queue": queue.name, "_run_config": {"tags": [f"moon-{new_id()}"]}}
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        ids = [bodies.pair.submit(1, 2, **how) for _ in range(3)]
    (one,) = told
    assert one.category is warned.SubmitWarning and "no known worker of queue" in str(one.message)
    assert one.filename == __file__
    assert len(set(ids)) == 3
    plane.close()


# --- two real daemons


@pytest.fixture
def pair(server: Served, tmp_path: Path) -> Iterator[tuple[d.Daemon, d.Daemon]]:
    if not sys.platform.startswith("linux"):
        pytest.skip("a keeper counts processes in /proc")
    name = f"pair-{new_id()}"
    with (
        d.daemon(server.url, tmp_path / "small", {"daemon": {"tags": ["size=small"], "lanes": [name]}}) as small,
        d.daemon(server.url, tmp_path / "large", {"daemon": {"tags": ["size=large"], "lanes": [name]}}) as large,
    ):
        for one in (small, large):
            one.queue = name
            one.start()
        yield small.polls(), large.polls()


@pytest.mark.inventory("C-782", "N-037", "N-076")
def test_two_daemons_get_the_calls_of_their_modes(
    server: Served, pair: tuple[d.Daemon, d.Daemon], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small, large = pair
    monkeypatch.chdir(tmp_path)
    python = f"python: {sys.executable}, env: {{PYTHONPATH: {d.HERE}}}"
    Path(".dreamrc").write_text(
        "modes:\n"
        + "".join(
            f"  {size}: {{backend: fabric, runner: process, tags: [size={size}], {python}}}\n"
            for size in ("small", "large", "huge")
        )
    )
    plane = HttpDispatch(server.url)
    how: dict[str, Any] = {"_dispatch": plane, "_queue": small.queue}
    ids = {size: [bodies.pair.submit(n, 1, _mode=size, **how) for n in range(4)] for size in ("large", "small")}
    with pytest.warns(warned.SubmitWarning, match="no known worker of .* has the tag 'size=huge'"):
        huge = bodies.pair.submit(1, 2, _mode="huge", **how)
    for size, one in (("small", small), ("large", large)):
        for id_ in ids[size]:
            assert d.ended(server, id_)["state"] == "succeeded", one.said()
            assert server.get(f"{NS}/invocations/{id_}", Accept=JSON).body["worker"] == one.name
    waits = server.get(f"{NS}/invocations/{huge}", Accept=JSON).body["waits"]
    assert waits["reason"] == "no_match"
    assert {one["label"]: one["why"] for one in waits["workers"]} == {
        small.name: "lacks the tag size=huge",
        large.name: "lacks the tag size=huge",
    }
    plane.close()


def test_a_queue_has_room_for_so_many_asks_because_each_costs_every_claim_a_seek(server: Served, queue: Queue) -> None:
    def item(tag: str | None, **more: Any) -> dict[str, Any]:
        asks = {} if tag is None else {"run_config": {"tags": [tag]}}
        return {"invocation_id": new_id(), "queue": queue.name, "args_blob": "", **asks, **more}

    def batch(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = called(server, "POST", "/v1/producer/submit", {"invocations": items}).body[
            "results"
        ]
        return found

    first, *rest = [item(f"t{n}") for n in range(MOST_RUNS - 1)]
    assert {said["status"] for said in batch([first, *rest])} == {200}
    assert {said["status"] for said in batch([item(f"t{n % 9}") for n in range(100)])} == {200}, "what others ask"
    assert batch([item("new"), item("t1"), item(None)])[0]["status"] == 429
    refused = queue.submit(run_config={"tags": ["another"]})
    assert refused.status == 429
    assert refused.body["hint"].startswith(f"queue '{queue.name}' has calls that ask {MOST_RUNS} different things")
    assert queue.submit(run_config={"tags": ["t1"]}).status == queue.submit().status == 200
    assert called(server, "POST", "/v1/producer/submit", first).status == 200, "the same submit as before (K-16)"
    assert server.post(f"{NS}/invocations/bulk-cancel", {"queue": queue.name}).status == 200
    assert queue.submit(run_config={"tags": ["another"]}).status == 200
