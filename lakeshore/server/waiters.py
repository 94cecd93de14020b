"""Who waits for what: single awaits, watch sets, and followers of frames (K-21).

A watch set is what one producer process still waits for. The server keeps it between polls, so that the ids are not
listed again; an id is reported once and leaves. A set that nobody asked about for two minutes is dropped, for its
producer, if it lives, sends its unresolved ids again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

FORGET_S = 120.0


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
        self.ready: dict[str, None] = {}
        self.parker: Parker | None = None
        self.seen_at = now

    def settle(self, id_: str) -> None:
        """An id has ended: tell it with the next answer."""
        if id_ in self.pending:
            self.pending.discard(id_)
            self.ready[id_] = None
            if self.parker is not None:
                self.parker.wake()


class Waiters:
    """Everybody who waits, by what they wait for."""

    def __init__(self) -> None:
        self._sets: dict[tuple[str, str], WatchSet] = {}
        self._watching: dict[str, set[WatchSet]] = {}
        self._calls: dict[str, set[Callable[[], None]]] = {}

    def __len__(self) -> int:
        return len(self._watching) + len(self._calls)

    def on(self, name: str, call: Callable[[], None]) -> None:
        """Call back at each `ring(name)`, until `off`."""
        self._calls.setdefault(name, set()).add(call)

    def off(self, name: str, call: Callable[[], None]) -> None:
        calls = self._calls.get(name)
        if calls is not None:
            calls.discard(call)
            if not calls:
                del self._calls[name]

    def ring(self, name: str) -> None:
        """Something happened to `name`."""
        calls = self._calls.get(name)
        if calls:
            for call in list(calls):
                call()

    def settled(self, id_: str) -> None:
        """An invocation reached a terminal state."""
        for watch in self._watching.pop(id_, ()):
            watch.settle(id_)
        self.ring(id_)

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
