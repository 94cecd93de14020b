"""The inbox of a plane that processes share: submits that are on disk and not yet rows (K-16, K-29, K-33).

A submit that nothing can refuse needs no turn at the database's lock: it is a record in one small file, synced before
it is acknowledged. Whoever begins a transaction next, worker or producer, puts what is there into the database first,
in the order of the file and in the same commit. So every transaction finds what was acknowledged before it began, and
who only reads has it put in first (`OpenPlane.rows`).

A head, then records in a row: length, checksum, a packed submit. The head is written after the record that it counts,
so a producer killed in between has written nothing. Whoever syncs the file syncs all records before its own as well:
after a power cut what lies behind the first record that is not whole was acknowledged to nobody. A record may be a row
before it is synced: the commit that makes it one is a sync of its own.

The file ends with the number of the database that it is for (`database.number_of`). What was left for one that has been
removed or replaced since is no business of the new one: who opens the plane puts it aside, and says so.

Records stay until the commit that has them is as durable as they were promised to be. Who is killed between that commit
and the new head leaves records that are rows already; an id is there once, so to put them in again changes nothing.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import logging
import mmap
import operator
import os
import struct
import threading
import weakref
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgpack

from ..wire.values import value
from .contract import Submission
from .directories import sync_directory

log = logging.getLogger(__name__)

SIZE = 64 * 1024
"""What waits is bounded: whoever finds no room goes to the database, and takes along what is here."""
LARGEST = 8 * 1024
_HEAD = struct.Struct("<QIII")
"""Which filling of the file it is, where what is a row already ends, where the records end, where those end that were
promised to survive a power cut.
"""
_RECORD = struct.Struct("<II")
_FOOT = struct.Struct("<8sII")
"""A word, the database's number, the checksum of both. Before there was one, records went to the end of the file."""
_WORD = b"lsinbox1"
_ROOM = SIZE - _FOOT.size
_FIELDS = ("ns", "queue", "id", "args", "hash", "function", "run_config", "priority", "parent", "max_attempts")
"""After the time. Another number of fields is another version's record."""
_fields_of = operator.attrgetter(*_FIELDS)
_open_inboxes: weakref.WeakSet[Inbox] = weakref.WeakSet()
Mark = tuple[int, int]
"""A filling, and how far into it."""


@value
class Waiting:
    """What was in the inbox at one moment: each submit with its time, and up to where they are."""

    filling: int
    until: int
    owes: bool
    """Whether one of them was promised to survive a power cut."""
    items: list[tuple[Submission, float]]


