"""What changed, by number: who watches says the last number that it saw, and is told which resources changed since.

One number counts every change of the server. It only rises, also over a crash, a restored copy or a clock that is set
back: a server begins at the time of day in microseconds, or at what earlier ones may have given out (`Marks`),
whichever is more, and writes down how far it may count before it does. Nothing is written for a single change.

A *feed* is what is known of a namespace, or of all: of each kind, the latest number of so many resources. It is kept
from the first who watches until nobody has for five minutes; while there is none, a change costs nothing. Who comes
with a number from before a feed's memory, or of another server, is told to list anew.
Reference: admin/happy-paths/14-dashboard-observability; S-068…S-075, S-663, S-777.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Final, TypeVar

import trio

from ..plane.contract import PlaneError
from ..plane.transaction import Transaction
from ..wire.values import value
from .dispatcher import Dispatcher
from .execs import Execs
from .records import Records, WorkerRow
from .records.changed import Change
from .waiters import Parker

log = logging.getLogger(__name__)

T = TypeVar("T")
KINDS: Final = (
    *("invocations", "queues", "workers", "exec", "events", "schedules"),
    *("storages", "mounts", "tunnels", "code", "modes", "secrets", "providers", "tokens", "enroll-tokens"),
    "namespaces",
)
ALL: Final = "*"
KEPT: Final = 4096
"""Resources of one kind in a feed."""
ALIKE: Final = 64
"""Answers that a feed keeps for others."""
GATHER_S: Final = 0.015
"""What follows the first change so closely is told with it."""
PACE_S: Final = 0.1
"""No answer is sooner than this after its question, while changes follow each other faster."""
FORGET_S: Final = 300.0
LOOK_S: Final = 1.0
BLOCK: Final = 10_000_000
"""Numbers that are written down ahead."""
_MARK: Final = "changes"
_GUARDS: Final = frozenset({"tokens", "namespaces"})
"""Whoever waits looks again at these, whatever it asked for: it may not go on."""

Key = tuple[str, int | str]
"""Namespace; `seq`, name or id."""


@value
class Entry:
    """One resource that changed. `row`: what names it; an invocation's `seq` or id."""

    number: int
    kind: str
    ns: str
    row: int | str
    gone: bool


@value
class News:
    """What a cursor has not seen, the oldest first. `stale`: the kinds to list anew; `more`: ask on from `cursor`."""

    cursor: int
    stale: tuple[str, ...] = ()
    entries: tuple[Entry, ...] = ()
    more: bool = False


class _Kind:
    """The latest changes of one kind. `floor`: who has seen less has missed some."""

    __slots__ = ("entries", "floor", "gone", "newest")

    def __init__(self, floor: int) -> None:
        self.entries: OrderedDict[Key, int] = OrderedDict()
        self.gone: set[Key] = set()
        self.floor = self.newest = floor


