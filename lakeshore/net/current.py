"""The pool for whatever loop is running: one per (process, loop, target), closed when its loop ends.

Trio is only looked for when somebody has imported it; asyncio is only imported when trio does not run.
"""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from .async_core import BaseAsyncPool
from .target import Target

if TYPE_CHECKING:
    import asyncio

# (pid, id of the loop) → (the loop, its pools, what closes them at its end); the loop is kept: its id stays taken
_asyncio_pools: dict[tuple[int, int], tuple[asyncio.AbstractEventLoop, dict[Target, BaseAsyncPool], Any]] = {}
_trio_pools: Any = None  # a trio.lowlevel.RunVar: each run has its own value


def async_pool_for(target: Target) -> BaseAsyncPool:
    """The shared pool of the running loop, made at the first call. RuntimeError outside of asyncio and trio.

    Callers do not close it. It lives as long as its loop."""
    trio = sys.modules.get("trio")
    pools = _for_trio() if trio is not None and trio.lowlevel.in_trio_run() else _for_asyncio()
    pool = pools.get(target)
    if pool is None:
        pool = pools[target] = _new_pool(target, pools)
    return pool


class _TrioPools(dict[Target, BaseAsyncPool]):
    """Pools of a trio run."""


def _new_pool(target: Target, pools: dict[Target, BaseAsyncPool]) -> BaseAsyncPool:
    if isinstance(pools, _TrioPools):
        from . import trio_  # a wall: only where trio runs

        return trio_.AsyncPool(target)
    from . import aio  # a wall: only where asyncio runs

    return aio.AsyncPool(target)


def _for_trio() -> dict[Target, BaseAsyncPool]:
    global _trio_pools  # noqa: PLW0603 - made once trio is there
    import trio  # a wall: it is imported and running

    if _trio_pools is None:
        _trio_pools = trio.lowlevel.RunVar[_TrioPools]("lakeshore.net pools")
    try:
        found: _TrioPools = _trio_pools.get()
    except LookupError:
        found = _TrioPools()
        _trio_pools.set(found)

        async def close_at_end() -> None:
            try:
                await trio.sleep_forever()  # system tasks are cancelled when the main task has ended
            finally:
                _close(found)

        trio.lowlevel.spawn_system_task(close_at_end, name="lakeshore.net closes its pools")
    return found


def _for_asyncio() -> dict[Target, BaseAsyncPool]:
    import asyncio  # a wall: trio users need not pay for it

    loop = asyncio.get_running_loop()
    key = (os.getpid(), id(loop))
    entry = _asyncio_pools.get(key)
    if entry is None:
        for old in [k for k, (other, _, _) in _asyncio_pools.items() if k[0] != key[0] or other.is_closed()]:
            del _asyncio_pools[old]
        pools: dict[Target, BaseAsyncPool] = {}
        closer = _close_at_end(pools)
        # its first step runs to the yield without suspending, and makes the loop close it in shutdown_asyncgens
        with suppress(StopIteration):
            closer.__anext__().send(None)
        entry = _asyncio_pools[key] = (loop, pools, closer)
    return entry[1]


async def _close_at_end(pools: dict[Target, BaseAsyncPool]) -> AsyncGenerator[None, None]:
    try:
        yield
    finally:
        _close(pools)


def _close(pools: dict[Target, BaseAsyncPool]) -> None:
    for pool in pools.values():
        pool.close()
    pools.clear()
