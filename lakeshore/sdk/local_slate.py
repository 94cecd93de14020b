"""What the workers of one machine have prefetched, in files beside their locks (K-6, K-9).

A worker loop that takes several jobs in one commit writes on its slate what it took, and marks there, not in the
database, each job that it begins. Whoever buries it reads how far it came. What waits behind a long job is revoked by
whoever looks for work, and what is to be cancelled is revoked first: both under the slate's lock, so that a job
never begins after it was given away. The rows stay the truth of who holds a claim; a slate says only what has begun.
A power cut leaves slates without meaning, and a kill between its making and its filling one without a head: they are
read as if nothing had begun.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import struct
import threading
import time
from collections.abc import Callable, Container, Iterator, Sequence
from pathlib import Path

import msgpack

from .slate import LONG_S

_SUFFIX = ".slate"
_SIZE = 32 * 1024
_HEAD = struct.Struct("<IIIIQ")
"""How many were taken, how many have begun, what of the rest, bytes of the list, since when (ns)."""
_BLANK: tuple[int, ...] = (0, 0, 0, 0, 0)
_WAITS, _REVOKED, _GIVEN_BACK = range(3)
"""Of the rest. Who revokes it may die before it is back in its queue: until it is known to be, others see to it."""
_ROOM = _SIZE - _HEAD.size
Name = tuple[str, str, int]
"""One claim: namespace, id, number."""


class LocalSlate:
    """One worker loop's slate. Each opening has a lock of its own, so that threads keep each other out, too."""

    def __init__(self, path: str, *, create: bool = False) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT | os.O_EXCL if create else 0), 0o600)
        if create:
            try:
                os.write(self._fd, bytes(_SIZE))  # room is taken now, when its lack can still be borne
            except OSError:
                os.unlink(path)
                os.close(self._fd)
                raise

    def close(self) -> None:
        """Let go of the file, which stays."""
        os.close(self._fd)

    # -- its worker's

    def took(self, names: Sequence[Name]) -> None:
        """The loop has claimed these and begun none. Nothing that was taken before is still to begin."""
        packed = msgpack.packb(names)
        assert len(packed) <= _ROOM, "names are bounded, and so is how many are taken"
        with self._locked():
            self._write(0, 0, 0, 0, 0)  # whoever is killed in between leaves nothing that has begun
            os.pwrite(self._fd, packed, _HEAD.size)
            self._write(len(names), 0, 0, len(packed), 0)

    def begin(self) -> bool:
        """The next job begins. False when it was revoked: then it must not."""
        fcntl.flock(self._fd, fcntl.LOCK_EX)
        try:
            count, begun, rest, length, _since = self._head()
            if rest != _WAITS:
                return False
            self._write(count, begun + 1, 0, length, time.monotonic_ns())
            return True
        finally:
            fcntl.flock(self._fd, fcntl.LOCK_UN)

    # -- everybody's

    def begun(self) -> list[Name]:
        """What has begun of what was taken last, ended or not."""
        with self._locked():
            return self._names()[: self._head()[1]]

    def waiting(self) -> bool:
        """Whether something has not begun and is not in its queue. Without the lock: it can be wrong for a moment."""
        count, begun, rest, _length, _since = self._head()
        return bool(begun < count and rest != _GIVEN_BACK)

    def revoke_behind_long(self) -> list[Name]:
        """What waits while a job has run for LONG_S: its worker will not begin it any more. It is to be given back."""
        with self._locked():
            since = self._head()[4]
            return self._revoke() if since and time.monotonic_ns() - since > LONG_S * 1e9 else []

    def given_back(self, names: Container[Name]) -> None:
        """What has not begun is in its queue again, if `names` are all of it."""
        with self._locked():
            count, begun, _rest, length, since = self._head()
            if all(name in names for name in self._names()[begun:]):
                self._write(count, begun, _GIVEN_BACK, length, since)

    def revoke(self, name: Name) -> list[Name]:
        """What waits with `name`, if that waits: its worker will not begin it any more."""
        with self._locked():
            return self._revoke() if name in self._names()[self._head()[1] :] else []

    def _revoke(self) -> list[Name]:
        count, begun, rest, length, since = self._head()
        if rest == _GIVEN_BACK:
            return []
        self._write(count, begun, _REVOKED, length, since)
        return self._names()[begun:]

    def _names(self) -> list[Name]:
        length = self._head()[3]
        if not length:
            return []
        try:
            said = msgpack.unpackb(os.pread(self._fd, length, _HEAD.size))
            return [(str(ns), str(id_), int(claim)) for ns, id_, claim in said]
        except (ValueError, TypeError):  # msgpack's own are ValueErrors
            return []

    def _head(self) -> tuple[int, ...]:
        head = os.pread(self._fd, _HEAD.size, 0)
        return _HEAD.unpack(head) if len(head) == _HEAD.size else _BLANK

    def _write(self, *head: int) -> None:
        os.pwrite(self._fd, _HEAD.pack(*head), 0)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        fcntl.flock(self._fd, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._fd, fcntl.LOCK_UN)


