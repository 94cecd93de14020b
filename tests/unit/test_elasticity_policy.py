"""The policies: the documented rows, and what holds whatever is seen: bounds are kept, and nothing swings."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakeshore.server.elasticity.policy import WINDOW, Signals, Streak, can_spare, decide, target_of
from lakeshore.server.elasticity.spec import BadSpec, Spec, read

UP, DOWN, NOOP = "scale_up", "scale_down", "tick_noop"


def acts(said: dict[str, Any], streak: Streak | None = None, **seen: Any) -> str:
    return decide(read(said), Signals(**seen), streak or Streak())[0].action


def why(said: dict[str, Any], streak: Streak | None = None, **seen: Any) -> str:
    return decide(read(said), Signals(**seen), streak or Streak())[0].reason


# --- what is documented


@pytest.mark.inventory("S-517", "S-537")
@pytest.mark.parametrize("said", [None, {}, {"kind": "fixed", "min": 4, "max": "many"}])
def test_fixed_and_nothing_said_never_do_anything(said: dict[str, Any] | None) -> None:
    decision, _ = decide(read(said), Signals(pending=9), Streak())
    assert (decision.action, decision.reason) == (NOOP, "fixed: no-op")


@pytest.mark.inventory("S-518")
def test_a_kind_that_nobody_knows_is_told() -> None:
    with pytest.raises(BadSpec) as told:
        read({"kind": "warp"})
    assert str(told.value) == 'unknown elasticity.kind="warp" — defaulting to no-op'


@pytest.mark.parametrize(
    ("said", "named"),
    [
        ({"min": -1}, "elasticity.min"),
        ({"min": "2"}, "elasticity.min"),
        ({"max": 1.5}, "elasticity.max"),
        ({"max": True}, "elasticity.max"),
        ({"max": math.inf}, "elasticity.max"),
        ({"threshold": "0.7"}, "elasticity.threshold"),
        ({"threshold": math.nan}, "elasticity.threshold"),
        ({"threshold_low": -0.1}, "elasticity.threshold_low"),
    ],
)
def test_a_value_that_nothing_can_be_decided_by_is_named(said: dict[str, Any], named: str) -> None:
    with pytest.raises(BadSpec, match=f"{named} must be"):
        read({"kind": "fully_elastic", **said})


@pytest.mark.inventory("S-519", "S-536")
@pytest.mark.parametrize(
    ("seen", "action"),
    [
        ({"pending": 3}, UP),
        ({"pending": 3, "daemon_count": 2}, UP),
        ({"pending": 3, "daemon_count": 2, "in_flight": 1}, NOOP),
        ({"pending": 3, "daemon_count": 3}, NOOP),
        ({"pending": 99, "daemon_count": 4}, NOOP),
        ({"pending": 0, "daemon_count": 1}, DOWN),
        ({"pending": 2, "daemon_count": 3}, DOWN),
        ({"pending": 0, "daemon_count": 0}, NOOP),
    ],
)
def test_fully_elastic_follows_what_waits_within_its_bounds(seen: dict[str, int], action: str) -> None:
    assert acts({"kind": "fully_elastic", "max": 4}, **seen) == action


def test_fully_elastic_keeps_its_floor() -> None:
    said = {"kind": "fully_elastic", "min": 2, "max": 4}
    assert [acts(said, daemon_count=n) for n in range(4)] == [UP, UP, NOOP, DOWN]


@pytest.mark.inventory("S-520", "C-1410")
def test_max_count_is_the_same_and_without_a_max_starts_nothing() -> None:
    assert acts({"kind": "max_count", "max": 4}, pending=3) == UP
    assert acts({"kind": "max_count"}, pending=3) == NOOP
    assert acts({"kind": "max_count"}, pending=3, daemon_count=1) == DOWN
    assert acts({"kind": "fully_elastic"}, pending=3, daemon_count=2) == UP


@pytest.mark.inventory("S-521", "S-522", "S-671")
@pytest.mark.parametrize(
    ("utilization", "streak"),
    [(0.8, Streak(above=2)), (0.79, Streak()), (0.31, Streak()), (0.3, Streak(below=1)), (0.0, Streak(below=1))],
)
def test_the_thresholds_are_inclusive_and_what_lies_between_resets_both(utilization: float, streak: Streak) -> None:
    _, made = decide(
        read({"kind": "pool_with_threshold"}), Signals(daemon_count=2, utilization=utilization), Streak(above=1)
    )
    assert made == streak
    assert WINDOW == 2


@pytest.mark.inventory("S-523", "S-524")
def test_a_pool_grows_and_shrinks_at_the_second_look_and_a_bound_keeps_the_count() -> None:
    said = {"kind": "pool_with_threshold", "min": 1, "max": 3, "threshold": 0.7, "threshold_low": 0.2}
    assert acts(said, Streak(), daemon_count=2, utilization=0.9) == NOOP
    assert acts(said, Streak(above=1), daemon_count=2, utilization=0.9) == UP
    assert acts(said, Streak(above=1), daemon_count=2, in_flight=1, utilization=0.9) == NOOP
    decision, streak = decide(read(said), Signals(daemon_count=3, utilization=0.9), Streak(above=4))
    assert (decision.action, "at max=3" in decision.reason, streak.acted(decision.action)) == (
        NOOP,
        True,
        Streak(above=5),
    )
    assert acts(said, Streak(below=1), daemon_count=2, utilization=0.1) == DOWN
    decision, streak = decide(read(said), Signals(daemon_count=1, utilization=0.1), Streak(below=4))
    assert (decision.action, "at min=1" in decision.reason, streak.acted(decision.action)) == (
        NOOP,
        True,
        Streak(below=5),
    )
    assert Streak(above=3).acted(UP) == Streak()
    assert Streak(below=3).acted(DOWN) == Streak()


# --- what the arithmetic leaves out


@pytest.mark.parametrize("kind", ["fully_elastic", "max_count", "pool_with_threshold"])
def test_below_its_min_a_daemon_is_launched_though_nothing_is_asked_of_it(kind: str) -> None:
    said = {"kind": kind, "min": 2, "max": 4}
    assert [acts(said, daemon_count=n) for n in (0, 1)] == [UP, UP]
    assert acts(said, daemon_count=1, in_flight=1) == NOOP
    assert why(said, daemon_count=1) == "below min=2"


def test_a_pool_of_nobody_gets_a_first_daemon_for_what_waits() -> None:
    said = {"kind": "pool_with_threshold"}
    assert acts(said, Streak(above=1), pending=1) == UP
    assert acts(said, Streak(above=1), pending=1, in_flight=1) == NOOP
    assert acts(said, Streak(above=1)) == NOOP


def test_the_last_daemon_of_a_pool_stays_while_calls_wait() -> None:
    said = {"kind": "pool_with_threshold"}
    assert acts(said, Streak(below=7), daemon_count=1, pending=1) == NOOP
    assert acts(said, Streak(below=7), daemon_count=1) == DOWN


def test_machines_that_are_leaving_hold_their_place_under_the_max() -> None:
    said = {"kind": "fully_elastic", "max": 2}
    assert acts(said, pending=2, daemon_count=1, leaving=1) == NOOP
    assert "leaving" in why(said, pending=2, daemon_count=1, leaving=1)


# --- whatever is seen


KINDS = st.sampled_from(["fixed", "fully_elastic", "max_count", "pool_with_threshold"])
BOUND = st.one_of(st.none(), st.integers(0, 6))
SHARE = st.one_of(st.none(), st.floats(0, 1.2))
SPECS = st.builds(
    lambda kind, least, most, high, low: read(
        {"kind": kind, "min": least, "max": most, "threshold": high, "threshold_low": low}
    ),
    KINDS,
    BOUND,
    BOUND,
    SHARE,
    SHARE,
)
COUNT = st.integers(0, 9)
SEEN = st.builds(
    lambda count, share, pending, in_flight, leaving: Signals(
        daemon_count=count,
        utilization=share if count else 0.0,
        pending=pending,
        in_flight=in_flight,
        leaving=leaving,
    ),
    COUNT,
    st.floats(0, 1),
    COUNT,
    COUNT,
    COUNT,
)


@settings(max_examples=1000)
@given(spec=SPECS, seen=SEEN, above=st.integers(0, 5))
def test_no_decision_leaves_the_bounds(spec: Spec, seen: Signals, above: int) -> None:
    for streak in (Streak(above=above), Streak(below=above)):
        decision, _ = decide(spec, seen, streak)
        if decision.action == UP:
            assert seen.daemon_count + seen.in_flight + seen.leaving + 1 <= spec.ceiling
        if decision.action == DOWN:
            assert seen.daemon_count - 1 >= spec.least
            assert can_spare(spec, seen)


class World:
    """One queue under constant load: what its daemons and its calls become of what is decided, look by look."""

    def __init__(self, spec: Spec, daemons: int, pending: int, load: float, boot: int) -> None:
        self.spec, self.pending, self.load, self.boot = spec, pending, load, boot
        self.serving, self.coming, self.streak = daemons, list[int](), Streak()

    def look(self) -> str:
        self.coming = [left - 1 for left in self.coming]
        self.serving += sum(left <= 0 for left in self.coming)
        self.coming = [left for left in self.coming if left > 0]
        seen = Signals(
            daemon_count=self.serving,
            utilization=min(1.0, self.load / self.serving) if self.serving else 0.0,
            pending=self.pending,
            in_flight=len(self.coming),
        )
        decision, streak = decide(self.spec, seen, self.streak)
        self.streak = streak.acted(decision.action)
        if decision.action == UP:
            self.coming.append(self.boot)
        if decision.action == DOWN:
            self.serving -= 1
        return decision.action


@settings(max_examples=500)
@given(
    spec=SPECS.filter(lambda spec: spec.kind != "pool_with_threshold"),
    daemons=COUNT,
    pending=COUNT,
    boot=st.integers(1, 8),
)
def test_with_as_many_calls_all_the_time_they_settle_and_never_turn_round(
    spec: Spec, daemons: int, pending: int, boot: int
) -> None:
    world = World(spec, daemons, pending, 0.0, boot)
    done = [world.look() for _ in range(60)]
    assert not {UP, DOWN} <= set(done)
    assert set(done[-20:]) == {NOOP}
    if spec.kind != "fixed":
        assert world.serving == target_of(spec, Signals(pending=pending))


@settings(max_examples=500)
@given(spec=SPECS, seen=SEEN)
def test_the_same_signals_again_and_again_never_ask_for_both(spec: Spec, seen: Signals) -> None:
    streak, done = Streak(), set()
    for _ in range(12):
        decision, streak = decide(spec, seen, streak)
        streak = streak.acted(decision.action)
        done.add(decision.action)
    assert not {UP, DOWN} <= done


@settings(max_examples=500)
@given(
    least=st.integers(0, 3),
    more=st.integers(0, 6),
    pending=st.integers(0, 3),
    load=st.floats(0, 8),
    daemons=COUNT,
    boot=st.integers(1, 8),
)
def test_a_pool_under_the_same_load_all_the_time_settles_within_its_bounds(
    least: int, more: int, pending: int, load: float, daemons: int, boot: int
) -> None:
    """With the thresholds that it has by itself: a load that one more daemon brings from 0.8 to 0.3 there is not, but
    from one daemon to two, and that is not enough to fall to 0.3.
    """
    spec = read({"kind": "pool_with_threshold", "min": least, "max": least + more})
    world = World(spec, daemons, pending, load, boot)
    done = [world.look() for _ in range(200)]
    assert set(done[-60:]) == {NOOP}
    assert least <= world.serving
    if daemons <= spec.ceiling:
        assert world.serving <= spec.ceiling
