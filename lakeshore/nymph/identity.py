"""Who a daemon is: its key, where that is enrolled, how it signs, and what a refusal makes it do.

Rules:
  Hello is signed under the machine id, everything later under the id that the server gave.
  The key in use changes only after the server has confirmed its successor; requests that are under way keep theirs,
  which verifies during the overlap. A rotation that fails leaves the key as it is. One without an answer is sent again
  with the same successor, for the server may have it already.
  A clock that is off is not corrected: the server's time in its refusal gives an offset, and the request is sent once
  more.
  A key that the server no longer takes: the successor, if one was made; else a new key and a fresh enroll token, if
  one is configured; else the daemon drains and exits.
  A token that was spent is not sent again; a daemon that is enrolled says hello with its ordinary bearer.
Reference: nymph/key-rotation; N-098, N-104, N-179…N-183, N-262…N-265, N-421.
"""

from __future__ import annotations

import enum
import hashlib
import os
from collections.abc import Callable
from dataclasses import replace

from ..wire.signing import NONCE_BYTES, sign_headers
from ..wire.verification import KEY_EXPIRED, KEY_REVOKED, SKEWED, UNKNOWN_KEY
from .key_file import Enrolled, IdentityError, KeyFile

__all__ = ["ClockOffset", "Enrolled", "Identity", "IdentityError", "KeyFile", "Recovery"]

NOTICED_S = 2.0  # a difference below this is the network's
_TOKEN_CODES = frozenset(
    {"enroll_token_required", "invalid_enroll_token", "enroll_token_consumed", "enroll_token_expired"}
)


class Recovery(enum.Enum):
    """What to do about a refusal."""

    NONE = "an ordinary failure: back off"
    RETRY = "sign and send it once more, now"
    HELLO = "say hello again: with a new key and the fresh enroll token"
    DRAIN = "nothing helps here: drain, and exit with an error"


class ClockOffset:
    """How far the server's clock is ahead of ours, in seconds, as it last told."""

    __slots__ = ("seconds",)

    def __init__(self) -> None:
        self.seconds = 0.0

    def learn(self, server_time: float, now: float) -> bool:
        """Follow the server; whether that changed anything that matters."""
        off = server_time - now
        changed = abs(off - self.seconds) > NOTICED_S
        if changed:
            self.seconds = off
        return changed

    def timestamp(self, now: float) -> int:
        """The server's epoch seconds at our `now`."""
        return int(now + self.seconds)


