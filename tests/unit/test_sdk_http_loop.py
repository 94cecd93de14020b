"""Many calls of one turn leave in growing batches; who sends for others, or has gone meanwhile, holds up nobody."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from lakeshore.sdk import http_wire
from lakeshore.sdk.errors import DispatchError
from lakeshore.sdk.http_loop import FIRST_ITEMS, MAX_SENDERS, HttpLoop
from lakeshore.sdk.limits import NEVER, OutOfTime
from lakeshore.sdk.submitter import MAX_ITEMS

PATIENCE_S = 30.0
FIRST = [f"i{n}" for n in range(FIRST_ITEMS)]
"""The calls of a first batch: its last one sends it. The first one sends `LONE`, which came behind them."""
LONE = f"i{FIRST_ITEMS}"


class Wire:
    """Each request waits here until the test answers it."""

    def __init__(self) -> None:
        self.submits: list[tuple[list[str], asyncio.Future[Any]]] = []
        self.polls: list[asyncio.Future[Any]] = []

    async def until_answered(self, send: Callable[[], Awaitable[Any]], _what: str, *, until: float) -> Any:
        del until
        return await send()

    def answered(self) -> None:
        pass

    async def once(self, _method: str, path: str, body: Any, _what: str, _wait_s: float, *, until: float) -> Any:
        del until
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if path == http_wire.AWAIT:
            self.polls.append(answer)
            return await answer
        ids = [item["invocation_id"] for item in body.get("invocations", [body])]
        self.submits.append((ids, answer))
        taken = [{"status": 200, "invocation_id": id_} for id_ in ids]
        await answer
        return {"results": taken} if "invocations" in body else taken[0]

    def end(self, poll: int, ids: list[str]) -> None:
        self.polls[poll].set_result({"results": [{"invocation_id": id_, "state": "succeeded"} for id_ in ids]})


async def until(what: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not what():  # noqa: ASYNC110  # a few turns of the loop
            await asyncio.sleep(0)


def called(loop: Any, ids: list[str]) -> list[asyncio.Task[Any]]:
    calls: list[Coroutine[Any, Any, Any]] = [loop.call({"invocation_id": id_}, NEVER, NEVER) for id_ in ids]
    return [asyncio.create_task(call) for call in calls]


def loop_of(wire: Wire) -> Any:
    return HttpLoop(wire)  # type: ignore[arg-type]  # the part of it that a loop needs


async def sent(wire: Wire, loop: Any = None) -> list[asyncio.Task[Any]]:
    """Every call is on its way."""
    tasks = called(loop or loop_of(wire), [*FIRST, LONE])
    await until(lambda: len(wire.submits) == 2)
    assert [ids for ids, _ in wire.submits] == [FIRST, [LONE]]
    return tasks


async def first_goes(wire: Wire, tasks: list[asyncio.Task[Any]]) -> None:
    """The first, that sends the lone one, is cancelled."""
    tasks[0].cancel()
    await until(wire.submits[1][1].cancelled)


async def again(wire: Wire) -> asyncio.Future[Any]:
    """The request in which another one sends the lone one."""
    await until(lambda: len(wire.submits) == 3)
    ids, answer = wire.submits[2]
    assert ids == [LONE]
    return answer


def test_calls_of_one_turn_leave_in_growing_batches_before_the_last_of_them_is_made() -> None:
    grown = [64, 128, 256, 256, 256, 256, 256]
    behind = 1000
    assert (grown[0], grown[2], len(grown)) == (FIRST_ITEMS, MAX_ITEMS, MAX_SENDERS - 1)
    ids = [f"i{n}" for n in range(sum(grown) + behind)]

    def there() -> list[int]:
        return [len(batch) for batch, answer in wire.submits if not answer.done()]

    async def main() -> list[Any]:
        tasks = called(loop_of(wire), ids)
        in_that_turn: list[list[int]] = []
        asyncio.get_running_loop().call_soon(lambda: in_that_turn.append(there()))
        await until(lambda: bool(in_that_turn))
        assert in_that_turn == [grown]
        await until(lambda: len(there()) == MAX_SENDERS)  # and the one that waited for company
        left = behind - MAX_ITEMS
        while left > 0:  # each answer lets another one send, and no more than that
            n = next(n for n, (_, answer) in enumerate(wire.submits) if not answer.done())
            more = len(wire.submits) + 1
            wire.submits[n][1].set_result(None)
            await until(lambda more=more: len(wire.submits) == more)  # type: ignore[misc]
            assert len(there()) == MAX_SENDERS
            left -= len(wire.submits[-1][0])
        for _, answer in wire.submits:
            if not answer.done():
                answer.set_result(None)
        await until(lambda: len(wire.polls) == 1)
        assert sorted(id_ for batch, _ in wire.submits for id_ in batch) == sorted(ids)
        wire.end(0, ids)
        return await asyncio.gather(*tasks)

    wire = Wire()
    assert [id_ for id_, _answer in asyncio.run(main())] == ids


@pytest.mark.inventory("K-21")
def test_the_watch_is_read_while_one_whose_call_was_taken_still_sends_for_others() -> None:
    async def main() -> list[Any]:
        wire = Wire()
        tasks = await sent(wire)
        wire.submits[0][1].set_result(None)
        await until(lambda: len(wire.polls) == 1)
        wire.end(0, [FIRST[-1]])  # whoever read this poll goes; the first call sends the lone one
        await until(lambda: len(wire.polls) == 2)
        wire.end(1, FIRST[:-1])
        ended = await asyncio.gather(*tasks[1:-1])
        assert not tasks[0].done()
        wire.submits[1][1].set_result(None)
        await until(lambda: len(wire.polls) == 3)
        wire.end(2, [LONE])
        return [await tasks[0], *ended, await tasks[-1]]

    assert [id_ for id_, _answer in asyncio.run(main())] == [*FIRST, LONE]


def test_who_still_sends_is_not_asked_to_send_what_another_one_left_behind() -> None:
    more = [f"m{n}" for n in range(10)]

    async def main() -> list[Any]:
        wire = Wire()
        loop = loop_of(wire)
        tasks = await sent(wire, loop)
        tasks += called(loop, more)
        await asyncio.sleep(0)
        tasks.pop(FIRST_ITEMS - 1).cancel()  # it sent the first batch, the call of the one that sends now among them
        await until(lambda: len(wire.submits) == 3)
        assert wire.submits[2][0] == [*FIRST[:-1], *more]
        wire.submits[2][1].set_result(None)
        await until(lambda: len(wire.polls) == 1)
        wire.submits[1][1].set_result(None)
        wire.end(0, [*FIRST[:-1], *more, LONE])
        return await asyncio.wait_for(asyncio.gather(*tasks), PATIENCE_S)

    assert [id_ for id_, _answer in asyncio.run(main())] == [*FIRST[:-1], LONE, *more]


@pytest.mark.inventory("K-21")
def test_an_end_that_comes_before_the_answer_to_its_submit_is_not_lost() -> None:
    async def main() -> list[Any]:
        wire = Wire()
        loop = loop_of(wire)
        first, second = (asyncio.create_task(loop.call({"invocation_id": id_}, NEVER, NEVER)) for id_ in "ab")
        await until(lambda: len(wire.submits) == 1)
        wire.submits[0][1].set_result(None)
        await until(lambda: len(wire.polls) == 1)
        third = asyncio.create_task(loop.call({"invocation_id": "c"}, NEVER, NEVER))
        await until(lambda: len(wire.submits) == 2)
        wire.end(0, ["c"])
        await until(lambda: len(wire.polls) == 2)
        wire.submits[1][1].set_result(None)
        ended = await third
        wire.end(1, ["a", "b"])
        return [await first, await second, ended]

    assert [id_ for id_, _answer in asyncio.run(main())] == ["a", "b", "c"]


@pytest.mark.inventory("K-21")
def test_who_went_while_it_sent_for_others_does_not_inherit_the_watch() -> None:
    async def main() -> list[Any]:
        wire = Wire()
        tasks = await sent(wire)
        await first_goes(wire, tasks)
        wire.submits[0][1].set_result(None)
        (await again(wire)).set_result(None)
        await until(lambda: len(wire.polls) == 1)
        wire.end(0, FIRST[1:])
        await until(lambda: len(wire.polls) == 2)  # the lone one leads now
        wire.end(1, [LONE])
        return await asyncio.gather(*tasks[1:])

    assert [id_ for id_, _answer in asyncio.run(main())] == [*FIRST[1:], LONE]


def test_who_was_asked_to_send_as_its_time_ended_and_came_too_late_for_it_is_told_so() -> None:
    async def main() -> None:
        wire = Wire()
        loop = loop_of(wire)
        first = asyncio.create_task(loop.call({"invocation_id": "a"}, NEVER, NEVER))
        await until(lambda: len(wire.submits) == 1)
        ends = time.monotonic() + 0.05
        asked = asyncio.create_task(loop.call({"invocation_id": "b"}, NEVER, ends))
        await asyncio.sleep(0)
        time.sleep(max(0.0, ends - time.monotonic()))  # noqa: ASYNC251  # a loop that is long in one turn
        wire.submits[0][1].set_result(None)
        before = asyncio.create_task(loop.call({"invocation_id": "c"}, NEVER, NEVER))  # it sends what is there
        async with asyncio.timeout(PATIENCE_S):
            with pytest.raises(OutOfTime):
                await asked
        assert [ids for ids, _ in wire.submits] == [["a"], ["b", "c"]]
        wire.submits[1][1].set_result(None)
        await until(lambda: len(wire.polls) == 1)
        wire.end(0, ["a", "c"])
        await asyncio.gather(first, before)

    asyncio.run(main())


@pytest.mark.parametrize("when", ["before", "after"])
def test_who_goes_while_it_sends_for_others_leaves_no_refusal_behind_that_nobody_took(when: str) -> None:
    told: list[Any] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: told.append(context))
        wire = Wire()
        tasks = await sent(wire)
        if when == "before":
            await first_goes(wire, tasks)
        wire.submits[0][1].set_exception(DispatchError("no"))
        if when == "after":
            await until(lambda: tasks[-2].done())
            await first_goes(wire, tasks)
        (await again(wire)).set_exception(DispatchError("no"))
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        assert isinstance(ended[0], asyncio.CancelledError)
        assert all(isinstance(error, DispatchError) for error in ended[1:])

    asyncio.run(main())
    gc.collect()
    assert told == []
