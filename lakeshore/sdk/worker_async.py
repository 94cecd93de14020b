"""A worker under asyncio or trio: its loop in one thread, cancellation as a drain."""

from __future__ import annotations

import asyncio
import contextvars
import sys
import threading
from collections.abc import Callable
from typing import Any

from .worker import Worker

__all__ = ["arun_worker"]


async def arun_worker(q: Any, **options: Any) -> int:
    """`run_worker` on asyncio or trio, in a thread of its own; takes the same options.

    Cancelling it drains: the running job finishes first, then the cancellation goes on. A second one, on asyncio, stops
    the running body and gives its job back.
    """
    worker = Worker(q, **options)
    outcome: list[tuple[int, BaseException | None]] = []
    trio = sys.modules.get("trio")
    wait = _trio if trio is not None and trio.lowlevel.in_trio_run() else _asyncio
    await wait(worker, outcome)
    executed, error = outcome[0]
    if error is not None:
        raise error
    return executed


def _start(worker: Worker, outcome: list[tuple[int, BaseException | None]], done: Callable[[], Any]) -> None:
    def body() -> None:
        try:
            executed = worker.run()
        except BaseException as error:  # noqa: BLE001  # raised again in the task
            outcome.append((worker.executed, error))
        else:
            outcome.append((executed, None))
        done()

    context = contextvars.copy_context()
    threading.Thread(target=context.run, args=(body,), name="lakeshore-worker", daemon=True).start()


async def _asyncio(worker: Worker, outcome: list[tuple[int, BaseException | None]]) -> None:
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    _start(worker, outcome, lambda: loop.call_soon_threadsafe(ended.set))
    cancelled: asyncio.CancelledError | None = None
    while not ended.is_set():
        try:
            await ended.wait()
        except asyncio.CancelledError as error:
            if cancelled is None:
                worker.drain()
            else:
                worker.give_back()
            cancelled = error
    if cancelled is not None:
        raise cancelled


async def _trio(worker: Worker, outcome: list[tuple[int, BaseException | None]]) -> None:
    import trio  # at its wall: only for who runs it

    ended = trio.Event()
    token = trio.lowlevel.current_trio_token()
    _start(worker, outcome, lambda: token.run_sync_soon(ended.set))
    try:
        await ended.wait()
    except trio.Cancelled:
        worker.drain()
        with trio.CancelScope(shield=True):
            await ended.wait()
        raise
