"""Asking again and again, and keeping the last good answer.

Rules: one question at a time; what comes after a pause began is thrown away, so that a frozen view stays frozen; a
failure is told beside the last good answer and never instead of it. `now` is the wall clock, for people.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Poller(Generic[T]):
    """`ask` every `interval` seconds until cancelled; `changed` is called after each answer and each failure.

    `failure` is an exception of `expected`: its text is the reason. Any other goes through.
    """

    def __init__(
        self,
        ask: Callable[[], Awaitable[T]],
        *,
        interval: float,
        expected: type[Exception],
        changed: Callable[[], None],
    ) -> None:
        self._ask, self._interval, self._expected, self._changed = ask, interval, expected, changed
        self._go, self._again = asyncio.Event(), asyncio.Event()
        self._go.set()
        self.last: T | None = None
        self.last_at: float | None = None
        self.failure: str | None = None
        self.asked = False
        """Whether there has been any outcome."""

    @property
    def paused(self) -> bool:
        return not self._go.is_set()

    def toggle(self) -> None:
        """Pause; or go on, with a question at once."""
        if self.paused:
            self._go.set()
            self._again.set()
        else:
            self._go.clear()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._go.wait()
            self._again.clear()
            begun = time.monotonic()
            try:
                answer, failure = await self._ask(), None
            except self._expected as error:
                answer, failure = None, str(error)
            if not self.paused:
                self.asked, self.failure = True, failure
                if answer is not None:
                    self.last, self.last_at = answer, time.time()
                self._changed()
                await self._rest(self._interval - (time.monotonic() - begun))

    async def _rest(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(seconds, 0.0)):
                await self._again.wait()
