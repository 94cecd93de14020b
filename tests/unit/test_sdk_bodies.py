"""Any body from blocking code: values, streams, and event loops that live as long as their generator."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

import dreamlake.lakeshore as dls
from lakeshore.sdk.bodies import is_stream, run_body, start
from lakeshore.sdk.context import RunContext, installed
from lakeshore.sdk.errors import KeyError_
from lakeshore.sdk.keys import manifest_of


async def double(x: int) -> int:
    await asyncio.sleep(0)
    return x * 2


def numbers(n: int) -> Iterator[int]:
    yield from range(n)


async def anumbers(n: int) -> AsyncIterator[int]:
    for i in range(n):
        await asyncio.sleep(0)
        yield i


@pytest.mark.inventory("P-327", "P-445")
def test_each_kind_comes_to_its_value() -> None:
    assert run_body(len, ["abc"], {}) == 3
    assert run_body(double, [2], {}) == 4
    assert list(run_body(numbers, [], {"n": 3})) == [0, 1, 2]
    assert list(run_body(anumbers, [3], {})) == [0, 1, 2]
    assert [is_stream(f) for f in (len, double, numbers, anumbers)] == [False, False, True, True]


def test_a_plain_function_keeps_the_key_contract_too(tmp_path: Path) -> None:
    def sloppy() -> None:
        dls.run.write("k")

    with installed(RunContext(root=tmp_path)), pytest.raises(KeyError_, match="did not return their keys"):
        run_body(sloppy, [], {})


@pytest.mark.inventory("P-330")
def test_an_async_stream_lives_in_one_task_and_never_runs_ahead(tmp_path: Path) -> None:
    tasks: list[Any] = []
    events: list[str] = []

    @dls.udf
    async def body() -> AsyncIterator[str]:
        try:
            async with asyncio.timeout(30):  # bound to the task that entered it
                for i in range(3):
                    tasks.append(asyncio.current_task())
                    events.append(f"make {i}")
                    yield dls.run.prefix
        finally:
            await asyncio.sleep(0)
            events.append("closed")

    with installed(RunContext(root=tmp_path, prefix="p")):
        steps = run_body(body, [], {})
    assert next(steps) == "p"
    assert events == ["make 0"]
    assert list(steps) == ["p", "p"]
    assert events == ["make 0", "make 1", "make 2", "closed"]
    assert len(set(map(id, tasks))) == 1

    events.clear()
    early = run_body(body, [], {})
    next(early)
    early.close()
    assert events == ["make 0", "closed"]


def test_an_async_stream_raises_what_its_body_raises_after_what_it_yielded() -> None:
    async def body() -> AsyncIterator[int]:
        yield 1
        raise ZeroDivisionError("second")

    steps = run_body(body, [], {})
    assert next(steps) == 1
    with pytest.raises(ZeroDivisionError, match="second"):
        next(steps)


def test_bodies_run_in_any_thread() -> None:
    seen: list[Any] = []
    thread = threading.Thread(target=lambda: seen.extend(run_body(anumbers, [2], {})))
    thread.start()
    thread.join()
    assert seen == [0, 1]


@pytest.mark.inventory("P-706", "P-353")
def test_a_stream_tells_what_it_wrote_so_that_its_yields_become_one_value(tmp_path: Path) -> None:
    def views() -> Iterator[dict[str, str]]:
        for name in ("rgb", "depth"):
            dls.run.write(f"./{name}.png")
            yield {name: f"{name}.png"}

    with installed(RunContext(root=tmp_path)) as context:
        steps = run_body(views, [], {})
        items = list(steps)
    assert steps.written == ["rgb.png", "depth.png"]
    assert manifest_of(items, steps.written) == {"rgb": "rgb.png", "depth": "depth.png"}
    assert manifest_of(items) == items
    assert context.writes == {}


def test_a_worker_that_awaits_gets_what_the_call_gives() -> None:
    outcome, context = start(double, [3], {})
    assert asyncio.run(outcome) == 6
    assert context.writes == {}
