"""The life of a daemon's key, as the server keeps it: active, retiring while its successor takes over, revoked.

Rules:
  A key verifies while it is active, and while it is retiring until `revoked_at`, which for a retiring key lies ahead.
  Its `expires_at` is hard. At a deadline itself a key still holds, afterwards it does not. `states.DAEMON_KEY`.
  A key is told to rotate when its age reaches max_age - overlap, so that it never expires unrotated (S-816).
  A rotation that is sent again with the same new key is answered as the first one was: its answer may have been lost.
  Revoking is idempotent and final: such a daemon enrols anew.

Pure: `now` and all times are epoch seconds of the server's clock.
Reference: nymph/key-rotation, "Rotation"; S-435…S-438, S-441, S-453…S-456, S-487…S-494, S-560…S-562.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final, Literal

from .errors import WireError
from .signing import key_id_of, to_text
from .states import DAEMON_KEY
from .values import value

MAX_AGE_S: Final = 2_592_000.0  # LAKESHORE_DAEMON_KEY_MAX_AGE_S unless configured: 30 days
OVERLAP_S: Final = 600.0  # LAKESHORE_DAEMON_KEY_OVERLAP_S unless configured

ACTIVE: Final = "active"
RETIRING: Final = "retiring"
REVOKED: Final = "revoked"

SAME_KEY: Final = "new key must differ from the current key"

Reason = Literal["max_age_exceeded", "key_expired"]


class RotationRefused(WireError):
    """The new key is none to rotate to. `status` is what the route answers."""

    def __init__(self, message: str, status: int = 422) -> None:
        super().__init__(message)
        self.status = status


@value
class DaemonKey:
    """One key of one worker. `key_id` is unique for that worker only; `revoked_at` of a retiring key lies ahead."""

    worker_id: str
    key_id: str
    public_key: bytes
    status: str
    created_at: float
    expires_at: float
    retiring_at: float | None = None
    revoked_at: float | None = None

    def is_over(self, now: float) -> bool:
        """Whether the overlap of a retiring key is over."""
        return self.status == RETIRING and self.revoked_at is not None and now > self.revoked_at

    def public(self) -> dict[str, Any]:
        """What the route that lists keys shows of it, times in epoch seconds."""
        return {
            "keyId": self.key_id,
            "status": self.status,
            "createdAt": self.created_at,
            "retiringAt": self.retiring_at,
            "revokedAt": self.revoked_at,
            "expiresAt": self.expires_at,
            "publicKey": to_text(self.public_key),
        }


def new_key(worker_id: str, public_key: bytes, now: float, *, max_age_s: float = MAX_AGE_S) -> DaemonKey:
    """A key that is active from now on."""
    return DaemonKey(
        worker_id=worker_id,
        key_id=key_id_of(public_key),
        public_key=public_key,
        status=ACTIVE,
        created_at=now,
        expires_at=now + max_age_s,
    )


def rotation_due(
    key: DaemonKey, now: float, *, max_age_s: float = MAX_AGE_S, overlap_s: float = OVERLAP_S
) -> Reason | None:
    """Why this key is to be rotated now, if it is. An overlap longer than half of the age counts as that half."""
    if key.status != ACTIVE:
        return None
    if now > key.expires_at:
        return "key_expired"
    until = min(key.created_at + max_age_s, key.expires_at)
    lead = min(overlap_s, max_age_s / 2)
    return "max_age_exceeded" if now >= until - lead else None


def rotate_command(key: DaemonKey, reason: Reason, now: float, *, overlap_s: float = OVERLAP_S) -> dict[str, Any]:
    """The command that a poll carries."""
    return {
        "id": f"cmd-rotate_key-{int(now)}",
        "kind": "rotate_key",
        "body": {"reason": reason, "deadline_epoch_s": int(now + overlap_s), "key_id": key.key_id},
    }


def rotate(
    key: DaemonKey,
    public_key: bytes,
    now: float,
    *,
    successor: DaemonKey | None = None,
    max_age_s: float = MAX_AGE_S,
    overlap_s: float = OVERLAP_S,
) -> tuple[DaemonKey, DaemonKey]:
    """(the old key, retiring; the new one, active).

    `key` signed the request; `successor` is this worker's stored key of the new key's id, if there is one: when it
    is active, the rotation was done before. Raises RotationRefused.
    """
    fresh = new_key(key.worker_id, public_key, now, max_age_s=max_age_s)
    if fresh.key_id == key.key_id:
        raise RotationRefused(SAME_KEY)
    if key.status == RETIRING:
        if successor is not None and successor.status == ACTIVE and successor.public_key == public_key:
            return key, successor
        raise RotationRefused("this key has a successor already: sign with that one", 409)
    if successor is not None:
        raise RotationRefused("this worker has had that key before: make a new one", 409)
    retiring = replace(
        key,
        status=DAEMON_KEY.after(key.status, "rotate", key=key.key_id),
        retiring_at=now,
        revoked_at=now + overlap_s,
    )
    return retiring, fresh


def rotated_body(fresh: DaemonKey, now: float, *, overlap_s: float = OVERLAP_S) -> dict[str, Any]:
    """The answer of `/v1/daemon/keys`."""
    return {
        "key_id": fresh.key_id,
        "status": fresh.status,
        "expires_at": fresh.expires_at,
        "overlap_s": overlap_s,
        "server_time_epoch_s": now,
    }


def reap(key: DaemonKey, now: float) -> DaemonKey:
    """The key, revoked if its overlap is over. Every poll may do this to every key."""
    if not key.is_over(now):
        return key
    return replace(key, status=DAEMON_KEY.after(key.status, "expire", key=key.key_id))


def revoke(key: DaemonKey, now: float) -> tuple[DaemonKey, bool]:
    """(the key, revoked at once; whether it was so already)."""
    key = reap(key, now)
    if key.status == REVOKED:
        return key, True
    return replace(key, status=DAEMON_KEY.after(key.status, "revoke", key=key.key_id), revoked_at=now), False
