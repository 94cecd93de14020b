"""The end of a batch: fresh rows meet parked polls, in the same commit (K-9).

A queue that is paused, or whose rate is used up, keeps its rows though polls wait for them: nothing is asked again
before somebody opens it, or before its next turn. So does one whose rows ask for more than those who wait have: of
workers that offer the same, one is asked.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, Protocol

import trio

from ..plane import claims, queues
from ..plane.contract import Claimed, PollAnswer, Wish
from ..plane.plane import Plane
from ..plane.statements import Values
from ..plane.transaction import Transaction
from ..wire.run_configs import Offer
from .parking import Parked, Parking
from .promoter import Promoter
from .queue_book import Key, QueueBook
from .writer import Verb, Writer

MAX_PREFETCH: Final = 32


class Owner(Protocol):
    """What of a dispatcher this needs."""

    plane: Plane
    parking: Parking
    writer: Writer[Transaction]
    queues: QueueBook
    promoter: Promoter
    clock: Callable[[], float]

    def give(self, parked: Parked, runs: Sequence[Claimed], now: float) -> None: ...
    def rows(self, statement: str, values: Values) -> list[tuple[Any, ...]]: ...


class _Matched(NamedTuple):
    """What the end of a batch handed out, and the queues whose fresh rows were more than that."""

    given: dict[Parked, list[Claimed]]
    short: list[Key]


class Matcher:
    """Hands rows to polls. `freshen` is called in transactions, `closing` by the writer."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._fresh: dict[Key, int] = {}
        """Queues that got rows since the last batch, and how many: hints for whom to wake."""
        self.after_commit: list[Callable[[], None]] = []
        """Called once a batch is committed and told."""

    def freshen(self, ns: str, queue: str, n: int = 1) -> None:
        """A queue has so many rows more to hand out."""
        self._fresh[ns, queue] = self._fresh.get((ns, queue), 0) + n

    def reopen(self, ns: str, queue: str) -> None:
        """What a queue holds may be handed out from now on."""
        if (n := self.queued(ns, queue)) > 0:
            self.freshen(ns, queue, n)

    def queued(self, ns: str, queue: str) -> int:
        """How many rows of a queue are queued, by what is committed."""
        counts = self._owner.plane.queued
        assert counts is not None, "a server's plane is its own"
        return counts.get((ns, queue), 0)

    def closing(self, threaded: bool) -> tuple[Verb[Transaction], Callable[[Any], None]]:
        """The last verb of a batch: hand fresh rows to parked polls, in the same commit."""
        owner = self._owner
        parking = owner.parking.snapshot() if threaded else owner.parking

        def match(tx: Transaction) -> _Matched:
            given: dict[Parked, list[Claimed]] = {}
            short: list[Key] = []
            for (ns, queue), fresh in self._fresh.items():
                waiting = [p for p in parking.waiting_for(ns, queue) if p not in given]
                left = fresh
                unfit: set[Offer | None] = set()
                for k, poller in enumerate(waiting):
                    if left <= 0:
                        break
                    assert poller.wish is not None
                    if poller.wish.offer in unfit or (not threaded and poller.parker.is_gone()):
                        continue
                    share = min(math.ceil(left / (len(waiting) - k)), poller.wish.capacity, MAX_PREFETCH)
                    wish = poller.wish if share == poller.wish.capacity else poller.wish.limited(share)
                    runs = claims.claim(tx, wish, owner.clock())
                    if not runs:
                        unfit.add(poller.wish.offer)
                        continue
                    left -= len(runs)
                    given[poller] = runs
                if left > 0 or threaded:
                    short.append((ns, queue))
            return _Matched(given, short)

        return match, self._matched

    def _matched(self, matched: _Matched) -> None:
        owner = self._owner
        fresh, self._fresh = self._fresh, {}
        now = trio.current_time()
        for poller, runs in matched.given.items():
            owner.give(poller, runs, now)
            owner.parking.leave(poller)
            poller.deliver(PollAnswer(runs=runs, settled=poller.settled))
        # Rows may be left for whoever was not asked: the first ones had gone, or it parked during a slow batch.
        again = [key for key in matched.short if self._has_taker(key) and self._hands_out(key)]
        if again:
            self._fresh = {key: fresh[key] for key in again}
            owner.writer.nudge()
        for call in self.after_commit:
            call()

    def _has_taker(self, key: Key) -> bool:
        """Whether a row is left for one of those who wait."""
        offers = {parked.wish.offer for parked in self._owner.parking.waiting_for(*key) if parked.wish is not None}
        return self.queued(*key) > 0 and any(claims.has_for(self._owner.rows, *key, offer) for offer in offers)

    def _hands_out(self, key: Key) -> bool:
        """Whether a queue gives a row to who asks now. Of one that has a next turn, the promoter knows then."""
        book = self._owner.queues
        if book.is_shut(*key):
            return False
        if key not in book.paced:
            return True
        now = self._owner.clock()
        at = queues.opens_at(self._owner.rows, *key, now)
        if at <= now:
            return True
        if at < math.inf:
            self._owner.promoter.expect(at)
        return False

    # --- queues with a rate

    def await_turn(self, wish: Wish) -> None:
        """A poll was parked: where a queue that it names has rows and no turn, the promoter learns of the next one."""
        for ns, queue in self._owner.queues.paced:
            named = any(queue.startswith(w[:-1]) if w.endswith("*") else queue == w for w in wish.queues)
            if named and ns == wish.ns and self.queued(ns, queue) > 0:
                key = (ns, queue)
                if self._hands_out(key):  # its turn came between the claim and now
                    self._owner.promoter.expect(self._owner.clock())

    def pace(self, tx: Transaction) -> float | None:
        """Queues whose turn has come are fresh; when the next turn of another one comes."""
        now, found = self._owner.clock(), math.inf
        for key in list(self._owner.queues.paced):
            if self.queued(*key) > 0:
                at = queues.opens_at(tx.all, *key, now)
                if at <= now:
                    self.freshen(*key, self.queued(*key))
                else:
                    found = min(found, at)
        return None if found == math.inf else found
