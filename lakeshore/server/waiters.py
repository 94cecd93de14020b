"""Who waits for which end: single awaits, and watch sets (K-21).

A watch set is what one producer process still waits for. The server keeps it between polls, so that the ids are not
listed again; an id is reported once and leaves. A set that nobody asked about for two minutes is dropped, for its
producer, if it lives, sends its unresolved ids again.

An end that can never be another one is told as it came; of any other the rows are asked.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from ..plane.contract import Ended
from .bells import Bells

FORGET_S = 120.0
KEPT = 256
KEPT_BYTES = 1024
"""A set keeps so many ends, with results of so many bytes, for who has not asked yet."""


class Parker(Protocol):
    """A request that can wait: `park` returns why it ended, `wake` ends it."""

    async def park(self, timeout_s: float) -> str: ...
    def wake(self) -> None: ...
    def is_gone(self) -> bool: ...


class WatchSet:
    """Ids one session waits for, and those that are ready to be told."""

    __slots__ = ("ns", "parker", "pending", "ready", "seen_at")

    def __init__(self, ns: str, now: float) -> None:
        self.ns = ns
        self.pending: set[str] = set()
        self.ready: dict[str, Ended | None] = {}
        self.parker: Parker | None = None
        self.seen_at = now

    def settle(self, id_: str, ended: Ended | None = None) -> None:
        """An id has ended: tell it with the next answer."""
        if id_ in self.pending:
            self.pending.discard(id_)
            self.ready[id_] = ended if ended is not None and self._has_room(ended) else None
            if self.parker is not None:
                self.parker.wake()

    def _has_room(self, ended: Ended) -> bool:
        result = ended.result
        return len(self.ready) < KEPT and (not isinstance(result, bytes) or len(result) <= KEPT_BYTES)


class Waiters:
    """Everybody who waits, by what they wait for."""

    def __init__(self) -> None:
        self._sets: dict[tuple[str, str], WatchSet] = {}
        self._watching: dict[str, set[WatchSet]] = {}
        self.awaits: Bells[[Ended | None]] = Bells()
        """Told of the end of one id: how it ended, or None: as the rows say."""

    def __len__(self) -> int:
        return len(self._watching) + len(self.awaits)

    def settled(self, id_: str, ended: Ended | None = None) -> None:
        """An invocation reached a terminal state. `ended` is how, if that stays so."""
        for watch in self._watching.pop(id_, ()):
            watch.settle(id_, ended)
        self.awaits.ring(id_, ended)

    def awaited(self, id_: str) -> bool:
        """Whether somebody waits for this end at this moment."""
        return id_ in self.awaits or any(watch.parker is not None for watch in self._watching.get(id_, ()))

    def watch_set(self, ns: str, session: str, now: float) -> WatchSet:
        """The session's set; a new empty one when it is not known."""
        watch = self._sets.get((ns, session))
        if watch is None:
            watch = self._sets[ns, session] = WatchSet(ns, now)
        watch.seen_at = now
        return watch

    def watch(self, watch: WatchSet, id_: str) -> None:
        """Wait for one more id."""
        if id_ not in watch.ready:
            watch.pending.add(id_)
            self._watching.setdefault(id_, set()).add(watch)

    def ended(self, watch: WatchSet, id_: str) -> None:
        """This one needs no waiting: it is told with the next answer, and nothing of it stays here."""
        self.drop(watch, (id_,))
        watch.pending.add(id_)
        watch.settle(id_)

    def drop(self, watch: WatchSet, ids: Iterable[str]) -> None:
        """Wait for these no longer."""
        for id_ in ids:
            watch.ready.pop(id_, None)
            watch.pending.discard(id_)
            watching = self._watching.get(id_)
            if watching is not None:
                watching.discard(watch)
                if not watching:
                    del self._watching[id_]

    def forget_idle(self, now: float) -> None:
        """Drop the sets that nobody asks about any more."""
        for key, watch in list(self._sets.items()):
            if watch.parker is None and now - watch.seen_at > FORGET_S:
                self.drop(watch, list(watch.pending) + list(watch.ready))
                del self._sets[key]