class LocalSlates:
    """The slates of a plane, in the directory of its workers' locks. `holder` is this process's lock."""

    def __init__(self, directory: Path, holder: str) -> None:
        self._directory, self._holder = str(directory), holder
        self._lock = threading.Lock()
        self._seen: dict[str, LocalSlate] = {}
        self._made = itertools.count()

    def make(self) -> tuple[LocalSlate, str]:
        """One for a worker loop of this process, and its name."""
        name = f"{self._holder}-{next(self._made)}{_SUFFIX}"
        return LocalSlate(f"{self._directory}/{name}", create=True), name

    def remove(self, name: str) -> None:
        """It is not needed any more."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{self._directory}/{name}")

    def revoke_behind_long(self, mine: str | None) -> tuple[list[Name], bool]:
        """(what waited behind long jobs of others, whether more waits that may get there); `mine` is left alone."""
        names: list[Name] = []
        more = False
        with self._lock:
            for file, slate in self._look().items():
                if file != mine and slate.waiting():
                    names += slate.revoke_behind_long()
                    more = more or slate.waiting()
        return names, more

    def given_back(self, names: Sequence[Name]) -> None:
        """These were revoked, and are in their queues again."""
        known = set(names)
        with self._lock:
            for slate in self._look().values():
                if slate.waiting():
                    slate.given_back(known)

    def revoke(self, holder: str, name: Name) -> list[Name]:
        """What waits with `name` at this process, if that waits: it will not begin there any more."""
        with self._lock:
            for slate in self._of(holder).values():
                if rest := slate.revoke(name):
                    return rest
        return []

    def begun_by(self, holder: str) -> set[Name]:
        """What a dead process had begun; its slates are gone when its claims are."""
        with self._lock:
            return {name for slate in self._of(holder).values() for name in slate.begun()}

    def remove_of(self, holder: str) -> None:
        """The claims of this dead process are settled."""
        with self._lock:
            for file in self._of(holder):
                self.remove(file)

    def sweep(self, alive: Callable[[str], bool], holders: Container[str]) -> None:
        """Remove those of dead processes that hold nothing any more."""
        with self._lock:
            for name in self._look():
                holder = name.rpartition("-")[0]
                if holder not in holders and not alive(holder):
                    self.remove(name)

    def close(self) -> None:
        """Let go of those that were looked at."""
        with self._lock:
            for slate in self._seen.values():
                slate.close()
            self._seen = {}

    def _of(self, holder: str) -> dict[str, LocalSlate]:
        return {name: slate for name, slate in self._look().items() if name.startswith(f"{holder}-")}

    def _look(self) -> dict[str, LocalSlate]:
        there = {name for name in os.listdir(self._directory) if name.endswith(_SUFFIX)}
        for name in self._seen.keys() - there:
            self._seen.pop(name).close()
        for name in there - self._seen.keys():
            with contextlib.suppress(FileNotFoundError):
                self._seen[name] = LocalSlate(f"{self._directory}/{name}")
        return self._seen
