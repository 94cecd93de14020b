"""Which state a worker is shown in, and who is moved on, by the clocks alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import trio
import trio.testing

from lakeshore.plane.plane import Plane
from lakeshore.server.dispatcher import Dispatcher
from lakeshore.server.orders import Order, Orders
from lakeshore.server.records import Records, WorkerRow
from lakeshore.server.workers import Workers


class World:
    """One server's workers on a wall clock that is set; `trio` has the monotonic one."""

    def __init__(self, directory: Path) -> None:
        self.wall = 1_000_000.0
        self.records = Records(directory / "records.db", now=lambda: self.wall)
        self.plane = Plane(str(directory / "lakeshore.db"), files=directory)
        self.dispatcher = Dispatcher(self.plane)
        self.orders = Orders(self.records.orders, self.dispatcher, clock=lambda: self.wall)
        self.workers = Workers(self.records, self.orders, clock=lambda: self.wall)

    async def hello(self, id_: str = "w", session: str = "1") -> None:
        state = self.workers.first_state("default", id_)
        await self.records.put_worker(
            "default", id_, machine_id="m", label=id_, lanes=(), info='{"tags": []}', state=state
        )
        await self.workers.greeted("default", id_, session)

    def poll(self, id_: str = "w", *, capacity: int = 1, draining: bool = False, holds: bool = False) -> bool:
        return self.workers.polled("default", id_, capacity=capacity, draining=draining, holds=holds)

    def row(self, id_: str = "w") -> WorkerRow:
        row = self.records.worker("default", id_)
        assert row is not None
        return row

    def shown(self, id_: str = "w") -> str:
        return self.workers.shown_state(self.row(id_))

    def close(self) -> None:
        self.dispatcher.close()
        self.plane.close()
        self.records.close()


@pytest.fixture
def play(tmp_path: Path) -> Callable[..., World]:
    """Run a coroutine function over a new world, on a clock that jumps."""

    def play(act: Callable[[World], object]) -> World:
        async def main() -> World:
            world = World(tmp_path)
            await act(world)  # type: ignore[misc]  # it is a coroutine function's answer
            return world

        world = trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
        world.close()
        return world

    return play


@pytest.mark.inventory("S-304", "S-666", "S-625")
@pytest.mark.inventory("C-224")
def test_who_is_silent_for_a_minute_is_shown_as_stale_and_never_stored_so(play: Callable[..., World]) -> None:
    async def act(world: World) -> None:
        await world.hello()
        assert world.shown() == "joining"
        world.poll()
        world.wall += 60
        assert world.shown() == "active"
        world.wall += 0.5
        assert (world.shown(), world.row().state) == ("stale", "active")
        assert not world.workers.serves(world.row())
        world.poll()
        assert world.shown() == "active"

    play(act)


def test_a_sleeper_is_stale_a_minute_after_it_should_have_woken_and_gone_ten_minutes_after(
    play: Callable[..., World],
) -> None:
    async def act(world: World) -> None:
        await world.hello()
        world.poll()
        world.workers.told_to_hibernate("default", "w", world.wall + 3600)
        for _ in range(36):
            world.wall += 100
            await trio.sleep(100)
            await world.workers.sweep(trio.current_time())
            assert world.shown() == "hibernating"
        world.wall += 61
        assert world.shown() == "stale"
        world.wall += 540
        await world.workers.sweep(trio.current_time())
        assert world.shown() == "gone"

    play(act)


@pytest.mark.inventory("K-13")
def test_silence_counts_on_the_servers_own_clock_and_not_while_it_was_away(play: Callable[..., World]) -> None:
    async def act(world: World) -> None:
        await world.hello()
        world.poll()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(world.workers.run)
            world.wall += 100_000  # the wall clock was set, or the lid was closed
            await trio.sleep(599)
            assert world.row().state == "active"
            await trio.sleep(40)
            assert world.row().state == "gone"
            nursery.cancel_scope.cancel()
        world.poll()
        assert world.row().state == "active"
        # After a restart everybody has the whole time again.
        again = Workers(world.records, world.orders, clock=lambda: world.wall)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(again.run)
            await trio.sleep(595)
            assert world.row().state == "active"
            nursery.cancel_scope.cancel()

    play(act)


@pytest.mark.inventory("K-13")
def test_a_server_that_was_stopped_itself_calls_nobody_gone_for_that_time(play: Callable[..., World]) -> None:
    async def act(world: World) -> None:
        await world.hello()
        world.poll()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(world.workers.run)
            await trio.sleep(100)
            clock = trio.lowlevel.current_clock()
            assert isinstance(clock, trio.testing.MockClock)
            clock.jump(5000)
            await trio.sleep(500)
            assert world.row().state == "active"
            await trio.sleep(200)
            assert world.row().state == "gone"
            nursery.cancel_scope.cancel()

    play(act)


def test_what_memory_alone_knew_is_written_down_and_kept_when_that_fails(play: Callable[..., World]) -> None:
    async def act(world: World) -> None:
        await world.hello()
        world.poll()
        world.wall += 5
        world.poll()
        statements, again = world.records.workers.unsaved()
        assert len(statements) == 1
        assert world.records.workers.unsaved()[0] == []
        again()
        await world.records.write_uses()
        assert world.records.workers.unsaved()[0] == []

    world = play(act)
    kept = Records(Path(world.plane.path).parent / "records.db")
    row = kept.worker("default", "w")
    assert row is not None
    assert (row.state, row.seen_at, row.created_at) == ("active", 1_000_005.0, 1_000_000.0)
    kept.close()


def test_the_ids_of_removed_workers_are_forgotten_in_the_end(play: Callable[..., World]) -> None:
    async def act(world: World) -> None:
        await world.hello()
        await world.orders.put("default", "w", Order(id="o", kind="reset_backoff", body={}))
        await world.workers.remove([world.row()], action="worker.kill", actor="me")
        assert world.workers.is_removed("default", "w")
        assert world.orders.of("default", "w") == ()
        world.wall += 31 * 86_400
        await world.workers.sweep(trio.current_time())
        assert not world.workers.is_removed("default", "w")

    play(act)
