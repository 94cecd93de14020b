"""The signing string, key ids and signatures, held against golden vectors by a second implementation of Ed25519."""

from __future__ import annotations

import hashlib
import json
import pickle
import subprocess
import sys
from base64 import urlsafe_b64encode
from pathlib import Path
from typing import Any

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st

from lakeshore.wire import signing
from lakeshore.wire.signing import (
    HEADERS,
    SigningError,
    SigningKey,
    SigningUnavailable,
    canonical_string,
    from_text,
    is_signed_by,
    key_id_of,
    present_headers,
    public_key_of,
    sign_headers,
    timestamp_of,
    to_text,
)

FIXTURES = Path(__file__).parents[1] / "fixtures" / "signing"
KEYS: list[dict[str, Any]] = json.loads((FIXTURES / "keys.json").read_text("utf-8"))
REQUESTS: list[dict[str, Any]] = json.loads((FIXTURES / "requests.json").read_text("utf-8"))
BY_NAME = {key["name"]: key for key in KEYS}

NO_TEXT = "a part of a signed request is not text"


def named(case: dict[str, Any]) -> str:
    return str(case["name"])


def parts_of(case: dict[str, Any]) -> dict[str, Any]:
    """The arguments of `canonical_string`."""
    return {
        "method": case["method"],
        "path": case["path"],
        "worker_id": case["worker_id"],
        "key_id": BY_NAME[case["key"]]["key_id"],
        "timestamp": case["timestamp"],
        "nonce": case["nonce"],
        "body": bytes.fromhex(case["body_hex"]),
    }


@pytest.mark.inventory("N-259", "S-059", "S-060")
@pytest.mark.parametrize("case", KEYS, ids=named)
def test_a_key_pair_and_its_id_are_those_of_the_golden_vectors_and_of_the_other_implementation(
    case: dict[str, Any],
) -> None:
    key = SigningKey(bytes.fromhex(case["seed_hex"]))
    assert (key.public_text, key.key_id) == (case["public_key"], case["key_id"])
    other = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(case["seed_hex"])).public_key()
    raw = other.public_bytes(Encoding.Raw, PublicFormat.Raw)
    assert key.public_key == raw == public_key_of(case["public_key"])
    # sixteen characters of the base64url text, not of the hex digest
    assert key.key_id == urlsafe_b64encode(hashlib.sha256(raw).digest()).decode()[:16]
    assert len(case["public_key"]) == 43


@pytest.mark.inventory("N-260", "N-261", "S-466")
@pytest.mark.parametrize("case", REQUESTS, ids=named)
def test_the_canonical_string_is_that_of_the_golden_vectors(case: dict[str, Any]) -> None:
    made = canonical_string(**parts_of(case))
    assert made.decode() == case["canonical"]
    lines = made.decode().split("\n")
    assert lines == [
        "lsd-v1",
        case["method"].upper(),
        case["path"].split("?")[0],
        case["worker_id"],
        BY_NAME[case["key"]]["key_id"],
        str(case["timestamp"]),
        case["nonce"],
        hashlib.sha256(bytes.fromhex(case["body_hex"])).hexdigest(),
    ]


@pytest.mark.inventory("N-263", "S-467", "S-471")
@pytest.mark.parametrize("case", REQUESTS, ids=named)
def test_a_signature_is_that_of_the_golden_vectors_and_each_implementation_accepts_the_others(
    case: dict[str, Any],
) -> None:
    vector = BY_NAME[case["key"]]
    key = SigningKey(bytes.fromhex(vector["seed_hex"]))
    message = case["canonical"].encode()
    signature = from_text(case["signature"], 64, "signature")
    assert key.sign(message) == signature
    Ed25519PublicKey.from_public_bytes(key.public_key).verify(key.sign(message), message)
    other = Ed25519PrivateKey.from_private_bytes(key.seed)
    assert is_signed_by(key.public_key, message, other.sign(message))
    with pytest.raises(InvalidSignature):
        Ed25519PublicKey.from_public_bytes(key.public_key).verify(key.sign(message), message + b" ")


