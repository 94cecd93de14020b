"""`lakeshore queues` and `lakeshore jobs why` against a real server."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from served import JSON, Served, new_id

from lakeshore.cli.queues.shown import COLUMNS

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def lake(server: Served, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, run: Run) -> Run:
    monkeypatch.setenv("LAKESHORE_URL", server.url)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return run


def told(lake: Run, *words: str) -> Any:
    code, out, err = lake(*words, "--json")
    assert code == 0, err
    return json.loads(out)


@pytest.mark.inventory("C-176", "C-178", "C-180")
@pytest.mark.inventory("C-472")
def test_a_queue_is_added_listed_and_shown(lake: Run) -> None:
    name = f"q-{new_id()}"
    line = "--kind priority --provider my-gpu --elasticity pool-with-threshold --min 2 --max 16 --threshold 0.7"
    more = "--instance-type p4d.24xlarge --max-depth 1000 --on-full reject --description urgent"
    assert lake("queues", "add", name, *line.split(), *more.split())[0] == 0
    row = told(lake, "queues", "show", name)
    assert row["elasticity"] == {"kind": "pool_with_threshold", "min": 2, "max": 16, "threshold": 0.7}
    assert row["admission"] == {"max_depth": 1000, "on_full": "reject"}
    assert row["daemonTemplate"] == {"instance_type": "p4d.24xlarge"}
    assert name in [one["name"] for one in told(lake, "queues", "ls")]
    code, out, _err = lake("queues", "ls", "--state", "active")
    assert code == 0 and out.split()[:7] == [column.upper() for column in COLUMNS]
    assert any(line.split()[:4] == [name, "priority", "active", "0"] for line in out.splitlines())
    code, _out, err = lake("queues", "add", name)
    assert code == 1 and "patch" in err


@pytest.mark.inventory("C-182", "C-1087")
def test_a_patch_changes_what_the_flags_name_and_leaves_the_rest(lake: Run) -> None:
    name = f"q-{new_id()}"
    told(lake, "queues", "add", name, "--elasticity", "max-count", "--max", "4", "--provider", "p", "--max-depth", "9")
    row = told(lake, "queues", "patch", name, "--max", "32", "--threshold", "0.6", "--on-full", "block")
    assert row["elasticity"] == {"kind": "max_count", "max": 32, "threshold": 0.6}
    assert row["admission"] == {"max_depth": 9, "on_full": "block"}
    row = told(lake, "queues", "patch", name, "--provider", "", "--run-config", '{"timeout_s": 5}')
    assert (row["providerRef"], row["runConfig"]) == (None, {"timeout_s": 5})


@pytest.mark.inventory("C-1433")
def test_a_patch_changes_the_kind_and_the_policy_and_keeps_its_bounds(lake: Run) -> None:
    name = f"q-{new_id()}"
    told(lake, "queues", "add", name, "--max", "4")
    assert told(lake, "queues", "patch", name, "--kind", "filo")["kind"] == "filo"
    row = told(lake, "queues", "patch", name, "--elasticity", "max-count")
    assert (row["kind"], row["elasticity"]) == ("filo", {"kind": "max_count", "max": 4})
    assert told(lake, "queues", "patch", name, "--min", "1")["elasticity"] == {"kind": "max_count", "min": 1, "max": 4}


@pytest.mark.inventory("C-1423")
@pytest.mark.parametrize("said", ["pool-with-threshold", "pool_with_threshold"])
def test_either_spelling_of_a_policy_is_taken_and_underscores_are_stored(lake: Run, said: str) -> None:
    name = f"q-{new_id()}"
    assert told(lake, "queues", "add", name, "--elasticity", said)["elasticity"] == {"kind": "pool_with_threshold"}
    assert told(lake, "queues", "patch", name, "--elasticity", said)["elasticity"]["kind"] == "pool_with_threshold"


@pytest.mark.inventory("C-1434")
def test_a_pool_and_how_its_daemons_help_out_are_stored_and_it_is_said_that_they_do_not_yet(lake: Run) -> None:
    name = f"q-{new_id()}"
    flags = "--pool gpus --match-tag gpu:h100 --match-tag zone:a --match-runner docker --steal-delay 5"
    code, out, err = lake("queues", "add", name, "--elasticity", "fully-elastic", *flags.split(), "--json")
    assert (code, "they serve the queues that they have joined" in err) == (0, True)
    assert json.loads(out)["elasticity"] == {
        "kind": "fully_elastic",
        "pool": "gpus",
        "match": {"tags": ["gpu:h100", "zone:a"], "runners": ["docker"]},
        "steal_delay_s": 5,
    }
    row = told(lake, "queues", "patch", name, "--match-runner", "kube")
    assert (row["elasticity"]["match"], row["elasticity"]["pool"]) == ({"runners": ["kube"]}, "gpus")


@pytest.mark.inventory("C-183", "C-184", "C-185")
@pytest.mark.inventory("C-1432")
def test_a_queue_goes_through_its_states_and_away(lake: Run) -> None:
    name = f"q-{new_id()}"
    told(lake, "queues", "add", name)
    verbs = {"drain": "draining", "unarchive": "active", "pause": "paused", "resume": "active", "archive": "archived"}
    for verb, state in verbs.items():
        code, out, _err = lake("queues", verb, name)
        assert (code, out) == (0, f"queue {name} is {state}\n")
    kinds = [event["kind"] for event in told(lake, "queues", "events", name)]
    assert kinds == ["queue.state"] * 5 + ["queue.created"]
    assert "queue.state" in lake("queues", "events", name)[1]
    assert "queue.state" in lake("queues", "events", name, "--calls")[1]
    code, out, _err = lake("queues", "rm", name)
    assert (code, out) == (0, f"queue {name} deleted\n")
    code, _out, err = lake("queues", "show", name)
    assert code == 1 and "queues ls" in err
    assert lake("queues", "rm", "default")[0] == 1


@pytest.mark.inventory("C-187")
@pytest.mark.parametrize("first", ["ls", "show default"])
def test_every_namespace_has_a_default_queue_which_stays(lake: Run, server: Served, first: str) -> None:
    ns = f"ns-{new_id()}"
    assert server.call("POST", "/v1/admin/namespaces", {"name": ns}, encoding=JSON).status == 201
    found = told(lake, "--namespace", ns, "queues", *first.split())
    row = found if isinstance(found, dict) else found[0]
    assert (row["name"], row["kind"], row["namespace"]) == ("default", "fifo", ns)
    assert row["description"] == "Default queue (auto-created). Cannot be archived or deleted."
    for verb in ("archive", "rm"):
        code, _, err = lake("--namespace", ns, "queues", verb, "default")
        assert (code, "default queue cannot be" in err) == (1, True)
    assert told(lake, "--namespace", ns, "queues", "show", "default")["state"] == "active"


@pytest.mark.inventory("C-186", "C-181")
def test_stats_and_members_are_for_people_and_for_programs(lake: Run, server: Served) -> None:
    name = f"q-{new_id()}"
    told(lake, "queues", "add", name)
    poll = {"worker_id": f"w-{name}", "queue": name, "timeout_s": 0}
    assert server.call("POST", "/v1/daemon/poll", poll, encoding=JSON).status == 200
    assert told(lake, "queues", "stats", name)["daemon_count"] == 1
    assert "utilization" in lake("queues", "stats", name)[1]
    assert [one["id"] for one in told(lake, "queues", "members", name)] == [f"w-{name}"]
    assert f"w-{name}" in lake("queues", "show", name)[1]
    row = told(lake, "queues", "show", name)
    assert ((row["name"], row["kind"]), [one["id"] for one in row["members"]]) == ((name, "fifo"), [f"w-{name}"])


def test_a_job_says_why_it_waits(lake: Run, server: Served) -> None:
    name, id_ = f"q-{new_id()}", new_id()
    told(lake, "queues", "add", name)
    body = {"invocation_id": id_, "queue": name, "args_blob": ""}
    assert server.call("POST", "/v1/producer/submit", body, encoding=JSON).status == 200
    code, out, _err = lake("jobs", "why", id_)
    assert code == 0 and out.startswith(f"no worker serves queue {name!r}")
    assert f"lakeshore worker start --queue {name}" in out and f"--add-queue {name}`" in out
    assert told(lake, "jobs", "why", id_)["reason"] == "no_worker"
    assert "no worker serves" in lake("jobs", "show", id_)[1]
    lake("queues", "pause", name)
    assert f"lakeshore queues resume {name}" in lake("jobs", "why", id_)[1]
    lake("jobs", "kill", id_)
    assert lake("jobs", "why", id_)[1] == f"{id_} does not wait: it is killed\n"
