"""`lakeshore jobs` against a real server."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import worker_bodies as bodies
from served import ADMIN, Served

from lakeshore import HttpDispatch, SyncQueue, wire

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def no_saved_login(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))


@pytest.fixture
def run(server: Served, monkeypatch: pytest.MonkeyPatch, run: Run) -> Run:
    """Run one command against the open server; (exit code, stdout, stderr)."""
    monkeypatch.setenv("LAKESHORE_URL", server.url)
    return run


@pytest.fixture
def queue(server: Served) -> Iterator[SyncQueue]:
    plane = HttpDispatch(server.url)
    yield SyncQueue(f"q-{secrets.token_hex(6)}", dispatch=plane)
    plane.close()


def listed(run: Run, queue: SyncQueue, *arguments: str) -> list[dict[str, Any]]:
    code, out, _err = run("jobs", "list", "--queue", queue.name, "--json", *arguments)
    assert code == 0
    rows: list[dict[str, Any]] = json.loads(out)
    return rows


def failed(queue: SyncQueue) -> str:
    invocation = queue.submit({"x": 1})
    job = queue.claim()
    assert job is not None
    queue.nack(
        job, error={"type": "ValueError", "message": "no good", "traceback": "Traceback…\nValueError"}, retry=False
    )
    return invocation


@pytest.mark.inventory("C-1104", "C-658", "C-190")
@pytest.mark.inventory("C-473", "C-1382", "C-1383")
def test_the_list_is_an_array_newest_first_with_the_cookbooks_names(run: Run, queue: SyncQueue) -> None:
    first, second = queue.submit(1), queue.submit(2)
    job = queue.claim()
    assert job is not None
    rows = listed(run, queue)
    assert [row["id"] for row in rows] == [second, first]
    assert [row["state"] for row in rows] == ["queued", "running"]
    assert rows[0]["worker"] is None
    assert rows[1]["worker"]
    assert {row["queue"] for row in rows} == {queue.name}


@pytest.mark.inventory("C-192", "C-1215")
@pytest.mark.inventory("C-473", "C-1382")
def test_the_envelope_is_the_routes_own_answer(run: Run, queue: SyncQueue) -> None:
    queue.submit(1)
    code, out, _err = run("jobs", "list", "--queue", queue.name, "--envelope", "--limit", "7")
    answer = json.loads(out)
    assert code == 0
    assert (answer["count"], answer["limit"], answer["offset"]) == (1, 7, 0)
    assert answer["invocations"][0]["queueName"] == queue.name


@pytest.mark.inventory("C-656", "C-660", "C-1213")
def test_states_are_alternatives_and_pages_follow_each_other(run: Run, queue: SyncQueue) -> None:
    ids = [queue.submit(n) for n in range(3)]
    job = queue.claim()
    assert job is not None
    queue.ack(job)
    assert len(listed(run, queue, "--state", "queued")) == 2
    assert len(listed(run, queue, "--state", "queued", "--state", "succeeded")) == 3
    pages = [listed(run, queue, "--limit", "2", "--offset", offset) for offset in ("0", "2")]
    assert [row["id"] for page in pages for row in page] == ids[::-1]


@pytest.mark.inventory("C-193", "C-1100")
def test_the_table_has_the_documented_columns_and_nothing_else_is_on_stdout(run: Run, queue: SyncQueue) -> None:
    invocation = queue.submit(1)
    code, out, err = run("jobs", "list", "--queue", queue.name)
    head, row = out.splitlines()
    assert code == 0
    assert head.split() == ["ID", "STATE", "WORKER", "QUEUE", "ATTEMPT", "SUBMITTED", "STARTED", "FUNCTION"]
    assert row.split()[:4] == [invocation, "queued", "—", queue.name]
    assert err == ""


@pytest.mark.inventory("S-784")
def test_a_call_is_listed_and_shown_by_its_functions_name(run: Run, queue: SyncQueue) -> None:
    invocation = bodies.add.submit(1, 2, _queue=queue.name, _dispatch=queue.plane)
    (row,) = listed(run, queue)
    assert row["functionQualname"] == "worker_bodies.add"
    _code, out, _err = run("jobs", "list", "--queue", queue.name)
    assert out.splitlines()[1].split()[-1] == "worker_bodies.add"
    _code, out, _err = run("jobs", "show", invocation)
    assert ["function", "worker_bodies.add"] in [line.split() for line in out.splitlines()]
    assert "_native_wire" not in out


def test_an_empty_list_says_so_on_stderr_and_is_an_empty_array(run: Run, queue: SyncQueue) -> None:
    code, out, err = run("jobs", "list", "--queue", queue.name)
    assert (code, out) == (0, "")
    assert "no invocations" in err
    assert listed(run, queue) == []


@pytest.mark.inventory("C-194", "C-1216", "C-1217")
def test_show_prints_the_whole_record(run: Run, queue: SyncQueue) -> None:
    invocation = failed(queue)
    code, out, _err = run("jobs", "show", invocation)
    assert code == 0
    assert "error: ValueError: no good\n" in out
    code, out, _err = run("jobs", "show", invocation, "--json")
    row = json.loads(out)
    assert (row["id"], row["state"], row["error"]["type"]) == (invocation, "failed", "ValueError")


def test_an_unknown_id_exits_1_and_names_it(run: Run) -> None:
    for verb in ("show", "kill", "retry"):
        code, out, err = run("jobs", verb, "nosuchid")
        assert (code, out) == (1, "")
        assert "nosuchid" in err


def begun(queue: SyncQueue, *ends: str) -> str:
    """Invocations whose ids begin alike: how."""
    beginning: str = f"01{secrets.token_hex(6).upper()}"
    for end in ends:
        queue.plane.submit(queue.name, wire.pack(1), id=f"{beginning}{end}")
    return beginning


@pytest.mark.parametrize("verb", ["show", "why", "kill", "logs", "retry"])
def test_the_beginning_of_one_id_is_enough(run: Run, queue: SyncQueue, verb: str) -> None:
    beginning = begun(queue, "AAAAAAAAAAAA", "BBBBBBBBBBBB")
    whole = f"{beginning}AAAAAAAAAAAA"
    if verb == "retry":
        assert run("jobs", "kill", whole)[0] == 0
    for said in (f"{beginning}A", f"{beginning}AA…") if verb != "kill" else (f"{beginning}A",):
        code, out, err = run("jobs", verb, said)
        assert code == 0, err
        assert verb == "why" or whole in out + err
        if verb == "retry":
            run("jobs", "kill", whole)
    assert queue.plane.get(f"{beginning}BBBBBBBBBBBB")["state"] == "queued"


def test_the_beginning_of_several_ids_names_five_and_of_none_says_so(run: Run, queue: SyncQueue) -> None:
    beginning = begun(queue, *(f"{n}{'0' * 11}" for n in range(5)))
    code, out, err = run("jobs", "kill", beginning)
    assert (code, out) == (1, "")
    assert [err.count(f"{beginning}{n}0") for n in range(5)] == [1] * 5
    assert "…" not in err
    queue.plane.submit(queue.name, wire.pack(1), id=f"{beginning}9{'0' * 11}")
    code, _out, err = run("jobs", "kill", beginning)
    assert (code, err.count(f"{beginning}9"), err.count(f"{beginning}0"), "…" in err) == (1, 1, 0, True)
    assert queue.count() == 6
    assert run("jobs", "show", f"{beginning}7")[2].count(f"begins with '{beginning}7'") == 1
    code, _out, err = run("jobs", "show", beginning[:3])
    assert (code, "at least 4 characters" in err) == (1, True)


def test_an_id_that_is_whole_is_itself_though_others_begin_with_it(run: Run, queue: SyncQueue) -> None:
    beginning = begun(queue, "", "-2")
    assert run("jobs", "kill", beginning)[1] == f"{beginning} killed\n"
    assert queue.plane.get(f"{beginning}-2")["state"] == "queued"


def test_another_namespaces_ids_begin_nothing_here(run: Run, queue: SyncQueue, server: Served) -> None:
    beginning = begun(queue, "A")
    ns = f"n{secrets.token_hex(4)}"
    server.post("/v1/admin/namespaces", {"name": ns})
    code, _out, err = run("--namespace", ns, "jobs", "show", beginning)
    assert (code, "begins with" in err) == (1, True)
    answer = server.get(f"/v1/namespaces/default/invocations?idPrefix={beginning}&state=queued")
    assert (answer.status, answer.body["field"]) == (422, "idPrefix")


@pytest.mark.inventory("C-195", "C-1218")
def test_kill_ends_what_is_queued_and_says_how_anything_else_ended(run: Run, queue: SyncQueue) -> None:
    invocation = queue.submit(1)
    code, out, _err = run("jobs", "kill", invocation, "--json")
    assert (code, json.loads(out)["state"]) == (0, "killed")
    code, out, err = run("jobs", "kill", invocation)
    assert (code, out) == (1, "")
    assert "killed" in err


@pytest.mark.inventory("C-196", "C-666", "C-483")
def test_bulk_cancel_takes_the_queued_ones_of_one_queue(run: Run, queue: SyncQueue) -> None:
    for n in range(3):
        queue.submit(n)
    job = queue.claim()
    code, out, _err = run("jobs", "bulk-cancel", "--queue", queue.name, "--json")
    assert (code, json.loads(out)) == (0, {"cancelled": 2})
    assert job is not None
    assert queue.count("running") == 1


def test_retry_queues_the_failed_ones_again_and_exits_1_when_one_was_refused(run: Run, queue: SyncQueue) -> None:
    invocation, waiting = failed(queue), queue.submit(2)
    code, out, err = run("jobs", "retry", invocation, waiting)
    assert code == 1
    assert out == f"{invocation} queued\n"
    assert waiting in err
    assert queue.count("queued") == 2


@pytest.mark.inventory("C-1465")
def test_another_namespace_is_another_list(run: Run, queue: SyncQueue) -> None:
    queue.submit(1)
    code, out, _err = run("--namespace", "elsewhere", "jobs", "list", "--json")
    assert code == 1 or json.loads(out) == []


def test_an_unknown_namespace_is_refused_with_the_command_that_makes_it(
    secured_server: Served, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKESHORE_URL", secured_server.url)
    monkeypatch.setenv("LAKESHORE_CLIENT_TOKEN", ADMIN)
    code, _out, err = run("--namespace", "nowhere", "jobs", "list")
    assert code == 1
    assert "lakeshore admin namespace create nowhere" in err


@pytest.mark.inventory("C-053", "C-019")
def test_a_server_that_needs_tokens_refuses_without_and_accepts_the_environments(
    secured_server: Served, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKESHORE_URL", secured_server.url)
    code, out, err = run("jobs", "list")
    assert (code, out) == (1, "")
    assert "error: missing bearer token" in err
    assert "hint: " in err
    assert "LAKESHORE_CLIENT_TOKEN" in err
    monkeypatch.setenv("LAKESHORE_CLIENT_TOKEN", ADMIN)
    assert run("jobs", "list", "--json")[0] == 0
    code, _out, err = run("jobs", "list", "--token", "wrong-token-altogether")
    assert code == 1
    assert "wrong-token" not in err


def test_prune_deletes_what_ended_long_ago_and_asks_first(run: Run, queue: SyncQueue) -> None:
    ended, queued = failed(queue), queue.submit(2)
    of_queue = ("--queue", queue.name)
    assert run("jobs", "prune", *of_queue, "--dry-run")[1].startswith("0 invocations that ended more than 7d ago")
    code, _out, err = run("jobs", "prune", *of_queue, "--older-than", "0s")
    assert (code, "add --yes" in err) == (2, True)
    code, out, _err = run("jobs", "prune", *of_queue, "--older-than", "0s", "--dry-run", "--json")
    assert (code, json.loads(out)) == (0, {"count": 1, "dryRun": True})
    assert run("jobs", "prune", *of_queue, "--older-than", "0s", "--yes", "--state", "killed")[1] == "0 deleted\n"
    assert len(listed(run, queue)) == 2
    assert run("jobs", "prune", *of_queue, "--older-than", "0s", "--yes")[1] == "1 deleted\n"
    assert [row["id"] for row in listed(run, queue)] == [queued]
    assert run("jobs", "show", ended)[0] == 1


@pytest.mark.parametrize("age", ["7 days", "-1h", "soon", "1y"])
def test_prune_refuses_what_is_no_age(run: Run, age: str) -> None:
    code, _out, err = run("jobs", "prune", "--older-than", age, "--yes")
    assert (code, "is no length of time" in err) == (2, True)


def test_what_waits_for_its_instant_says_until_when(run: Run, queue: SyncQueue) -> None:
    later, now = queue.submit(1, delay=7200), queue.submit(2)
    assert {row["id"] for row in listed(run, queue, "--state", "queued")} == {later, now}
    (row,) = listed(run, queue, "--delayed")
    assert row["id"] == later and row["why"] == f"delayed until {row['due']}"
    assert "in 119m" in run("jobs", "list", "--queue", queue.name, "--delayed")[1]
    _code, out, _err = run("jobs", "show", later)
    assert "delayed until" in out and "(in 119m)" in out
    code, _out, err = run("jobs", "list", "--delayed", "--state", "failed")
    assert code == 2 and "give one of them" in err
    assert run("jobs", "kill", later)[:2] == (0, f"{later} killed\n")
