"""Runs any resolved function from blocking code: what a worker calls, whatever the body's kind.

A plain callable is run as a UDF, so that the key contract holds for it too. Coroutines run on an event loop of their
own; an async generator is stepped on one loop and in one task for its whole life, so that its timeouts and task
groups may span yields, and it never runs ahead of its consumer.
Reference: python-sdk/dispatch.md, "The worker loop"; python-sdk/architecture/f5-async-generators.md.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping, Sequence
from typing import Any

from lakeshore.sdk.context import RunContext, current
from lakeshore.sdk.functions import UDF

_ITEM, _END, _ERROR = range(3)


def as_udf(target: Callable[..., Any]) -> UDF[..., Any]:
    """`target` itself when it is a UDF, else a UDF around it."""
    return target if isinstance(target, UDF) else UDF(target)


def is_stream(target: Callable[..., Any]) -> bool:
    """Whether the body yields: a generator or an async generator."""
    return as_udf(target).kind in ("gen", "asyncgen")


class Yields(Iterator[Any]):
    """The yields of a running body, one at a time. `written` holds the keys that it wrote so far, for
    `keys.manifest_of`.
    """

    __slots__ = ("_context", "_items")

    def __init__(self, items: Generator[Any, Any, Any], context: RunContext) -> None:
        self._items = items
        self._context = context

    def __next__(self) -> Any:
        return next(self._items)

    @property
    def written(self) -> list[str]:
        """The keys in the call's ledger, in normal form."""
        return list(self._context.writes)

    def close(self) -> None:
        """End the body where it stands: its `finally` blocks run, its keys are not checked."""
        self._items.close()


def start(target: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, RunContext]:
    """What a local call of the body gives (a value, a coroutine, a generator, an async generator) and the call's
    context.

    For workers that await by themselves. The context is a fork of the ambient one; its `writes` are the call's ledger.
    """
    function, context = as_udf(target), current().fork()
    return function._run(function.__wrapped__, context, tuple(args), dict(kwargs)), context


def run_body(target: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Run a body to its value; for generator kinds return its `Yields`. Blocks; not for use on a running event loop.

    The ambient RunContext is that of the caller; install the invocation's with `context.installed` first.
    """
    function = as_udf(target)
    outcome, context = start(function, args, kwargs)
    if function.kind == "sync":
        return outcome
    if function.kind == "async":
        import asyncio  # at its wall: a worker of plain bodies needs no event loop

        return asyncio.run(outcome)
    if function.kind == "asyncgen":
        return Yields(stepped(outcome), context)
    return Yields(outcome, context) if function.kind == "gen" else outcome


def stepped(source: AsyncIterator[Any]) -> Generator[Any, None, None]:
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
        except BaseException as error:
            supply.put_nowait((_ERROR, error))  # raised again in the consumer
            if isinstance(error, (KeyboardInterrupt, SystemExit)):
                raise

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
