"""Whether a daemon's request is let in: the order of the checks, and what each refusal says.

    all four headers   1 the key of (worker id, key id)      401 unknown daemon key
                       2 revoked, or its overlap is over     403 daemon key revoked; of another state 403
                       3 past its hard expiry                401 daemon key expired
                       4 the clocks differ by over one skew  401 timestamp outside skew window, with the server's time
                       5 the signature                       401 signature verification failed
                       6 the nonce, recorded with the effect 401 replayed nonce
    some of them       401 incomplete signature headers: never a silent fallback to the bearer
    none               the bearer counts, unless signatures are required: by the server's policy for polls, acks and
                       events, and always for a new key (`must_sign`)

The nonce is last, so that nobody without a key can fill the store. `check` does 1 to 5 and leaves a `nonce` in its
verdict, for whoever commits it together with what it guards; `verify` does all six.

A hello that brings a public key proves by its own signature that the sender has the private one; its token decides
about the rest (`check_enrolment`), and is spent by the commit that stores the key. A refused hello is a 200 with
`reject`. A daemon whose very key is known enrols no second time: it needs no token.

Pure: keys, tokens, nonces and the time are the caller's.
Reference: nymph/key-rotation, "Verification order", "Header-presence policy", "Enrollment"; S-393…S-409, S-465…S-486.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any, Final, Literal

from .daemon_keys import ACTIVE, MAX_AGE_S, OVERLAP_S, RETIRING, REVOKED, DaemonKey
from .signing import (
    KEY_ID_HEADER,
    NONCE_BYTES,
    NONCE_HEADER,
    SIGNATURE_BYTES,
    SIGNATURE_HEADER,
    SKEW_S,
    TIMESTAMP_HEADER,
    SigningError,
    canonical_string,
    from_text,
    is_signed_by,
    key_id_of,
    nonce_until,
    present_headers,
    public_key_of,
    timestamp_of,
)
from .values import value

UNKNOWN_KEY: Final = "unknown daemon key"
KEY_REVOKED: Final = "daemon key revoked"
KEY_NOT_ACTIVE: Final = "daemon key is not active"
KEY_EXPIRED: Final = "daemon key expired"
SKEWED: Final = "timestamp outside skew window"
BAD_SIGNATURE: Final = "signature verification failed"
REPLAYED: Final = "replayed nonce"
INCOMPLETE: Final = "incomplete signature headers"
REQUIRED: Final = "this server takes signed requests only"

Mode = Literal["daemon-sig", "daemon-bearer"]
FindKey = Callable[[str, str], DaemonKey | None]
"""(worker id, key id) -> that worker's key."""
TakeNonce = Callable[[str, str, float], bool]
"""(worker id, nonce, until when to remember it) -> whether it is new; it is recorded by that."""


GUARDED: Final = frozenset({"/v1/daemon/poll", "/v1/daemon/ack", "/v1/daemon/event"})
"""Verified before their handlers; hello and keys verify themselves."""
ALWAYS_SIGNED: Final = "/v1/daemon/keys"


def must_sign(path: str, *, enforced: bool) -> bool:
    """Whether a request without headers is refused."""
    return path == ALWAYS_SIGNED or (enforced and path in GUARDED)


@value
class Policy:
    """What a server's operator may set; times in seconds."""

    skew_s: float = SKEW_S
    overlap_s: float = OVERLAP_S
    max_age_s: float = MAX_AGE_S
    enforced: bool = False


def policy_of(environ: Mapping[str, str]) -> Policy:
    """The policy that the documented variables give; an empty one is as none. Raises ValueError that names one."""

    def seconds(name: str, default: float, *, above: float) -> float:
        text = environ.get(name, "").strip()
        try:
            number = float(text) if text else default
        except ValueError:
            number = math.nan
        if not above <= number < math.inf:
            raise ValueError(f"{name} must be a number of seconds from {above:g} (got {text!r:.40})")
        return number

    return Policy(
        skew_s=seconds("LAKESHORE_DAEMON_SKEW_S", SKEW_S, above=1),
        overlap_s=seconds("LAKESHORE_DAEMON_KEY_OVERLAP_S", OVERLAP_S, above=0),
        max_age_s=seconds("LAKESHORE_DAEMON_KEY_MAX_AGE_S", MAX_AGE_S, above=1),
        enforced=environ.get("LAKESHORE_REQUIRE_DAEMON_SIGNATURES") == "true",
    )


