"""Runs any resolved function from blocking code: what a worker calls, whatever the body's kind.

A plain callable is run as a UDF, so that the key contract holds for it too. Coroutines run on an event loop of their
own; an async generator is stepped on one loop and in one task for its whole life, so that its timeouts and task
groups may span yields, and it never runs ahead of its consumer.
Reference: python-sdk/dispatch.md, "The worker loop"; python-sdk/architecture/f5-async-generators.md.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import Any

from lakeshore.sdk.functions import UDF

_ITEM, _END, _ERROR = range(3)


def as_udf(target: Callable[..., Any]) -> UDF[..., Any]:
    """`target` itself when it is a UDF, else a UDF around it."""
    return target if isinstance(target, UDF) else UDF(target)


def is_stream(target: Callable[..., Any]) -> bool:
    """Whether the body yields: a generator or an async generator."""
    return as_udf(target).kind in ("gen", "asyncgen")


def run_body(target: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Run a body to its value; for generator kinds return an iterator over its yields. Blocks; not for use on a
    running event loop.

    The ambient RunContext is that of the caller; install the invocation's with `context.installed` first.
    """
    function = as_udf(target)
    outcome = function.local(*args, **kwargs)
    if function.kind == "async":
        import asyncio  # at its wall: a worker of plain bodies needs no event loop

        return asyncio.run(outcome)
    if function.kind == "asyncgen":
        return stepped(outcome)
    return outcome


def stepped(source: AsyncIterator[Any]) -> Iterator[Any]:
    """The items of an async iterator, one step of its loop per item asked for."""
    import asyncio  # at its wall: a worker of plain bodies needs no event loop

    demand: asyncio.Queue[None] = asyncio.Queue()
    supply: asyncio.Queue[tuple[int, Any]] = asyncio.Queue()
    task: asyncio.Task[None] | None = None

    async def pump() -> None:
        try:
            while True:
                await demand.get()
                supply.put_nowait((_ITEM, await anext(source)))
        except StopAsyncIteration:
            supply.put_nowait((_END, None))
        except Exception as error:  # noqa: BLE001  # raised again in the consumer
            supply.put_nowait((_ERROR, error))

    async def pull() -> tuple[int, Any]:
        nonlocal task
        if task is None:
            task = asyncio.get_running_loop().create_task(pump())
        demand.put_nowait(None)
        return await supply.get()

    with asyncio.Runner() as runner:
        while True:
            outcome, item = runner.run(pull())
            if outcome == _ITEM:
                yield item
            elif outcome == _ERROR:
                raise item
            else:
                return
