"""`@udf`: its signature, the four body kinds run locally, and what a UDF is as an object."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import functools
import inspect
import pickle
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

import dreamlake.lakeshore as dls
from lakeshore.sdk.errors import TransportError
from lakeshore.sdk.functions import UDF


@dls.udf
def plus(a: int, b: int = 1) -> int:
    """Adds."""
    return a + b


@dls.udf(queue="gpu", transport="pickle")
def bound(x: int) -> int:
    return x * 2


@dls.udf
async def later(x: int) -> int:
    await asyncio.sleep(0)
    return x


@dls.udf
def count(n: int) -> Iterator[int]:
    yield from range(n)


@dls.udf
async def acount(n: int) -> AsyncIterator[int]:
    for i in range(n):
        yield i


@pytest.mark.inventory("P-060", "P-061")
def test_the_signature_is_exactly_as_documented() -> None:
    signature = inspect.signature(dls.udf)
    assert list(signature.parameters) == ["fn", "queue", "transport"]
    assert signature.parameters["queue"].default is None
    assert signature.parameters["transport"].default == "auto"
    assert all(signature.parameters[n].kind is inspect.Parameter.KEYWORD_ONLY for n in ("queue", "transport"))
    for made in (dls.udf(lambda: 1), dls.udf()(lambda: 1), dls.udf(queue="q")(lambda: 1)):
        assert isinstance(made, dls.UDF)


@pytest.mark.inventory("P-062", "P-063")
@pytest.mark.parametrize("name", ["mode", "name", "retries", "timeout", "image", "resources", "kind"])
def test_there_is_no_other_parameter(name: str) -> None:
    with pytest.raises(TypeError):
        dls.udf(**{name: "x"})  # type: ignore[call-overload]


@pytest.mark.inventory("P-064", "P-406")
def test_wrong_arguments_are_named() -> None:
    with pytest.raises(TypeError, match="takes a queue's name"):
        dls.udf(lambda: 1, queue=object())  # type: ignore[call-overload]
    with pytest.raises(
        TypeError, match=r'decorates a callable, got str; a queue goes by its keyword: @udf\(queue="gpu"\)'
    ):
        dls.udf("gpu")  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="decorates a callable"):
        dls.udf(3)  # type: ignore[call-overload]
    with pytest.raises(TransportError) as caught:
        dls.udf(transport="json")
    assert str(caught.value) == 'unknown transport \'json\'; use "ref" | "pickle" | "auto"'


@pytest.mark.inventory("P-065", "P-073")
@pytest.mark.parametrize(
    ("function", "flags"),
    [(plus, (0, 0, 0)), (later, (1, 0, 0)), (count, (0, 1, 0)), (acount, (0, 0, 1))],
)
def test_the_kind_is_detected(function: Any, flags: tuple[int, ...]) -> None:
    assert (function.is_async, function.is_gen, function.is_asyncgen) == tuple(map(bool, flags))
    partial = dls.udf(functools.partial(function.__wrapped__, 1))
    assert partial.kind == function.kind
    assert (bound.queue, bound.transport) == ("gpu", "pickle")


def test_the_kind_is_seen_through_callable_instances_and_methods() -> None:
    class Body:
        async def __call__(self) -> int:
            return 1

        def steps(self) -> Iterator[int]:
            yield 1

    assert dls.udf(Body()).is_async
    assert dls.udf(Body().steps).is_gen


@pytest.mark.inventory("P-066", "P-072", "P-074")
def test_a_bare_call_is_a_call() -> None:
    value = [object()]
    assert dls.udf(lambda: value)() is value
    assert plus(1) == 2
    assert plus(1, b=5) == 6
    with pytest.raises(TypeError):
        plus()  # type: ignore[call-arg]


@pytest.mark.inventory("P-101", "P-102", "P-743")
def test_local_runs_here_whatever_the_binding() -> None:
    assert bound.local(4) == 8


@pytest.mark.inventory("P-075", "P-079")
@pytest.mark.parametrize("start", [asyncio.run, lambda coroutine: trio.run(lambda: coroutine)])
def test_an_async_body_runs_when_awaited_where_it_was_called(start: Any, tmp_path: Path) -> None:
    ran: list[str] = []

    @dls.udf
    async def body() -> None:
        ran.append(dls.run.prefix)

    async def main() -> None:
        with dls.scope("here", root=tmp_path):
            coroutine = body()
        assert ran == []
        await coroutine
        assert dls.run.prefix == ""

    start(main())
    assert ran == ["here"]


@pytest.mark.inventory("P-080")
def test_async_calls_run_side_by_side() -> None:
    @dls.udf
    async def score(x: int) -> int:
        await asyncio.sleep(0.1)
        return x * x

    async def main() -> list[int]:
        return await asyncio.gather(*(score(x) for x in range(5)))

    began = time.monotonic()
    assert asyncio.run(main()) == [0, 1, 4, 9, 16]
    assert time.monotonic() - began < 0.45


@pytest.mark.inventory("P-076", "P-081")
def test_generators_are_lazy_and_compose() -> None:
    pulled: list[int] = []

    @dls.udf
    def source() -> Iterator[int]:
        for i in range(3):
            pulled.append(i)
            yield i

    @dls.udf
    def double(items: Iterator[int]) -> Iterator[int]:
        for item in items:
            yield item * 2

    chain = double(source())
    assert pulled == []
    assert next(chain) == 0
    assert pulled == [0]
    assert list(chain) == [2, 4]


@pytest.mark.inventory("P-078")
def test_a_generators_context_is_installed_only_while_it_runs(tmp_path: Path) -> None:
    @dls.udf
    def body() -> Iterator[str]:
        for _ in range(2):
            yield dls.run.prefix

    with dls.scope("call", root=tmp_path):
        steps = body()
    assert next(steps) == "call"
    assert dls.run.prefix == ""
    with dls.scope("consumer"):
        assert next(steps) == "call"
        assert dls.run.prefix == "consumer"


@pytest.mark.inventory("P-084", "P-749")
def test_send_throw_and_close_reach_the_body() -> None:
    events: list[object] = []

    @dls.udf
    def tuner() -> Iterator[float]:
        rate = 1.0
        try:
            while True:
                try:
                    loss = yield rate
                except ValueError as error:
                    events.append(str(error))
                    loss = 0.0
                if loss is None:
                    return "over"  # a two-way generator with a return value is the case
                rate = rate * 0.5 if loss > 1.0 else rate * 2
        finally:
            events.append("closed")

    steps: Any = tuner()
    assert next(steps) == 1.0
    assert steps.send(2.0) == 0.5
    assert steps.throw(ValueError("bad")) == 1.0
    with pytest.raises(StopIteration) as stop:
        next(steps)
    assert stop.value.value == "over"
    other: Any = tuner()
    next(other)
    other.close()
    assert events == ["bad", "closed", "closed"]


@pytest.mark.inventory("P-077", "P-082")
def test_async_generators_are_lazy_compose_and_take_values() -> None:
    pulled: list[int] = []

    @dls.udf
    async def source(n: int) -> AsyncIterator[int]:
        for i in range(n):
            pulled.append(i)
            await trio_or_asyncio()
            yield i

    @dls.udf
    async def echo(items: AsyncIterator[int]) -> AsyncIterator[Any]:
        got: Any = None
        try:
            async for item in items:
                got = yield (item, got)
        finally:
            pulled.append(-1)

    async def trio_or_asyncio() -> None:
        try:
            await trio.lowlevel.checkpoint()
        except RuntimeError:
            await asyncio.sleep(0)

    async def main() -> None:
        pulled.clear()
        chain: Any = echo(source(3))
        assert pulled == []
        assert await anext(chain) == (0, None)
        assert pulled == [0]
        assert await chain.asend("hi") == (1, "hi")
        with pytest.raises(KeyError):
            await chain.athrow(KeyError("x"))
        assert pulled == [0, 1, -1]
        async with contextlib.aclosing(echo(source(3))) as second:
            await anext(second)
        assert pulled == [0, 1, -1, 0, -1]

    asyncio.run(main())


@pytest.mark.inventory("P-078")
def test_an_async_generators_scope_does_not_leak(tmp_path: Path) -> None:
    @dls.udf
    async def body() -> AsyncIterator[str]:
        with dls.scope("inside"):
            yield dls.run.prefix
            await trio.lowlevel.checkpoint()
            yield dls.run.prefix

    async def main() -> None:
        with dls.scope("outer", root=tmp_path):
            async with contextlib.aclosing(body()) as steps:  # type: ignore[type-var]
                async for prefix in steps:
                    assert prefix == "outer/inside"
                    assert dls.run.prefix == "outer"

    trio.run(main)


def test_a_udf_looks_like_its_function() -> None:
    assert (plus.__name__, plus.__doc__, plus.__module__) == ("plus", "Adds.", __name__)
    assert plus.__wrapped__(1, 2) == 3
    assert list(inspect.signature(plus).parameters) == ["a", "b"]
    assert repr(plus) == f"<UDF {__name__}.plus>"
    assert repr(bound) == f"<UDF {__name__}.bound queue='gpu'>"
    assert dls.udf(functools.partial(plus.__wrapped__, 1)).__name__ == "plus"


def test_decorating_a_udf_binds_its_function_anew() -> None:
    fast = dls.udf(plus, queue="fast")
    assert fast.__wrapped__ is plus.__wrapped__
    assert plus.queue is None


def test_in_a_class_it_is_a_method() -> None:
    class Scene:
        def __init__(self, name: str) -> None:
            self.name = name

        @dls.udf
        def title(self, mark: str = "!") -> str:
            return self.name + mark

        @staticmethod
        @dls.udf
        def half(x: int) -> float:
            return x / 2

    assert Scene("a").title() == "a!"
    assert Scene("a").title.local("?") == "a?"
    assert isinstance(Scene.title, UDF)
    assert Scene.half(3) == 1.5
    assert dls.udf(staticmethod(lambda: 1))() == 1
    with pytest.raises(TypeError, match="put @classmethod above @udf"):
        dls.udf(classmethod(lambda cls: 1))  # type: ignore[call-overload]


def test_a_udf_of_a_module_pickles_by_reference() -> None:
    assert pickle.loads(pickle.dumps(plus)) is plus
    assert copy.copy(plus) is plus
    assert copy.deepcopy({"f": bound})["f"] is bound


@pytest.mark.inventory("P-139", "P-142")
def test_a_thunk_bundles_a_callable_with_its_arguments() -> None:
    made = dls.thunk(plus, 1, b=2)
    assert isinstance(made, dls.Thunk)
    assert made.fn is plus.__wrapped__
    assert (made.args, made.kwargs) == ((1,), {"b": 2})
    assert dls.thunk(dict, fn=1).kwargs == {"fn": 1}
    with pytest.raises(TypeError, match=r"not thunk\(f\(x\)\)"):
        dls.thunk(3)  # type: ignore[arg-type]
