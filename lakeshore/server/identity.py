"""Who a daemon is by its own key: signed requests, enrolment, rotation, revocation.

    a signed request    is the caller whose key signed it: scope `daemon`, in the worker's namespace, for that worker
                        alone. A bearer beside the signature is not asked. The worker is named by X-LS-Worker-Id, else
                        by `worker_id` of the body; a chunk or a download without either is of the key's only owner.
    an unsigned one     is the bearer's affair. Where signatures are required, a token still lets workers in that never
                        enrolled a key: those that are no daemons have none.
    a hello             is admitted by its token, or by a key that is known; it is checked here, and in its handler.

The order of checks and the words of refusals are `wire/verification`'s, the life of keys `wire/daemon_keys`'. A nonce
is on disk before what it guards begins. Requests without a signature pay one look into what is known of their head.
Reference: nymph/key-rotation; S-381…S-411, S-453…S-494, S-815…S-818.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from ..wire.daemon_keys import (
    REVOKED,
    DaemonKey,
    RotationRefused,
    new_key,
    reap,
    revoke,
    rotate,
    rotate_command,
    rotated_body,
    rotation_due,
)
from ..wire.signing import HEADERS, SigningError, SigningUnavailable, key_id_of, public_key_of
from ..wire.verification import (
    ALWAYS_SIGNED,
    ENROLL_PREFIX,
    INCOMPLETE,
    KEY_EXPIRED,
    KEY_REVOKED,
    REPLAYED,
    REQUIRED,
    UNKNOWN_KEY,
    EnrollToken,
    Enrolment,
    Policy,
    SignedRequest,
    Verdict,
    check,
    check_enrolment,
    must_sign,
    rejected,
    replayed,
)
from .auth import Caller, bearer_of
from .http import HttpError, Request
from .records import EnrollTokenRow, Records
from .render import content_encoding
from .structure import decode_map

log = logging.getLogger(__name__)

HELLO: Final = "/v1/daemon/hello"
WORKER_HEADER: Final = b"x-ls-worker-id"
_SIGNATURE: Final = tuple(name.lower().encode() for name in HEADERS)
_ENROLLS: Final = ENROLL_PREFIX.encode()
_REMEMBERED: Final = "identity"
_UNAVAILABLE: Final = "this server cannot check signatures"

Who = Callable[[Request], Caller]


def says_identity(request: Request) -> bool:
    """Whether a request is more than its bearer's affair: it is signed, in part at least, or brings an enroll token."""
    memo = request.head.memo
    known: bool | None = memo.get(_REMEMBERED)
    if known is None:
        headers = request.headers
        known = any(name in headers for name in _SIGNATURE) or _enroll_bearer(request) is not None
        memo[_REMEMBERED] = known
    return known


