"""The little that the async surface needs of a loop, on asyncio and on trio alike.

A `Promise` is made on a loop and kept from any thread. Trio is only looked for when somebody has imported it.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Generic, TypeVar

T = TypeVar("T")

THREADS = 16


class Promise(Generic[T]):
    """One value that another thread or task will bring. Await it once."""

    def __init__(self) -> None:
        self._value: Any = None
        self._error: BaseException | None = None
        self._kept = False
        self._wake: Callable[[], None]
        self._wait: Callable[[float | None], Coroutine[Any, Any, bool]]
        if _trio_runs():
            self._trio()
        else:
            self._asyncio()

    @property
    def kept(self) -> bool:
        return self._kept

    def keep(self, value: T) -> None:
        """Bring the value, from any thread."""
        self._value = value
        self._kept = True
        self._wake()

    def fail(self, error: BaseException) -> None:
        """Bring an exception instead."""
        self._error = error
        self._kept = True
        self._wake()

    async def wait(self, timeout_s: float | None = None) -> T:
        """The value. Raises what it failed with, or TimeoutError."""
        if not self._kept and not await self._wait(timeout_s):
            raise TimeoutError
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[no-any-return]  # kept with a T

    def _asyncio(self) -> None:
        import asyncio  # wall: only the loop that runs is loaded

        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()

        def ready() -> None:
            if not future.done():
                future.set_result(None)

        def wake() -> None:
            try:
                loop.call_soon_threadsafe(ready)
            except RuntimeError:  # the loop has ended: nobody waits any more
                return

        async def wait(timeout_s: float | None) -> bool:
            if timeout_s is None:
                await future
                return True
            done, _pending = await asyncio.wait([future], timeout=timeout_s)
            return bool(done)

        self._wake, self._wait = wake, wait

    def _trio(self) -> None:
        import trio  # wall: only the loop that runs is loaded

        token = trio.lowlevel.current_trio_token()
        event = trio.Event()

        def wake() -> None:
            try:
                token.run_sync_soon(event.set)
            except trio.RunFinishedError:  # nobody waits any more
                return

        async def wait(timeout_s: float | None) -> bool:
            with trio.move_on_after(float("inf") if timeout_s is None else max(0.0, timeout_s)):
                await event.wait()
            return event.is_set()

        self._wake, self._wait = wake, wait


async def in_thread(call: Callable[[], T]) -> T:
    """Run a short blocking call in one of the process's few threads."""
    promise: Promise[T] = Promise()

    def run() -> None:
        try:
            value = call()
        except BaseException as exc:  # noqa: BLE001  # carried to the awaiting task, whatever it is
            promise.fail(exc)
        else:
            promise.keep(value)

    _executor().submit(run)
    return await promise.wait()


def in_own_thread(call: Callable[[], T], name: str) -> Awaitable[T]:
    """Run a long blocking call in a thread of its own."""
    promise: Promise[T] = Promise()

    def run() -> None:
        try:
            value = call()
        except BaseException as exc:  # noqa: BLE001  # carried to the awaiting task, whatever it is
            promise.fail(exc)
        else:
            promise.keep(value)

    threading.Thread(target=run, name=name, daemon=True).start()
    return promise.wait()


async def sleep(seconds: float) -> None:
    """Sleep on whatever loop runs."""
    if _trio_runs():
        import trio  # wall: only the loop that runs is loaded

        await trio.sleep(seconds)
    else:
        import asyncio  # wall: only the loop that runs is loaded

        await asyncio.sleep(seconds)


def _trio_runs() -> bool:
    trio = sys.modules.get("trio")
    return trio is not None and trio.lowlevel.in_trio_run()


_executors: dict[int, ThreadPoolExecutor] = {}


def _executor() -> ThreadPoolExecutor:
    pid = os.getpid()
    if pid not in _executors:
        _executors.clear()
        _executors[pid] = ThreadPoolExecutor(THREADS, thread_name_prefix="lakeshore-aio")
    return _executors[pid]


def loop_key() -> object:
    """Something that stands for the running loop, alive as long as it."""
    if _trio_runs():
        import trio  # wall: only the loop that runs is loaded

        return trio.lowlevel.current_trio_token()
    import asyncio  # wall: only the loop that runs is loaded

    return asyncio.get_running_loop()
