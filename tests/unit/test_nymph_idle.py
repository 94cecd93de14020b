"""When a daemon without work leaves."""

from __future__ import annotations

import pytest
from nymph_world import EPOCH, World, command, exec_, run

from lakeshore.nymph.core.instructions import Exit, GiveUpPoll, SendAcks


def leave(world: World) -> None:
    """The goodbye is answered, and that was all."""
    assert world.poll["draining"] is True and world.poll["held"] == []
    world.answer()
    assert world.one(Exit).code == 0
    assert world.one(Exit).why == "idle"


@pytest.mark.inventory("N-127", "N-131", "N-132")
def test_the_clock_starts_with_an_empty_answer_while_nothing_is_in_flight() -> None:
    world = World(keep_alive_s=30).up()
    world.wait(19.9)
    world.answer()
    started = world.now
    world.answer(after=20.0)
    world.wait(9.9)
    assert not world.these(GiveUpPoll)
    world.wait(0.2)
    assert world.now == pytest.approx(started + 30.1)
    world.one(GiveUpPoll)
    leave(world)


@pytest.mark.inventory("N-127")
def test_it_does_not_start_while_something_is_in_flight() -> None:
    for busy in (run("a"), exec_("a"), command("setup", script="sleep 1000")):
        world = World(keep_alive_s=5).up(busy)
        for _ in range(10):
            world.answer(after=15.0)
            assert world.core.status()["run_state"] == "polling"


@pytest.mark.inventory("N-128")
def test_what_completes_starts_it_afresh() -> None:
    world = World(keep_alive_s=30).up()
    world.answer(after=20.0)
    world.answer(run("a"), after=20.0)
    world.ended("a", after=5.0)
    world.acked()
    world.answer(after=15.0)
    world.wait(29.0)
    assert world.core.status()["run_state"] == "polling"
    world.wait(1.0)
    assert world.core.status()["run_state"] == "draining"


@pytest.mark.inventory("N-129", "N-044")
def test_a_pool_never_leaves() -> None:
    world = World(keep_alive_s=-1).up()
    for _ in range(1000):
        world.answer(after=20.0)
    assert world.core.status()["run_state"] == "polling"


@pytest.mark.inventory("N-130")
def test_zero_leaves_as_soon_as_the_clock_starts() -> None:
    world = World(keep_alive_s=0).up()
    world.answer(run("a"), after=1.0)
    world.ended("a", after=1.0)
    assert world.one(SendAcks)
    world.acked()
    world.answer(after=18.0)
    leave(world)


def test_an_update_that_is_under_way_is_something_in_flight() -> None:
    world = World(keep_alive_s=30, auto_update=True).up()
    world.answer(after=20.0)
    world.answer(target_nymph_version="9", after=20.0)
    world.wait(60.0)
    assert world.core.status()["run_state"] == "polling"


@pytest.mark.inventory("N-137")
def test_a_hibernation_forgets_it() -> None:
    world = World(keep_alive_s=30).up()
    world.answer(after=20.0)
    world.answer(command("hibernate", until_epoch_s=EPOCH + world.now + 501), after=1.0)
    world.wait(499.0)
    assert world.core.status()["run_state"] == "hibernating"
    world.wait(2.0)
    assert world.core.status()["run_state"] == "polling"
    world.wait(40.0)
    assert world.core.status()["run_state"] == "polling", "no answer was empty since"
