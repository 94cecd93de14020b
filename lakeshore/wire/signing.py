"""How a daemon signs a request, byte for byte: canonical string, key ids, headers, Ed25519.

The canonical string is eight lines joined by one "\\n":

    lsd-v1              the scheme; whatever changes below changes this
    METHOD              POST
    PATH                as the server's route has it, without the query
    WORKER_ID           the canonical id; on hello the machine id
    KEY_ID              16 characters: base64url(sha256(public key))[:16]
    TIMESTAMP           epoch seconds, an integer
    NONCE               verbatim from its header: base64url of 16 random bytes
    sha256(BODY)        of the bytes on the wire, in lower-case hex

No part may hold a line break, so that no two requests have the same string. Everything is base64url without padding.
A signature stands for the body as well, so one scheme covers msgpack, JSON and raw chunks.

Pure: the clock and the randomness are the caller's. PyNaCl is imported by the first key or check: where no build of it
fits the machine, only identities are missing. Whether a request is let in is `verification.py`'s affair.
Reference: nymph/key-rotation, "The signing scheme"; S-059…S-060, S-466…S-472, N-255…N-264.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Callable
from typing import Any, Final

from .errors import WireError
from .values import value

SCHEME: Final = "lsd-v1"
KEY_ID_HEADER: Final = "X-LS-Key-Id"
TIMESTAMP_HEADER: Final = "X-LS-Timestamp"
NONCE_HEADER: Final = "X-LS-Nonce"
SIGNATURE_HEADER: Final = "X-LS-Signature"
HEADERS: Final = (KEY_ID_HEADER, TIMESTAMP_HEADER, NONCE_HEADER, SIGNATURE_HEADER)

SEED_BYTES: Final = 32
PUBLIC_KEY_BYTES: Final = 32
SIGNATURE_BYTES: Final = 64
NONCE_BYTES: Final = 16
KEY_ID_CHARACTERS: Final = 16
SKEW_S: Final = 300.0  # LAKESHORE_DAEMON_SKEW_S unless configured

_TIMESTAMP: Final = re.compile(r"0|[1-9][0-9]{0,11}", re.ASCII)
_BASE64URL: Final = re.compile(r"[A-Za-z0-9_-]*")


class SigningError(WireError):
    """A key, an id or a part of a request that cannot be signed with or checked."""


class SigningUnavailable(RuntimeError):
    """There is no PyNaCl for this interpreter, and so no identity."""


# ---- text


def to_text(raw: bytes) -> str:
    """base64url without padding."""
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode("ascii")


def from_text(text: str, size: int, what: str) -> bytes:
    """The `size` bytes that `text` is the one spelling of. Raises SigningError that names `what`, never its content."""
    if _BASE64URL.fullmatch(text):
        try:
            raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        except binascii.Error:
            raw = b""
        if len(raw) == size and to_text(raw) == text:
            return raw
    raise SigningError(f"{what} must be {size} bytes in base64url without padding")


def key_id_of(public_key: bytes) -> str:
    """The id of a public key of 32 bytes."""
    if len(public_key) != PUBLIC_KEY_BYTES:
        raise SigningError(f"a public key has {PUBLIC_KEY_BYTES} bytes (got {len(public_key)})")
    return to_text(hashlib.sha256(public_key).digest())[:KEY_ID_CHARACTERS]


def canonical_string(
    *, method: str, path: str, worker_id: str, key_id: str, timestamp: int, nonce: str, body: bytes
) -> bytes:
    """What is signed. `path` may carry its query, which is left out. Raises SigningError for a line break in a part."""
    parts = (method.upper(), path.partition("?")[0], worker_id, key_id, str(timestamp), nonce)
    if any("\n" in part or "\r" in part for part in parts):
        raise SigningError("no part of a signed request may hold a line break")
    try:
        return "\n".join((SCHEME, *parts, hashlib.sha256(body).hexdigest())).encode()
    except UnicodeEncodeError:
        raise SigningError("a part of a signed request is not text") from None


# ---- keys


class SigningKey:
    """An Ed25519 key pair, made of its 32 secret bytes. It shows itself by its key id alone."""

    __slots__ = ("_key", "key_id", "public_key")

    def __init__(self, seed: bytes) -> None:
        if len(seed) != SEED_BYTES:
            raise SigningError(f"a private key has {SEED_BYTES} bytes (got {len(seed)})")
        self._key = _nacl().SigningKey(seed)
        self.public_key: bytes = bytes(self._key.verify_key)
        self.key_id: str = key_id_of(self.public_key)

    @property
    def seed(self) -> bytes:
        """The 32 secret bytes: for the key's own file, and nowhere else."""
        return bytes(self._key)

    @property
    def public_text(self) -> str:
        """The public key as it travels."""
        return to_text(self.public_key)

    def sign(self, message: bytes) -> bytes:
        """The detached signature, 64 bytes."""
        return bytes(self._key.sign(message).signature)

    def __repr__(self) -> str:
        return f"SigningKey({self.key_id})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SigningKey) and self.public_key == other.public_key

    def __hash__(self) -> int:
        return hash(self.public_key)

    def __reduce__(self) -> Any:
        raise TypeError("a private key is not pickled")


