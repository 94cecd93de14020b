"""Forgets what ended long ago, a little at a time, and removes files that nothing points to any more (K-16, K-26).

    by age      rows that ended more than `keep_s` ago
    by bytes    while the state is larger than `keep_bytes`, archives of code that nobody used for a week, then the
                oldest ended rows, but none younger than a week

Rows leave a tombstone. Forgetting is cut into slices of a few milliseconds, and as long as a slice took the others have
the writer to themselves. A segment or a payload is removed only when it is older than a grace period, so that nothing
that is just being written is taken for garbage, and none while a backup copies them. What takes long to look up is
looked up in a thread.
"""

from __future__ import annotations

import functools
import itertools
import logging
import os
import sqlite3
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import trio

from ..plane import retention
from ..plane.contract import PlaneError
from ..plane.frames import Rows
from ..plane.journal import Journal
from ..plane.locks import files_lock
from ..plane.statements import SQL
from ..plane.transaction import Transaction
from .app import PageReader
from .code_archives import CodeArchives
from .dispatcher import Dispatcher
from .forgetting import GRACE_S, PAUSE_S, SLICE_S, collect, in_slice

log = logging.getLogger(__name__)

EVERY_S = 600.0
ORPHANS_EVERY_S = 6 * 3600.0
WEEK_S = 7 * 24 * 3600.0
"""Nothing younger is forgotten to save bytes."""
CHUNK_ROWS = 2000
"""Forgotten between two looks at how large the plane still is."""
SPARE = 10
"""One page in so many may be free in the database file; the rest is given back."""
PAGES_AT_ONCE = 128
TOPICS_AT_ONCE = 500
_FILES_AT_ONCE = 200


