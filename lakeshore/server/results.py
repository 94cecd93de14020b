"""How an invocation ended, for who waits: one id, or a watch set (K-21, K-22)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice

import trio

from ..plane import rows
from ..plane.contract import Ended, Submitted
from ..plane.frames import Rows
from ..wire.values import value
from .waiters import Parker, Waiters, WatchSet

ANSWER_BYTES = 4 * 1024 * 1024
GATHER_S = 0.002
READ_AT_ONCE = 32
MANY = 8
"""While so many ids are waited for, an answer with fewer gathers a little: each costs a request."""


@value
class Watched:
    """What a watch set had to tell; `resync` asks the client to list its ids again. `waits` is one that is queued."""

    ended: Sequence[Ended]
    more: bool
    resync: bool = False
    waits: str | None = None


class _Await:
    """A request that waits for one end."""

    __slots__ = ("_parker", "ended")

    def __init__(self, parker: Parker) -> None:
        self._parker = parker
        self.ended: Ended | None = None

    def tell(self, ended: Ended | None) -> None:
        self.ended = ended
        self._parker.wake()


class Results:
    """Reads what is committed, and waits for what is not."""

    def __init__(
        self, read: Rows, waiters: Waiters, *, runs: Callable[[str, str], bool], hurry: Callable[[], None]
    ) -> None:
        """`runs(ns, id)` says that it is known, without a look, to run; `hurry` is called by whoever begins to wait."""
        self._rows = read
        self._waiters = waiters
        self._runs = runs
        self._hurry = hurry

    def submitted(self, ns: str, session: str, stored: Iterable[Submitted]) -> None:
        """A submit carried the session of a watch: the set holds what it stored from now on. Sent again, a call may
        have ended.
        """
        watch = self._waiters.watch_set(ns, session, trio.current_time())
        for done in stored:
            if done.again:
                self._watch_ids(watch, ns, [done.id])
            else:
                self._waiters.watch(watch, done.id)

    async def wait(self, ns: str, id_: str, timeout_s: float, parker: Parker) -> Ended:
        """One invocation's end, or how it stands when the time is over."""
        if timeout_s <= 0 or not self._runs(ns, id_):
            ended = rows.ended(self._rows, ns, id_)
            if ended.state != "pending" or timeout_s <= 0:
                return ended
        mine = _Await(parker)
        self._waiters.awaits.on(id_, mine.tell)
        self._hurry()
        try:
            await parker.park(timeout_s)
        finally:
            self._waiters.awaits.off(id_, mine.tell)
        return mine.ended or rows.ended(self._rows, ns, id_)

    async def watch(
        self,
        ns: str,
        session: str,
        add: Sequence[str],
        drop: Sequence[str],
        timeout_s: float,
        parker: Parker,
        *,
        waiting: int = 0,
    ) -> Watched:
        """What of a watch set has ended since it was last asked. A client that counts on more ids is told at once."""
        watch = self._waiters.watch_set(ns, session, trio.current_time())
        self._waiters.drop(watch, drop)
        self._watch_ids(watch, ns, add)
        if waiting > len(watch.pending) + len(watch.ready):
            return Watched(ended=(), more=bool(watch.ready), resync=True)
        if watch.parker is not None:
            watch.parker.wake()  # one poll per set: the older one is answered with what there is
        if not watch.ready and timeout_s > 0 and (watch.pending or not add):
            watch.parker = parker
            self._hurry()
            try:
                await parker.park(timeout_s)
            finally:
                if watch.parker is parker:
                    watch.parker = None
        if timeout_s > 0 and 0 < len(watch.ready) < MANY <= len(watch.pending):
            await trio.sleep(GATHER_S)
        watch.seen_at = trio.current_time()
        answers: list[Ended] = []
        size = 0
        while watch.ready and size < ANSWER_BYTES:
            for ended in self._take(watch, ns):
                if ended.state == "pending":  # retried by hand since
                    self._waiters.watch(watch, ended.id)
                    continue
                answers.append(ended)
                size += len(ended.result) if isinstance(ended.result, bytes) else 256
        return Watched(ended=answers, more=bool(watch.ready), waits=self._queued_of(watch, ns))

    def _queued_of(self, watch: WatchSet, ns: str) -> str | None:
        """One of the first that nobody runs."""
        return next((id_ for id_ in islice(watch.pending, READ_AT_ONCE) if not self._runs(ns, id_)), None)

    def _take(self, watch: WatchSet, ns: str) -> list[Ended]:
        """Some of those that are ready, out of the set."""
        some = list(islice(watch.ready.items(), READ_AT_ONCE))
        unknown = [id_ for id_, ended in some if ended is None]
        read = {ended.id: ended for ended in rows.ended_many(self._rows, ns, unknown)}
        for id_, _ in some:
            del watch.ready[id_]
        return [ended or read[id_] for id_, ended in some]

    def _watch_ids(self, watch: WatchSet, ns: str, ids: Sequence[str]) -> None:
        for first in range(0, len(ids), READ_AT_ONCE):
            for ended in rows.ended_many(self._rows, ns, ids[first : first + READ_AT_ONCE]):
                if ended.state == "pending":
                    self._waiters.watch(watch, ended.id)
                else:
                    self._waiters.ended(watch, ended.id)