class Identity:
    """One daemon's identity. `now` is epoch seconds. What changes keys blocks on the disk and raises IdentityError."""

    def __init__(
        self,
        files: KeyFile,
        *,
        server: str,
        enroll_token: str | None = None,
        entropy: Callable[[int], bytes] = os.urandom,
    ) -> None:
        """Load the key, or make one on the first boot."""
        self.clock = ClockOffset()
        self.worker_id: str | None = None
        self._files = files
        self._server = server
        self._enroll_token = enroll_token or None
        self._entropy = entropy
        self._key = files.load_or_create()
        self._next = files.load_next()
        self._enrolled = files.enrolled()
        self._renewed = False  # a fresh token gets one new key; if that is refused as well, nothing helps

    def __repr__(self) -> str:
        return f"Identity({self._key.key_id})"

    @property
    def key_id(self) -> str:
        """The id of the key in use."""
        return self._key.key_id

    @property
    def public_key(self) -> str:
        """The public key in use, as hello carries it."""
        return self._key.public_text

    @property
    def enrolled(self) -> bool:
        """Whether this very key is enrolled at this server, as far as was noted."""
        known = self._enrolled
        return known is not None and (known.server, known.key_id) == (self._server, self._key.key_id)

    @property
    def may_reenroll(self) -> bool:
        """Whether there is an enroll token for one more key: this one is enrolled by another."""
        return self.enrolled and self._has_fresh_token()

    @property
    def rotating(self) -> bool:
        """Whether there is a successor that the server has not confirmed: `begin_rotation` and send it."""
        return self._next is not None

    # ---- requests

    def sign(
        self, *, method: str, path: str, body: bytes, now: float, machine_id: str | None = None
    ) -> tuple[tuple[str, str], ...]:
        """The headers of one request; `machine_id` for hello, before the server has named the worker."""
        name = machine_id if machine_id is not None else self.worker_id
        if name is None:
            raise RuntimeError("nothing but hello is signed before hello was answered")
        return sign_headers(
            self._key,
            method=method,
            path=path,
            worker_id=name,
            body=body,
            timestamp=self.clock.timestamp(now),
            nonce=self._entropy(NONCE_BYTES),
        )

    def hello_bearer(self, token: str | None) -> str | None:
        """What a hello says after `Bearer`: the enroll token until it is spent, then the ordinary one."""
        return self._enroll_token if self._has_fresh_token() and not self.enrolled else token

    # ---- answers

    def admitted(self, *, worker_id: str, key_id: str | None, server_time: float | None, now: float) -> None:
        """A hello that was taken. `key_id` is what the server enrolled; None from one that enrolled nothing."""
        if key_id is not None and key_id != self._key.key_id:
            raise IdentityError(
                f"the server enrolled the key {key_id}, but this daemon's is {self._key.key_id}: something in between "
                "changes requests; check the server's URL and proxies"
            )
        if server_time is not None:
            self.clock.learn(server_time, now)
        spent = self._enrolled.spent if self._enrolled is not None else None
        if self._has_fresh_token() and not self.enrolled and self._enroll_token is not None and key_id is not None:
            spent = _digest(self._enroll_token)
        self.worker_id = worker_id
        self._renewed = False
        if key_id is not None:
            self._note(Enrolled(server=self._server, worker_id=worker_id, key_id=key_id, spent=spent))

    def hello_refused(self, code: str, *, server_time: float | None, now: float, retried: bool) -> Recovery:
        """What to do about a hello's `reject`."""
        if code in _TOKEN_CODES:
            return self._without_key(retried)
        if code == "enroll_signature_invalid" and server_time is not None and not retried:
            return Recovery.RETRY if self.clock.learn(server_time, now) else Recovery.DRAIN
        return Recovery.DRAIN

    def refused(
        self, status: int, error: str | None, *, server_time: float | None, now: float, retried: bool
    ) -> Recovery:
        """What to do about another request's refusal. `retried`: it was sent once more already."""
        if (status, error) == (401, SKEWED):
            if retried or server_time is None:
                return Recovery.NONE
            return Recovery.RETRY if self.clock.learn(server_time, now) else Recovery.NONE
        if (status, error) in ((401, UNKNOWN_KEY), (403, KEY_REVOKED), (401, KEY_EXPIRED)):
            return self._without_key(retried)
        return Recovery.NONE

    def _without_key(self, retried: bool) -> Recovery:
        if self._next is not None:
            self._take_next()
            return Recovery.NONE if retried else Recovery.RETRY
        if self._has_fresh_token() and self._enrolled is not None and not self._renewed:
            self._key = self._files.replace()
            self._renewed = True
            return Recovery.HELLO
        return Recovery.DRAIN

    # ---- rotation

    def begin_rotation(self) -> str:
        """The successor's public key, to be sent signed by the key in use; it is on the disk by now."""
        if self._next is None:
            self._next = self._files.create_next()
        return self._next.public_text

    def confirm_rotation(self, key_id: str | None) -> None:
        """The server has stored the successor: it is the key in use from now on."""
        if self._next is None:  # the answer of a request that was sent twice
            if key_id == self._key.key_id:
                return
            raise IdentityError(f"the server confirmed the key {key_id}, but no rotation is under way")
        if key_id != self._next.key_id:
            raise IdentityError(f"the server confirmed the key {key_id} instead of {self._next.key_id}: not used")
        self._take_next()

    def abandon_rotation(self) -> None:
        """The server has refused the successor for good (a 4xx that is not about clock, key or nonce)."""
        if self._next is not None:
            self._files.drop_next()
            self._next = None

    def _take_next(self) -> None:
        assert self._next is not None
        self._files.promote_next()
        self._key, self._next = self._next, None
        if self._enrolled is not None:
            self._note(replace(self._enrolled, key_id=self._key.key_id))

    # ---- the token

    def _has_fresh_token(self) -> bool:
        token = self._enroll_token
        return token is not None and (self._enrolled is None or self._enrolled.spent != _digest(token))

    def _note(self, enrolled: Enrolled) -> None:
        if enrolled != self._enrolled:
            self._files.note(enrolled)
            self._enrolled = enrolled


def _digest(token: str) -> str:
    """Enough to know a token again, and nothing to use it with."""
    return hashlib.sha256(token.encode()).hexdigest()[:16]