@pytest.mark.inventory("S-468", "S-469", "S-470")
@pytest.mark.parametrize("case", REQUESTS, ids=named)
def test_the_headers_carry_key_id_seconds_nonce_and_signature_in_their_documented_spelling(
    case: dict[str, Any],
) -> None:
    key = SigningKey(bytes.fromhex(BY_NAME[case["key"]]["seed_hex"]))
    parts = {name: part for name, part in parts_of(case).items() if name != "key_id"}
    headers = sign_headers(key, **{**parts, "nonce": bytes.fromhex(case["nonce_hex"])})
    assert headers == (
        ("X-LS-Key-Id", key.key_id),
        ("X-LS-Timestamp", str(case["timestamp"])),
        ("X-LS-Nonce", case["nonce"]),
        ("X-LS-Signature", case["signature"]),
    )
    assert [len(dict(headers)[name]) for name in (HEADERS[0], HEADERS[2], HEADERS[3])] == [16, 22, 86]
    assert "=" not in "".join(text for _, text in headers)


@pytest.mark.inventory("S-472")
def test_headers_are_looked_up_in_lower_case() -> None:
    asked: list[str] = []

    def get(name: str) -> str | None:
        asked.append(name)
        return "x" if name == "x-ls-nonce" else None

    assert present_headers(get) == {"X-LS-Nonce": "x"}
    assert asked == ["x-ls-key-id", "x-ls-timestamp", "x-ls-nonce", "x-ls-signature"]


@pytest.mark.parametrize("part", ["method", "path", "worker_id", "key_id", "nonce"])
@pytest.mark.parametrize("breaks", ["\n", "\r", "\r\n"])
def test_no_part_may_hold_a_line_break_so_that_two_requests_never_have_one_string(part: str, breaks: str) -> None:
    parts = parts_of(REQUESTS[1])
    with pytest.raises(SigningError, match="line break"):
        canonical_string(**{**parts, part: parts[part] + breaks + "x"})


requests = st.fixed_dictionaries(
    {
        "method": st.sampled_from(["GET", "POST", "PUT"]),
        "path": st.text("/abc%2.-", max_size=12),
        "worker_id": st.text(max_size=12).filter(lambda text: not set(text) & {"\n", "\r"} and text.isprintable()),
        "key_id": st.text("AB_-", max_size=4),
        "timestamp": st.integers(0, 10**12 - 1),
        "nonce": st.text("AB_-", max_size=4),
        "body": st.binary(max_size=20),
    }
)


@given(requests, requests)
def test_two_requests_have_the_same_string_only_when_all_their_parts_are_equal(
    one: dict[str, Any], other: dict[str, Any]
) -> None:
    assert (canonical_string(**one) == canonical_string(**other)) == (one == other)


