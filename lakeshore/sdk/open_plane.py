"""What one process has open of a local plane: connection, doorbells, the lock that says it is alive (K-14, K-33)."""

from __future__ import annotations

import logging
import math
import os
import sqlite3
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from ..plane import delays, locks
from ..plane.bells import Bells, FifoBells, MemoryBells
from ..plane.contract import Payload, PlaneError, Submission
from ..plane.database import Durability
from ..plane.directories import make_directories
from ..plane.inbox import LARGEST, Mark
from ..plane.plane import Plane, failure_of
from ..plane.soundness import check_files
from ..plane.statements import SQL, Values
from ..plane.transaction import Transaction
from . import forks
from .combiner import Combiner
from .errors import DispatchError
from .ids import new_id
from .local_forgetting import LocalForgetting
from .local_slate import LocalSlates

log = logging.getLogger(__name__)

T = TypeVar("T")
BURY_S = 0.5
"""A busy worker looks this often whether others have died; an idle one at each look."""
PROMOTE_S = 0.05
"""A busy worker looks this often for rows whose instant has come; an idle one sleeps until the next one."""


class OpenPlane:
    """What one process has open. Make it behind the gate of forks."""

    def __init__(self, path: str, durability: Durability) -> None:
        self.pid = os.getpid()
        self.workers: Path | None = None
        self.slates: LocalSlates | None = None
        self.bells: Bells
        self._writes = 0
        self._bury_at = 0.0
        self._promote_at = 0.0
        self._holder: locks.Holder | None = None
        self._closed = False
        if path == ":memory:":
            self.plane = Plane(path, durability="none")
            self.bells = MemoryBells()
            self.holder_id = "memory"
        else:
            directory = Path(path).expanduser().absolute().with_name(Path(path).name + ".d")
            try:
                make_directories(directory)
            except OSError as exc:
                raise DispatchError(
                    f"cannot create {directory}: {exc.strerror}; set LAKESHORE_HOME to a directory you can write"
                ) from exc
            try:
                database = str(directory.with_name(Path(path).name))
                alone = not locks.anybody(directory / "workers")
                if durability == "power" and alone:
                    check_files(database)  # whoever had it open last did not close it
                self.plane = Plane(database, files=directory, durability=durability, shared=True)
            except PlaneError as exc:
                raise DispatchError(str(exc)) from exc
            self.bells = FifoBells(directory / "bells")
            self.workers = directory / "workers"
            self._holder = locks.Holder(self.workers, new_id())
            locks.sweep(self.workers)
            self.holder_id = self._holder.id
            self.slates = LocalSlates(self.workers, self.holder_id)
            if alone:
                holders = {holder for (holder,) in self.plane.rows(SQL.holders, {})}
                self.slates.sweep(lambda holder: not locks.is_dead(directory / "workers", holder), holders)
            self._checkpoint_lock = directory / "checkpoint.lock"
            self._forgetting = LocalForgetting(self.plane, directory, self._checkpoint_lock)
            if alone:
                self._forgetting.give_back()
        self.combiner = Combiner(self.plane)
        self.turn = self.combiner.turn
        if path != ":memory:":
            forks.opened(self)

    def write(self, verb: Callable[[Transaction], T]) -> T:
        """Commit one verb, with whatever else waits. Raises DispatchError with what it refuses."""
        try:
            return self.combiner.write(verb)
        except PlaneError as exc:
            raise DispatchError(str(exc)) from exc
        finally:
            self._tidy()

    def rows(self, statement: str, values: Values) -> list[tuple[Any, ...]]:
        """Read between commits, and what was submitted before. Raises DispatchError where that cannot be put in."""
        if self.has_mail():
            self.write(lambda tx: None)
        return self.combiner.rows(statement, values)

    def has_mail(self) -> bool:
        """Whether the inbox has submits that the next commit, or the next look, makes rows of."""
        return self.plane.inbox is not None and self.plane.inbox.waits()

    def mail(self) -> list[Submission]:
        """What is in the inbox, and may have become rows already."""
        return [] if self.plane.inbox is None else [item for item, _at in self.plane.inbox.look().items]

    def leave(self, items: Sequence[Submission]) -> Mark | None:
        """Leave new submits in the inbox, if nothing about them or their queues can be refused and they have room: all
        or none. Nobody is told that they are there before `keep_mail`. Raises DispatchError: the disk failed.
        """
        inbox = self.plane.inbox
        if inbox is None or not all(map(_is_plain, items)):
            return None
        try:
            for ns, queue in {(item.ns, item.queue) for item in items}:
                if not self.combiner.rows(SQL.plain_queue, {"ns": ns, "queue": queue}):
                    return None
            return inbox.leave(items, time.time())
        except (sqlite3.Error, OSError) as exc:
            failed = failure_of(exc)
            raise DispatchError(str(failed)) from failed

    def keep_mail(self, mark: Mark) -> None:
        """Make durable what was left. Raises DispatchError: the disk failed."""
        assert self.plane.inbox is not None, "what was left was in it"
        try:
            self.plane.inbox.keep(mark)
        except OSError as exc:
            failed = failure_of(exc)
            raise DispatchError(str(failed)) from failed

    def ring_work(self, ns: str, queue: str) -> None:
        """Wake one worker of a queue."""
        # Of those who wait for queues by a prefix all: the right one is among them.
        self.bells.ring_one(f"work/{ns}/{queue}", f"work/{ns}/*")

    def _tidy(self) -> None:
        """Now and then, see whether the WAL wants folding, and forget what is old."""
        self._writes += 1
        if self.workers is not None and self._writes % 256 < 2:
            with self.combiner.turn:
                if self._writes % 256:  # also the first one: most processes write little
                    self._forgetting.some()
                else:
                    self.plane.checkpoint_if_large(self._checkpoint_lock)

    def time_to_bury(self) -> bool:
        """Now and then, whatever there is to do, see who has died."""
        now = time.monotonic()
        if now < self._bury_at:
            return False
        self._bury_at = now + BURY_S
        return True

    def time_to_promote(self) -> bool:
        """Now and then, whatever there is to do, see what is due."""
        now = time.monotonic()
        if now < self._promote_at:
            return False
        self._promote_at = now + PROMOTE_S
        return True

    def due_in_s(self, ns: str, queue: str) -> float:
        """Seconds until the next row of a queue is due. Of one that is due already the next turn knows."""
        due = delays.next_due(self.combiner.rows, ns, queue)
        left = math.inf if due is None else due - time.time()
        if left <= 0:
            self._promote_at = 0.0
        return left

    def close(self) -> None:
        if self.has_mail():
            try:
                self.write(lambda tx: None)
            except DispatchError as exc:
                log.warning("what waits in the inbox of %s is for the next to open it: %s", self.plane.path, exc)
        self.bells.close()
        with self.combiner.turn:
            if self._holder is not None:
                self._holder.release()
            if self.slates is not None:
                self.slates.close()
            self._closed = True  # before it is: a signal's handler may fork in the midst of that
            self.plane.close()

    def forget(self) -> None:
        """In a child of a fork: what is open here is the parent's."""
        if self._closed:
            return
        self._closed = True  # a child may fork, too
        if self.plane.conn.in_transaction:  # a signal's handler forked in the midst of it: to close it would undo it
            _unclosed.append(self.plane.conn)
        else:
            self.plane.conn.close()

    def keep(self, inv_id: str, kind: str, data: bytes) -> Payload:
        """Store a payload where it belongs by its size."""
        try:
            return self.plane.blobs.keep(inv_id, kind, data)
        except OSError as exc:
            failed = failure_of(exc)
            raise DispatchError(str(failed)) from failed
        except PlaneError as exc:
            raise DispatchError(str(exc)) from exc

    def fetch(self, payload: Payload, what: str) -> bytes:
        """The bytes of a stored payload."""
        try:
            return self.plane.blobs.get(payload)
        except OSError as exc:
            raise DispatchError(f"{what} cannot be read: {exc}; restore the plane's blobs/ from a backup") from exc


_unclosed: list[sqlite3.Connection] = []


def _is_plain(item: Submission) -> bool:
    """Whether nothing of this new submit is asked of the database."""
    small = isinstance(item.args, bytes) and len(item.args) <= LARGEST
    return small and item.key is None and item.retry_nonce is None and item.due is None