class Identity:
    """The keys and enroll tokens of one server's daemons. `now` is Unix time in seconds."""

    def __init__(self, records: Records, policy: Policy, *, now: Callable[[], float] = time.time) -> None:
        self.policy = policy
        self._records = records
        self._now = now

    # --- who calls

    async def caller(self, request: Request, who: Who, ns: str | None) -> Caller:
        """Who calls one of a daemon's routes, in namespace `ns` if the path names one. HttpError 401, 403, 404, 422.

        `who` is how a bearer is asked.
        """
        if request.path == HELLO:
            return await self._hello_caller(request, who)
        if any(name in request.headers for name in _SIGNATURE):
            return await self._signed(request, ns)
        if request.path == ALWAYS_SIGNED:
            raise HttpError(401, REQUIRED, hint="a new key is signed for by the old one")
        caller = who(request)
        if must_sign(request.path, enforced=self.policy.enforced):
            await self._need_no_key(request, caller)
        return caller

    async def _signed(self, request: Request, ns: str | None) -> Caller:
        body = await request.body()
        worker_id = self._worker_of(request, body)
        signed = _signed_request(request, worker_id, body)
        try:
            verdict = check(signed, find_key=self._records.daemon_keys.get, now=self._now(), skew_s=self.policy.skew_s)
        except SigningUnavailable as error:
            raise HttpError(501, _UNAVAILABLE, hint=str(error)) from error
        if not verdict.accepted or verdict.key is None:
            raise _refused(verdict)
        owner = self._records.daemon_keys.ns_of(worker_id)
        named = request.header("x-ls-namespace")
        if owner is None or any(said not in (None, owner) for said in (ns, named)):
            raise HttpError(
                403, f"this daemon is of namespace {owner!r}, not of {ns or named!r:.80}", hint="name its own namespace"
            )
        assert verdict.nonce is not None
        if not await self._records.nonces.take(worker_id, verdict.nonce, verdict.nonce_until):
            raise _refused(replayed())
        row = self._records.namespace(owner)
        org = None if row is None else row.org
        return Caller(mode="daemon-sig", ns=owner, scope="daemon", org=org, worker=worker_id, key=verdict.key)

    def _worker_of(self, request: Request, body: bytes) -> str:
        """The worker that a signed request says it is of, or whose key it names; "" for none, which has no key."""
        named = request.headers.get(WORKER_HEADER)
        said = named.decode("latin-1") if named is not None else _opened(request, body).get("worker_id")
        if type(said) is str:
            return said
        owners = self._records.daemon_keys.workers_with(request.header(HEADERS[0]) or "")
        return owners[0] if len(owners) == 1 else ""

    async def _need_no_key(self, request: Request, caller: Caller) -> None:
        """Signatures are required: what has no signature must be a token's, about workers that have no keys."""
        if caller.mode != "open":
            workers = _workers_named(request, await request.body())
            if workers and not any(self._records.daemon_keys.has_any(worker) for worker in workers):
                return
        raise HttpError(
            401,
            REQUIRED,
            hint="set [identity] enabled = true in the daemon's configuration; a worker that is no daemon sends a "
            "token and its worker_id",
        )

    async def _hello_caller(self, request: Request, who: Who) -> Caller:
        """The namespace of a hello: its enroll token's, its bearer's, that of a key that is known, else the gate's.

        Nothing is admitted by this: `enrol` decides about whoever comes without an ordinary bearer.
        """
        bearer = _enroll_bearer(request)
        if bearer is not None:
            token = self._records.enroll_tokens.of_bearer(bearer)
            return _enrolling(self._namespace_named(request) if token is None else token.ns)
        known = await self._ns_of_key(request)
        if b"authorization" in request.headers:
            caller = who(request)
            if caller.mode == "token" or known is None:
                return caller
        return _enrolling(known if known is not None else self._namespace_named(request))

    def _namespace_named(self, request: Request) -> str:
        named = request.header("x-ls-namespace")
        return named if named is not None and self._records.namespace(named) is not None else "default"

    async def _ns_of_key(self, request: Request) -> str | None:
        key_id = request.header(HEADERS[0])
        if key_id is None:
            return None
        said = _opened(request, await request.body())
        machine_id, label = said.get("machine_id"), said.get("label")
        if type(machine_id) is str and type(label) is str:
            for worker_id in self._records.daemon_keys.workers_with(key_id):
                ns = self._records.daemon_keys.ns_of(worker_id)
                if ns is not None and worker_id_of(ns, machine_id, label) == worker_id:
                    return ns
        return None

    # --- enrolment

    async def enrol(
        self, request: Request, caller: Caller, worker_id: str, *, machine_id: str, public_key: str | None
    ) -> Enrolment:
        """What becomes of the key of a hello. With `reject` nothing; else its key, if it has one, is stored by now."""
        if public_key is None and not (self.policy.enforced or says_identity(request)):
            return Enrolment()
        bearer = _enroll_bearer(request)
        token = None if bearer is None else self._records.enroll_tokens.of_bearer(bearer)
        named = request.header("x-ls-namespace")
        if token is not None and named not in (None, token.ns):
            return rejected("invalid_enroll_token", f"this enroll token is not of namespace {named!r:.80}")
        try:
            checked = check_enrolment(
                _signed_request(request, machine_id, await request.body()),
                public_key=public_key,
                token=None if token is None else _known(token),
                brought_token=bearer is not None,
                find_key=self._records.daemon_keys.get,
                known_as=worker_id,
                now=self._now(),
                skew_s=self.policy.skew_s,
                required=self.policy.enforced,
            )
        except SigningUnavailable as error:
            raise HttpError(501, _UNAVAILABLE, hint=str(error)) from error
        except SigningError as error:
            raise HttpError(422, str(error), field="public_key") from error
        if checked.reject is not None or checked.public_key is None:
            unproven = checked.reject is None and caller.mode == "daemon-sig"
            return rejected("enroll_signature_required") if unproven else checked
        assert checked.nonce is not None
        if not await self._records.nonces.take(worker_id, checked.nonce, checked.nonce_until):
            return rejected("enroll_signature_invalid", REPLAYED)
        if not checked.spends:
            return checked
        assert token is not None
        return await self._store(caller.ns, worker_id, checked, token)

    async def _store(self, ns: str, worker_id: str, checked: Enrolment, token: EnrollTokenRow) -> Enrolment:
        """Spend the token and store the key, both or neither. What keys the worker had before are revoked."""
        assert checked.public_key is not None
        assert checked.key_id is not None
        tokens, keys = self._records.enroll_tokens, self._records.daemon_keys
        async with tokens.turn, keys.turn:
            now = self._now()
            if not tokens.is_unspent(token):
                return rejected("enroll_token_consumed")
            known = keys.get(worker_id, checked.key_id)
            if known is not None and reap(known, now).status == REVOKED:
                return rejected("invalid_enroll_token", "this key was revoked: a daemon enrols anew with a new one")
            fresh = new_key(worker_id, checked.public_key, now, max_age_s=self.policy.max_age_s)
            others = [revoke(key, now)[0] for key in keys.of(worker_id) if key.key_id != fresh.key_id]
            statement, spent = tokens.spending(token, worker_id)
            note = self._records.note(f"<{token.prefix}>", ns, "daemon_key.enrol", f"{worker_id}/{fresh.key_id}")
            await keys.put(ns, (*others, fresh), statement, note, then=spent)
        log.info("worker %s of %s enrolled the key %s", worker_id, ns, fresh.key_id)
        return checked

    # --- keys

    def directive(self, caller: Caller) -> dict[str, Any] | None:
        """The command that tells the caller to rotate its key, when that is due (S-435…S-438, S-488, S-816)."""
        key = self._current(caller)
        if key is None:
            return None
        now, policy = self._now(), self.policy
        reason = rotation_due(key, now, max_age_s=policy.max_age_s, overlap_s=policy.overlap_s)
        return None if reason is None else rotate_command(key, reason, now, overlap_s=policy.overlap_s)

    async def reap(self, caller: Caller) -> None:
        """Revoke those of the caller's keys whose overlap is over (S-441)."""
        if caller.key is None or caller.worker is None:
            return
        now = self._now()
        if not any(key.is_over(now) for key in self._records.daemon_keys.of(caller.worker)):
            return
        async with self._records.daemon_keys.turn:
            over = [reap(key, now) for key in self._records.daemon_keys.of(caller.worker) if key.is_over(now)]
            await self._records.daemon_keys.put(caller.ns, over)

    async def rotate(self, caller: Caller, public_key: str) -> dict[str, Any]:
        """A new key, signed for by the old one: the answer of /v1/daemon/keys. HttpError 403, 409, 422."""
        assert caller.worker is not None
        try:
            raw = public_key_of(public_key)
        except SigningError as error:
            raise HttpError(422, str(error), field="public_key") from error
        keys = self._records.daemon_keys
        async with keys.turn:
            now, policy = self._now(), self.policy
            key = self._current(caller)
            if key is None or reap(key, now).status == REVOKED:
                raise HttpError(403, KEY_REVOKED)
            successor = keys.get(caller.worker, key_id_of(raw))
            try:
                retiring, fresh = rotate(
                    key, raw, now, successor=successor, max_age_s=policy.max_age_s, overlap_s=policy.overlap_s
                )
            except RotationRefused as error:
                raise HttpError(error.status, str(error), field="public_key") from error
            if fresh != successor:
                note = self._records.note(caller.name, caller.ns, "daemon_key.rotate", f"{key.key_id} > {fresh.key_id}")
                await keys.put(caller.ns, (retiring, fresh), note)
        return rotated_body(fresh, now, overlap_s=policy.overlap_s)

    def listed(self, ns: str, worker_id: str) -> list[DaemonKey] | None:
        """A worker's keys as they are now; None for a worker of another namespace."""
        owner = self._records.daemon_keys.ns_of(worker_id)
        if owner not in (None, ns):
            return None
        return [reap(key, self._now()) for key in self._records.daemon_keys.of(worker_id)]

    async def revoke(self, caller: Caller, worker_id: str, key_id: str) -> tuple[DaemonKey, bool] | None:
        """(the key, revoked from here on; whether it was so already). None when the namespace has no such key."""
        keys = self._records.daemon_keys
        async with keys.turn:
            key = keys.get(worker_id, key_id)
            if key is None or keys.ns_of(worker_id) != caller.ns:
                return None
            revoked, already = revoke(key, self._now())
            if revoked != key:
                note = self._records.note(caller.name, caller.ns, "daemon_key.revoke", f"{worker_id}/{key_id}")
                await keys.put(caller.ns, (revoked,), note)
        return revoked, already

    def _current(self, caller: Caller) -> DaemonKey | None:
        """The key that signed, as it is now."""
        if caller.key is None:
            return None
        return self._records.daemon_keys.get(caller.key.worker_id, caller.key.key_id)


