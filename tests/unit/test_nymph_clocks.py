"""Noticing that the host slept, or that its clock was set."""

from __future__ import annotations

import pytest

from lakeshore.nymph.clocks import Watch
from lakeshore.nymph.core.events import ClockJumped


class Clocks:
    def __init__(self) -> None:
        self.now, self.awake, self.wall = 100.0, 50.0, 1_000.0
        self.watch = Watch(lambda: self.now, lambda: self.awake, lambda: self.wall)

    def pass_by(self, seconds: float) -> None:
        self.now, self.awake, self.wall = self.now + seconds, self.awake + seconds, self.wall + seconds

    def sleep(self, seconds: float) -> None:
        self.now, self.wall = self.now + seconds, self.wall + seconds


def test_time_that_passes_is_no_jump() -> None:
    clocks = Clocks()
    for _ in range(1000):
        clocks.pass_by(7.3)
        assert clocks.watch.look() is None


@pytest.mark.inventory("K-12", "K-13")
def test_a_sleep_is_told_once_with_its_length() -> None:
    clocks = Clocks()
    clocks.sleep(3600.0)
    clocks.pass_by(1.0)
    assert clocks.watch.look() == ClockJumped(slept_s=3600.0, epoch=clocks.wall)
    clocks.pass_by(1.0)
    assert clocks.watch.look() is None


def test_a_clock_that_was_set_is_told_without_a_sleep() -> None:
    clocks = Clocks()
    clocks.wall -= 500.0
    assert clocks.watch.look() == ClockJumped(slept_s=0.0, epoch=clocks.wall)
    assert clocks.watch.look() is None


def test_slow_drift_is_not_added_up_into_a_jump_of_the_scheduler() -> None:
    clocks = Clocks()
    clocks.sleep(0.4)
    assert clocks.watch.look() is None