@value
class SignedRequest:
    """What is verified. `headers` has lower-case names; `body` the bytes as they came."""

    method: str
    path: str
    worker_id: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


@value
class Verdict:
    """`status` is 200 when the request is let in, by its signature or, in `daemon-bearer`, as far as signatures go.

    A refusal has `error`, and for a clock that is off the server's own time, so that the daemon can follow. `nonce` of
    a request that is let in must be new, and kept until `nonce_until`; else the answer is `replayed()`.
    """

    status: int
    error: str | None = None
    mode: Mode | None = None
    key: DaemonKey | None = None
    nonce: str | None = None
    nonce_until: float = 0.0
    server_time_epoch_s: float | None = None

    @property
    def accepted(self) -> bool:
        """Whether no check refused it."""
        return self.status == 200

    def body(self) -> dict[str, Any]:
        """The answer to a refusal."""
        told = {} if self.server_time_epoch_s is None else {"server_time_epoch_s": self.server_time_epoch_s}
        return {"error": self.error, **told}


def replayed() -> Verdict:
    """The sixth refusal, for who records nonces in a transaction of its own."""
    return Verdict(status=401, error=REPLAYED)


def check(
    request: SignedRequest, *, find_key: FindKey, now: float, skew_s: float = SKEW_S, required: bool = False
) -> Verdict:
    """The first five checks, in order. `required`: without headers it is refused, too."""
    said = present_headers(request.headers.get)
    if not said:
        return Verdict(status=401, error=REQUIRED) if required else Verdict(status=200, mode="daemon-bearer")
    if len(said) < 4:
        return Verdict(status=401, error=INCOMPLETE)
    key = find_key(request.worker_id, said[KEY_ID_HEADER])
    if key is None:
        return Verdict(status=401, error=UNKNOWN_KEY)
    return (
        _key_refusal(key, now)
        or _check_signature(request, said, key.public_key, now, skew_s)
        or Verdict(
            status=200, mode="daemon-sig", key=key, nonce=said[NONCE_HEADER], nonce_until=nonce_until(now, skew_s)
        )
    )


def verify(
    request: SignedRequest,
    *,
    find_key: FindKey,
    take_nonce: TakeNonce,
    now: float,
    skew_s: float = SKEW_S,
    required: bool = False,
) -> Verdict:
    """All six checks. `take_nonce` is called last, and only for a request whose signature is good."""
    verdict = check(request, find_key=find_key, now=now, skew_s=skew_s, required=required)
    if verdict.nonce is not None and not take_nonce(request.worker_id, verdict.nonce, verdict.nonce_until):
        return replayed()
    return verdict


def _key_refusal(key: DaemonKey, now: float) -> Verdict | None:
    """Steps 2 and 3: the refusal, or None."""
    if key.status == REVOKED or key.is_over(now):
        return Verdict(status=403, error=KEY_REVOKED)
    if key.status not in (ACTIVE, RETIRING):
        return Verdict(status=403, error=KEY_NOT_ACTIVE)
    return Verdict(status=401, error=KEY_EXPIRED) if now > key.expires_at else None


def _check_signature(
    request: SignedRequest, said: Mapping[str, str], public_key: bytes, now: float, skew_s: float
) -> Verdict | None:
    """Steps 4 and 5: the refusal, or None."""
    timestamp = timestamp_of(said[TIMESTAMP_HEADER])
    if timestamp is None or abs(now - timestamp) > skew_s:
        return Verdict(status=401, error=SKEWED, server_time_epoch_s=now)
    try:
        from_text(said[NONCE_HEADER], NONCE_BYTES, NONCE_HEADER)
        signature = from_text(said[SIGNATURE_HEADER], SIGNATURE_BYTES, SIGNATURE_HEADER)
        message = canonical_string(
            method=request.method,
            path=request.path,
            worker_id=request.worker_id,
            key_id=said[KEY_ID_HEADER],
            timestamp=timestamp,
            nonce=said[NONCE_HEADER],
            body=request.body,
        )
    except SigningError:
        return Verdict(status=401, error=BAD_SIGNATURE)
    return None if is_signed_by(public_key, message, signature) else Verdict(status=401, error=BAD_SIGNATURE)


