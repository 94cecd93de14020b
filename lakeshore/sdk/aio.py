"""The little that the async surface needs of a loop, on asyncio and on trio alike.

A promise is made on a loop and kept from any thread. Trio is only looked for when somebody has imported it.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from time import monotonic
from typing import Any, Generic, Protocol, TypeVar

T = TypeVar("T")

THREADS = 16


class Promise(ABC, Generic[T]):
    """One value that another thread or task will bring to the loop on which `promise` made this. Await it once."""

    __slots__ = ("_error", "_home", "_thread", "_value", "kept")

    def __init__(self, home: Any) -> None:
        self.kept = False
        self._home = home
        self._value: Any = None
        self._error: BaseException | None = None
        self._thread = threading.get_ident()

    def keep(self, value: T) -> None:
        """Bring the value, from any thread; from the loop's own it costs no wake-up of the loop."""
        self._value = value
        self._ready()

    def fail(self, error: BaseException) -> None:
        """Bring an exception instead."""
        self._error = error
        self._ready()

    async def wait(self, timeout_s: float | None = None) -> T:
        """The value. Raises what it failed with, or TimeoutError."""
        if not self.kept:
            await self._wait(timeout_s)
            if not self.kept:
                raise TimeoutError
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[no-any-return]  # kept with a T

    def _ready(self) -> None:
        self.kept = True
        if threading.get_ident() == self._thread:
            self._wake()
        else:
            self._soon(self._wake)

    @abstractmethod
    def _wake(self) -> None: ...

    @abstractmethod
    def _soon(self, call: Callable[[], None]) -> None:
        """Call it on the loop, from another thread; nothing when that has ended: nobody waits any more."""

    @abstractmethod
    async def _wait(self, timeout_s: float | None) -> None:
        """Until it is woken or the time is over."""


class _AsyncioPromise(Promise[T]):
    __slots__ = ("_future",)

    def __init__(self) -> None:
        import asyncio  # wall: only the loop that runs is loaded

        super().__init__(asyncio.get_running_loop())
        self._future: asyncio.Future[None] = self._home.create_future()

    def _wake(self) -> None:
        if not self._future.done():
            self._future.set_result(None)

    def _soon(self, call: Callable[[], None]) -> None:
        with suppress(RuntimeError):
            self._home.call_soon_threadsafe(call)

    async def _wait(self, timeout_s: float | None) -> None:
        if timeout_s is None:
            await self._future
            return
        timer = self._home.call_later(timeout_s, self._wake)
        try:
            await self._future
        finally:
            timer.cancel()


class _TrioPromise(Promise[T]):
    __slots__ = ("_event",)

    def __init__(self) -> None:
        import trio  # wall: only the loop that runs is loaded

        super().__init__(trio.lowlevel.current_trio_token())
        self._event = trio.Event()

    def _wake(self) -> None:
        self._event.set()

    def _soon(self, call: Callable[[], None]) -> None:
        import trio  # wall: only the loop that runs is loaded

        with suppress(trio.RunFinishedError):
            self._home.run_sync_soon(call)

    async def _wait(self, timeout_s: float | None) -> None:
        import trio  # wall: only the loop that runs is loaded

        with trio.move_on_after(float("inf") if timeout_s is None else max(0.0, timeout_s)):
            await self._event.wait()


def keep_all(kept: Iterable[tuple[Promise[Any], Any]]) -> None:
    """Bring each its value, or its exception, from another thread than their loops': each loop is woken once."""
    homes: dict[Any, list[Promise[Any]]] = {}
    for made, value in kept:
        if isinstance(value, BaseException):
            made._error = value
        else:
            made._value = value
        made.kept = True
        homes.setdefault(made._home, []).append(made)

    for those in homes.values():
        those[0]._soon(functools.partial(_wake_all, those))


def _wake_all(those: list[Promise[Any]]) -> None:
    for made in those:
        made._wake()


def promise() -> Promise[Any]:
    """A promise to the loop that runs."""
    return _TrioPromise() if _trio_runs() else _AsyncioPromise()


class LoopFuture(Protocol):
    """One value that another task of the same loop will bring: an `asyncio.Future`, or its like on trio. Awaited once;
    done also when who awaited it was cancelled.
    """

    def done(self) -> bool: ...
    def set_result(self, value: Any, /) -> None: ...
    def set_exception(self, error: Any, /) -> None: ...
    def __await__(self) -> Generator[Any, Any, Any]: ...


