"""A plane of files forgets what ended more than 30 days ago, a little at a time, while it is written to (K-16).

It has no process of its own that could: whoever writes does a slice now and then, one process at a time and at most
`SLICE_S` long, once an hour or for as long as there is more. What rows leave behind in shared files (segments of
frames, pages of the database) is given back by the next process that opens the plane while no other has it open: no
other then appends to a segment that looks unused.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
import time
from pathlib import Path

from ..plane import retention
from ..plane.contract import PlaneError
from ..plane.locks import files_lock, try_lock
from ..plane.plane import Plane
from ..plane.statements import SQL

log = logging.getLogger(__name__)

DAY_S = 24 * 3600.0
KEEP_S = 30 * DAY_S
GRACE_S = DAY_S
"""A file that was written or touched since is never taken for garbage."""
EVERY_S = 3600.0
SLICE_S = 0.02
ROWS_AT_ONCE = 500
TOPICS_AT_ONCE = 100
PAGES_AT_ONCE = 4096
SPARE = 10
"""One page in so many may be free in the database file."""


class LocalForgetting:
    """Forgets in one plane of files; `directory` is what it has beside its database. Call it with the plane's turn."""

    def __init__(self, plane: Plane, directory: Path, lock: Path) -> None:
        self._plane = plane
        self._directory = directory
        self._lock = lock
        self._looked = directory / "forgot"
        """Its time is when everything old had been forgotten."""
        self._owed = directory / "forgot.files"
        """There while rows have gone whose space in shared files has not been given back."""
        self._topics_after = 0

    def some(self) -> None:
        """Forget a slice of what is old, when it is time. It never raises for a disk that is full or busy."""
        now = time.time()
        if now - _time_of(self._looked) < EVERY_S:
            return
        try:
            with try_lock(self._lock) as first, files_lock(self._directory) as mine:
                if first and mine and not self._forget(now):
                    self._looked.touch()
        except (PlaneError, sqlite3.Error, OSError) as exc:
            log.warning("what is old in %s could not be forgotten yet: %s", self._plane.path, exc)

    def _forget(self, now: float) -> bool:
        """Whether there may be more."""
        until = time.perf_counter() + SLICE_S
        before = now - KEEP_S
        done = self._plane.write(
            lambda tx: retention.purge(tx, before=before, now=now, limit=ROWS_AT_ONCE, budget_s=SLICE_S)
        )
        if done.rows:
            self._owed.touch()
        for key in done.blobs:
            self._plane.blobs.collect(self._plane.blobs.path(key), now - GRACE_S)
        return done.more or self._forget_topics(before, until)

    def _forget_topics(self, before: float, until: float) -> bool:
        found = self._plane.rows(SQL.topics_after, {"after": self._topics_after, "limit": TOPICS_AT_ONCE})
        for channel, posted_at in found:
            if posted_at < before:
                left = until - time.perf_counter()
                if left <= 0:
                    return True
                self._owed.touch()
                if not self._plane.write(
                    lambda tx, channel=channel, left=left: retention.purge_topic(  # type: ignore[misc]
                        tx, channel, before=before, budget_s=left
                    )
                ):
                    return True
            self._topics_after = channel
        if len(found) == TOPICS_AT_ONCE:
            return True
        self._topics_after = 0
        return False

    def give_back(self) -> None:
        """Remove segments that nothing points into, and free pages. Only while no other process has the plane open."""
        if not self._owed.exists():
            return
        try:
            with files_lock(self._directory) as mine:
                if mine:
                    self._drop_segments(time.time() - GRACE_S)
                    if not self._has_free_pages():
                        self._owed.unlink(missing_ok=True)
        except (PlaneError, sqlite3.Error, OSError) as exc:
            log.warning("space in %s could not be given back yet: %s", self._plane.path, exc)

    def _drop_segments(self, before: float) -> None:
        journal = self._plane.journal
        assert journal.directory is not None
        old = [n for n in journal.segments() if _time_of(journal.directory / f"{n:010d}.frames") < before]
        used = {number for (number,) in self._plane.rows(SQL.segments_in_use, {})} if old else set()
        for number in old:
            if number not in used:
                journal.drop(number)

    def _has_free_pages(self) -> bool:
        """Give some back; whether there are still many."""
        if not self._is_spacious():
            return False
        self._plane.rows(f"PRAGMA incremental_vacuum({PAGES_AT_ONCE})", {})
        return self._is_spacious()

    def _is_spacious(self) -> bool:
        ((free,),) = self._plane.rows("PRAGMA freelist_count", {})
        ((pages,),) = self._plane.rows("PRAGMA page_count", {})
        return bool(free * SPARE > pages)


def _time_of(path: Path) -> float:
    with contextlib.suppress(FileNotFoundError):
        return os.stat(path).st_mtime
    return 0.0
