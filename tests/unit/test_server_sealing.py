"""Secrets at rest: what is sealed opens with its own key, under its own name, as it was; anything else is refused."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import pytest
from nacl import bindings, exceptions

from lakeshore.server.sealing import Keyring, Sealed, Sealer, SealError

AES, CHACHA = "aes256gcm", "xchacha20poly1305_ietf"
ALGORITHMS = [pytest.param(AES, marks=pytest.mark.inventory("S-100")), CHACHA]
KEY, OTHER = bytes(range(32)), b"o" * 32


def sealed_by(algorithm: str, monkeypatch: pytest.MonkeyPatch, sealer: Sealer, text: bytes = b"value") -> Sealed:
    with monkeypatch.context() as patch:
        if algorithm == CHACHA:  # as on a CPU without AES
            patch.setattr(bindings, "crypto_aead_aes256gcm_encrypt", unavailable)
        return sealer.seal(text, about=b"ns/name")


def unavailable(*_: Any) -> bytes:
    raise exceptions.UnavailableError("no AES here")


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_seal_opens_with_its_key_and_each_has_a_fresh_nonce_and_its_tag_beside_it(
    algorithm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sealer = Sealer(KEY)
    first, second = (sealed_by(algorithm, monkeypatch, sealer) for _ in range(2))
    if first.algorithm != algorithm == AES:
        pytest.skip("this CPU or PyNaCl has no AES")
    assert (first.algorithm, first.key) == (algorithm, sealer.fingerprint)
    assert (len(first.nonce), len(first.ciphertext), len(first.tag)) == ({AES: 12, CHACHA: 24}[algorithm], 5, 16)
    assert first.nonce != second.nonce and first.ciphertext != second.ciphertext
    for sealed in (first, second):
        assert sealer.open(sealed, about=b"ns/name") == b"value"


@pytest.mark.inventory("S-101")
@pytest.mark.parametrize("algorithm", [AES, CHACHA])
def test_a_row_with_anything_changed_in_it_is_refused(algorithm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sealer = Sealer(KEY)
    sealed = sealed_by(algorithm, monkeypatch, sealer)
    assert sealer.open(sealed, about=b"ns/name") == b"value"
    for part in ("nonce", "ciphertext", "tag"):
        was = getattr(sealed, part)
        for damaged in (bytes([was[0] ^ 1]) + was[1:], was[:-1], b""):
            with pytest.raises(SealError, match=r"^its row is damaged: rotate the secret$"):
                sealer.open(replace(sealed, **{part: damaged}), about=b"ns/name")
    with pytest.raises(SealError, match="damaged"):
        sealer.open(sealed, about=b"ns/other")
    with pytest.raises(SealError, match=r"^it was sealed by 'later', which this version does not know: update it$"):
        sealer.open(replace(sealed, algorithm="later"), about=b"ns/name")


def test_what_seals_the_associated_data_is_the_whole_of_it() -> None:
    sealer = Sealer(KEY)
    sealed = sealer.seal(b"value", about=b"a/b")
    for other in (b"", b"a/", b"a/b/", b"A/B"):
        with pytest.raises(SealError):
            sealer.open(sealed, about=other)


@pytest.mark.inventory("S-100")
def test_other_programs_open_it_with_the_same_key() -> None:
    aead = pytest.importorskip("cryptography.hazmat.primitives.ciphers.aead")
    sealed = Sealer(KEY).seal(b"value", about=b"ns/name")
    if sealed.algorithm != AES:
        pytest.skip("this CPU or PyNaCl has no AES")
    assert aead.AESGCM(KEY).decrypt(sealed.nonce, sealed.ciphertext + sealed.tag, b"ns/name") == b"value"


@pytest.mark.inventory("S-772")
def test_a_row_names_its_key_and_another_key_says_so_without_showing_either() -> None:
    mine, other = Sealer(KEY), Sealer(OTHER)
    sealed = mine.seal(b"value", about=b"ns/name")
    assert sealed.key == mine.fingerprint == Sealer(KEY).fingerprint != other.fingerprint
    assert len(mine.fingerprint) == 16 and set(mine.fingerprint) <= set("0123456789abcdef")
    # As rows of earlier versions have it: another derivation would orphan them all.
    assert mine.fingerprint == "5ab8c392c2c54035"
    with pytest.raises(SealError) as refused:
        other.open(sealed, about=b"ns/name")
    assert str(refused.value) == (
        f"it was sealed with another secrets key (fingerprint {mine.fingerprint}, this server's is "
        f"{other.fingerprint}): name that key in SECRETS_KEY_PREVIOUS, or rotate the secret"
    )
    assert repr(mine) == f"Sealer({mine.fingerprint})"


@pytest.mark.inventory("S-772")
def test_a_keyring_opens_with_each_of_its_keys_and_seals_with_the_newest() -> None:
    old, new, stranger = Sealer(OTHER), Sealer(KEY), Sealer(b"s" * 32)
    before = old.seal(b"before", about=b"n")
    ring = Keyring(new, old)
    assert ring.fingerprint == new.fingerprint
    assert ring.knows(old.fingerprint) and ring.knows(new.fingerprint) and not ring.knows(stranger.fingerprint)
    assert ring.open(before, about=b"n") == b"before"
    sealed = ring.seal(b"now", about=b"n")
    assert sealed.key == new.fingerprint
    assert ring.open(sealed, about=b"n") == b"now"
    with pytest.raises(SealError):
        ring.open(sealed, about=b"other")
    with pytest.raises(SealError, match=f"this server's is {new.fingerprint}"):
        ring.open(stranger.seal(b"x", about=b"n"), about=b"n")

    ring.turn_to(stranger)
    assert ring.fingerprint == ring.seal(b"later", about=b"n").key == stranger.fingerprint
    assert ring.knows(stranger.fingerprint)
    for one, text in ((before, b"before"), (sealed, b"now"), (ring.seal(b"later", about=b"n"), b"later")):
        assert ring.open(one, about=b"n") == text


def test_a_library_without_aes_seals_otherwise_and_says_of_an_aes_row_what_to_update(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sealer = Sealer(KEY)
    row = replace(sealer.seal(b"value", about=b"n"), algorithm=AES)
    for name in ("crypto_aead_aes256gcm_encrypt", "crypto_aead_aes256gcm_decrypt"):
        monkeypatch.delattr(bindings, name, raising=False)  # PyNaCl before 1.6
    assert sealer.seal(b"value", about=b"n").algorithm == CHACHA
    with pytest.raises(SealError) as refused:
        sealer.open(row, about=b"n")
    assert str(refused.value) == "this Python's PyNaCl has no aes256gcm: update it (pip install -U pynacl)"


def test_without_the_library_nothing_is_sealed_and_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import nacl  # here, for it is taken apart

    monkeypatch.delattr(nacl, "bindings")
    monkeypatch.setitem(sys.modules, "nacl.bindings", None)
    with pytest.raises(SealError) as refused:
        Sealer(KEY).seal(b"value", about=b"n")
    said = str(refused.value)
    assert said.startswith("secrets need PyNaCl, and the server's Python has none that loads (")
    assert said.endswith("): use a CPython that PyNaCl is built for, or `pip install pynacl`")
    assert "value" not in said
