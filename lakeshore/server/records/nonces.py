"""Nonces of signed requests: each is taken once, also across restarts (S-481, S-482, S-815).

A nonce is on disk before what it guards begins: a request that was let in cannot be let in again. What is kept is a
digest of (worker, nonce) and until when; it names nobody, so it stays when a namespace goes, and ends by itself: a
namespace that is made anew must not take the old one's requests a second time.
"""

from __future__ import annotations

import hashlib
import itertools
import sqlite3
from collections.abc import Callable
from typing import Final

from .commits import Write
from .statements import SQL

_AT_ONCE: Final = 8


class Nonces:
    """Those that may still be replayed. Memory decides, at once; the file remembers."""

    def __init__(self, conn: sqlite3.Connection, write: Write, *, now: Callable[[], float]) -> None:
        self._write, self._now = write, now
        self._until: dict[bytes, float] = dict(conn.execute(SQL.nonces, {"now": now()}).fetchall())
        self._is_stale = True
        """The file may hold some that are over."""

    def __len__(self) -> int:
        return len(self._until)

    async def take(self, worker_id: str, nonce: str, until: float) -> bool:
        """Whether it is new; from here on it is not, until `until` (Unix seconds)."""
        self._drop_some()
        key = hashlib.sha256(f"{worker_id}\n{nonce}".encode()).digest()[:16]
        if self._until.get(key, 0.0) >= self._now():
            return False
        self._until.pop(key, None)
        self._until[key] = until
        try:
            await self._write(((SQL.take_nonce, {"id": key, "until": until}),), None)
        except BaseException:
            self._until.pop(key, None)  # what it guards will not begin
            raise
        return True

    async def sweep(self) -> None:
        """Forget those that no request can use again, here and in the file."""
        now = self._now()
        kept = {key: until for key, until in self._until.items() if until >= now}
        if self._is_stale or len(kept) < len(self._until):
            self._until, self._is_stale = kept, False
            try:
                await self._write(((SQL.drop_nonces, {"now": now}),), None)
            except BaseException:
                self._is_stale = True
                raise

    def _drop_some(self) -> None:
        """The oldest come first, nearly: their time differs by the skew alone."""
        now = self._now()
        over = [key for key, until in itertools.islice(self._until.items(), _AT_ONCE) if until < now]
        for key in over:
            del self._until[key]
            self._is_stale = True
