"""What stands around the policies: units, launches, who goes first, tokens, back-off, folding, settings."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeshore.plane.queues import QueueRow
from lakeshore.server.elasticity.backoff import FIRST_S, MOST_S, Backoff
from lakeshore.server.elasticity.culling import OTHER, cost_of, in_order
from lakeshore.server.elasticity.folding import FRESHEN_S, Folding
from lakeshore.server.elasticity.settings import Settings, settings_from
from lakeshore.server.elasticity.tracker import TTL_S, LaunchTracker
from lakeshore.server.elasticity.units import Unit, units_of
from lakeshore.server.elasticity.wanted import CannotLaunch, is_ours, launch_of, name_of
from lakeshore.server.records import WorkerRow
from lakeshore.server.records.elasticity import ElasticityRow

KEY = ("default", "q")


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def queue(name: str, elasticity: dict[str, Any] | None = None, **more: Any) -> QueueRow:
    return QueueRow(ns="default", name=name, created_at=0.0, elasticity=elasticity, **more)


def unit(*rows: QueueRow) -> Unit:
    (made,) = units_of(rows)
    return made


def worker(id_: str, *, lanes: tuple[str, ...] = ("q",), label: str = "", **info: Any) -> WorkerRow:
    return WorkerRow(
        ns="default",
        id=id_,
        machine_id=id_,
        label=label,
        lanes=lanes,
        info=json.dumps(info),
        hello_at=0.0,
        created_at=0.0,
        provider="p",
    )


# --- units


@pytest.mark.inventory("S-510", "S-532")
def test_queues_of_a_pool_are_one_behind_those_that_stand_alone() -> None:
    pooled = {"kind": "fully_elastic", "pool": "gpus"}
    rows = [queue("z"), queue("b", pooled), queue("a", pooled), queue("c", {"kind": "fixed", "pool": "cpus"})]
    found = units_of(rows)
    assert [one.name for one in found] == ["z", "pool:cpus", "pool:gpus"]
    assert [row.name for row in found[2].queues] == ["a", "b"]


@pytest.mark.inventory("S-534")
@pytest.mark.parametrize("state", ["paused", "draining", "archived"])
def test_only_active_queues_are_looked_at_in_a_pool_too(state: str) -> None:
    said = {"kind": "fully_elastic", "pool": "p"}
    assert units_of([queue("q", {"kind": "fully_elastic"}, state=state)]) == []
    assert [row.name for row in unit(queue("a", said, state=state), queue("b", said)).queues] == ["b"]


@pytest.mark.inventory("S-823")
def test_members_that_disagree_with_the_first_are_told() -> None:
    same = {"kind": "max_count", "max": 3, "pool": "p"}
    assert unit(queue("a", same), queue("b", {**same, "cost_weight": 2})).note == ""
    assert unit(queue("b", {**same, "max": 9}), queue("a", same)).note == "members disagree: a decides"
    assert unit(queue("a", same), queue("b", {**same, "max": "x"})).note == "members disagree: a decides"


# --- launches


@pytest.mark.inventory("S-525")
def test_the_provider_is_the_queues_or_its_templates_and_without_one_nothing_is_launched() -> None:
    said = {"kind": "fully_elastic"}
    assert launch_of(unit(queue("q", said, provider="a", template={"provider": "b"})), "n").provider == "a"
    assert launch_of(unit(queue("q", said, template={"provider": "b"})), "n").provider == "b"
    with pytest.raises(CannotLaunch) as told:
        launch_of(unit(queue("q", said)), "n")
    assert str(told.value) == 'queue "q" has no providerRef / daemonTemplate.provider — cannot launch'


@pytest.mark.inventory("S-526", "S-824")
@pytest.mark.parametrize(
    ("template", "made"),
    [
        (None, {"runners": ("process",), "capacity": {}, "setup_commands": (), "cloud_tags": {}}),
        ({"runner": "docker"}, {"runners": ("docker",)}),
        ({"runner": "docker", "runners": ["gvisor", "process"]}, {"runners": ("gvisor", "process")}),
        ({"instance_type": "p4d", "image_id": "ami-1"}, {"capacity": {"instance_type": "p4d", "image_id": "ami-1"}}),
        (
            {"instance_type": "p4d", "capacity": {"instance_type": "p5", "zone": "a"}},
            {"capacity": {"instance_type": "p5", "zone": "a"}},
        ),
        ({"cloudTags": {"team": "ml", "cost": 4}}, {"cloud_tags": {"team": "ml", "cost": "4"}}),
        ({"bootstrap_script": "true"}, {"bootstrap_script": "true"}),
        (
            {"setup_scripts": ["a", {"script": "b", "sudo": True}]},
            {"setup_commands": ({"script": "a"}, {"script": "b", "sudo": True})},
        ),
        ({"keep_alive_s": 60, "tags": ["x"]}, {"keep_alive_s": 60, "tags": ("x",)}),
    ],
)
def test_the_template_becomes_the_launch(template: dict[str, Any] | None, made: dict[str, Any]) -> None:
    wanted = launch_of(unit(queue("q", {"kind": "fully_elastic"}, provider="p", template=template)), "q-auto-000000")
    assert {name: getattr(wanted, name) for name in made} == made
    assert (wanted.count, wanted.name) == (1, "q-auto-000000")


@pytest.mark.parametrize(
    ("template", "named"),
    [
        ({"runners": "docker"}, "runners"),
        ({"capacity": []}, "capacity"),
        ({"instance_type": 4}, "instance_type"),
        ({"setup_scripts": "x"}, "setup_scripts"),
        ({"setup_scripts": [{}]}, "setup_scripts"),
        ({"setup_scripts": [{"script": "a", "sudo": "yes"}]}, "setup_scripts"),
        ({"setup_scripts": [{"script": "a", "shell": "zsh"}]}, "setup_scripts"),
        ({"keep_alive_s": 1.5}, "keep_alive_s"),
        ({"keep_alive_s": "1h"}, "keep_alive_s"),
    ],
)
def test_a_template_that_no_launch_can_be_made_of_is_told(template: dict[str, Any], named: str) -> None:
    with pytest.raises(CannotLaunch, match=f"daemonTemplate.{named} must be"):
        launch_of(unit(queue("q", {"kind": "fully_elastic"}, provider="p", template=template)), "n")


@pytest.mark.inventory("S-527")
def test_a_launched_daemon_joins_every_queue_of_its_pool_but_default() -> None:
    pooled = {"kind": "fully_elastic", "pool": "p"}
    assert unit(queue("q")).joins == ("q",)
    assert unit(queue("default")).joins == ()
    assert unit(queue("default", pooled), queue("b", pooled), queue("a", pooled)).joins == ("a", "b")


@pytest.mark.parametrize("name", ["q", "Train/big.one", "a" * 200, "训练", "-"])
def test_what_a_launch_is_called_is_plain_and_says_whose_it_is(name: str) -> None:
    made = name_of(unit(queue(name)), "0a1b2c")
    assert made.isascii()
    assert len(made) <= 48
    assert not made.startswith("-")
    assert is_ours(worker("w", label=made))
    assert not is_ours(worker("w", label="train-auto-pilot"))


# --- who goes first


@pytest.mark.inventory("S-530", "S-761", "C-1435")
def test_what_a_daemon_costs_is_its_word_then_its_queues_then_a_guess() -> None:
    plain, dear = queue("q"), queue("q", {"kind": "fully_elastic", "cost_weight": 3})
    gpu = worker("w", tags=["gpu:h100"])
    assert cost_of(worker("w", capabilities={"cost_weight": 0.5}, tags=["gpu:h100"]), [dear]) == 0.5
    assert (cost_of(gpu, [dear]), cost_of(gpu, [plain]), cost_of(worker("w"), [plain])) == (3.0, 10.0, 1.0)
    assert cost_of(worker("w", lanes=("other",)), [dear]) == 1.0
    assert cost_of(worker("w", capabilities={"cost_weight": "dear"}), [plain]) == 1.0


@pytest.mark.inventory("S-530")
def test_the_dearest_goes_first_and_among_equals_the_longest_silent() -> None:
    rows = [
        (worker("late"), 30.0),
        (worker("gpu", tags=["gpu:a"]), 99.0),
        (worker("early"), 10.0),
        (worker("new"), None),
    ]
    assert [row.id for row in in_order(rows, [queue("q")])] == ["gpu", "new", "early", "late"]


# --- tokens


@pytest.mark.inventory("S-533", "S-670")
def test_a_token_counts_until_the_launch_is_over_and_a_quarter_of_a_minute_at_most() -> None:
    clock = Clock()
    tracker = LaunchTracker(clock)
    tracker.begin(KEY, "a")
    tracker.begin(KEY, "b")
    assert (tracker.in_flight(KEY, []), tracker.in_flight(("default", "other"), [])) == (2, 0)
    tracker.resolve(KEY, "a")
    assert tracker.in_flight(KEY, []) == 1
    clock.now += TTL_S
    assert tracker.in_flight(KEY, []) == 0
    tracker.resolve(KEY, "b")
    tracker.resolve(KEY, "b")


@pytest.mark.inventory("S-821")
def test_a_launch_that_has_its_row_is_counted_by_that_alone() -> None:
    tracker = LaunchTracker(Clock())
    tracker.begin(KEY, "q-auto-000000")
    tracker.begin(KEY, "q-auto-111111")
    assert tracker.in_flight(KEY, ["q-auto-000000", "other"]) == 1


# --- back-off


@pytest.mark.inventory("S-822")
def test_each_failure_waits_twice_as_long_up_to_a_limit_and_what_works_forgets_them() -> None:
    clock = Clock()
    backoff = Backoff(clock)
    waits = []
    for n in range(10):
        waits.append(backoff.failed(KEY, f"no {n}", 0.0).waits_s)
        assert backoff.waiting(KEY) is not None
        clock.now += waits[-1]
        assert backoff.waiting(KEY) is None
    assert waits == [FIRST_S * 2**n for n in range(6)] + [MOST_S] * 4
    assert (found := backoff.last(KEY)) is not None
    assert (found.error, found.count) == ("no 9", 10)
    backoff.worked(KEY)
    assert backoff.last(KEY) is None
    assert backoff.failed(KEY, "again", 0.0).waits_s == FIRST_S


def test_what_was_accepted_waits_no_longer_and_is_not_yet_worth_anything() -> None:
    backoff = Backoff(Clock())
    backoff.failed(KEY, "no", 0.0)
    backoff.accepted(KEY)
    assert backoff.waiting(KEY) is None
    assert backoff.failed(KEY, "never said hello", 0.0).waits_s == 2 * FIRST_S


# --- rows


def noop(at: float, reason: str = "idle", action: str = "tick_noop") -> ElasticityRow:
    return ElasticityRow(ns="default", queue="q", action=action, reason=reason, before={}, after={}, at=at)


@given(st.lists(st.tuples(st.sampled_from(["idle", "busy", "up"]), st.floats(1, 200)), max_size=60))
def test_rows_say_each_decision_though_equal_noops_are_one(decided: list[tuple[str, float]]) -> None:
    folding, stored, now = Folding(), list[ElasticityRow](), 0.0
    for reason, later in decided:
        now += later
        for row, was in folding.take(noop(now, reason, "scale_up" if reason == "up" else "tick_noop")):
            if was is None:
                stored.append(row)
            else:
                assert (stored[-1].at, stored[-1].action, stored[-1].reason) == (was, "tick_noop", row.reason)
                stored[-1] = row
    told = [row.reason for row in stored for _ in range(row.after.get("ticks", 1))]
    assert told == [reason for reason, _ in decided][: len(told)]
    assert len(decided) - len(told) <= FRESHEN_S
    assert all(row.action == "scale_up" or row.reason != other.reason for row, other in itertools.pairwise(stored))


@pytest.mark.inventory("S-512")
def test_a_noop_that_goes_on_is_one_row_that_is_brought_up_to_date() -> None:
    folding = Folding()
    assert folding.take(noop(100.0)) == [(noop(100.0), None)]
    assert folding.take(noop(105.0)) == []
    ((row, was),) = folding.take(noop(100.0 + FRESHEN_S))
    assert (was, row.at, row.after["ticks"]) == (100.0, 100.0 + FRESHEN_S, 3)
    assert folding.take(noop(170.0)) == []
    (last, was), (new, none) = folding.take(noop(175.0, "busy"))
    assert (last.after["ticks"], last.at, was, new.reason, none) == (4, 170.0, 160.0, "busy", None)
    folding.keep(set())
    assert folding.take(noop(180.0, "busy")) == [(noop(180.0, "busy"), None)]


# --- settings


@pytest.mark.inventory("S-508", "S-706")
def test_it_is_off_until_it_is_switched_on_and_looks_every_five_seconds() -> None:
    for off in ("", "false", "0", "off", "No"):
        assert settings_from({"ELASTICITY_ENABLED": off, "ELASTICITY_TICK_S": "x"}) is None
    assert settings_from({"ELASTICITY_ENABLED": "True"}) == Settings(tick_s=5.0)
    assert settings_from({"ELASTICITY_ENABLED": "1", "ELASTICITY_TICK_S": " 0.5 "}) == Settings(tick_s=0.5)


@pytest.mark.inventory("S-760", "C-1436")
def test_it_covers_every_namespace_unless_some_are_named() -> None:
    assert Settings().covers("anything")
    made = settings_from({"ELASTICITY_ENABLED": "true", "ELASTICITY_NAMESPACES": "default, team-a"})
    assert made is not None
    assert [made.covers(ns) for ns in ("default", "team-a", "team-b")] == [True, True, False]


@pytest.mark.parametrize(
    "environ",
    [
        {"ELASTICITY_ENABLED": "maybe"},
        {"ELASTICITY_ENABLED": "true", "ELASTICITY_TICK_S": "0"},
        {"ELASTICITY_ENABLED": "true", "ELASTICITY_TICK_S": "nan"},
        {"ELASTICITY_ENABLED": "true", "ELASTICITY_NAMESPACES": "No Slug"},
    ],
)
def test_a_setting_that_is_none_is_named(environ: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=list(environ)[-1]):
        settings_from(environ)


@pytest.mark.parametrize("said", [10**400, -(10**400), 2.0**1023, float("inf"), float("nan"), True, "1", None, [1]])
def test_a_weight_that_cannot_be_compared_is_none(said: Any) -> None:
    assert cost_of(worker("a", capabilities={"cost_weight": said}), [queue("q", {"cost_weight": said})]) == OTHER