class Feed:
    """What changed in one namespace, or in all of them."""

    def __init__(self, born: int, now: float) -> None:
        self._born = born
        self._kinds: dict[str, _Kind] = {}
        self._waiting: dict[Parker, Collection[str]] = {}
        self.made: dict[Any, Any] = {}
        """Answers as of `made_at`, for those who ask the same; at most `ALIKE`."""
        self.made_at = 0
        self.asked_at = now
        self.changed_at = -PACE_S
        self.is_busy = False
        """Whether the last change came soon after the one before."""
        self.is_over = False

    @property
    def is_waited_on(self) -> bool:
        return bool(self._waiting)

    def add(self, kind: str, key: Key, number: int, *, gone: bool = False) -> None:
        """This resource changed."""
        kept = self._kinds.get(kind)
        if kept is None:
            kept = self._kinds[kind] = _Kind(self._born)
        kept.entries[key] = kept.newest = number
        kept.entries.move_to_end(key)
        if gone:
            kept.gone.add(key)
        elif kept.gone:
            kept.gone.discard(key)
        if len(kept.entries) > KEPT:
            dropped, kept.floor = kept.entries.popitem(last=False)
            kept.gone.discard(dropped)

    def forget(self, kind: str, number: int) -> None:
        """Any of this kind may have changed: all who watch it list anew."""
        kept = self._kinds[kind] = _Kind(number)
        kept.newest = number

    def rouse(self, kinds: Iterable[str], now: float) -> None:
        """Wake who waits for one of these."""
        self.made.clear()
        self.is_busy, self.changed_at = now - self.changed_at < PACE_S, now
        if self._waiting:
            wanted = frozenset(kinds)
            for parker, asked in list(self._waiting.items()):
                if not wanted.isdisjoint(asked) or not wanted.isdisjoint(_GUARDS):
                    del self._waiting[parker]
                    parker.wake()

    def end(self) -> None:
        """It is kept no longer."""
        self.is_over = True
        self.rouse(_GUARDS, self.changed_at)

    def newest(self, kinds: Collection[str]) -> int:
        """The number of the last change of any of these."""
        return max((kept.newest for kind, kept in self._kinds.items() if kind in kinds), default=self._born)

    async def wait(self, parker: Parker, kinds: Collection[str], seen: int, hold_s: float) -> bool:
        """Until one of these changes after `seen`, the client goes, the server drains, or the time is up.

        Changes that follow each other closely are gathered. Whether there may be news.
        """
        began = trio.current_time()
        until = began + hold_s
        while self.newest(kinds) <= seen and not self.is_over:
            left = until - trio.current_time()
            if left <= 0:
                return False
            self._waiting[parker] = kinds
            try:
                why = await parker.park(left)
            finally:
                self._waiting.pop(parker, None)
            if why in ("gone", "draining"):
                return False
            if why == "woken" and self.newest(kinds) <= seen:
                return True  # a guard: the asker looks at itself
        now = trio.current_time()
        if hold_s > 0 and now - self.changed_at < PACE_S:
            await trio.sleep(max(GATHER_S, began + PACE_S - now if self.is_busy else 0.0))
        return True

    def since(self, kinds: Collection[str], seen: int, limit: int, number: int) -> News:
        """What changed after `seen`, as of `number`: the oldest `limit` of it."""
        kept = {kind: self._kinds.get(kind) for kind in kinds}
        stale = [kind for kind, one in kept.items() if not (one.floor if one else self._born) <= seen <= number]
        found = [
            Entry(number=at, kind=kind, ns=key[0], row=key[1], gone=key in one.gone)
            for kind, one in kept.items()
            if one is not None and one.newest > seen and kind not in stale
            for key, at in _after(one, seen)
        ]
        more = len(found) > limit
        if stale and more:  # a cursor in the middle would find the same kinds stale again
            stale += sorted({entry.kind for entry in found})
            found, more = [], False
        found.sort(key=lambda entry: entry.number)
        return News(
            cursor=found[limit - 1].number if more else number,
            stale=tuple(stale),
            entries=tuple(found[:limit]),
            more=more,
        )


def _after(kept: _Kind, seen: int) -> Iterator[tuple[Key, int]]:
    for key, number in reversed(kept.entries.items()):
        if number <= seen:
            return
        yield key, number


