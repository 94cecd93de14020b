"""Live readers of frames: what is stored, then what comes, until the last frame or the end of the invocation (K-24)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import trio

from ..plane import frames, rows
from ..plane.contract import TERMINAL, UnknownInvocation
from .dispatcher import Dispatcher


class Follower:
    """One reader of one channel. `open_*` fails at once where there is nothing to read; iterate the result."""

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
        self._since = since
        self._silence_s = silence_s
        self._rung = trio.Event()

    def _ring(self) -> None:
        self._rung.set()

    async def pieces(self) -> AsyncIterator[bytes]:
        """Frames as they are stored, several at a time when several are there. Ends after silence, too."""
        waiters = self._dispatcher.waiters
        waiters.on(self._bell, self._ring)
        try:
            while True:
                self._rung = trio.Event()
                channel, over = self._channel()
                page: list[tuple[int, bytes, bool]] = []
                looked_at = self._since
                if channel is not None:
                    page, looked_at = frames.read(
                        self._dispatcher.rows, self._dispatcher.plane.journal, channel, self._since
                    )
                if page:
                    yield b"".join(data for _seq, data, _final in page)
                    if page[-1][2]:
                        return
                if looked_at > self._since:
                    self._since = looked_at
                    continue
                if over:
                    return
                with trio.move_on_after(self._silence_s) as silence:
                    await self._rung.wait()
                if silence.cancelled_caught:
                    return
        finally:
            waiters.off(self._bell, self._ring)


def open_frames(dispatcher: Dispatcher, ns: str, id_: str, since: int) -> Follower:
    """Follow an invocation. Raises UnknownInvocation."""
    if rows.channel_of(dispatcher.rows, ns, id_) is None:
        raise UnknownInvocation(f"no invocation {id_} in namespace {ns!r}")

    def channel() -> tuple[int | None, bool]:
        found = rows.channel_of(dispatcher.rows, ns, id_)
        return (None, True) if found is None else (found[0], found[1] in TERMINAL)

    return Follower(dispatcher, f"frames/{id_}", channel, since, float("inf"))


def open_topic(dispatcher: Dispatcher, ns: str, queue: str, name: str, since: int, silence_s: float) -> Follower:
    """Follow a topic; it may have no post yet."""

    def channel() -> tuple[int | None, bool]:
        return rows.topic_channel(dispatcher.rows, ns, queue, name), False

    return Follower(dispatcher, f"topic/{ns}/{queue}/{name}", channel, since, silence_s)
