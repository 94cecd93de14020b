"""The four body kinds and how each runs in this process with its call's context installed.

A context is installed only while the body itself runs: around the call, around the await, around each step of a
generator. A generator's body may open scopes of its own; what is ambient at a yield is kept for the next step and
never seen by the consumer. The key contract is checked once, when a body finishes; a body that raised or was closed
early is not checked. Reference: python-sdk/udf.md, "The four body kinds"; python-sdk/architecture/f3-generators.md.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncGenerator, Callable, Collection, Generator
from typing import Any, Literal

from lakeshore.sdk.context import RunContext, swap
from lakeshore.sdk.keys import check_returned, check_returned_set, keys_in, normal

Kind = Literal["sync", "async", "gen", "asyncgen"]


def kind_of(fn: Callable[..., Any]) -> Kind:
    """The kind of `fn`'s body, seen through functools.partial, bound methods and callable instances."""
    body: Any = fn
    while isinstance(body, functools.partial):
        body = body.func
    if not (inspect.isroutine(body) or inspect.isclass(body)):
        body = getattr(type(body), "__call__", body)  # noqa: B004  # the function behind a callable instance is wanted
    if inspect.isasyncgenfunction(body):
        return "asyncgen"
    if inspect.isgeneratorfunction(body):
        return "gen"
    if inspect.iscoroutinefunction(body):
        return "async"
    return "sync"


class _Yielded:
    """The keys of the yields so far, in normal form; None while no yield was a manifest."""

    __slots__ = ("keys",)

    def __init__(self) -> None:
        self.keys: set[str] | None = None

    def add(self, item: object) -> None:
        keys = keys_in(item)
        if keys is not None:
            if self.keys is None:
                self.keys = set()
            self.keys.update(map(normal, keys))

    def check(self, written: Collection[str]) -> None:
        check_returned_set(written, self.keys)


def call_sync(fn: Callable[..., Any], context: RunContext, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run a plain body and check its keys."""
    previous = swap(context)
    try:
        result = fn(*args, **kwargs)
    finally:
        swap(previous)
    if context.writes:
        check_returned(context.writes, result)
    return result


async def call_async(fn: Callable[..., Any], context: RunContext, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Await a coroutine body and check its keys."""
    previous = swap(context)
    try:
        result = await fn(*args, **kwargs)
    finally:
        swap(previous)
    if context.writes:
        check_returned(context.writes, result)
    return result


def call_gen(
    fn: Callable[..., Any], context: RunContext, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Generator[Any, Any, Any]:
    """Step a generator body; `.send`, `.throw` and `.close` reach it, and its return value is the wrapper's."""
    ambient: RunContext | None = context
    yielded = _Yielded()
    previous = swap(ambient)
    try:
        body = fn(*args, **kwargs)
    finally:
        ambient = swap(previous)
    advance: Callable[..., Any] = body.__next__
    resume = advance
    value: tuple[Any, ...] = ()
    while True:
        previous = swap(ambient)
        try:
            item = resume(*value)
        except StopIteration as stop:
            returned = stop.value
            break
        finally:
            ambient = swap(previous)
        yielded.add(item)
        try:
            sent = yield item
        except GeneratorExit:
            previous = swap(ambient)
            try:
                body.close()
            finally:
                swap(previous)
            raise
        except BaseException as error:  # noqa: BLE001  # handed to the body, as a plain generator would
            resume, value = body.throw, (error,)
        else:
            resume, value = (advance, ()) if sent is None else (body.send, (sent,))
    yielded.check(context.writes)
    return returned


async def call_asyncgen(
    fn: Callable[..., Any], context: RunContext, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> AsyncGenerator[Any, Any]:
    """Step an async generator body; `.asend`, `.athrow` and `.aclose` reach it."""
    ambient: RunContext | None = context
    yielded = _Yielded()

    async def step(resume: Callable[..., Any], *value: Any) -> Any:
        nonlocal ambient
        previous = swap(ambient)
        try:
            return await resume(*value)
        finally:
            ambient = swap(previous)

    body = fn(*args, **kwargs)
    resume: Callable[..., Any] = body.__anext__
    value: tuple[Any, ...] = ()
    while True:
        try:
            item = await step(resume, *value)
        except StopAsyncIteration:
            break
        yielded.add(item)
        try:
            sent = yield item
        except GeneratorExit:
            await step(body.aclose)
            raise
        except BaseException as error:  # noqa: BLE001  # handed to the body, as a plain generator would
            resume, value = body.athrow, (error,)
        else:
            resume, value = (body.__anext__, ()) if sent is None else (body.asend, (sent,))
    yielded.check(context.writes)
