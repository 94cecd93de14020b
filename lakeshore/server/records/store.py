"""Namespaces, tokens, workers, schedules and daemons' identities: rows in a small SQLite file, also in memory.

Reads never touch SQL, so authenticating a hot request costs a dictionary look-up. Writes that come together share one
synced transaction (`commits.py`), and the memory changes only after it; what looks before it writes holds a lock.
Tokens are kept as sha256 in hex and the first 8 characters; the plaintext leaves `mint_token` once. `lastUsedAt` is
noted in memory and written down now and then.
Reference: api/auth-and-secrets, "Token CRUD" and "Organizations".
"""

from __future__ import annotations

import base64
import hashlib
import logging
import os
import secrets
import sqlite3
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal

import trio

from ...wire.names import Ulids
from .changed import Change, changed
from .code_repos import CodeRepoRows
from .commits import Commits, Statement, Statements
from .daemon_keys import DaemonKeys
from .elasticity import ElasticityEvents
from .enroll_tokens import EnrollTokens
from .entries import EntryRows
from .events import Events
from .file import open_file
from .machines import MachineRow, MachineRows
from .marks import Marks
from .modes import ModeRows
from .nonces import Nonces
from .orders import OrderRow, OrderRows
from .providers import ProviderRows
from .releases import ReleaseRows
from .schedules import Schedules
from .secrets import SecretRows
from .statements import SQL
from .storages import StorageRows
from .workers import WorkerRow, WorkerRows

log = logging.getLogger(__name__)

Scope = Literal["full", "submit", "worker", "daemon"]
SCOPES: Final = ("full", "submit", "worker", "daemon")
DEFAULT_NAMESPACE: Final = "default"
SCHEMA_VERSION: Final = 4
_PREFIX: Final = 8


