"""A worker loop's end of the plane on this machine: how jobs ended is settled by the commit that takes the next ones.

Somebody who waits for an ending has it at once. Where nobody does and jobs are short, endings and jobs gather for
2 ms after the last commit, and one serves several: then the plane's lock is the producers'. Where as many are there as
can be taken, none is waited for. What was prefetched and has not begun is taken back by who looks for work (see
`local_slate`). An ending never waits for the body that was begun after it: a
thread says it when that body is not done at once, for it may itself wait for what has ended. While the plane has no
room endings are kept and said again (K-8), and nothing else is begun.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from ..plane.contract import PlaneFailed, Report
from ..wire.messages import MAX_PREFETCH
from .claimed import Claimed
from .errors import DispatchError
from .local_claims import LocalClaims
from .local_slate import LocalSlate, LocalSlates, Name
from .slate import LONG_S
from .sources import Ending, PlaneSource, Work
from .teller import Teller
from .watcher import patience

log = logging.getLogger(__name__)

FAREWELLS = 5
GATHER_S = 0.002
"""So long endings wait for company, and so long all of what is prefetched may take."""
LATE_S = 0.01
"""So long an ending waits for a body that was begun after it."""


class LocalSource(PlaneSource):
    """Claims of a `Dispatch`: several at a time while jobs are short, of a queue in the order of age."""

    def __init__(self, plane: Any, claims: LocalClaims, queue: str, worker: str, *, once: bool, **options: Any) -> None:
        super().__init__(plane, queue, worker, **options)
        self._claims = claims
        self._one_by_one = once or self._order["kind"] not in ("fifo", "priority") or claims.prefetched() is None
        self._unsaid: list[Report] = []
        self._ready: deque[Claimed] = deque()
        self._slate: tuple[LocalSlate, str] | None = None
        self._said_at = self._say_at = 0.0
        """When what had ended was said last, and from when on it may be said again between two jobs."""
        self._began_at = 0.0
        self._job_s = GATHER_S
        """What the last job took."""
        self._busy = False
        """Whether the last turn brought work."""
        self._full = False
        """Whether it brought several, and all that were asked for: then there is more."""
        self._looked_at = 0.0
        self._may_rescue = False
        """Whether something waits elsewhere behind a job that may become long."""
        self._waits = patience()
        self._turn = threading.Lock()
        """Held by the worker's thread but for while a body runs, and by the teller while it says what has ended."""
        self._teller = Teller(LATE_S, self._say_late)

    def next(self, wait_s: float) -> Work | None:
        with self._turn:
            return self._next(wait_s)

    def _next(self, wait_s: float) -> Work | None:
        if self._draining:
            self._leave()
            return None
        if self._unsaid and self._ready and time.monotonic() > self._say_at:
            self._leave(stay=True)
        if (work := self._begin()) is not None:
            return work
        self._gather()
        rescued = self._busy and self._rescued()  # an endless queue is no reason to leave what is older where it is
        found = self._take()
        if found is None and not self._unsaid:
            if not rescued and self._rescued():
                return self._take()
            if wait_s <= 0:
                return None
            self.plane.wait_for_work(self._queue, min(wait_s, LONG_S) if self._may_rescue else wait_s)
            found = self._take(passes_on=True)
        return found

    def begin(self, work: Work, stop: Callable[[str], None]) -> None:
        self._began_at = time.monotonic()
        if self._unsaid:
            self._teller.watch()

    def end(self, work: Work, ending: Ending) -> None:
        self._job_s = time.monotonic() - self._began_at
        with self._turn:
            self._unsaid.append(self._report(work, ending))

    def _report(self, work: Work, ending: Ending) -> Report:
        """A large result is in its file then. While there is no room for it, the worker waits; the body has run."""
        while True:
            try:
                report: Report = self._claims.report_of(work, self._worker, ending, retries=self._retries)
            except DispatchError as exc:
                passing = isinstance(exc.__cause__, PlaneFailed)
                if passing and not self._draining:
                    self._wait_for_room(exc)
                    continue
                error = {"type": "DispatchError", "message": f"the result could not be kept: {exc}"}
                ending = Ending(outcome="failed", error=error, retry=passing)
            else:
                return report

    def close(self) -> None:
        """Settle what has ended, give back what has not begun."""
        self._teller.close()
        with self._turn:
            self._close()

    def _close(self) -> None:
        for _ in range(FAREWELLS):
            self._leave()
            if not self._unsaid and not self._ready:
                break
        else:
            for report in self._unsaid:
                log.error("the ending of %s could not be said: it may run again", report.id)
        self._claims.pass_on(self._queue)
        if self._slate is not None:
            self._slate[0].close()
            self._slates().remove(self._slate[1])
            self._slate = None

    def _gather(self) -> None:
        """Let endings wait for company, if jobs come and nobody waits for what ended."""
        if self._unsaid and self._busy and not self._full and not self._one_by_one:
            left = self._say_at - time.monotonic()
            if left > 0 and not self._claims.awaited(self._unsaid):
                time.sleep(left)

    def _slates(self) -> LocalSlates:
        found = self._claims.prefetched()
        assert found is not None, "several are taken at once only where they can be noted"
        return found

    def _capacity(self) -> int:
        if self._one_by_one or not self._busy or self._job_s > GATHER_S / 2:
            return 1
        if self._slate is None:
            try:
                self._slate = self._slates().make()
            except OSError as exc:
                log.warning("jobs are taken one by one: %s", exc)
                self._one_by_one = True
                return 1
        return min(MAX_PREFETCH, int(GATHER_S / max(self._job_s, 1e-6)))

    def _take(self, *, passes_on: bool = False) -> Work | None:
        ended, capacity = self._unsaid, self._capacity()
        self._said_at = time.monotonic()
        try:
            found: list[Claimed] = self._claims.turn(
                ended, self._queue, self._worker, capacity=capacity, passes_on=passes_on, **self._order
            )
        except DispatchError as exc:
            if not ended or not isinstance(exc.__cause__, PlaneFailed):
                raise
            self._wait_for_room(exc)
            return None
        self._said()
        self._waits, self._busy, self._full = patience(), bool(found), len(found) == capacity > 1
        if not found:
            return None
        if capacity == 1:
            return found[0]
        assert self._slate is not None, "several are asked for with a slate at hand"
        self._slate[0].took([(self.plane.ns, work.id, work.claim) for work in found])
        self._ready.extend(found)
        return self._begin()

    def _begin(self) -> Work | None:
        """The next of what was prefetched; None when there is none, or when it was revoked and goes back."""
        if self._ready and self._slate is not None:
            if self._slate[0].begin():
                return self._ready.popleft()
            self._leave()
        return None

    def _rescued(self) -> bool:
        """Whether something that waited behind a long job elsewhere is free now."""
        slates, now = self._claims.prefetched(), time.monotonic()
        if slates is None:
            return False
        if now < self._looked_at + LONG_S:
            self._may_rescue = True  # so it is looked at in good time, however often there is nothing to do
            return False
        self._looked_at = now
        names, self._may_rescue = slates.revoke_behind_long(None if self._slate is None else self._slate[1])
        if not names:
            return False
        try:
            self._claims.leave((), names)
        except DispatchError as exc:
            if not isinstance(exc.__cause__, PlaneFailed):
                raise
            log.warning("%d jobs wait behind a long one (%s …): %s", len(names), names[0][1], exc)
            return False  # they stay revoked: it is tried again, here or elsewhere
        slates.given_back(names)
        return True

    def _say_late(self) -> bool:
        """Say what has ended while a body runs on; whether that is still to be done."""
        with self._turn:
            if self._unsaid and time.monotonic() - self._began_at > LATE_S:
                self._leave(stay=True)
            return bool(self._unsaid)

    def _leave(self, *, stay: bool = False) -> None:
        """Settle what has ended and, unless to `stay`, give back what has not begun."""
        unbegun: list[Name] = [] if stay else [(self.plane.ns, work.id, work.claim) for work in self._ready]
        if not self._unsaid and not unbegun:
            return
        self._said_at = time.monotonic()
        try:
            self._claims.leave(self._unsaid, unbegun)
        except DispatchError as exc:
            if not isinstance(exc.__cause__, PlaneFailed):
                raise
            self._wait_for_room(exc)
            return
        self._said()
        if unbegun and self._slate is not None:
            self._slate[0].given_back(set(unbegun))
        if not stay:
            self._ready.clear()

    def _said(self) -> None:
        """What had ended is on disk. The next may gather for as long as that took: then half of the time is jobs'."""
        now = time.monotonic()
        self._unsaid, self._say_at = [], now + min(max(GATHER_S, now - self._said_at), LATE_S)

    def _wait_for_room(self, why: DispatchError) -> None:
        log.warning("what has ended waits: %s", why)
        time.sleep(next(self._waits))
