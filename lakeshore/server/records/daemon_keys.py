"""The public keys of daemons, all of them also in memory. How a key lives is `wire/daemon_keys`'.

Reference: nymph/key-rotation; S-487…S-494, S-560…S-562.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable
from dataclasses import fields
from typing import Any

import trio

from ...wire.daemon_keys import DaemonKey
from .commits import Statement, Write
from .statements import SQL


class DaemonKeys:
    """By worker, whose id says its namespace as well. `turn` is held by whoever reads keys to change them."""

    def __init__(self, conn: sqlite3.Connection, write: Write) -> None:
        self._write = write
        self.turn = trio.Lock()
        self._ns: dict[str, str] = {}
        self._keys: dict[str, dict[str, DaemonKey]] = {}
        self._workers: dict[str, set[str]] = {}
        names = [field.name for field in fields(DaemonKey)]
        for ns, *found in conn.execute(SQL.daemon_keys).fetchall():
            self._keep(ns, (DaemonKey(**dict(zip(names, found, strict=True))),))

    def get(self, worker_id: str, key_id: str) -> DaemonKey | None:
        """One key of one worker."""
        keys = self._keys.get(worker_id)
        return None if keys is None else keys.get(key_id)

    def of(self, worker_id: str) -> list[DaemonKey]:
        """A worker's, oldest first; revoked ones too."""
        return sorted(self._keys.get(worker_id, {}).values(), key=lambda key: (key.created_at, key.key_id))

    def has_any(self, worker_id: str) -> bool:
        """Whether this worker ever enrolled a key."""
        return worker_id in self._keys

    def ns_of(self, worker_id: str) -> str | None:
        """The namespace of a worker that has keys."""
        return self._ns.get(worker_id)

    def workers_with(self, key_id: str) -> tuple[str, ...]:
        """Those that have a key of this id."""
        return tuple(self._workers.get(key_id, ()))

    async def put(
        self, ns: str, keys: Iterable[DaemonKey], *more: Statement, then: Callable[[], None] | None = None
    ) -> None:
        """Store keys as they are now, with `more` in the same transaction, after which `then` is called."""
        kept = tuple(keys)

        def keep() -> None:
            self._keep(ns, kept)
            if then is not None:
                then()

        await self._write((*((SQL.put_daemon_key, _values(ns, key)) for key in kept), *more), keep)

    def forget(self, ns: str) -> None:
        """A namespace's are gone from the file."""
        for worker_id in [worker for worker, owner in self._ns.items() if owner == ns]:
            del self._ns[worker_id]
            for key_id in self._keys.pop(worker_id):
                self._workers[key_id].discard(worker_id)
                if not self._workers[key_id]:
                    del self._workers[key_id]

    def _keep(self, ns: str, keys: Iterable[DaemonKey]) -> None:
        for key in keys:
            self._ns[key.worker_id] = ns
            self._keys.setdefault(key.worker_id, {})[key.key_id] = key
            self._workers.setdefault(key.key_id, set()).add(key.worker_id)


def _values(ns: str, key: DaemonKey) -> dict[str, Any]:
    return {"ns": ns, **{field.name: getattr(key, field.name) for field in fields(key)}}