class Changes:
    """The feeds of one server, and its number. Run `run()`, and set `looks`.

    `looks(ns)` says of each worker what changes without being told, by (namespace, id): anything that can be compared.
    None: of all namespaces.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        records: Records,
        execs: Execs,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._dispatcher, self._records, self._clock = dispatcher, records, clock
        self.looks: Callable[[str | None], Mapping[Key, object]] = lambda _ns: {}
        self._feeds: dict[str, Feed] = {}
        self._seen: dict[str, Mapping[Key, object]] = {}
        self._opening = trio.Lock()
        self._written = 0
        self.number = 0
        """The last one given out; 0 before anybody watched."""
        records.told = self._recorded
        records.workers.told = self._worker_moved
        dispatcher.queues.told = lambda ns, name: self.note("queues", ns, name)
        execs.told = lambda ns, id_: self.note("exec", ns, id_)

    def __len__(self) -> int:
        return len(self._feeds)

    async def feed(self, scope: str) -> Feed:
        """Of a namespace, or of ALL. Raises PlaneError when how far the number may rise cannot be written down."""
        feed = self._feeds.get(scope)
        if feed is None:
            async with self._opening:
                feed = self._feeds.get(scope) or await self._open(scope)
        feed.asked_at = trio.current_time()
        return feed

    async def _open(self, scope: str) -> Feed:
        if not self._written:
            self.number = max(self._records.marks.get(_MARK), int(self._clock() * 1_000_000))
            await self._write_ahead()
        if not self._feeds:
            self._dispatcher.plane.noting = True
            self._dispatcher.matcher.after_commit.append(self._committed)
            try:  # A batch that a thread commits now notes nothing; the next one does.
                await self._dispatcher.writer.write(_nothing)
            except BaseException:  # it failed, or the asker has gone
                self._note_nothing()
                raise
        self.number += 1  # what was given out before does not reach into this feed
        made = self._feeds[scope] = Feed(self.number, trio.current_time())
        return made

    async def until(
        self, ns: str, kind: str, parker: Parker, hold_s: float, look: Callable[[], Awaitable[list[T]]]
    ) -> list[T]:
        """What `look()` finds: at once, or after a change of this kind, or nothing once the time is up."""
        until = trio.current_time() + hold_s
        found = await look()
        if found or hold_s <= 0:
            return found
        feed = await self.feed(ns)
        while True:
            seen = self.number
            found = await look()
            left = until - trio.current_time()
            if found or left <= 0 or feed.is_over or not await feed.wait(parker, (kind,), seen, left):
                return found

    # --- what is told

    def note(self, kind: str, ns: str, row: str | None, *, gone: bool = False) -> None:
        """A resource changed; None: any of this kind."""
        for scope in (ns, ALL):
            feed = self._feeds.get(scope)
            if feed is not None:
                self.number += 1
                if row is None:
                    feed.forget(kind, self.number)
                else:
                    feed.add(kind, (ns, row), self.number, gone=gone)
                feed.rouse((kind,), trio.current_time())
        if gone and kind == "namespaces" and ns in self._feeds:
            self._drop(ns)

    def _recorded(self, changes: Iterable[Change]) -> None:
        if self._feeds:
            for kind, ns, name, gone in changes:
                self.note(kind, ns, name, gone=gone)

    def _worker_moved(self, before: WorkerRow | None, row: WorkerRow) -> None:
        if not self._feeds:
            return
        self.note("workers", row.ns, row.id)
        then = () if before is None else before.subscriptions
        if then != row.subscriptions:
            for name in dict.fromkeys((*then, *row.subscriptions)):
                if not name.endswith("*"):
                    self.note("queues", row.ns, name)

    def _committed(self) -> None:
        """A batch of the plane was committed."""
        plane = self._dispatcher.plane
        noted, plane.noted = plane.noted, []
        if not noted:
            return
        everybody, number, now = self._feeds.get(ALL), self.number, trio.current_time()
        told: set[str] = set()
        for ns, _queue, row in noted:
            feed = self._feeds.get(ns)
            if feed is None and everybody is None:
                continue
            number += 1
            for one in (feed, everybody):
                if one is not None:
                    one.add("invocations", (ns, row), number)
            told.add(ns)
        for ns, queue in dict.fromkeys((ns, queue) for ns, queue, _row in noted if queue is not None and ns in told):
            number += 1
            for one in (self._feeds.get(ns), everybody):
                if one is not None:
                    one.add("queues", (ns, queue), number)
        self.number = number
        for one in (*(self._feeds.get(ns) for ns in told), everybody):
            if one is not None:
                one.rouse(("invocations", "queues"), now)

    # --- life

    async def run(self) -> None:
        """Until cancelled: write ahead, look at what nobody tells, and drop the feeds that nobody asks for."""
        while True:
            await trio.sleep(LOOK_S)
            if not self._feeds:
                continue
            now = trio.current_time()
            for scope, feed in list(self._feeds.items()):
                if feed.is_waited_on:
                    feed.asked_at = now
                    self._look(scope)
                elif now - feed.asked_at > FORGET_S:
                    self._drop(scope)
            if self._written - self.number < BLOCK // 2:
                try:
                    await self._write_ahead()
                except PlaneError as error:  # a full disk, say: there are millions left
                    log.warning("how far changes may be counted could not be written down: %s", error)

    def _look(self, scope: str) -> None:
        before, found = self._seen.get(scope), self.looks(None if scope == ALL else scope)
        self._seen[scope] = found
        if before is not None:
            for (ns, row), said in found.items():
                if before.get((ns, row), said) != said:
                    self.note("workers", ns, str(row))

    def _drop(self, scope: str) -> None:
        self._feeds.pop(scope).end()
        self._seen.pop(scope, None)
        if not self._feeds:
            self._note_nothing()

    def _note_nothing(self) -> None:
        self._dispatcher.plane.noting = False
        self._dispatcher.plane.noted = []
        self._dispatcher.matcher.after_commit.remove(self._committed)

    async def _write_ahead(self) -> None:
        upto = self.number + BLOCK
        await self._records.marks.lift(_MARK, upto)
        self._written = upto


def _nothing(_tx: Transaction) -> None:
    return None