# ---- enrolment

Code = Literal[
    "enroll_token_required",
    "invalid_enroll_token",
    "enroll_token_consumed",
    "enroll_token_expired",
    "enroll_signature_required",
    "key_id_mismatch",
    "enroll_signature_invalid",
    "enrollment_signature_required",
]

ENROLL_PREFIX: Final = "dle_"


@value
class EnrollToken:
    """What the server knows of the token that a hello brought."""

    ns: str
    expires_at: float
    consumed_at: float | None = None


@value
class Enrolment:
    """What is to be done about the key of a hello. With `reject` nothing: it is the answer, and no token is spent.

    Otherwise `public_key` is the sender's own. With `spends` the token must be spent, once, by the commit that stores
    the key; whoever finds it spent there answers `enroll_token_consumed` and stores none. `nonce` as in `Verdict`.
    """

    reject: Code | None = None
    message: str = ""
    public_key: bytes | None = None
    key_id: str | None = None
    spends: bool = False
    nonce: str | None = None
    nonce_until: float = 0.0


_SAYS: Final[dict[Code, str]] = {
    "enroll_token_required": "a new key needs an enroll token: mint one and put it into [identity] enroll_token_file",
    "invalid_enroll_token": "no such enroll token: it may be mistyped or of another server; mint a new one",
    "enroll_token_consumed": "this enroll token is spent; mint a new one",
    "enroll_token_expired": "this enroll token is too old; mint a new one",
    "enroll_signature_required": "a hello with a public key must be signed by that key",
    "key_id_mismatch": "X-LS-Key-Id is not the id of the public key",
    "enroll_signature_invalid": "the hello is not signed by the key that it brings",
    "enrollment_signature_required": "this server takes signed daemons only: set [identity] enabled = true",
}


def rejected(code: Code, message: str | None = None) -> Enrolment:
    """A refusal, in the code's own words unless others are given."""
    return Enrolment(reject=code, message=message or _SAYS[code])


def check_enrolment(
    request: SignedRequest,
    *,
    public_key: str | None,
    token: EnrollToken | None,
    brought_token: bool,
    find_key: FindKey,
    known_as: str | None,
    now: float,
    skew_s: float = SKEW_S,
    required: bool = False,
) -> Enrolment:
    """What the key of a hello is worth. `request.worker_id` is the machine id.

    `public_key` as it stands in the body; `brought_token`: the bearer begins with `dle_`, and `token` is what is
    known of it; `known_as` is the id of the worker that this hello is of, if there is one already. Raises SigningError
    for a public key that is none, which is a 422 of the field `public_key`.
    """
    said = present_headers(request.headers.get)
    if public_key is None:
        if required:
            return rejected("enrollment_signature_required")
        return rejected("enroll_signature_required") if said else Enrolment()
    raw = public_key_of(public_key)
    key_id = key_id_of(raw)
    known = None if known_as is None else find_key(known_as, key_id)
    again = known is not None and known.public_key == raw and _key_refusal(known, now) is None
    if not again and (refusal := _token_refusal(token, brought_token, now)) is not None:
        return refusal
    if len(said) < 4:
        return rejected("enroll_signature_required")
    if said[KEY_ID_HEADER] != key_id:
        return rejected("key_id_mismatch")
    refused = _check_signature(request, said, raw, now, skew_s)
    if refused is not None:
        return rejected("enroll_signature_invalid", refused.error if refused.error == SKEWED else None)
    return Enrolment(
        public_key=raw,
        key_id=key_id,
        spends=not again,
        nonce=said[NONCE_HEADER],
        nonce_until=nonce_until(now, skew_s),
    )


def _token_refusal(token: EnrollToken | None, brought: bool, now: float) -> Enrolment | None:
    if token is None:
        return rejected("invalid_enroll_token" if brought else "enroll_token_required")
    if token.consumed_at is not None:
        return rejected("enroll_token_consumed")
    if now > token.expires_at:
        return rejected("enroll_token_expired")
    return None