class Inbox:
    """Opens the file, or makes it with all the room that it will need. Safe in threads.

    `power`: what this process leaves is to survive a power cut, and `keep` syncs it. `database`: its number. Raises
    OSError.
    """

    def __init__(self, path: Path, *, power: bool, database: int) -> None:
        self._power = power
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            with self._locked():
                size = os.fstat(self._fd).st_size
                if size < SIZE:
                    self._put(bytes(SIZE - size), size)
                    self._read_head()
                self._make_mine(path, database)
                if size < SIZE:
                    os.fsync(self._fd)
            self._head = mmap.mmap(self._fd, mmap.PAGESIZE, prot=mmap.PROT_READ)
        except BaseException:
            os.close(self._fd)
            raise
        self._writing = threading.Lock()
        self._syncing = threading.Lock()
        self._written = self._synced = (0, 0)
        """Filling and end of the last record of this process whose write has returned, and of the last synced one."""
        self._failed: OSError | None = None
        """What a sync said; a later one that succeeds says nothing of the pages that this one lost."""
        _open_inboxes.add(self)

    def waits(self) -> bool:
        """Whether something may not be a row yet."""
        if self._fd < 0:
            return False
        _filling, done, end, _owed = _HEAD.unpack_from(self._head)
        return bool(done != end)

    def leave(self, items: Sequence[Submission], now: float) -> Mark | None:
        """Leave submits: whoever looks finds them from now on, and `keep` makes them durable. None when there is no
        room for all, or no sync to be had. Raises OSError: they may be there or not.
        """
        if self._failed is not None:
            return None
        bodies = [msgpack.packb((now, *_fields_of(item))) for item in items]
        with self._writing, self._locked():
            filling, done, end, owed = self._read_head()
            if done == end and end > _HEAD.size:
                filling, done, end, owed = filling + 1, _HEAD.size, _HEAD.size, 0
            after = end + sum(_RECORD.size + len(body) for body in bodies)
            if after > _ROOM:
                return None
            records = (part for body in bodies for part in (_RECORD.pack(len(body), _checksum(body, filling)), body))
            self._put(b"".join(records), end)
            self._put(_HEAD.pack(filling, done, after, after if self._power else owed), 0)
            self._written = filling, after
        return filling, after

    def keep(self, mark: Mark) -> None:
        """Have what was left as durable as was promised, before anybody is told that it is there. Raises OSError."""
        if self._power:
            self._sync(mark)

    def look(self) -> Waiting:
        """What waits, in the order in which it came."""
        with self._writing, self._locked():
            filling, done, end, owed = self._read_head()
            data = os.pread(self._fd, end - done, done)
        return Waiting(filling=filling, until=end, owes=owed > done, items=list(_records(data, filling)))

    def done(self, found: Waiting) -> None:
        """These are rows now, as durably as was promised."""
        with self._writing, self._locked():
            filling, done, end, owed = self._read_head()
            if filling == found.filling and done < found.until:
                self._put(_HEAD.pack(filling, found.until, end, owed), 0)

    def close(self) -> None:
        """Let go of the file, which stays."""
        with self._writing, self._syncing:
            self._forget()

    def _make_mine(self, path: Path, database: int) -> None:
        data = os.pread(self._fd, SIZE, 0)
        owner = _owner(data)
        if owner == database:
            return
        filling, done, end, owed = self._read_head()
        if owner and done != end:
            aside = path.with_name(f"{path.name}.of-{owner:08x}-{filling}")
            _keep(aside, data)
            self._put(_HEAD.pack(filling, end, end, owed), 0)
            log.warning(
                "submits that were left for a database which was removed or replaced before they were in it, are put "
                "aside in %s",
                aside,
            )
        if end <= _ROOM:
            self._put(_foot(database), _ROOM)

    def _forget(self) -> None:
        if self._fd >= 0:
            self._head.close()
            os.close(self._fd)
            self._fd = -1

    def _sync(self, mark: Mark) -> None:
        with self._syncing:  # who waited here finds that the last one's sync was its own, too
            if self._synced < mark:
                if self._failed is not None:
                    raise self._failed
                reached = self._written
                try:
                    os.fdatasync(self._fd) if hasattr(os, "fdatasync") else os.fsync(self._fd)
                except OSError as exc:
                    self._failed = exc
                    raise
                self._synced = reached

    def _read_head(self) -> tuple[int, int, int, int]:
        filling, done, end, owed = _HEAD.unpack(os.pread(self._fd, _HEAD.size, 0))
        if not filling or not _HEAD.size <= done <= end <= SIZE:
            if filling or done or end:
                log.error("the head of the inbox is damaged: submits that were in it and no rows yet are lost")
            filling, done, end, owed = filling % 2**32 + 1, _HEAD.size, _HEAD.size, 0
            self._put(_HEAD.pack(filling, done, end, owed), 0)
        return filling, done, end, owed

    def _put(self, data: bytes, at: int) -> None:
        if os.pwrite(self._fd, data, at) != len(data):  # a full disk may take a part
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        if self._fd < 0:
            raise OSError(errno.EBADF, "the plane is closed")
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX)  # in here: who is interrupted when he has it lets go of it
            yield
        finally:
            fcntl.flock(self._fd, fcntl.LOCK_UN)


def peek(path: Path, database: int) -> list[Submission]:
    """What is in an inbox for this database, and may be rows already, to who changes nothing and waits for nobody.
    Raises OSError.
    """
    data = path.read_bytes()
    if _owner(data) not in (0, database):
        return []
    filling, done, end, _owed = _HEAD.unpack_from(data) if len(data) == SIZE else (0, 0, 0, 0)
    return [item for item, _at in _records(data[done:end], filling)]


def _owner(data: bytes) -> int:
    """The number of the database that a file is for; 0 where it does not say."""
    word, owner, checksum = _FOOT.unpack_from(data, _ROOM) if len(data) == SIZE else (b"", 0, 0)
    return owner if word == _WORD and _foot(owner)[-4:] == checksum.to_bytes(4, "little") else 0


def _foot(database: int) -> bytes:
    said = _WORD + database.to_bytes(4, "little")
    return said + zlib.crc32(said).to_bytes(4, "little")


def _keep(path: Path, data: bytes) -> None:
    with open(path, "wb", opener=functools.partial(os.open, mode=0o600)) as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    sync_directory(path.parent)


def _checksum(body: bytes, filling: int) -> int:
    """Of another filling's record it is another one."""
    return zlib.crc32(body, filling & 0xFFFFFFFF)


def _records(data: bytes, filling: int) -> Iterator[tuple[Submission, float]]:
    at = 0
    while at < len(data):
        length, checksum = _RECORD.unpack_from(data, at) if at + _RECORD.size <= len(data) else (0, 0)
        body = data[at + _RECORD.size : at + _RECORD.size + length]
        if not length or len(body) < length or _checksum(body, filling) != checksum:
            log.warning(
                "%d bytes of the inbox are what a power cut left of submits that nobody was told of", len(data) - at
            )
            return
        try:
            now, *fields = msgpack.unpackb(body)
            item = Submission(**dict(zip(_FIELDS, fields, strict=True)))
        except (ValueError, TypeError) as exc:  # whole, and not ours to read
            raise OSError(
                errno.EPROTO,
                "the inbox has a submit of another version of lakeshore; start this process again with the newest",
            ) from exc
        yield item, now
        at += _RECORD.size + length


def _after_fork() -> None:
    # A child that kept the descriptor would keep the lock of a parent that was killed with it.
    for inbox in list(_open_inboxes):
        inbox._forget()


os.register_at_fork(after_in_child=_after_fork)