class Taken(Exception):
    """The name is in use already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceRow:
    """A namespace; those with the same org that is not None are siblings. `target_version`: what daemons follow."""

    name: str
    org: str | None
    created_at: float
    target_version: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRow:
    """A token's metadata. `worker` binds a daemon's token to one worker id; without `expires_at` it never expires."""

    id: str
    ns: str
    name: str
    hash: str
    prefix: str
    scope: str
    worker: str | None
    created_at: float
    last_used_at: float | None = None
    revoked_at: float | None = None
    expires_at: float | None = None

    def has_expired(self, now: float) -> bool:
        """Whether its time is over."""
        return self.expires_at is not None and now >= self.expires_at


class Records:
    """All records of one server. `now` is Unix time in seconds."""

    def __init__(self, path: Path, *, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._conn = open_file(path, package=__package__, schema=SQL.schema, version=SCHEMA_VERSION)
        self.commits = Commits(self._conn)
        self._lock = trio.Lock()
        self._ids = Ulids(lambda: int(now() * 1000), os.urandom)
        self._namespaces: dict[str, NamespaceRow] = {
            name: NamespaceRow(name=name, org=org, created_at=at, target_version=target)
            for name, org, at, target in self._conn.execute(SQL.namespaces).fetchall()
        }
        self._tokens: dict[str, TokenRow] = {}
        for row in self._conn.execute(SQL.tokens).fetchall():
            token = TokenRow(**dict(zip(TokenRow.__dataclass_fields__, row, strict=True)))
            self._tokens[token.hash] = token
        self.schedules = Schedules(self._conn, self._change)
        self.enroll_tokens = EnrollTokens(self._conn, self._change, now=now, new_id=self._ids.new)
        self.daemon_keys = DaemonKeys(self._conn, self._change)
        self.nonces = Nonces(self._conn, self._change, now=now)
        self.releases = ReleaseRows(self._conn, self._change)
        self.secrets = SecretRows(self._conn, self._change)
        self.providers = ProviderRows(self._conn, self._change)
        self.modes = ModeRows(self._conn, self._change)
        self.tunnels = EntryRows(self._conn, self._change, "tunnel")
        self.mounts = EntryRows(self._conn, self._change, "mount")
        self.storages = StorageRows(self._conn, self._change)
        self.code_repos = CodeRepoRows(self._conn, self._change)
        self.orders = OrderRows(self._conn, self._change)
        self.workers = WorkerRows(self._conn, self._change, now=now)
        self.machines = MachineRows(self._conn, self._change, now=now)
        self.events = Events(path, self._change)
        self.elasticity = ElasticityEvents(self._change, self.events.read)
        self.marks = Marks(self._conn, self._change)
        self.told: Callable[[Iterable[Change]], None] | None = None
        """Hears what each write changed, right after its commit, while somebody wants to know."""
        self._used: dict[str, float] = {}
        self.version = 0
        """Rises with every change of a namespace or token: what was derived from them is then out of date."""
        if DEFAULT_NAMESPACE not in self._namespaces:
            self.commits.write_now(((SQL.add_namespace, {"name": DEFAULT_NAMESPACE, "org": None, "now": now()}),))
            self._namespaces[DEFAULT_NAMESPACE] = NamespaceRow(name=DEFAULT_NAMESPACE, org=None, created_at=now())

    def close(self) -> None:
        """Write down the last uses, then close the file."""
        try:
            self.commits.write_now([*self.workers.unsaved()[0], *self._uses()])
        except sqlite3.Error as error:  # a full disk keeps nobody from going down
            log.warning("when tokens were last used could not be written down: %s", error)
        self.events.close()
        self._conn.close()

    def new_id(self) -> str:
        """An id that sorts by time."""
        return self._ids.new()

    # --- namespaces

    def namespace(self, name: str) -> NamespaceRow | None:
        """One namespace."""
        return self._namespaces.get(name)

    def namespaces(self) -> list[NamespaceRow]:
        """Every namespace, by name."""
        return [self._namespaces[name] for name in sorted(self._namespaces)]

    def siblings(self, a: str, b: str) -> bool:
        """Whether two different namespaces share an org."""
        one, other = self._namespaces.get(a), self._namespaces.get(b)
        return one is not None and other is not None and one.org is not None and one.org == other.org

    async def add_namespace(self, name: str, org: str | None, *, actor: str) -> NamespaceRow:
        """Create one. Raises Taken."""
        async with self._lock:
            if name in self._namespaces:
                raise Taken(f"namespace {name!r} exists already")
            row = NamespaceRow(name=name, org=org, created_at=self._now())
            values = {"name": name, "org": org, "now": row.created_at}
            await self._change(((SQL.add_namespace, values), self.note(actor, name, "namespace.create", name)))
            self._namespaces[name] = row
            self.version += 1
            return row

    async def ensure_namespace(self, name: str, *, actor: str) -> None:
        """Create it unless it exists."""
        try:
            await self.add_namespace(name, None, actor=actor)
        except Taken:
            return

    async def set_org(self, name: str, org: str | None, *, actor: str) -> NamespaceRow | None:
        """Set or clear the org; the row, or None when there is none."""
        async with self._lock:
            row = self._namespaces.get(name)
            if row is None:
                return None
            values = {"name": name, "org": org}
            await self._change(((SQL.set_org, values), self.note(actor, name, "namespace.org", org or "")))
            row = self._namespaces[name] = replace(row, org=org)
            self.version += 1
            return row

    async def set_target_version(self, name: str, version: str | None, *, actor: str) -> None:
        """Set or clear the version that the namespace's daemons follow."""
        async with self._lock:
            row = self._namespaces.get(name)
            if row is None:
                return
            note = self.note(actor, name, "namespace.target_version", version or "")
            await self._change(((SQL.set_target_version, {"name": name, "version": version}), note))
            self._namespaces[name] = replace(row, target_version=version)

    async def drop_namespace(self, name: str, *, actor: str) -> bool:
        """Forget a namespace with its tokens and workers. False when there is none."""
        async with self._lock:
            if name not in self._namespaces:
                return False
            await self._change(
                (
                    (SQL.drop_tokens_of, {"ns": name}),
                    (SQL.drop_workers_of, {"ns": name}),
                    (SQL.drop_schedules_of, {"ns": name}),
                    (SQL.drop_enroll_tokens_of, {"ns": name}),
                    (SQL.drop_daemon_keys_of, {"ns": name}),
                    (SQL.drop_orders_of, {"ns": name}),
                    (SQL.drop_machines_of, {"ns": name}),
                    (SQL.drop_removed_workers_of, {"ns": name}),
                    (SQL.drop_events_of, {"ns": name}),
                    (SQL.drop_secrets_of, {"ns": name}),
                    (SQL.drop_providers_of, {"ns": name}),
                    (SQL.drop_elasticity_events_of, {"ns": name}),
                    (SQL.drop_modes_of, {"ns": name}),
                    (SQL.drop_tunnels_of, {"ns": name}),
                    (SQL.drop_mounts_of, {"ns": name}),
                    (SQL.drop_storages_of, {"ns": name}),
                    (SQL.drop_code_repos_of, {"ns": name}),
                    (SQL.drop_namespace, {"name": name}),
                    self.note(actor, name, "namespace.delete", name),
                )
            )
            del self._namespaces[name]
            self._tokens = {key: token for key, token in self._tokens.items() if token.ns != name}
            self.schedules.forget(name)
            self.enroll_tokens.forget(name)
            self.daemon_keys.forget(name)
            self.orders.forget(name)
            self.secrets.forget(name)
            self.providers.forget(name)
            self.modes.forget(name)
            self.tunnels.forget(name)
            self.mounts.forget(name)
            self.storages.forget(name)
            self.code_repos.forget(name)
            self.workers.forget(name)
            self.machines.forget(name)
            self.version += 1
            return True

    # --- tokens

    def token_of(self, plaintext: str) -> TokenRow | None:
        """The row of a bearer. Looked up by its hash, so the time taken tells nothing of a token's characters."""
        return self._tokens.get(hashlib.sha256(plaintext.encode("utf-8", "surrogateescape")).hexdigest())

    def tokens(self, ns: str) -> list[TokenRow]:
        """A namespace's tokens, revoked ones too, oldest first."""
        return sorted((self._fresh(token) for token in self._tokens.values() if token.ns == ns), key=lambda t: t.id)

    async def mint_token(
        self, ns: str, name: str, scope: str, *, worker: str | None = None, ttl_s: float | None = None, actor: str
    ) -> tuple[TokenRow, str]:
        """A new token and its plaintext, which nothing keeps; without `ttl_s` it never expires. Raises Taken."""
        plaintext = "dlk_" + base64.urlsafe_b64encode(secrets.token_bytes(32)).rstrip(b"=").decode()
        async with self._lock:
            if any(token.ns == ns and token.name == name for token in self._tokens.values()):
                raise Taken(f"namespace {ns!r} has a token named {name!r} already: name this one otherwise")
            now = self._now()
            row = TokenRow(
                id=self._ids.new(),
                ns=ns,
                name=name,
                hash=hashlib.sha256(plaintext.encode()).hexdigest(),
                prefix=plaintext[:_PREFIX],
                scope=scope,
                worker=worker,
                created_at=now,
                expires_at=None if ttl_s is None else now + ttl_s,
            )
            values = {
                "id": row.id,
                "ns": ns,
                "name": name,
                "hash": row.hash,
                "prefix": row.prefix,
                "scope": scope,
                "worker": worker,
                "now": now,
                "expires": row.expires_at,
            }
            await self._change(((SQL.add_token, values), self.note(actor, ns, "token.mint", name)))
            self._tokens[row.hash] = row
            self.version += 1
            return row, plaintext

    async def revoke_token(self, ns: str, token_id: str, *, actor: str) -> TokenRow | None:
        """Revoke for good; again is a no-op. None when the namespace has no such token."""
        async with self._lock:
            row = next((t for t in self._tokens.values() if t.id == token_id and t.ns == ns), None)
            if row is None:
                return None
            if row.revoked_at is None:
                now = self._now()
                await self._change(
                    ((SQL.revoke_token, {"id": token_id, "now": now}), self.note(actor, ns, "token.revoke", row.name))
                )
                row = self._tokens[row.hash] = replace(row, revoked_at=now)
                self.version += 1
            return self._fresh(row)

    async def forget_tokens(self, workers: Collection[tuple[str, str]]) -> None:
        """Drop the revoked ones that these (namespace, worker) had; the audit still names them."""
        async with self._lock:
            gone = [row for row in self._tokens.values() if row.revoked_at and (row.ns, row.worker) in workers]
            if gone:
                await self._change([(SQL.drop_token, {"id": row.id}) for row in gone])
                for row in gone:
                    del self._tokens[row.hash]
                self.version += 1

    async def bind_token(self, token: TokenRow, worker_id: str) -> str:
        """Bind a daemon's token to a worker, unless it is bound; whose it is then."""
        async with self._lock:
            row = self._tokens.get(token.hash)
            if row is None:
                return worker_id
            if row.worker is None:
                note = self.note(f"{row.ns}/{row.name}", row.ns, "token.bind", worker_id)
                await self._change(((SQL.bind_token, {"id": row.id, "worker": worker_id}), note))
                row = self._tokens[row.hash] = replace(row, worker=worker_id)
                self.version += 1
            return row.worker or worker_id

    def holds(self, token: TokenRow | None) -> Callable[[], bool]:
        """Asks whether a token is still good; without one there is nothing to revoke."""
        if token is None:
            return lambda: True

        def holds() -> bool:
            row = self._tokens.get(token.hash)
            return row is not None and row.revoked_at is None and not row.has_expired(self._now())

        return holds

    def has_expired(self, token: TokenRow) -> bool:
        """Whether a token's time is over by this server's clock."""
        return token.has_expired(self._now())

    def used(self, token_id: str) -> None:
        """The token was just used."""
        self._used[token_id] = self._now()

    def last_used(self, row: TokenRow) -> float | None:
        """When the token was last used, Unix seconds."""
        return self._used.get(row.id, row.last_used_at)

    async def write_uses(self) -> None:
        """Write down when tokens were last used, and workers last seen."""
        statements, again = self.workers.unsaved()
        statements += self._uses()
        try:
            if statements:
                await self._change(statements)
        except BaseException:
            again()
            raise

    # --- workers

    def worker(self, ns: str, worker_id: str) -> WorkerRow | None:
        """A worker that said hello."""
        return self.workers.get(ns, worker_id)

    async def audit(self, actor: str, ns: str, action: str, subject: str) -> None:
        """Write down who did what."""
        await self._change((self.note(actor, ns, action, subject),))

    async def put_worker(
        self,
        ns: str,
        worker_id: str,
        *,
        machine_id: str,
        label: str,
        lanes: Sequence[str],
        info: str,
        state: str = "joining",
    ) -> None:
        """Remember what a hello said."""
        statements, keep = self.workers.greeting(
            ns, worker_id, machine_id=machine_id, label=label, lanes=lanes, info=info, state=state
        )
        await self._change(statements, keep)

    async def launch(
        self, workers: Sequence[WorkerRow], machines: Sequence[MachineRow], orders: Sequence[OrderRow], *, actor: str
    ) -> None:
        """Workers that do not run yet, what waits for them, and their machines: all of it, or nothing."""
        parts = (self.workers.adding(workers), self.machines.adding(machines), self.orders.adding(orders))
        notes = [self.note(actor, row.ns, "worker.launch", f"{row.id} {row.provider}") for row in workers]

        def keep() -> None:
            for _statements, kept in parts:
                kept()

        await self._change([statement for statements, _kept in parts for statement in statements] + notes, keep)

    # --- inside

    def _fresh(self, row: TokenRow) -> TokenRow:
        at = self.last_used(row)
        return row if at == row.last_used_at else replace(row, last_used_at=at)

    def _uses(self) -> list[Statement]:
        return [(SQL.touch_token, {"id": id_, "at": at}) for id_, at in self._used.items()]

    def note(self, actor: str, ns: str, action: str, subject: str) -> Statement:
        """The line of the audit that goes into the transaction of what it tells of."""
        return SQL.note, {"now": self._now(), "actor": actor, "ns": ns, "action": action, "subject": subject}

    async def _change(self, statements: Statements, then: Callable[[], None] | None = None) -> None:
        def committed() -> None:
            if then is not None:
                then()
            if self.told is not None:
                self.told(changed(statements))

        await self.commits.write(statements, committed)
