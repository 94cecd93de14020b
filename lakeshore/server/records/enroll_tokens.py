"""Enroll tokens: each lets one daemon enrol one key, once, in the namespace that it was minted for.

At rest a token is its sha256 in hex and its first 8 characters; the plaintext leaves `mint` once. A token that was
spent or burnt stays, as the record of what became of it.
Reference: nymph/key-rotation, "Enroll tokens"; S-084…S-089.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import secrets
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Final

import trio

from ...wire.verification import ENROLL_PREFIX
from .commits import Statement, Write
from .statements import SQL

TTL_S: Final = 3600.0
MAX_TTL_S: Final = 30 * 86_400.0
_SHOWN: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class EnrollTokenRow:
    """One token. `consumed_at` without a worker: an operator burnt it. Times are Unix seconds."""

    id: str
    ns: str
    label: str
    hash: str
    prefix: str
    created_at: float
    expires_at: float
    consumed_at: float | None = None
    consumed_by: str | None = None


class EnrollTokens:
    """Every enroll token of a server. `turn` is held by whoever spends one."""

    def __init__(
        self, conn: sqlite3.Connection, write: Write, *, now: Callable[[], float], new_id: Callable[[], str]
    ) -> None:
        self._write, self._now, self._new_id = write, now, new_id
        self.turn = trio.Lock()
        self._rows: dict[str, EnrollTokenRow] = {}
        names = [field.name for field in fields(EnrollTokenRow)]
        for found in conn.execute(SQL.enroll_tokens).fetchall():
            row = EnrollTokenRow(**dict(zip(names, found, strict=True)))
            self._rows[row.hash] = row

    def of_bearer(self, plaintext: str) -> EnrollTokenRow | None:
        """The row of a bearer, looked up by its hash."""
        return self._rows.get(_hash(plaintext))

    def of(self, ns: str) -> list[EnrollTokenRow]:
        """A namespace's, spent ones too, oldest first."""
        return sorted((row for row in self._rows.values() if row.ns == ns), key=lambda row: row.id)

    async def mint(self, ns: str, label: str, ttl_s: float, note: Statement) -> tuple[EnrollTokenRow, str]:
        """A new token and its plaintext, which nothing keeps."""
        plaintext = ENROLL_PREFIX + base64.urlsafe_b64encode(secrets.token_bytes(32)).rstrip(b"=").decode()
        now = self._now()
        row = EnrollTokenRow(
            id=self._new_id(),
            ns=ns,
            label=label,
            hash=_hash(plaintext),
            prefix=plaintext[:_SHOWN],
            created_at=now,
            expires_at=now + ttl_s,
        )
        values = {field.name: getattr(row, field.name) for field in fields(row)}
        await self._write(((SQL.add_enroll_token, values), note), functools.partial(self._keep, row))
        return row, plaintext

    async def burn(self, ns: str, token_id: str, note: Statement) -> EnrollTokenRow | None:
        """Nobody enrols with it from here on; again is a no-op. None when the namespace has no such token."""
        async with self.turn:
            row = next((row for row in self._rows.values() if row.id == token_id and row.ns == ns), None)
            if row is None or row.consumed_at is not None:
                return row
            statement, keep = self.spending(row, None)
            await self._write((statement, note), keep)
            return self._rows.get(row.hash)

    def is_unspent(self, row: EnrollTokenRow) -> bool:
        """Whether it may still be spent. Ask with `turn` held."""
        known = self._rows.get(row.hash)
        return known is not None and known.consumed_at is None

    def spending(self, row: EnrollTokenRow, worker_id: str | None) -> tuple[Statement, Callable[[], None]]:
        """What spends it, and what to do once that is committed."""
        spent = replace(row, consumed_at=self._now(), consumed_by=worker_id)
        values = {"id": row.id, "now": spent.consumed_at, "worker": worker_id}
        return (SQL.spend_enroll_token, values), functools.partial(self._keep, spent)

    def forget(self, ns: str) -> None:
        """A namespace's are gone from the file."""
        self._rows = {key: row for key, row in self._rows.items() if row.ns != ns}

    def _keep(self, row: EnrollTokenRow) -> None:
        self._rows[row.hash] = row


def _hash(plaintext: str) -> str:
    return hashlib.sha256(plaintext.encode("utf-8", "surrogateescape")).hexdigest()
