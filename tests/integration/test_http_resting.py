"""The server's clock where nothing happens: it rests, and misses nothing."""

from __future__ import annotations

import socket
import time
from collections.abc import AsyncIterator

import pytest
import trio
import trio.testing
from http_peer import serving

from lakeshore.server.http import Request, StreamResponse
from lakeshore.server.http.timers import Sweeper, Times


class Waiting:
    """A connection that waits, and counts how often its deadline is looked at."""

    def __init__(self, deadline: float) -> None:
        self._deadline = deadline
        self.looks = 0
        self.expired = trio.Event()

    @property
    def deadline(self) -> float:
        self.looks += 1
        return self._deadline

    @deadline.setter
    def deadline(self, deadline: float) -> None:
        self._deadline = deadline

    def expire(self) -> None:
        self._deadline = float("inf")
        self.expired.set()


def test_a_clock_with_nothing_to_do_rests_until_the_first_deadline() -> None:
    async def rest() -> None:
        sweeper = Sweeper(Times(tick=0.5))
        connection = Waiting(trio.current_time() + 60)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(sweeper.run)
            sweeper.add(connection)
            began = trio.current_time()
            await connection.expired.wait()
            assert 60 <= trio.current_time() - began <= 61
            nursery.cancel_scope.cancel()
        assert connection.looks < 10

    trio.run(rest, clock=trio.testing.MockClock(autojump_threshold=0))


@pytest.mark.parametrize("seconds", [3.0, 30.0])
def test_a_deadline_that_is_written_down_in_its_rest_is_kept(seconds: float) -> None:
    async def stir() -> None:
        sweeper = Sweeper(Times(tick=0.5))
        connection = Waiting(float("inf"))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(sweeper.run)
            sweeper.add(connection)
            await trio.sleep(1000)  # `now` is as old as that
            began = trio.current_time()
            connection.deadline = sweeper.after(seconds)
            await connection.expired.wait()
            assert seconds <= trio.current_time() - began <= seconds + 1.5
            nursery.cancel_scope.cancel()

    trio.run(stir, clock=trio.testing.MockClock(autojump_threshold=0))


def test_a_client_that_goes_in_its_rest_is_missed_at_once() -> None:
    async def go() -> float:
        sweeper = Sweeper(Times(tick=40.0))
        gone = trio.Event()
        ours, theirs = socket.socketpair()
        with ours, theirs:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(sweeper.run)
                sweeper.add(Waiting(float("inf")))
                sweeper.presence.watch(ours, gone.set)
                await trio.testing.wait_all_tasks_blocked()
                theirs.close()
                began = time.monotonic()
                with trio.move_on_after(30):
                    await gone.wait()
                nursery.cancel_scope.cancel()
        assert len(sweeper.presence) == 0
        return time.monotonic() - began

    assert trio.run(go) < 20


class Steps(trio.abc.Instrument):
    """How often any task of a loop had its turn."""

    def __init__(self) -> None:
        self.count = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        del task
        self.count += 1


def test_a_client_that_ended_its_side_and_takes_nothing_of_a_stream_is_not_looked_at_without_a_pause() -> None:
    async def chunks() -> AsyncIterator[bytes]:
        yield b"x" * 2**25  # more than any kernel holds

    async def handler(request: Request) -> StreamResponse:
        del request
        return StreamResponse(chunks=chunks())

    steps = Steps()
    with serving(handler) as served, served.connect() as peer:
        peer.get()
        said = b""
        while b"xxx" not in said:
            said += peer.sock.recv(1024)
        peer.sock.shutdown(socket.SHUT_WR)
        served.do(trio.lowlevel.add_instrument, steps)
        time.sleep(1.0)  # a look, or two
        assert steps.count < 100
