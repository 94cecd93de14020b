"""Who is calling, and what that caller may do.

Tiers, in this order:
  1. A bearer that we know says who calls: the admin token, or a namespace token (revoked or
     expired: 403).
  2. Open mode (no LAKESHORE_ADMIN_TOKEN) lets everybody else in who comes over loopback to a loopback Host, not from
     another site's page, and on Linux from a process of the server's own user or root. `--open` lifts the rule about
     the user, and the one about loopback when it opened another address.
     What comes through a tunnel comes from another machine, whatever its address says: never by open mode.
  3. Otherwise a bearer is needed: 401.
A daemon's routes take its signature instead of a bearer: `identity.py`.

The namespace is the credential's. Open and admin callers name one with X-LS-Namespace (else `default`), and so do org
siblings; another namespace than the token's is a 403. An id in a URL is no credential.
Reference: api/auth-and-secrets, "The tiered check"; S-026…S-049.
"""

from __future__ import annotations

import functools
import hmac
import ipaddress
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from ..wire.daemon_keys import DaemonKey
from ..wire.errors import NameError_
from ..wire.names import check_namespace
from .http import HttpError, Request
from .records import Records, TokenRow
from .records.store import SCOPES
from .socket_owner import SocketOwners

Mode = Literal["admin", "token", "open", "daemon-sig"]

PRODUCE: Final = frozenset({"full", "submit"})
WORK: Final = frozenset({"full", "worker", "daemon"})
ANY: Final = frozenset({"full", "submit", "worker", "daemon"})
FULL: Final = frozenset({"full"})
ADMIN_HINT: Final = "send LAKESHORE_ADMIN_TOKEN as the bearer; on the server's machine, what is in admin.token"
INVALID_HINT: Final = "it may be mistyped, of another server, or of a namespace that was deleted"
RENEW: Final = "`lakeshore admin tokens create`"
_OWN_SITE: Final = (b"same-origin", b"none")
_CACHED: Final = 1024
TUNNEL: Final = "tunnel"
"""The name of the listener on which tunnels end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """One authenticated caller, in the namespace that this request is about."""

    mode: Mode
    ns: str
    scope: str
    org: str | None = None
    token: TokenRow | None = None
    sibling: bool = False
    """The namespace is not the token's own but one of its org."""
    worker: str | None = None
    """The only worker that this caller speaks for: its token's, or the one whose key signed."""
    key: DaemonKey | None = None
    """The key that signed."""

    @property
    def is_admin(self) -> bool:
        """Whether the admin tier is reached."""
        return self.mode == "admin" or self.mode == "open"

    @property
    def name(self) -> str:
        """For the audit."""
        if self.mode == "daemon-sig":
            return f"{self.ns}/{self.worker or '<enrolling>'}"
        return f"<{self.mode}>" if self.token is None else f"{self.token.ns}/{self.token.name}"

    def need_admin(self) -> None:
        """HttpError 403 unless admin or open."""
        if not self.is_admin:
            raise HttpError(403, "this needs the admin token", hint=ADMIN_HINT)

    def need(self, scopes: frozenset[str]) -> None:
        """HttpError 403 unless the token's scope is one of these."""
        if self.scope not in scopes:
            raise HttpError(
                403,
                f"a token of scope {self.scope!r} may not do this",
                hint=f"use a token of scope {' or '.join(scope for scope in SCOPES if scope in scopes)}",
            )


