"""Forgets what ended long ago, a little at a time, and removes files that nothing points to any more (K-16, K-26).

Rows leave a tombstone. A segment or an upload is removed only when it is older than a grace period, so that nothing
that is just being written is taken for garbage.
"""

from __future__ import annotations

import functools
import logging
import time
from pathlib import Path

import trio

from ..plane import retention
from ..plane.statements import SQL
from .dispatcher import Dispatcher

log = logging.getLogger(__name__)

EVERY_S = 600.0
PAUSE_S = 0.05
GRACE_S = 24 * 3600.0


class Janitor:
    """Sweeps one server's plane. Rows that ended more than `keep_s` ago go."""

    def __init__(self, dispatcher: Dispatcher, *, keep_s: float) -> None:
        self._dispatcher = dispatcher
        self._keep_s = keep_s

    async def run(self) -> None:
        """Sweep now and then, until cancelled."""
        while True:
            await self.sweep(time.time())
            await trio.sleep(EVERY_S)

    async def sweep(self, now: float) -> int:
        """Forget once; how many rows."""
        gone = 0
        while True:
            verb = functools.partial(retention.purge, before=now - self._keep_s, now=now)
            done = await self._dispatcher.writer.write(verb)
            for key in done.blobs:
                self._dispatcher.plane.blobs.drop(key)
            gone += done.rows
            if not done.rows:
                break
            await trio.sleep(PAUSE_S)
        if gone:
            log.info("forgot %d invocations that ended more than %.0f days ago", gone, self._keep_s / 86400)
        await self._drop_segments(now)
        await self._drop_orphans(now)
        return gone

    async def _drop_segments(self, now: float) -> None:
        journal = self._dispatcher.plane.journal
        assert journal.directory is not None
        used = {number for (number,) in self._dispatcher.rows(SQL.segments_in_use, {})}
        for number in journal.segments():
            if number not in used and _is_old(journal.directory / f"{number:010d}.frames", now):
                journal.drop(number)

    async def _drop_orphans(self, now: float) -> None:
        root = self._dispatcher.plane.blobs.root
        assert root is not None
        files = await trio.to_thread.run_sync(functools.partial(_old_files, root, now))
        for path in files:
            key = path.relative_to(root).as_posix()
            if not self._dispatcher.rows(SQL.blob_in_use, {"key": key})[0][0]:
                path.unlink(missing_ok=True)
            await trio.lowlevel.checkpoint()


def _old_files(root: Path, now: float) -> list[Path]:
    return [path for path in root.rglob("*") if path.is_file() and _is_old(path, now)]


def _is_old(path: Path, now: float) -> bool:
    try:
        return now - path.stat().st_mtime > GRACE_S
    except FileNotFoundError:
        return False
