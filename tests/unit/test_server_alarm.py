"""An alarm of the wall clock, which jumps."""

from __future__ import annotations

import math

import trio
import trio.testing

from lakeshore.server.alarm import LOOK_S, Alarm


class Wall:
    """A wall clock that runs with trio's, until somebody sets it."""

    def __init__(self) -> None:
        self.ahead = 1_764_450_000.0

    def __call__(self) -> float:
        return self.ahead + trio.current_time()


async def rings_after(alarm: Alarm) -> float:
    before = trio.current_time()
    await alarm.due()
    return trio.current_time() - before


def test_it_rings_at_its_instant() -> None:
    async def main() -> None:
        wall = Wall()
        alarm = Alarm(wall)
        alarm.set(wall() + 7200.25)
        assert math.isclose(await rings_after(alarm), 7200.25, abs_tol=0.001)
        alarm.set(wall() - 5)
        assert await rings_after(alarm) == 0

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


def test_one_that_is_not_set_never_rings() -> None:
    async def main() -> None:
        alarm = Alarm(Wall())
        alarm.set(None)
        with trio.move_on_after(1e6) as waiting:
            await alarm.due()
        assert waiting.cancelled_caught

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


def test_it_may_be_brought_forward_while_one_waits() -> None:
    async def main() -> None:
        wall = Wall()
        alarm = Alarm(wall)
        async with trio.open_nursery() as nursery:

            async def hurry() -> None:
                await trio.sleep(10)
                alarm.no_later_than(wall() + 500)  # later than it rings anyway
                alarm.no_later_than(wall() + 20)

            alarm.set(wall() + 100)
            nursery.start_soon(hurry)
            assert math.isclose(await rings_after(alarm), 30, abs_tol=0.001)

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


def test_a_clock_that_jumps_ahead_is_noticed_within_a_second() -> None:
    async def main() -> None:
        wall = Wall()
        alarm = Alarm(wall)
        async with trio.open_nursery() as nursery:

            async def jump() -> None:
                await trio.sleep(10)
                wall.ahead += 3600

            alarm.set(wall() + 3000)
            nursery.start_soon(jump)
            assert 10 <= await rings_after(alarm) <= 10 + LOOK_S

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


def test_a_clock_that_jumps_back_delays_by_no_more_than_the_jump() -> None:
    async def main() -> None:
        wall = Wall()
        alarm = Alarm(wall)
        async with trio.open_nursery() as nursery:

            async def jump() -> None:
                await trio.sleep(10)
                wall.ahead -= 3600

            alarm.set(wall() + 30)
            nursery.start_soon(jump)
            assert math.isclose(await rings_after(alarm), 3630, abs_tol=0.001)

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
