"""A worker loop's end of the plane on this machine: how a job ended is settled by the commit that takes the next one.

Nobody waits for that: the loop asks for its next job at once. While the plane has no room the ending is kept and said
again (K-8), and nothing else is begun.
"""

from __future__ import annotations

import logging
import time
from typing import Any

from ..plane.contract import PlaneFailed, Report
from .errors import DispatchError
from .sources import Ending, PlaneSource, Work
from .watcher import patience

log = logging.getLogger(__name__)

FAREWELLS = 5


class LocalSource(PlaneSource):
    """One claim at a time, of a `Dispatch`."""

    def __init__(self, plane: Any, queue: str, worker: str, **options: Any) -> None:
        super().__init__(plane, queue, worker, **options)
        self._ended: Report | None = None
        self._waits = patience()

    def next(self, wait_s: float) -> Work | None:
        if self._draining:
            self._settle()
            return None
        found: Work | None = self._take()
        if found is None and wait_s > 0 and self._ended is None:
            self.plane.wait_for_work(self._queue, wait_s)
            found = self._take()
        return found

    def end(self, work: Work, ending: Ending) -> None:
        try:
            self._ended = self.plane.report_of(work, self._worker, ending, retries=self._retries)
        except DispatchError as exc:
            log.warning("the ending of %s was not taken: %s", work.id, exc)

    def close(self) -> None:
        """Settle what has ended; nothing else is held between jobs."""
        for _ in range(FAREWELLS):
            self._settle()
            if self._ended is None:
                return
        assert self._ended is not None
        log.error("the ending of %s could not be said: it may run again", self._ended.id)

    def _take(self) -> Work | None:
        ended = self._ended
        try:
            found: Work | None = self.plane.turn(ended, self._queue, self._worker, **self._order)
        except DispatchError as exc:
            if ended is None or not isinstance(exc.__cause__, PlaneFailed):
                raise
            self._wait_for_room(ended, exc)
            return None
        self._ended, self._waits = None, patience()
        return found

    def _settle(self) -> None:
        ended = self._ended
        if ended is None:
            return
        try:
            self.plane.settle(ended)
        except DispatchError as exc:
            if isinstance(exc.__cause__, PlaneFailed):
                self._wait_for_room(ended, exc)
                return
            log.warning("the ending of %s was not taken: %s", ended.id, exc)
        self._ended = None

    def _wait_for_room(self, ended: Report, why: DispatchError) -> None:
        log.warning("the ending of %s waits: %s", ended.id, why)
        time.sleep(next(self._waits))
