"""A daemon's own status page with a log that a test writes, on a trio loop in a thread."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import trio

from lakeshore.nymph import introspect
from lakeshore.nymph.config import IntrospectSection
from lakeshore.nymph.core.core import Core
from lakeshore.nymph.core.settings import Settings
from lakeshore.nymph.log_filter import TRACE
from lakeshore.nymph.logs import Ring

LEVELS = {"ERROR": 40, "WARN": 30, "INFO": 20, "DEBUG": 10, "TRACE": TRACE}


class StatusPage:
    """`say` logs; `told` is what the core tells, over what it told at its start; `asked` counts the looks."""

    def __init__(self, capacity: int) -> None:
        self.ring = Ring(capacity)
        self.told: dict[str, Any] = {}
        self.asked = 0
        self.port = 0
        self.stop: Callable[[], Callable[[], None]] = lambda: lambda: None
        """Ends it; what comes back waits for that."""
        self._core = Core(Settings(worker_id="host-01J", session="01J", version="1", queue="gpu"))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def say(
        self, level: str, message: str, *, target: str = "nymph.drain", ts: float | None = None, **more: Any
    ) -> None:
        record = logging.makeLogRecord(
            {"name": f"lakeshore.{target}", "levelno": LEVELS[level], "msg": "%s", "args": (message,), **more}
        )
        record.created = time.time() if ts is None else ts
        self.ring.handle(record)

    def status(self) -> dict[str, Any]:
        self.asked += 1
        return {**self._core.status(), **self.told}


@contextmanager
def status_page(capacity: int = 1024, port: int = 0) -> Iterator[StatusPage]:
    """Served until the end of the block."""
    page = StatusPage(capacity)
    up, loop, scope = threading.Event(), [], trio.CancelScope()

    async def serve() -> None:
        loop.append(trio.lowlevel.current_trio_token())
        with scope:
            async with trio.open_nursery() as nursery:
                section = IntrospectSection(enabled=True, port=port)
                page.port = await nursery.start(introspect.serve, section, page.status, page.ring)
                up.set()

    thread = threading.Thread(target=trio.run, args=(serve,), daemon=True)
    thread.start()
    assert up.wait(60)

    def stop() -> Callable[[], None]:
        with contextlib.suppress(trio.RunFinishedError):
            loop[0].run_sync_soon(scope.cancel)
        return thread.join

    page.stop = stop
    try:
        yield page
    finally:
        stop()()
