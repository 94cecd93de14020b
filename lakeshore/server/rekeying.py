"""Another secrets key: every secret is sealed anew under it, and a kill at any moment loses none.

    1. the key to come is written to `secrets.key.next`, whole and synced; from then on the server seals with it, and
       opens with both
    2. the secrets are sealed anew, some in each transaction
    3. when the old key seals none any more, `secrets.key.next` takes the place of `secrets.key`, in one rename

Where SECRETS_KEY is set, step 3 is the operator's: the file stays until the server starts with that key in it. What is
under SECRETS_KEY_PREVIOUS moves likewise. A copy of the state directory is made between two calls, never during one,
so it has the keys of all its rows. Whatever kills the server, the next call goes on where it was.
Reference: api/auth-and-secrets, "Encryption at rest"; S-772, C-1458.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import trio

from ..plane.locks import files_lock
from .http import HttpError
from .records import Records, SecretRow
from .sealing import Keyring, Sealed, Sealer, SealError
from .state import KEY_BYTES, State, derived, replace_secrets_key, write_next_key

PURPOSE: Final = "secrets v1"
_AT_ONCE: Final = 32
_PAUSE_S: Final = 0.05

Name = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What one call came to. `failed`: what does not open, and why; `is_done`: all that opens is under `key`."""

    key: str
    total: int
    resealed: int
    left: int
    failed: dict[Name, str] = field(default_factory=dict)
    is_done: bool = False
    names_environment: bool = False
    """It is done here, and SECRETS_KEY still holds the old key."""


def keyring_of(state: State) -> Keyring:
    """What seals and opens the secrets of a state directory."""
    keys = [key for key in (state.next_key, state.secrets_key, *state.previous_keys) if key is not None]
    return Keyring(*(_sealer(key) for key in keys))


def about(ns: str, name: str) -> bytes:
    """What the seal of a secret is bound to."""
    return f"{ns}/{name}".encode()


class Rekeying:
    """Moves the secrets of one server to another key."""

    def __init__(self, state: State, records: Records, keyring: Keyring) -> None:
        self._root: Path = state.root
        self._is_given = state.is_key_given
        self._main, self._next = state.secrets_key, state.next_key
        self._records = records
        self._keyring = keyring
        self._turn = trio.Lock()

    async def run(self, asked: bytes | None, *, actor: str, for_s: float) -> Progress:
        """Begin, or go on, for a few seconds; `asked` is the key to come, else one is made. HttpError 409, 503."""
        deadline = trio.current_time() + for_s
        async with self._turn, self._alone(deadline):
            with trio.CancelScope(shield=True):  # the file and the memory change together, or neither does
                await self._begin(asked, actor)
            return await self._go_on(actor, deadline)

    async def _begin(self, asked: bytes | None, actor: str) -> None:
        if self._next is not None:
            if asked not in (None, self._next):
                raise HttpError(
                    409,
                    "the secrets are on their way to another key",
                    field="newKey",
                    hint="finish that first: `lakeshore admin secrets rekey` without --new-key",
                )
            return
        if asked == self._main or (asked is None and self._others()):
            return  # what is under a previous key goes to this one
        if asked is None and self._is_given:
            raise HttpError(
                409,
                "this server's key is SECRETS_KEY: the one to come is yours to choose, too",
                field="newKey",
                hint="openssl rand -base64 32 >new.key; lakeshore admin secrets rekey --new-key new.key",
            )
        key = secrets.token_bytes(KEY_BYTES) if asked is None else asked
        await trio.to_thread.run_sync(write_next_key, self._root, key)
        self._next = key
        self._keyring.turn_to(_sealer(key))
        await self._records.audit(actor, "", "secrets.rekey", f"to {self._keyring.fingerprint}")

    async def _go_on(self, actor: str, deadline: float) -> Progress:
        failed: dict[Name, str] = {}
        resealed = 0

        def reseal(row: SecretRow) -> Sealed | None:
            try:
                plaintext = self._keyring.open(row.sealed, about=about(row.ns, row.name))
                return self._keyring.seal(plaintext, about=about(row.ns, row.name))
            except SealError as error:
                failed[row.ns, row.name] = str(error)
                return None

        rows = self._records.secrets
        while left := rows.not_under(self._keyring.fingerprint, but=failed):
            if trio.current_time() >= deadline:
                break
            resealed += await rows.reseal_all(left[:_AT_ONCE], reseal)
        blocked = self._others()
        if not blocked and self._next is not None and not self._is_given:
            with trio.CancelScope(shield=True):
                await trio.to_thread.run_sync(replace_secrets_key, self._root)
                self._main, self._next = self._next, None
                await self._records.audit(actor, "", "secrets.rekey", f"done {self._keyring.fingerprint}")
        return Progress(
            key=self._keyring.fingerprint,
            total=len(rows),
            resealed=resealed,
            left=len(left),
            failed=failed,
            is_done=not blocked,
            names_environment=not blocked and self._next is not None,
        )

    def _others(self) -> list[SecretRow]:
        """What a key of ours that is not the current one seals."""
        rows = self._records.secrets.not_under(self._keyring.fingerprint)
        return [row for row in rows if self._keyring.knows(row.sealed.key)]

    @contextlib.asynccontextmanager
    async def _alone(self, deadline: float) -> AsyncIterator[None]:
        """Nobody copies the state directory meanwhile."""
        while True:
            with files_lock(self._root) as mine:
                if mine:
                    yield
                    return
            if trio.current_time() >= deadline:
                raise HttpError(409, "a backup is being made", hint="when it is finished, ask again")
            await trio.sleep(_PAUSE_S)


def _sealer(key: bytes) -> Sealer:
    return Sealer(derived(key, PURPOSE))