class _TrioFuture:
    __slots__ = ("_error", "_event", "_over", "_value")

    def __init__(self) -> None:
        import trio  # wall: only the loop that runs is loaded

        self._event = trio.Event()
        self._value: Any = None
        self._error: BaseException | None = None
        self._over = False

    def done(self) -> bool:
        return self._over or self._event.is_set()

    def set_result(self, value: Any, /) -> None:
        self._value = value
        self._event.set()

    def set_exception(self, error: BaseException, /) -> None:
        self._error = error
        self._event.set()

    def __await__(self) -> Generator[Any, Any, Any]:
        try:
            yield from self._event.wait().__await__()
        finally:
            self._over = True
        if self._error is not None:
            raise self._error
        return self._value


def futures() -> Callable[[], LoopFuture]:
    """What makes futures of the loop that runs."""
    if _trio_runs():
        return _TrioFuture
    import asyncio  # wall: only the loop that runs is loaded

    return asyncio.get_running_loop().create_future


class Alarm(ABC):
    """Calls `ring` on the loop that it was made on, once, at the earliest of the times that it was given since."""

    def __init__(self, ring: Callable[[], None]) -> None:
        self._ring = ring
        self._at = float("inf")

    def set_before(self, at: float) -> None:
        """Ring at `at` (monotonic seconds; infinity: never), or before."""
        if at < self._at:
            self._at = at
            self._set(max(0.0, at - monotonic()))

    def _rings(self) -> None:
        self._at = float("inf")
        self._ring()

    @abstractmethod
    def _set(self, seconds: float) -> None:
        """Ring then, and not when it was set before."""


class _AsyncioAlarm(Alarm):
    def __init__(self, ring: Callable[[], None]) -> None:
        import asyncio  # wall: only the loop that runs is loaded

        super().__init__(ring)
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None

    def _set(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(seconds, self._rings)


class _TrioAlarm(Alarm):
    def __init__(self, ring: Callable[[], None]) -> None:
        super().__init__(ring)
        self._sleeps: Any = None

    def _set(self, seconds: float) -> None:
        import trio  # wall: only the loop that runs is loaded

        if self._sleeps is not None:
            self._sleeps.cancel()
        sleeps = self._sleeps = trio.CancelScope()

        async def ring_later() -> None:
            with sleeps:
                await trio.sleep(seconds)
            if not sleeps.cancel_called:
                self._rings()

        trio.lowlevel.spawn_system_task(ring_later, name="lakeshore: a wait's time is over")


def alarm(ring: Callable[[], None]) -> Alarm:
    """An alarm of the loop that runs."""
    return _TrioAlarm(ring) if _trio_runs() else _AsyncioAlarm(ring)


async def in_thread(call: Callable[[], T]) -> T:
    """Run a short blocking call in one of the process's few threads."""
    made: Promise[T] = promise()

    def run() -> None:
        try:
            value = call()
        except BaseException as exc:  # noqa: BLE001  # carried to the awaiting task, whatever it is
            made.fail(exc)
        else:
            made.keep(value)

    start(run)
    return await made.wait()


def start(call: Callable[[], None]) -> None:
    """Run a short blocking call, that raises nothing, in one of the process's few threads."""
    _executor().submit(call)


def in_own_thread(call: Callable[[], T], name: str) -> Awaitable[T]:
    """Run a long blocking call in a thread of its own."""
    made: Promise[T] = promise()

    def run() -> None:
        try:
            value = call()
        except BaseException as exc:  # noqa: BLE001  # carried to the awaiting task, whatever it is
            made.fail(exc)
        else:
            made.keep(value)

    threading.Thread(target=run, name=name, daemon=True).start()
    return made.wait()


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


def is_over(key: Any) -> bool:
    """Whether the loop that this `loop_key` stands for has ended. From any loop, and from any thread."""
    if hasattr(key, "is_closed"):
        return bool(key.is_closed())
    import trio  # wall: only the loop that runs is loaded

    try:
        key.run_sync_soon(_nothing, idempotent=True)
    except trio.RunFinishedError:
        return True
    return False


def _nothing() -> None:
    pass
