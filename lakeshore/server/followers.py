"""Live readers of frames: what is stored, then what comes, until the last frame or the end of the invocation (K-24)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from math import inf

import trio

from ..plane import frames, rows
from ..plane.contract import TERMINAL, UnknownInvocation
from .dispatcher import Dispatcher
from .http import ClientGone

HELD_BYTES = 4 * 1024 * 1024


class Follower:
    """One reader of one channel. `open_*` fails at once where there is nothing to read; iterate the result.

    What follows on the last frame sent is taken as it is committed, from memory; a reader that is `HELD_BYTES` behind
    reads from the store until it has caught up.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        bell: str,
        channel: Callable[[], tuple[int | None, bool]],
        since: int,
        silence_s: float,
    ) -> None:
        self._dispatcher = dispatcher
        self._bell = bell
        self._channel = channel
        self._since = since  # the last frame that was sent, or is in `_held`
        self._held: list[bytes] = []
        self._held_bytes = 0
        self._look = True  # whether the store may have what is not in `_held`
        self._silence_s = silence_s
        self._task: trio.lowlevel.Task | None = None  # who waits
        self._broken = False

    def take(self, first: int, last: int, data: bytes) -> None:
        if first == self._since + 1 and self._held_bytes + len(data) <= HELD_BYTES:
            self._held.append(data)
            self._held_bytes += len(data)
            self._since = last
        else:
            self._look = True
        self._wake()

    def look(self) -> None:
        self._look = True
        self._wake()

    def break_off(self) -> None:
        """End without an end: the server goes down, the reader is to come back."""
        self._broken = True
        self._wake()

    async def pieces(self, may: Callable[[], bool] = lambda: True) -> AsyncIterator[bytes]:
        """Frames as they are stored, several at a time when several are there. Ends after silence, too, and breaks off
        before the first piece that its reader may not have any more.
        """
        self._dispatcher.feeds.on(self._bell, self)
        try:
            while True:
                if self._broken or not may():
                    raise ClientGone
                if self._held:
                    yield self._taken()
                    continue
                if self._look:
                    data, ended = self._read()
                    if data:
                        yield data
                    if ended:
                        return
                    continue
                if not await self._rung():
                    return
        finally:
            self._dispatcher.feeds.off(self._bell, self)

    async def _rung(self) -> bool:
        """Wait for what comes; False when the silence was too long."""
        if self._silence_s == inf:  # no scope for the usual case
            await self._parked()
            return True
        with trio.move_on_after(self._silence_s) as silence:
            await self._parked()
        return not silence.cancelled_caught

    async def _parked(self) -> None:
        self._task = trio.lowlevel.current_task()
        await trio.lowlevel.wait_task_rescheduled(self._abandon)

    def _wake(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            trio.lowlevel.reschedule(task)

    def _abandon(self, _raise_cancel: object) -> trio.lowlevel.Abort:
        self._task = None  # at once: what rings before the task runs must not wake it a second time
        return trio.lowlevel.Abort.SUCCEEDED

    def _taken(self) -> bytes:
        held = self._held
        self._held, self._held_bytes = [], 0
        return held[0] if len(held) == 1 else b"".join(held)

    def _read(self) -> tuple[bytes, bool]:
        """The next frames that are stored, and whether there will be no more."""
        channel, over = self._channel()
        page: list[tuple[int, bytes, bool]] = []
        looked_at = self._since
        if channel is not None:
            page, looked_at = frames.read(self._dispatcher.rows, self._dispatcher.plane.journal, channel, self._since)
        if looked_at > self._since:
            self._since = looked_at
        else:
            self._look = False
            return b"", over
        return b"".join([data for _seq, data, _final in page]), bool(page and page[-1][2])


def open_frames(dispatcher: Dispatcher, ns: str, id_: str, since: int) -> Follower:
    """Follow an invocation. Raises UnknownInvocation."""
    if rows.channel_of(dispatcher.rows, ns, id_) is None:
        raise UnknownInvocation(f"no invocation {id_} in namespace {ns!r}")

    def channel() -> tuple[int | None, bool]:
        found = rows.channel_of(dispatcher.rows, ns, id_)
        return (None, True) if found is None else (found[0], found[1] in TERMINAL)

    return Follower(dispatcher, f"frames/{id_}", channel, since, inf)


def open_topic(dispatcher: Dispatcher, ns: str, queue: str, name: str, since: int, silence_s: float) -> Follower:
    """Follow a topic; it may have no post yet."""

    def channel() -> tuple[int | None, bool]:
        return rows.topic_channel(dispatcher.rows, ns, queue, name), False

    return Follower(dispatcher, f"topic/{ns}/{queue}/{name}", channel, since, silence_s)
