"""How secrets are sealed at rest: AES-256-GCM with a fresh nonce each, XChaCha20-Poly1305 where the CPU has no AES.

Rules: the key is derived from the secrets key for this purpose alone. What a seal is about (namespace and name) is its
associated data, so that a row moved to another name does not open. Each seal names its algorithm and its key's
fingerprint. What does not open is refused, whatever the reason. No message holds a plaintext or a key.
Reference: api/auth-and-secrets, "Encryption at rest"; S-100…S-102, S-772.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

_AES: Final = "aes256gcm"
_CHACHA: Final = "xchacha20poly1305_ietf"
_NONCE_BYTES: Final = {_AES: 12, _CHACHA: 24}
_TAG_BYTES: Final = 16
_SHOWN: Final = 16  # hex digits of a fingerprint


class SealError(Exception):
    """It cannot be sealed or opened; the message says why and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sealed:
    """A plaintext at rest. `key` is the fingerprint of the key that opens it."""

    algorithm: str
    key: str
    nonce: bytes
    ciphertext: bytes
    tag: bytes


class Sealer:
    """Seals and opens with one key of 32 bytes."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self.fingerprint = hmac.digest(key, b"fingerprint", hashlib.sha256).hex()[:_SHOWN]

    def __repr__(self) -> str:
        return f"Sealer({self.fingerprint})"

    def seal(self, plaintext: bytes, *, about: bytes) -> Sealed:
        """Raises SealError where this Python has no PyNaCl."""
        algorithm = _best()
        nonce = secrets.token_bytes(_NONCE_BYTES[algorithm])
        whole = _function(algorithm, "encrypt")(plaintext, about, nonce, self._key)
        return Sealed(
            algorithm=algorithm,
            key=self.fingerprint,
            nonce=nonce,
            ciphertext=whole[:-_TAG_BYTES],
            tag=whole[-_TAG_BYTES:],
        )

    def open(self, sealed: Sealed, *, about: bytes) -> bytes:
        """The plaintext. Raises SealError."""
        if sealed.key != self.fingerprint:
            raise SealError(
                f"it was sealed with another secrets key (fingerprint {sealed.key}, this server's is "
                f"{self.fingerprint}): name that key in SECRETS_KEY_PREVIOUS, or rotate the secret"
            )
        if sealed.algorithm not in _NONCE_BYTES:
            raise SealError(f"it was sealed by {sealed.algorithm!r:.40}, which this version does not know: update it")
        opening = _function(sealed.algorithm, "decrypt")
        try:
            return bytes(opening(sealed.ciphertext + sealed.tag, about, sealed.nonce, self._key))
        except (_bindings().exc.CryptoError, ValueError, TypeError):
            raise SealError("its row is damaged: rotate the secret") from None


class Keyring:
    """Seals with the newest of its keys, opens with each."""

    def __init__(self, sealing: Sealer, *others: Sealer) -> None:
        self._sealing = sealing
        self._by = {one.fingerprint: one for one in (*others, sealing)}

    @property
    def fingerprint(self) -> str:
        """Of the key that seals."""
        return self._sealing.fingerprint

    def knows(self, fingerprint: str) -> bool:
        """Whether a key of that fingerprint is here."""
        return fingerprint in self._by

    def turn_to(self, sealer: Sealer) -> None:
        """Seal with this one from here on; what others sealed still opens."""
        self._by[sealer.fingerprint] = self._sealing = sealer

    def seal(self, plaintext: bytes, *, about: bytes) -> Sealed:
        """As `Sealer.seal`."""
        return self._sealing.seal(plaintext, about=about)

    def open(self, sealed: Sealed, *, about: bytes) -> bytes:
        """As `Sealer.open`, with the key that it was sealed with."""
        return self._by.get(sealed.key, self._sealing).open(sealed, about=about)


def _best() -> str:
    """AES where the library has it and the CPU does."""
    nacl = _bindings()
    try:
        nacl.crypto_aead_aes256gcm_encrypt(b"", None, bytes(12), bytes(32))
    except (AttributeError, nacl.exc.UnavailableError):  # AttributeError: PyNaCl before 1.6
        return _CHACHA
    return _AES


def _function(algorithm: str, verb: str) -> Callable[[bytes, bytes, bytes, bytes], bytes]:
    found: Callable[[bytes, bytes, bytes, bytes], bytes] | None = getattr(
        _bindings(), f"crypto_aead_{algorithm}_{verb}", None
    )
    if found is None:
        raise SealError(f"this Python's PyNaCl has no {algorithm}: update it (pip install -U pynacl)")
    return found


def _bindings() -> Any:
    try:
        from nacl import bindings  # wall: only who keeps secrets needs the compiled library
    except ImportError as error:
        raise SealError(
            f"secrets need PyNaCl, and the server's Python has none that loads ({error}): use a CPython that PyNaCl "
            "is built for, or `pip install pynacl`"
        ) from None
    return _Nacl(bindings)


class _Nacl:
    """The bindings and their errors under one name."""

    def __init__(self, bindings: Any) -> None:
        from nacl import exceptions  # wall: as above

        self._bindings, self.exc = bindings, exceptions

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bindings, name)
