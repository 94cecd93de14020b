"""How long a daemon leaves a server alone that does not answer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nymph_world import World, command, run

from lakeshore.nymph.core.backoff import Backoff
from lakeshore.nymph.core.instructions import Poll


@pytest.mark.inventory("N-122", "N-123", "N-426")
@given(rands=st.lists(st.floats(0, 1, exclude_max=True), min_size=1, max_size=20))
def test_a_wait_is_the_back_off_and_up_to_as_much_again_but_5_s_then_the_back_off_doubles(rands: list[float]) -> None:
    backoff, expected = Backoff(1.0, 60.0), 1.0
    for rand in rands:
        assert backoff.failed(rand) == expected + rand * min(expected, 5.0)
        expected = min(expected * 2, 60.0)


@pytest.mark.inventory("N-049", "N-050", "N-126")
def test_failed_polls_wait_from_the_floor_to_the_ceiling_as_configured() -> None:
    world = World(retry_min_s=0.5, retry_max_s=3.0).up()
    waits = []
    for _ in range(5):
        world.fail()
        before = world.now
        world.wait()
        world.one(Poll)
        waits.append(world.now - before)
    assert waits == [0.5, 1.0, 2.0, 3.0, 3.0]


@pytest.mark.inventory("N-124", "N-424")
def test_a_poll_that_succeeds_sets_it_back_and_shows_none() -> None:
    world = World().up()
    for _ in range(3):
        world.fail(rand=0.5)
        assert world.core.status()["run_state"] == "backoff"
        assert world.core.status()["backoff_s"] > 0
        world.wait()
    world.answer(after=1.0)
    assert (world.core.status()["run_state"], world.core.status()["backoff_s"]) == ("polling", 0.0)
    world.fail()
    assert world.timer == world.now + 1.0


@pytest.mark.inventory("N-125", "N-178")
def test_the_command_reset_backoff_sets_it_back_without_a_body() -> None:
    world = World().up()
    world.answer({"id": "1", "kind": "reset_backoff"}, after=1.0)
    assert "skipping" not in world.said
    assert world.core.status()["backoff_s"] == 0.0
    backoff = Backoff(1.0, 60.0)
    backoff.failed(0.0)
    backoff.failed(0.0)
    backoff.reset()
    assert backoff.failed(0.0) == 1.0


@pytest.mark.inventory("N-114")
def test_what_ends_during_a_back_off_does_not_cut_it_short() -> None:
    world = World().up(command("setup", script="true"))
    world.fail()
    world.wait()
    world.fail()
    assert not world.these(Poll)
    assert world.timer == world.now + 2.0


@pytest.mark.inventory("K-11")
def test_while_claims_are_held_no_wait_outlasts_their_lease() -> None:
    world = World().up(run("a"))
    while world.now < 140.0:
        world.fail(rand=0.999, after=0.1)
        before = world.now
        world.wait()
        assert world.now - before <= 5.0
        world.one(Poll)


def test_a_server_that_has_not_failed_yet_is_not_waited_for() -> None:
    assert World().up().core.status()["backoff_s"] == 0.0
    assert Backoff(1.0, 60.0).waiting_s == 0.0