def worker_id_of(ns: str, machine_id: str, label: str) -> str:
    """A worker's id: the same for the same (namespace, machine, label), and shaped like a document's id (S-062)."""
    return hashlib.sha256("\0".join((ns, machine_id, label)).encode()).hexdigest()[:24]


def _enrolling(ns: str) -> Caller:
    return Caller(mode="daemon-sig", ns=ns, scope="daemon")


def _known(row: EnrollTokenRow) -> EnrollToken:
    return EnrollToken(ns=row.ns, expires_at=row.expires_at, consumed_at=row.consumed_at)


def _enroll_bearer(request: Request) -> str | None:
    """The enroll token that a hello brings."""
    authorization = request.headers.get(b"authorization")
    bearer = None if authorization is None else bearer_of(authorization)
    return bearer.decode("latin-1") if bearer is not None and bearer.startswith(_ENROLLS) else None


def _signed_request(request: Request, worker_id: str, body: bytes) -> SignedRequest:
    headers = {name.decode(): request.headers[name].decode("latin-1") for name in _SIGNATURE if name in request.headers}
    return SignedRequest(method=request.method, path=request.path, worker_id=worker_id, headers=headers, body=body)


def _workers_named(request: Request, body: bytes) -> set[str]:
    """Every worker that an unsigned body speaks of."""
    said = _opened(request, body)
    acks = said.get("acks")
    items = [said, *(item for item in acks if type(item) is dict)] if type(acks) is list else [said]
    return {worker for item in items if type(worker := item.get("worker_id")) is str}


def _opened(request: Request, body: bytes) -> Mapping[str, Any]:
    """The body's map; an empty one for anything else, of which the handler says what is wrong."""
    header = request.headers.get(b"content-type")
    encoding = None if header is None else content_encoding(header)
    try:
        return {} if encoding is None else decode_map(body, encoding)
    except HttpError:
        return {}


_HINTS: Final = {
    UNKNOWN_KEY: "the worker of X-LS-Worker-Id (or of worker_id in the body) has no such key: enrol it",
    KEY_REVOKED: "enrol anew: a new key, and a fresh enroll token",
    KEY_EXPIRED: "enrol anew, with a fresh enroll token",
    INCOMPLETE: f"send all of {', '.join(HEADERS)}, or none",
}


def _refused(verdict: Verdict) -> HttpError:
    said = verdict.body()
    error = said.pop("error")
    return HttpError(verdict.status, error, hint=_HINTS.get(error), **said)