def is_signed_by(public_key: bytes, message: bytes, signature: bytes) -> bool:
    """Whether `signature` is that key's over `message`."""
    nacl = _nacl()
    try:
        nacl.VerifyKey(public_key).verify(message, signature)
    except (nacl.BadSignatureError, ValueError):
        return False
    return True


def public_key_of(text: str) -> bytes:
    """A public key from the wire. Raises SigningError."""
    return from_text(text, PUBLIC_KEY_BYTES, "public_key")


# ---- headers


@value
class SignatureHeaders:
    """The four headers, read. `timestamp` in epoch seconds; `nonce` as it stands in the header."""

    key_id: str
    timestamp: int
    nonce: str
    signature: bytes


def sign_headers(
    key: SigningKey, *, method: str, path: str, worker_id: str, body: bytes, timestamp: int, nonce: bytes
) -> tuple[tuple[str, str], ...]:
    """The headers of one request. `nonce` is 16 bytes of the system's randomness, never used twice."""
    if len(nonce) != NONCE_BYTES:
        raise SigningError(f"a nonce has {NONCE_BYTES} bytes (got {len(nonce)})")
    said = to_text(nonce)
    message = canonical_string(
        method=method, path=path, worker_id=worker_id, key_id=key.key_id, timestamp=timestamp, nonce=said, body=body
    )
    return (
        (KEY_ID_HEADER, key.key_id),
        (TIMESTAMP_HEADER, str(timestamp)),
        (NONCE_HEADER, said),
        (SIGNATURE_HEADER, to_text(key.sign(message))),
    )


def present_headers(get: Callable[[str], str | None]) -> dict[str, str]:
    """Those of the four that a request carries, by their documented names. `get` is asked for lower-case names."""
    found = ((name, get(name.lower())) for name in HEADERS)
    return {name: text for name, text in found if text is not None}


def timestamp_of(text: str) -> int | None:
    """The seconds in a timestamp header; None where it is no plain integer, so that each number has one spelling."""
    return int(text) if _TIMESTAMP.fullmatch(text) else None


def nonce_until(now: float, skew_s: float = SKEW_S) -> float:
    """Until when, inclusive, a nonce that is seen now must be remembered: a clock may be ahead by one skew, and its
    timestamp passes for one skew after that.
    """
    return now + 2 * skew_s


class _Nacl:
    """What we use of PyNaCl."""

    def __init__(self) -> None:
        from nacl.exceptions import BadSignatureError  # wall: only who signs or checks needs the compiled library
        from nacl.signing import SigningKey as Key  # wall: as above
        from nacl.signing import VerifyKey  # wall: as above

        self.BadSignatureError = BadSignatureError
        self.SigningKey = Key
        self.VerifyKey = VerifyKey


_loaded: _Nacl | None = None


def _nacl() -> _Nacl:
    global _loaded  # noqa: PLW0603 - imported once, by whoever needs it first
    if _loaded is None:
        try:
            _loaded = _Nacl()
        except ImportError as error:
            raise SigningUnavailable(
                f"daemon identities need PyNaCl, and this Python has none that loads ({error}): use a CPython that "
                "PyNaCl is built for, or `pip install pynacl`, or set [identity] enabled = false"
            ) from None
    return _loaded
