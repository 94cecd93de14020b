"""A plane that is open: one writing connection, its journal and blobs, and how a batch commits (K-29, K-30).

A batch is one transaction. An item that is refused says so before it writes and spoils nothing. When SQLite itself
fails, everything is rolled back and the items run one by one, so that one bad item costs only itself. Nobody is
answered before COMMIT has returned.
"""

from __future__ import annotations

import errno
import logging
import os
import sqlite3
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from . import submits
from .blobs import Blobs
from .contract import TERMINAL, PlaneError, PlaneFailed, PlaneFull, SyncFailed
from .database import SYNCHRONOUS, Durability, connect, number_of
from .directories import keep_names
from .inbox import Inbox, Waiting
from .journal import Journal
from .locks import try_lock
from .logs import Logs
from .statements import SQL, Values
from .transaction import Noted, Transaction
from .turns import Turn

log = logging.getLogger(__name__)

T = TypeVar("T")
_NO_SPACE_FOR_INDEX = 10 | 19 << 8
"""SQLITE_IOERR_SHMSIZE: SQLite's way to say that the -shm file could not grow. Nothing was written, no sync failed."""
Verb = Callable[[Transaction], Any]


class Plane:
    """Opens `path` (a database file, or `:memory:`) with its `journal/` and `blobs/` beside it, under `files`."""

    def __init__(
        self, path: str, *, files: Path | None = None, durability: Durability = "power", shared: bool = False
    ) -> None:
        if path != ":memory:" and files is None:
            raise ValueError("a plane on disk needs a directory for its journal and blobs")
        self.path = path
        self.conn = connect(path, durability=durability, shared=shared)
        sync = durability != "none"
        self.journal = Journal(None if files is None else files / "journal", sync=sync and durability == "power")
        self.blobs = Blobs(None if files is None else files / "blobs", sync=sync)
        self.logs = None if files is None else Logs(files / "logs")
        self._durability: Durability = durability
        self._syncs_more = False
        self.inbox: Inbox | None = None
        """Submits of any process that are no rows yet, where several share the plane."""
        self._turn: Turn | None = None
        if shared and files is not None:
            try:
                self._file = os.stat(path)
                self.inbox = Inbox(files / "inbox", power=durability == "power", database=number_of(self.conn))
                self._turn = Turn(files / "turn.lock")
            except (sqlite3.Error, OSError) as exc:
                self.close()
                raise failure_of(exc) from exc
        if files is not None and durability == "power":
            try:
                keep_names(files, files.parent, Path(path).parent)
            except OSError as exc:
                self.close()
                raise SyncFailed(f"syncing the directories of {path} failed: {exc}") from exc
        self.queued: dict[tuple[str, str], int] | None = None
        """How many rows of each (namespace, queue) are queued, where no other process writes: None if any may."""
        if not shared:
            self.queued = {(ns, queue): n for ns, queue, n in self.rows(SQL.queued_counts, {})}
        self._ended: dict[tuple[str, str], int] = {}
        self.noting = False
        """Whether to keep in `noted` which rows each transaction changes: not where another process writes as well."""
        self.noted: list[Noted] = []
        """The rows that were changed by what is committed; whoever wants them takes them out."""
        self.commit_s = 0.0
        """Seconds that the last COMMIT took, alone."""
        if self.inbox is not None and self.inbox.waits():
            self.write(lambda tx: None)

    def rows(self, statement: str, values: Values) -> list[tuple[Any, ...]]:
        """Read on the writing connection."""
        return self.conn.execute(statement, values).fetchall()

    def take_ended(self) -> dict[tuple[str, str], int]:
        """How many rows of each (namespace, queue) have ended since it was asked last; nothing on a shared plane."""
        taken, self._ended = self._ended, {}
        return taken

    def write(self, verb: Callable[[Transaction], T]) -> T:
        """One verb in a transaction of its own, committed. Raises what the verb refuses, or PlaneFailed."""
        (result,) = self.batch((verb,))
        if isinstance(result, Exception):
            raise result
        return result  # type: ignore[no-any-return]  # a batch is heterogeneous; this one holds a single T

    def batch(self, verbs: Sequence[Verb]) -> list[Any]:
        """Every verb in one transaction; per verb its answer, or the exception that refused it.

        Raises SyncFailed when the disk refuses a sync: whoever gets it must stop.
        """
        try:
            if self._turn is None:
                return self._commit(verbs)
            with self._turn.taken(self.commit_s):
                return self._commit(verbs)
        except SyncFailed:
            raise
        except (sqlite3.Error, OSError) as exc:
            if len(verbs) == 1:
                return [failure_of(exc)]
        except Exception as exc:
            # A verb that breaks may have written: nothing of this batch stands, and the others run without it.
            if len(verbs) == 1:
                log.exception("a verb of the plane broke")
                return [exc]
        return [self.batch((verb,))[0] for verb in verbs]

    def checkpoint_if_large(self, lock: Path, *, over_bytes: int = 4 * 1024 * 1024) -> None:
        """Fold a large WAL into the database, by one process at a time (K-33)."""
        try:
            size = os.stat(f"{self.path}-wal").st_size
        except FileNotFoundError:
            return
        if size > over_bytes:
            with try_lock(lock) as mine:
                if mine:
                    try:
                        self.conn.execute("PRAGMA wal_checkpoint(RESTART)").fetchall()
                    except sqlite3.Error as exc:  # what is committed stays in the WAL, for the next try
                        log.warning("the WAL of %s could not be folded yet: %s", self.path, exc)

    def close(self) -> None:
        """Close the files. What was committed stays."""
        if self.inbox is not None:
            self.inbox.close()
        if self._turn is not None:
            self._turn.close()
        self.journal.close()
        self.conn.close()

    def _commit(self, verbs: Sequence[Verb]) -> list[Any]:
        conn = self.conn
        tx = Transaction(conn, self.journal, self.blobs, self.queued, [] if self.noting else None)
        written = self.journal.mark()
        left = self._begin()
        try:
            if left is not None:
                submits.put_in(tx, left.items)
            results: list[Any] = []
            for verb in verbs:
                try:
                    results.append(verb(tx))
                except PlaneError as exc:
                    results.append(exc)
            moves = tx.flush()
            self.journal.sync()
            before = time.perf_counter()
            conn.execute("COMMIT")
            self.commit_s = time.perf_counter() - before
            if left is not None:
                self._done(left)
        except sqlite3.OperationalError as exc:
            self._roll_back()
            if exc.sqlite_errorcode == _NO_SPACE_FOR_INDEX:
                self.journal.rewind(written)
                raise sqlite3.OperationalError(f"disk full: the index of the WAL cannot grow ({exc})") from exc
            if "disk I/O error" in str(exc):
                raise SyncFailed(f"the disk under {self.path} failed: {exc}") from exc
            self.journal.rewind(written)
            raise
        except BaseException:
            if self._roll_back():  # an interrupt may come when it has been committed
                self.journal.rewind(written)
            raise
        if tx.noted:
            self.noted += tx.noted
        if self.queued is not None:
            for (ns, queue, state), n in moves.items():
                if state == "queued":
                    self.queued[ns, queue] = self.queued.get((ns, queue), 0) + n
                elif n > 0 and state in TERMINAL:
                    self._ended[ns, queue] = self._ended.get((ns, queue), 0) + n
        return results

    def _begin(self) -> Waiting | None:
        """Take the database's lock; what is in the inbox then. What was promised to survive a power cut is committed
        with a sync, whatever this plane's own durability is.
        """
        conn, inbox = self.conn, self.inbox
        if self._syncs_more:
            conn.execute(f"PRAGMA synchronous = {SYNCHRONOUS[self._durability]}")
            self._syncs_more = False
        try:
            conn.execute("BEGIN IMMEDIATE")
            if inbox is None or not inbox.waits():
                return None
            self._check_place()
            left = inbox.look()
            if left.owes and self._durability != "power":
                conn.execute("ROLLBACK")
                conn.execute(f"PRAGMA synchronous = {SYNCHRONOUS['power']}")
                self._syncs_more = True
                conn.execute("BEGIN IMMEDIATE")
                left = inbox.look()
        except BaseException:  # an interrupt may come when the lock is ours
            self._roll_back()
            raise
        return left

    def _check_place(self) -> None:
        """What others leave in the inbox is for the database that they see. Raises OSError when ours is another."""
        try:
            same = os.path.samestat(os.stat(self.path), self._file)
        except FileNotFoundError:
            same = False
        if not same:
            raise OSError(errno.ESTALE, f"{self.path} was removed or replaced; start this process again")

    def _done(self, left: Waiting) -> None:
        assert self.inbox is not None, "what was left was in it"
        try:
            self.inbox.done(left)
        except OSError as exc:  # what is committed stays so; these are put in again, which changes nothing
            log.warning("what of the inbox of %s are rows now could not be noted: %s", self.path, exc)

    def _roll_back(self) -> bool:
        """False when no transaction was open: SQLITE_FULL and its like roll back by themselves."""
        if not self.conn.in_transaction:
            return False
        self.conn.execute("ROLLBACK")
        return True


def failure_of(exc: sqlite3.Error | OSError) -> PlaneFailed:
    """What went wrong below the plane, in words that say what to do."""
    text = str(exc)
    if "malformed" in text or "not a database" in text:
        failed: PlaneFailed = PlaneFailed(f"the plane's database is damaged ({text}); stop, and restore a backup")
    elif "full" in text or "No space left" in text:
        failed = PlaneFull(f"no space left for the plane ({text}); free some, then try again")
    elif "locked" in text or "busy" in text:
        failed = PlaneFailed("another process has held the plane's lock for 30 s; look for a stuck writer")
    else:
        failed = PlaneFailed(f"the plane failed: {text}")
    failed.__cause__ = exc
    return failed