@given(st.binary(min_size=32, max_size=32), st.binary(max_size=64), st.data())
def test_both_implementations_agree_about_every_signature_and_every_flipped_bit_of_it(
    seed: bytes, message: bytes, data: st.DataObject
) -> None:
    key, other = SigningKey(seed), Ed25519PrivateKey.from_private_bytes(seed)
    signature = key.sign(message)
    assert signature == other.sign(message)
    bit = data.draw(st.integers(0, 64 * 8 - 1))
    flipped = bytearray(signature)
    flipped[bit // 8] ^= 1 << bit % 8
    assert not is_signed_by(key.public_key, message, bytes(flipped))


def test_what_makes_no_canonical_string_is_told_as_such() -> None:
    parts: dict[str, Any] = {
        "method": "POST",
        "path": "/",
        "worker_id": "w",
        "key_id": "k",
        "timestamp": 1,
        "nonce": "n",
    }
    for wrong, said in (("a\nb", "no part of a signed request may hold a line break"), ("\ud800", NO_TEXT)):
        for name in ("path", "worker_id", "nonce"):
            with pytest.raises(SigningError) as refused:
                canonical_string(**{**parts, name: wrong}, body=b"")
            assert str(refused.value) == said


@pytest.mark.parametrize(("raw", "text"), [(b"\0\0\x17", "AAAX"), (b"\xff\xef", "_-8"), (b"\0", "AA"), (b"", "")])
def test_text_is_base64url_without_padding_and_no_letter_of_it_is_lost(raw: bytes, text: str) -> None:
    assert to_text(raw) == text
    assert from_text(text, len(raw), "it") == raw


@given(st.binary(max_size=70))
def test_text_has_one_spelling_only(raw: bytes) -> None:
    text = to_text(raw)
    assert from_text(text, len(raw), "it") == raw
    for wrong in (text + "=", text + "A", text + "\n", " " + text, text[:-1]):
        if wrong != text:
            with pytest.raises(SigningError, match="it must be"):
                from_text(wrong, len(raw), "it")


def test_a_text_whose_spare_bits_are_set_is_another_spelling_and_is_refused() -> None:
    assert to_text(b"\0") == "AA"
    with pytest.raises(SigningError):
        from_text("AB", 1, "it")  # decodes to the same byte


@pytest.mark.parametrize("text", ["", "-1", "+1", "01", "1.0", "1e3", " 1", "1 ", "1_0", "١", "1" * 13, "0x1"])
def test_a_timestamp_is_a_plain_integer(text: str) -> None:
    assert timestamp_of(text) is None
    assert (timestamp_of("0"), timestamp_of("1750000000")) == (0, 1750000000)


@pytest.mark.inventory("N-258")
def test_a_key_shows_its_id_and_never_its_secret() -> None:
    key = SigningKey(bytes(range(32)))
    shown = f"{key!r} {key} {[key]}"
    assert key.key_id in shown
    for secret in (key.seed.hex(), to_text(key.seed), repr(key.seed)):
        assert secret not in shown
    with pytest.raises(TypeError, match=r"^a private key is not pickled$"):
        pickle.dumps(key)


def test_two_keys_of_one_seed_are_equal_and_of_another_are_not() -> None:
    assert SigningKey(bytes(32)) == SigningKey(bytes(32))
    assert SigningKey(bytes(32)) != SigningKey(b"x" * 32)
    assert SigningKey(bytes(32)) != "a key"
    assert len({SigningKey(bytes(32)), SigningKey(bytes(32)), SigningKey(b"x" * 32)}) == 2
    assert hash(SigningKey(bytes(32))) != hash(SigningKey(b"x" * 32))


def test_a_process_that_has_not_signed_yet_signs_and_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signing, "_loaded", None)
    key = SigningKey(bytes(32))
    signature = key.sign(b"message")
    assert is_signed_by(key.public_key, b"message", signature)
    assert not is_signed_by(key.public_key, b"another", signature)


@pytest.mark.parametrize("size", [0, 31, 33, 64])
def test_keys_of_another_size_are_refused_without_showing_them(size: int) -> None:
    with pytest.raises(SigningError, match=f"got {size}"):
        SigningKey(b"s" * size)
    with pytest.raises(SigningError, match=f"got {size}"):
        key_id_of(b"s" * size)
    with pytest.raises(SigningError, match="nonce has 16 bytes"):
        sign_headers(
            SigningKey(bytes(32)), method="POST", path="/", worker_id="w", body=b"", timestamp=1, nonce=b"s" * size
        )
    assert not is_signed_by(b"k" * 32, b"", b"s" * size)


def test_only_who_signs_loads_the_compiled_library_and_who_cannot_is_told_what_to_do() -> None:
    program = (
        "import sys\n"
        "import lakeshore.wire.signing as signing, lakeshore.wire.verification\n"
        "assert 'nacl' not in sys.modules\n"
        "sys.modules['nacl'] = None\n"
        "signing.key_id_of(bytes(32))\n"
        "try: signing.SigningKey(bytes(32))\n"
        "except signing.SigningUnavailable as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "need PyNaCl" in done.stdout
    assert "[identity] enabled = false" in done.stdout


def test_where_the_library_does_not_load_the_error_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signing, "_loaded", None)
    monkeypatch.setitem(sys.modules, "nacl.signing", None)
    with pytest.raises(SigningUnavailable) as refused:
        SigningKey(bytes(32))
    said = str(refused.value)
    assert said.startswith("daemon identities need PyNaCl, and this Python has none that loads (")
    assert said.endswith(
        "): use a CPython that PyNaCl is built for, or `pip install pynacl`, or set [identity] enabled = false"
    )


def test_the_scheme_is_named_by_its_version() -> None:
    assert signing.SCHEME == "lsd-v1"
