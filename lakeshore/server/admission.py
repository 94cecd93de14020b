"""Submits that are held until their queue has room (K-19).

A queue with `on_full: block` holds a single submit; a batch is never held. Held ones are let in in the order in which
they came, as room is made. One that was held for too long is refused with 429, and so are held copies of its id, so
that what was refused is not stored later.
Reference: get-started/queues, "admission".
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

import trio

from ..plane import queues
from ..plane.contract import QueueFull, Refused, Submission, Submitted
from ..plane.rows import claimable
from .dispatcher import Dispatcher
from .queue_book import Key
from .waiters import Parker

HOLD_S: Final = 25.0
"""For a submit that does not say for how long it waits."""
LONGEST_S: Final = 600.0
_LOOK_S: Final = 1.0
"""A queue that is behind gets room by time, too: its oldest call may be killed, or its row edited elsewhere."""


class _Held:
    __slots__ = ("called", "dropped", "id", "parker")

    def __init__(self, id_: str, parker: Parker) -> None:
        self.id = id_
        self.parker = parker
        self.called = False
        self.dropped = False

    def wake(self) -> None:
        self.called = True
        self.parker.wake()


class Admission:
    """Submits of one server."""

    def __init__(self, dispatcher: Dispatcher, *, clock: Callable[[], float] = time.time) -> None:
        self._dispatcher = dispatcher
        self._clock = clock
        self._held: dict[Key, dict[_Held, None]] = {}

    def held(self, ns: str, name: str) -> int:
        """How many submits a queue holds."""
        return len(self._held.get((ns, name), ()))

    async def submit(self, item: Submission, *, watch: str | None, hold_s: float, parker: Parker) -> Submitted:
        """As the dispatcher's; held for up to `hold_s`, where the queue is to hold. Raises Refused, PlaneFull."""
        try:
            return await self._dispatcher.submit(item, watch=watch)
        except QueueFull as full:
            if not full.blocks or hold_s <= 0:
                raise
            refused = full
        key, mine = (item.ns, item.queue), _Held(item.id, parker)
        if not self._held:
            self._dispatcher.matcher.after_commit.append(self._committed)
        self._held.setdefault(key, {})[mine] = None
        try:
            return await self._wait(item, watch, trio.current_time() + hold_s, mine, refused)
        finally:
            held = self._held[key]
            del held[mine]
            if not held:
                del self._held[key]
            if self._held:
                self._call(key)  # the room that it was called for may be another one's
            else:
                self._dispatcher.matcher.after_commit.remove(self._committed)

    async def _wait(
        self, item: Submission, watch: str | None, until: float, mine: _Held, refused: QueueFull
    ) -> Submitted:
        while True:
            left = until - trio.current_time()
            why = "timeout" if left <= 0 else await mine.parker.park(min(left, _LOOK_S))
            if mine.dropped or why == "gone":
                raise refused
            over = why == "draining" or trio.current_time() >= until
            if over:
                for other in self._held[item.ns, item.queue]:
                    if other is not mine and other.id == item.id:
                        other.dropped = True
                        other.wake()
            mine.called = False
            # The last try, too: a copy may be on its way, and then this is the same submit.
            try:
                return await self._dispatcher.submit(item, watch=watch)
            except QueueFull as full:
                refused = full
            if over:
                raise refused

    def _committed(self) -> None:
        for key in list(self._held):
            self._call(key)

    def _call(self, key: Key) -> None:
        """Wake as many as there is room for, the longest held first."""
        held = self._held.get(key)
        if not held:
            return
        room = self._room(key)
        for one in held:
            if room <= 0:
                break
            if not one.called:
                one.wake()
            room -= 1

    def _room(self, key: Key) -> float:
        rows = self._dispatcher.rows

        def count(ns: str, name: str, state: str) -> int:
            return claimable(rows, ns, name, state)

        try:
            queues.admit(rows, count, *key, self._clock())
        except QueueFull:
            return 0
        except Refused:
            return float("inf")  # it takes nothing any more: each is to hear it
        row = queues.get(rows, *key)
        if row is None or row.max_depth is None:
            return float("inf")
        return row.max_depth - count(*key, "queued") - count(*key, "delayed")