class Gate:
    """Authenticates requests. One per server."""

    def __init__(
        self,
        records: Records,
        admin_tokens: Sequence[str],
        *,
        is_open: bool,
        any_user: bool = False,
        any_address: bool = False,
        origins: frozenset[str] = frozenset(),
    ) -> None:
        self.is_open = is_open
        self._records = records
        self._admin = [token.encode() for token in admin_tokens]
        self.is_wide = is_open and (any_user or any_address)
        """Open mode lets others in than the user who runs the server."""
        self._any_user = any_user or not sys.platform.startswith("linux")
        self._any_address = any_address
        self._origins = origins
        self._users = frozenset({0, os.geteuid()})
        self._owners = SocketOwners()
        self._hosts: dict[bytes, bool] = {}

    def caller(self, request: Request, ns: str | None = None) -> Caller:
        """Who calls, in namespace `ns` (else the one that header or token say). HttpError 401, 403, 404, 422.

        `ns` must follow from the request's head: what was found is kept with it, while no record changes.
        """
        head = request.head
        opened = self.is_open and request.connection.listener != TUNNEL
        authorization = head.headers.get(b"authorization")
        if authorization is None:
            if not opened:
                raise HttpError(
                    401,
                    "missing bearer token",
                    hint="set LAKESHORE_CLIENT_TOKEN; for commands also `lakeshore auth login` (HTTP: Authorization)",
                )
            if request.connection.admitted is not head:
                self._check_open(request)
                request.connection.admitted = head
        known = head.memo.get(self)
        if known is not None and known[0] == self._records.version:
            caller: Caller = known[1]
        else:
            named = head.headers.get(b"x-ls-namespace") if ns is None else ns.encode()
            version = self._records.version
            caller = self._identify(request, authorization, named)
            if caller.mode != "open" or authorization is None:
                head.memo[self] = (version, caller)
        if caller.token is not None:
            if caller.token.expires_at is not None:  # again: what is kept with the head does not age
                self._check_age(caller.token)
            self._records.used(caller.token.id)
        return caller

    def close(self) -> None:
        """Close what it holds open."""
        self._owners.close()

    # --- identities

    def _identify(self, request: Request, authorization: bytes | None, named: bytes | None) -> Caller:
        mode: Mode = "open"
        token = None
        if authorization is not None:
            bearer = bearer_of(authorization)
            if bearer is not None and self._is_admin(bearer):
                mode = "admin"
            elif bearer is not None and (token := self._records.token_of(bearer.decode("latin-1"))) is not None:
                mode = "token"
            elif self.is_open and request.connection.listener != TUNNEL:
                self._check_open(request)
            else:
                if bearer is None:
                    raise HttpError(401, "missing bearer token", hint="send Authorization: Bearer <token>")
                raise HttpError(401, "invalid token", hint=INVALID_HINT)
        if token is None:
            ns = self._named(named)
            row = self._records.namespace(ns)
            return Caller(mode=mode, ns=ns, scope="full", org=None if row is None else row.org)
        if token.revoked_at is not None:
            raise HttpError(403, "token revoked", hint=f"ask the operator for a new one ({RENEW})")
        self._check_age(token)
        return self._in_namespace(token, named)

    def _is_admin(self, bearer: bytes) -> bool:
        found = False
        for admin in self._admin:  # every one, whatever the first said: the time taken tells nothing
            found |= hmac.compare_digest(bearer, admin)
        return found

    def _check_age(self, token: TokenRow) -> None:
        if self._records.has_expired(token):
            raise HttpError(403, "token expired", hint=f"ask the operator for a new one ({RENEW})")

    def _in_namespace(self, token: TokenRow, named: bytes | None) -> Caller:
        ns = token.ns if named is None else self._named(named)
        sibling = ns != token.ns
        if sibling and not self._records.siblings(ns, token.ns):
            raise HttpError(
                403,
                f"this token is for namespace {token.ns!r}, not for {ns!r}",
                hint=f"name {token.ns} instead",
            )
        row = self._records.namespace(ns)
        org = None if row is None else row.org
        return Caller(
            mode="token", ns=ns, scope=token.scope, org=org, token=token, sibling=sibling, worker=token.worker
        )

    def _named(self, named: bytes | None) -> str:
        if named is None:
            return "default"
        try:
            return check_namespace(named.decode("utf-8", "replace"))
        except NameError_ as error:
            raise HttpError(422, str(error), field="namespace") from error

    # --- open mode

    def _check_open(self, request: Request) -> None:
        """HttpError 403 unless open mode may let this one in."""
        headers = request.headers
        connection = request.connection
        if not self._any_address:
            host = headers.get(b"host", b"")
            local = self._hosts.get(host)
            if local is None:
                local = is_loopback_name(host.decode("latin-1"))
                if len(self._hosts) < _CACHED:
                    self._hosts[host] = local
            if not local or not _is_loopback(connection.local) or not _is_loopback(connection.peer):
                raise HttpError(
                    403,
                    "open mode answers only on loopback",
                    hint="call http://127.0.0.1, or start the server with LAKESHORE_ADMIN_TOKEN and send a token",
                )
        origin = headers.get(b"origin")
        site = headers.get(b"sec-fetch-site")
        if (origin is not None or site is not None) and not self._same_site(origin, site, headers.get(b"host", b"")):
            raise HttpError(
                403,
                "cross-site request refused",
                hint="name the page's origin with --cors-origin, or send a token",
            )
        if not self._any_user and self._owners.uid(connection) not in self._users:
            raise HttpError(
                403,
                "open mode answers only to the user who runs the server",
                hint="send a token (admin.token in the state directory), or start the server with --open",
            )

    def _same_site(self, origin: bytes | None, site: bytes | None, host: bytes) -> bool:
        if origin is not None:
            text = origin.decode("latin-1")
            if text in self._origins:
                return True
            if text.partition("://")[2].lower() != host.decode("latin-1").lower() or not host:
                return False
        return site is None or site.lower() in _OWN_SITE


def bearer_of(authorization: bytes) -> bytes | None:
    """What an Authorization header says after `Bearer`."""
    scheme, _, value = authorization.partition(b" ")
    value = value.strip()
    return value if scheme.lower() == b"bearer" and value else None


def is_loopback_name(host: str) -> bool:
    """Whether a Host header (or an address to listen on) names this machine's loopback."""
    if host.startswith("["):
        name = host[1:].partition("]")[0]
    else:
        name = host.rpartition(":")[0] if host.count(":") == 1 else host
    name = name.rstrip(".").lower()
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _is_loopback(end: tuple[str, int] | None) -> bool:
    return end is not None and _is_loopback_address(end[0])


@functools.lru_cache(maxsize=_CACHED)
def _is_loopback_address(address: str) -> bool:
    return is_loopback_name(f"[{address}]")
