"""Who waits in the server may be cancelled at the very moment when the answer comes: nobody else notices."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
import trio.testing
from dispatching import running

from lakeshore.plane.contract import Submission
from lakeshore.server.dispatcher import Dispatcher
from lakeshore.server.followers import open_frames
from lakeshore.server.http import ClientGone

ID = "01HZZZZZZZZZZZZZZZZZZZZZZZ"


async def submitted(dispatcher: Dispatcher) -> None:
    await dispatcher.submit(Submission(ns="default", id=ID, queue="q", args=b"", hash=b""))


@pytest.mark.inventory("K-30")
def test_an_asker_that_is_cancelled_right_after_its_commit_costs_the_writer_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as dispatcher:
            with trio.CancelScope() as scope:
                await dispatcher.writer.write(lambda _tx: None, lambda _answer: scope.cancel())
                raise AssertionError("it is cancelled, and does not go on")
            assert scope.cancelled_caught
            await submitted(dispatcher)

    trio.run(main)


@pytest.mark.inventory("K-24")
def test_a_follower_that_is_cancelled_when_a_frame_comes_harms_nobody(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as dispatcher, trio.open_nursery() as nursery:
            await submitted(dispatcher)
            scopes, got = [trio.CancelScope(), trio.CancelScope()], [b"", b""]

            async def follow(number: int) -> None:
                with scopes[number]:
                    async for piece in open_frames(dispatcher, "default", ID, -1).pieces():
                        got[number] += piece

            for number in range(2):
                nursery.start_soon(follow, number)
            await trio.testing.wait_all_tasks_blocked()
            scopes[0].cancel()
            dispatcher.feeds.tell(f"frames/{ID}", 0, 0, b"frame")
            dispatcher.feeds.ring(f"frames/{ID}")
            await trio.testing.wait_all_tasks_blocked()
            assert got == [b"", b"frame"]
            assert len(dispatcher.feeds) == 1
            scopes[1].cancel()

    trio.run(main)


def test_streams_break_off_when_the_server_goes_down_and_so_does_one_that_comes_then(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as dispatcher, trio.open_nursery() as nursery:
            await submitted(dispatcher)
            broken = []

            async def follow() -> None:
                with pytest.raises(ClientGone):
                    async for _piece in open_frames(dispatcher, "default", ID, -1).pieces():
                        pass
                broken.append(True)

            nursery.start_soon(follow)
            await trio.testing.wait_all_tasks_blocked()
            dispatcher.feeds.break_off()
            await trio.testing.wait_all_tasks_blocked()
            await follow()
            assert len(broken) == 2
            assert len(dispatcher.feeds) == 0

    trio.run(main)
