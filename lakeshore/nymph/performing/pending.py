"""Tasks that the daemon waits for before it leaves, for a moment."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import trio


class Pending:
    """How many there are, from the moment that they are asked for."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self._count = 0
        self._none = trio.Event()
        self._none.set()

    def start(self, do: Callable[..., Awaitable[None]], *what: Any) -> None:
        """Start one."""
        if not self._count:
            self._none = trio.Event()
        self._count += 1
        self._nursery.start_soon(self._run, do, *what)

    async def done(self) -> None:
        """Until there are none."""
        await self._none.wait()

    async def _run(self, do: Callable[..., Awaitable[None]], *what: Any) -> None:
        try:
            await do(*what)
        finally:
            self._count -= 1
            if not self._count:
                self._none.set()
