"""What `lakeshore up` and `lakeshore status` make of a file and of what is there: a pure function."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeshore.cli.compose.launching import asked_for, notes
from lakeshore.cli.compose.logs import fresh
from lakeshore.cli.compose.plan import Plan, planned
from lakeshore.cli.compose.stamp import FIELDS, changed_since, is_stamp, stamp_of
from lakeshore.cli.compose.words import advice, drift_lines, plan_lines, unchanged_lines
from lakeshore.config.compose import Compose, Group, Mount, Queue

CPU = Group(name="cpu", queues=("cpu-lane",), count=5, provider="aws")
GPU = Group(name="gpu", queues=("gpu-t4",), count=5, provider="aws")
FILE = Compose(
    path=Path("lakeshore.yaml"),
    project="08-queues-tutorial",
    queues=(Queue(name="cpu-lane", settings={"kind": "fifo"}), Queue(name="gpu-t4", settings={"kind": "priority"})),
    groups=(CPU, GPU),
)
QUEUES = ({"name": "cpu-lane", "kind": "fifo"}, {"name": "gpu-t4", "kind": "priority"})


def row(label: str, state: str = "active", **more: Any) -> dict[str, Any]:
    return {"id": f"id-of-{label}", "label": label, "state": state, "createdAt": "2026-01-01T00:00:00Z", **more}


def rows(group: Group, count: int | None = None, **more: Any) -> list[dict[str, Any]]:
    made = {"queues": list(group.queues), "tags": [stamp_of(group)], **more}
    return [row(f"{group.name}-{number}", **made) for number in range(group.count if count is None else count)]


def cpu(plan: Plan) -> Any:
    return next(one for one in plan.groups if one.group.name == "cpu")


@pytest.mark.inventory("C-354", "C-335")
def test_of_nothing_all_is_made() -> None:
    assert list(plan_lines(planned(FILE, [], []))) == [
        "Plan for project '08-queues-tutorial':",
        "  queue cpu-lane  (would create)",
        "  queue gpu-t4  (would create)",
        "  daemons cpu  0 → 5  (would launch: cpu-0, cpu-1, cpu-2, cpu-3, cpu-4)",
        "  daemons gpu  0 → 5  (would launch: gpu-0, gpu-1, gpu-2, gpu-3, gpu-4)",
    ]


@pytest.mark.inventory("C-356", "C-337", "C-353")
def test_where_all_is_there_nothing_is_to_be_done() -> None:
    plan = planned(FILE, QUEUES, [*rows(CPU), *rows(GPU)])
    assert (plan.is_done, plan.in_sync) == (True, True)
    assert list(unchanged_lines(plan)) == [
        "  queue cpu-lane  (already present)",
        "  queue gpu-t4  (already present)",
        "  daemons cpu  5 → 5  (no change)",
        "  daemons gpu  5 → 5  (no change)",
    ]


@pytest.mark.inventory("C-341", "C-338")
def test_only_what_is_missing_is_launched_and_only_of_the_group_that_is_named() -> None:
    plan = planned(FILE, [], rows(CPU, 2), only="cpu")
    assert [one.group.name for one in plan.groups] == ["cpu"]
    assert [one.queue.name for one in plan.queues] == ["cpu-lane"]
    assert (cpu(plan).launch, cpu(plan).before) == (["cpu-2", "cpu-3", "cpu-4"], 2)
    with pytest.raises(KeyError):
        planned(FILE, [], [], only="tpu")


def test_where_the_count_went_down_the_highest_numbers_go() -> None:
    plan = planned(replace(FILE, groups=(replace(CPU, count=2),)), QUEUES, rows(CPU))
    assert [one.label for one in cpu(plan).surplus] == ["cpu-4", "cpu-3", "cpu-2"]
    assert "  daemons cpu  5 → 2  (would remove: cpu-4, cpu-3, cpu-2)" in list(plan_lines(plan))


def test_one_that_is_gone_is_launched_anew_and_one_that_is_late_is_not() -> None:
    found = rows(CPU)
    found[1]["state"], found[2]["state"] = "gone", "stale"
    found[3] |= {"state": "pending", "hostStatus": "terminated"}
    found[4] |= {"state": "active", "hostStatus": "terminated"}  # it polls: the provider's list is behind
    plan = planned(FILE, QUEUES, found)
    assert (cpu(plan).launch, [one.label for one in cpu(plan).gone]) == (["cpu-1", "cpu-3"], ["cpu-1", "cpu-3"])
    line = "  daemons cpu  3 → 5  (would launch: cpu-1, cpu-3; gone: cpu-1, cpu-3)"
    assert line in list(plan_lines(plan))


def test_of_two_with_one_label_the_one_that_lives_stays_and_then_the_elder() -> None:
    twice = [
        {**row("cpu-0", "gone"), "id": "a"},
        {**row("cpu-0"), "id": "c", "createdAt": "2026-01-03T00:00:00Z"},
        {**row("cpu-0"), "id": "b", "createdAt": "2026-01-02T00:00:00Z"},
    ]
    one = cpu(planned(FILE, QUEUES, twice))
    assert ([member.id for member in one.stays], sorted(member.id for member in one.surplus)) == (["b"], ["a", "c"])
    assert one.launch == ["cpu-1", "cpu-2", "cpu-3", "cpu-4"]


@pytest.mark.inventory("C-336")
def test_a_label_belongs_to_the_group_whose_whole_name_it_has() -> None:
    file = replace(FILE, groups=(replace(CPU, name="a", count=2), replace(CPU, name="a-1", count=1)))
    plan = planned(file, QUEUES, [row("a-0"), row("a-1"), row("a-1-0"), row("a-old-0"), row("a"), row("a-01")])
    assert [[member.label for member in one.stays] for one in plan.groups] == [["a-0", "a-1"], ["a-1-0"]]
    assert [member.label for member in plan.orphans] == ["a", "a-01", "a-old-0"]


@pytest.mark.inventory("C-349")
def test_what_is_otherwise_than_the_file_says_is_told_and_stays() -> None:
    before = replace(CPU, instance_type="t3.medium", setup=("true",), count=1)
    found = [*rows(before, 1), row("old-0"), row("gpu-0", queues=["gpu-t4"], tags=["by:hand"])]
    found[0]["queues"] = ["cpu-lane", "more"]
    file = replace(FILE, groups=(replace(before, instance_type="t3.large"), replace(GPU, count=1)))
    plan = planned(file, [{"name": "cpu-lane", "kind": "filo"}, QUEUES[1]], found)
    assert list(drift_lines(plan)) == [
        '  ~ queue cpu-lane  kind is "filo", the file says "fifo"',
        "  ~ daemon cpu-0  serves cpu-lane, more, the file says cpu-lane",
        "  ~ daemon cpu-0  was launched with another instance_type",
        "  ? daemon old-0  is of this project, and of no group of the file",
    ]
    assert (plan.is_done, plan.in_sync, cpu(plan).launch) == (True, False, [])
    told = "\n".join(advice(plan))
    assert "daemon kill cpu-0" in told and "queues patch cpu-lane" in told and "daemon kill old-0" in told


FULL = Group(
    name="cpu",
    queues=("q",),
    count=1,
    provider="p",
    instance_type="t",
    image_id="i",
    runner="docker",
    keep_alive_s=600,
    setup=("one", "two"),
    startup="three",
    python="3.12",
    mounts=(Mount(storage="s", mount_path="/m"),),
)


@pytest.mark.parametrize("field", FIELDS)
def test_a_stamp_tells_which_field_was_changed_and_nothing_of_what_it_was(field: str) -> None:
    stamp = stamp_of(FULL)
    assert is_stamp(stamp) and len(stamp) <= 60
    empty = Group(name="cpu", queues=("q",), count=1)
    assert changed_since([stamp], replace(FULL, **{field: getattr(empty, field)})) == [field]
    assert changed_since(["gpu:h100", stamp], replace(FULL, count=9)) == []
    assert changed_since(["gpu:h100"], empty) == []
    assert changed_since([stamp[:-4]], replace(FULL, mounts=())) == []  # one that did not know of mounts


@pytest.mark.inventory("S-157", "S-158")
def test_a_launch_is_asked_for_with_all_that_its_group_says() -> None:
    assert asked_for(FILE, FULL, "cpu-0", "EC2") == {
        "provider": "p",
        "name": "cpu-0",
        "queues": ["q"],
        "tags": [stamp_of(FULL)],
        "compose_project": "08-queues-tutorial",
        "capacity": {"instance_type": "t", "image_id": "i"},
        "runners": ["docker"],
        "keep_alive_s": 600,
        "setup_commands": [
            {"script": "one", "name": "setup 1 of 2", "refresh_capabilities": False},
            {"script": "two", "name": "setup 2 of 2", "refresh_capabilities": True},
        ],
        "startup": "three",
    }
    assert asked_for(FILE, FULL, "cpu-0", "GCE")["capacity"] == {"machine_type": "t", "image": "i"}
    assert "capacity" not in asked_for(FILE, FULL, "cpu-0", "SSH")
    few = asked_for(FILE, CPU, "cpu-0", "EC2")
    assert few.keys() == {"provider", "name", "queues", "tags", "compose_project"}


def test_what_has_no_effect_is_told_before_anything_is_launched() -> None:
    plan = planned(replace(FILE, groups=(FULL,)), QUEUES, [])
    assert [note.split(":")[0] for note in notes(plan, {"p": "SSH"})] == [
        "daemons.cpu.mounts",
        "daemons.cpu.instance_type",
        "daemons.cpu.image_id",
    ]
    assert [note.split(":")[0] for note in notes(plan, {"p": "EC2"})] == ["daemons.cpu.mounts"]
    assert list(notes(planned(replace(FILE, groups=(FULL,)), QUEUES, rows(FULL)), {})) == []


@given(st.text(alphabet="ab\n", max_size=400), st.text(alphabet="ab\n", max_size=200), st.integers(0, 100))
def test_of_a_console_that_grew_what_is_new_is_shown(before: str, more: str, forgotten: int) -> None:
    assert fresh(before, before + more) == more
    assert fresh("", more) == more
    unique = before + "#end of what was known#"
    kept = (unique + more)[min(forgotten, max(len(unique) - 256, 0)) :]
    assert fresh(unique, kept) == more
    assert fresh("quite another boot", more) == more