class Janitor:
    """Sweeps one server's plane."""

    def __init__(self, dispatcher: Dispatcher, *, keep_s: float, keep_bytes: int | None = None) -> None:
        self._dispatcher = dispatcher
        self._code: CodeArchives | None = None
        self._keep_s = keep_s
        self._keep_bytes = keep_bytes
        self._reader = PageReader(dispatcher.plane.path)
        self._orphans_due = 0.0
        self._others: list[Callable[[float], Awaitable[int]]] = []

    def also(self, sweep: Callable[[float], Awaitable[int]]) -> None:
        """Call `sweep(now)` in each sweep: of what others keep. It says how much it forgot."""
        self._others.append(sweep)

    def with_code(self, code: CodeArchives) -> None:
        """Sweep the archives of code, too, and count them."""
        self._code = code
        self.also(code.sweep)

    def close(self) -> None:
        """Close the reading connection."""
        self._reader.close()

    async def run(self) -> None:
        """Sweep now and then, until cancelled."""
        while True:
            try:
                await self.sweep(time.time())
            except (PlaneError, sqlite3.Error, OSError) as error:  # a full disk, say: it is tried again
                log.warning("sweeping broke off, and will be tried again: %s", error)
            await trio.sleep(EVERY_S)

    async def sweep(self, now: float) -> int:
        """Forget once; how many rows."""
        gone = await self._forget(now, now - self._keep_s)
        if gone:
            log.info("forgot %d invocations that ended more than %.0f days ago", gone, self._keep_s / 86400)
        await self._forget_topics(now - self._keep_s)
        await self._drop_segments(now)
        gone += await self._shrink(now)
        await self._give_back()
        if now >= self._orphans_due:
            self._orphans_due = now + ORPHANS_EVERY_S
            await self._drop_orphans(now - GRACE_S)
            await self._reader.run(self._drop_logs)
        for sweep in self._others:
            gone += await sweep(now)
        return gone

    async def _forget(self, now: float, before: float, most: int | None = None) -> int:
        gone = 0
        while most is None or gone < most:
            verb = functools.partial(retention.purge, before=before, now=now, budget_s=SLICE_S)
            done = await in_slice(self._dispatcher.writer, verb)
            collect(self._dispatcher.plane, done, now)
            gone += done.rows
            if not done.more:
                break
        return gone

    async def _forget_topics(self, before: float) -> None:
        after = 0
        while True:
            values = {"after": after, "limit": TOPICS_AT_ONCE}
            found = await self._reader.run(lambda rows, values=values: rows(SQL.topics_after, values))  # type: ignore[misc]
            for channel, posted_at in found:
                verb = functools.partial(retention.purge_topic, channel=channel, before=before, budget_s=SLICE_S)
                after = channel
                while posted_at < before:
                    if await in_slice(self._dispatcher.writer, verb):
                        break
            if len(found) < TOPICS_AT_ONCE:
                return

    async def _shrink(self, now: float) -> int:
        """Forget old rows until the plane is small enough; how many."""
        gone = 0
        if self._keep_bytes is None:
            return 0
        excess = await self._reader.run(self._bytes) - self._keep_bytes
        if excess > 0 and self._code is not None:
            await self._code.shrink(excess, now - WEEK_S)
        while (size := await self._reader.run(self._bytes)) > self._keep_bytes:
            done = await self._forget(now, now - WEEK_S, CHUNK_ROWS)
            await self._drop_segments(now)
            if not done:
                log.warning(
                    "the plane has %d MiB, more than the %d MiB to keep, and nothing in it ended more than a week ago",
                    size // 2**20,
                    self._keep_bytes // 2**20,
                )
                break
            gone += done
        if gone:
            log.info("forgot the %d oldest invocations, to keep %d MiB", gone, self._keep_bytes // 2**20)
        return gone

    # -- files

    async def _drop_segments(self, now: float) -> None:
        journal = self._dispatcher.plane.journal
        old = [number for number in journal.segments() if _is_old(_segment(journal, number), now)]
        if not old:
            return
        used = await self._reader.run(lambda rows: {number for (number,) in rows(SQL.segments_in_use, {})})
        assert journal.directory is not None
        with files_lock(journal.directory.parent) as mine:
            for number in old if mine else ():
                if number not in used:
                    journal.drop(number)

    async def _drop_orphans(self, before: float) -> None:
        root = self._dispatcher.plane.blobs.root
        assert root is not None
        files = _files(root)
        while True:
            if not await self._reader.run(functools.partial(self._look_at_some, files, before)):
                return
            await trio.sleep(PAUSE_S)

    def _look_at_some(self, files: Iterator[Path], before: float, rows: Rows) -> bool:
        """Collect what is garbage among the next files; False when there are no more."""
        blobs = self._dispatcher.plane.blobs
        assert blobs.root is not None
        some = list(itertools.islice(files, _FILES_AT_ONCE))
        with files_lock(blobs.root.parent) as mine:
            for path in some if mine else ():
                try:
                    is_old = path.stat().st_mtime < before
                except FileNotFoundError:
                    continue
                if is_old and not rows(SQL.blob_in_use, {"key": path.relative_to(blobs.root).as_posix()})[0][0]:
                    blobs.collect(path, before)
        return bool(some)

    def _drop_logs(self, rows: Rows) -> None:
        """Delete the logs of rows that are gone: a server that was killed had no time to."""
        logs = self._dispatcher.plane.logs
        assert logs is not None
        for seqs in logs.shards().values():
            kept = {
                seq
                for (seq,) in rows(SQL.rows_between, {"first": min(seqs, default=0), "after": max(seqs, default=0) + 1})
            }
            logs.forget(sorted(seqs - kept))

    def _bytes(self, rows: Rows) -> int:
        """What the plane takes: used pages, segments, payloads, logs, archives of code."""
        ((pages,),) = rows("PRAGMA page_count", {})
        ((free,),) = rows("PRAGMA freelist_count", {})
        ((page,),) = rows("PRAGMA page_size", {})
        journal = self._dispatcher.plane.journal
        logs = 0 if self._dispatcher.plane.logs is None else self._dispatcher.plane.logs.bytes()
        code = 0 if self._code is None else self._code.bytes()
        segments = sum(_segment(journal, number).stat().st_size for number in journal.segments())
        return int((pages - free) * page + segments + rows(SQL.blob_bytes, {})[0][0] + logs + code)

    async def _give_back(self) -> None:
        """Cut free pages off the database file, where there are many."""
        least = 2**63
        while True:
            free, pages = await self._reader.run(_free_pages)
            if free * SPARE <= pages or free >= least:
                return
            least = free
            await in_slice(self._dispatcher.writer, _vacuum)


def _free_pages(rows: Rows) -> tuple[int, int]:
    ((free,),) = rows("PRAGMA freelist_count", {})
    ((pages,),) = rows("PRAGMA page_count", {})
    return free, pages


def _vacuum(tx: Transaction) -> None:
    tx.all(f"PRAGMA incremental_vacuum({PAGES_AT_ONCE})", {})


def _segment(journal: Journal, number: int) -> Path:
    assert journal.directory is not None
    return journal.directory / f"{number:010d}.frames"


def _files(root: Path) -> Iterator[Path]:
    for directory, _directories, names in os.walk(root):
        for name in names:
            yield Path(directory, name)


def _is_old(path: Path, now: float) -> bool:
    try:
        return now - path.stat().st_mtime > GRACE_S
    except FileNotFoundError:
        return False
