"""Which jobs began: on disk before they do, whatever happens to the machine (K-34).

One file for all of them, `begun.log`: a line a job, written and synced once for all that are begun in the same moment
(a file and two directories, synced for each job, cost three syncs apiece). A forgotten job is crossed out by a later
line, and what is known later (its pid) is another one; the file starts afresh when nothing is left, and is rewritten
without what is crossed out when it grows.
"""

from __future__ import annotations

import fcntl
import json
import os

TYPE_CHECKING = False  # as in `protocol.py`
if TYPE_CHECKING:
    from typing import Any

LONG = 1 << 20
"""Bytes after which it is rewritten."""


class Ledger:
    """To be held by one process."""

    __slots__ = ("_fd", "_path", "_records")

    def __init__(self, path: str) -> None:
        self._path = path
        self._records = self.read(path)
        self._fd = self._rewritten()

    @staticmethod
    def read(path: str) -> dict[str, dict[str, Any]]:
        """What a file says began and is not forgotten, by id."""
        records: dict[str, dict[str, Any]] = {}
        try:
            with open(path, "rb") as file:
                lines = file.read().split(b"\n")
        except FileNotFoundError:
            return records
        for line in lines:
            try:
                record = json.loads(line)
                if record.get("forget"):
                    records.pop(record["id"], None)
                else:
                    records.setdefault(record["id"], {}).update(record)
            except (ValueError, AttributeError, KeyError):
                continue  # the last one, of which only a part got to the disk: it began nothing
        return records

    def records(self) -> dict[str, dict[str, Any]]:
        """What began and is not forgotten, by id."""
        return dict(self._records)

    def add(self, records: list[dict[str, Any]]) -> None:
        """On disk when it returns. OSError when it cannot be; then nothing of it stays."""
        before = os.fstat(self._fd).st_size
        try:
            _write(self._fd, b"".join(_line(record) for record in records))
            _sync(self._fd)
        except OSError:
            os.ftruncate(self._fd, before)
            raise
        for record in records:
            self._records[record["id"]] = record

    def note(self, records: list[dict[str, Any]]) -> None:
        """More about jobs that are there: for the next keeper, so not synced. A full disk keeps nothing."""
        for record in records:
            self._records[record["id"]].update(record)
        try:
            _write(self._fd, b"".join(_line(record) for record in records))
        except OSError:
            return

    def forget(self, *ids: str) -> None:
        """Cross jobs out. Not synced: at worst their end is told twice."""
        known = [id_ for id_ in ids if self._records.pop(id_, None) is not None]
        if not known:
            return
        size = os.fstat(self._fd).st_size
        try:
            if not self._records:
                os.ftruncate(self._fd, 0)
            elif size > LONG and size > 4 * sum(len(_line(record)) for record in self._records.values()):
                fd = self._rewritten()
                os.close(self._fd)
                self._fd = fd
            else:
                _write(self._fd, b"".join(_line({"id": id_, "forget": True}) for id_ in known))
        except OSError:
            return  # a full disk

    def _rewritten(self) -> int:
        """A file with what is not crossed out, in the old one's place."""
        fresh = f"{self._path}.new"
        fd = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            _write(fd, b"".join(_line(record) for record in self._records.values()))
            _sync(fd)
            os.replace(fresh, self._path)
        except OSError:
            os.close(fd)
            raise
        folder = os.open(os.path.dirname(self._path) or ".", os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
        return fd


def _line(record: dict[str, Any]) -> bytes:
    return b"\n" + json.dumps(record).encode("ascii") + b"\n"  # on a line of its own, whatever a full disk left before


def _write(fd: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]


def _sync(fd: int) -> None:
    if hasattr(fcntl, "F_FULLFSYNC"):
        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
    else:
        os.fdatasync(fd)
