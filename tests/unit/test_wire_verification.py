"""The order of the checks of a signed request, and what each refusal says; enrolment; by examples and by properties."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeshore.wire.daemon_keys import DaemonKey, new_key, reap, revoke, rotate
from lakeshore.wire.signing import (
    HEADERS,
    SigningError,
    SigningKey,
    canonical_string,
    key_id_of,
    sign_headers,
    to_text,
)
from lakeshore.wire.verification import (
    EnrollToken,
    Enrolment,
    Policy,
    SignedRequest,
    Verdict,
    check,
    check_enrolment,
    must_sign,
    policy_of,
    replayed,
    verify,
)

KEY = SigningKey(bytes(range(32)))
OTHER = SigningKey(bytes(range(1, 33)))
NOW = 1_750_000_000.0
WORKER = "6650a1b2c3d4e5f601234567"
ROW = new_key(WORKER, KEY.public_key, NOW - 1000)


def signed(
    key: SigningKey = KEY,
    *,
    at: float = NOW,
    nonce: bytes = bytes(16),
    worker_id: str = WORKER,
    path: str = "/v1/daemon/poll",
    body: bytes = b"body",
) -> SignedRequest:
    headers = sign_headers(
        key, method="POST", path=path, worker_id=worker_id, body=body, timestamp=int(at), nonce=nonce
    )
    lower = {name.lower(): text for name, text in headers}
    return SignedRequest(method="POST", path=path, worker_id=worker_id, headers=lower, body=body)


def finding(*rows: DaemonKey) -> Callable[[str, str], DaemonKey | None]:
    table = {(row.worker_id, row.key_id): row for row in rows}
    return lambda worker_id, key_id: table.get((worker_id, key_id))


class Nonces:
    """A store as the server's: (worker, nonce) until an instant, inclusive."""

    def __init__(self) -> None:
        self.kept: dict[tuple[str, str], float] = {}
        self.now = NOW

    def take(self, worker_id: str, nonce: str, until: float) -> bool:
        new = self.kept.get((worker_id, nonce), -1.0) < self.now
        self.kept[worker_id, nonce] = until if new else self.kept[worker_id, nonce]
        return new


def judged(request: SignedRequest, *rows: DaemonKey, now: float = NOW, **options: Any) -> Verdict:
    return verify(request, find_key=finding(*(rows or (ROW,))), take_nonce=Nonces().take, now=now, **options)


def without(request: SignedRequest, *names: str) -> SignedRequest:
    return replace(request, headers={name: text for name, text in request.headers.items() if name not in names})


@pytest.mark.inventory("S-473")
@pytest.mark.parametrize("path", ["/v1/daemon/poll", "/v1/daemon/ack", "/v1/daemon/event", "/v1/daemon/keys"])
def test_a_signed_request_is_let_in_with_its_key_and_the_nonce_to_record(path: str) -> None:
    verdict = judged(signed(path=path))
    assert verdict.accepted
    assert (verdict.status, verdict.mode, verdict.key, verdict.error) == (200, "daemon-sig", ROW, None)
    assert verdict.nonce == "A" * 22


@pytest.mark.inventory("S-474", "S-484")
def test_a_request_without_the_headers_is_the_bearers_affair() -> None:
    verdict = judged(without(signed(), *[name.lower() for name in HEADERS]))
    assert verdict == Verdict(status=200, mode="daemon-bearer")


@pytest.mark.inventory("S-474", "S-483")
def test_it_is_refused_where_signatures_are_required() -> None:
    verdict = judged(without(signed(), *[name.lower() for name in HEADERS]), required=True)
    assert (verdict.status, verdict.mode) == (401, None)
    assert judged(signed(), required=True).mode == "daemon-sig"


@pytest.mark.inventory("S-475")
@pytest.mark.parametrize("missing", range(1, 15))
def test_some_of_the_headers_are_never_a_silent_fallback(missing: int) -> None:
    names = [name.lower() for i, name in enumerate(HEADERS) if missing >> i & 1]
    verdict = judged(without(signed(), *names))
    assert (verdict.status, verdict.error) == (401, "incomplete signature headers")
    assert judged(without(signed(), *names), required=True).error == "incomplete signature headers"


def test_empty_headers_are_present_ones_and_no_fallback_either() -> None:
    empty = replace(signed(), headers={name.lower(): "" for name in HEADERS})
    assert judged(empty).status == 401


@pytest.mark.inventory("S-476", "S-492", "S-644")
def test_a_key_is_looked_up_by_worker_and_key_id() -> None:
    assert judged(signed(OTHER)).body() == {"error": "unknown daemon key"}
    assert judged(signed(worker_id="another")).error == "unknown daemon key"
    both = replace(ROW, worker_id="another"), ROW  # the same key id under two workers
    assert judged(signed(worker_id="another"), *both).key == both[0]
    assert judged(signed(), *both).key == both[1]


@pytest.mark.inventory("S-477", "S-487")
def test_a_revoked_key_is_a_403_and_so_is_one_of_an_unknown_state() -> None:
    revoked, _ = revoke(ROW, NOW)
    assert (judged(signed(), revoked).status, judged(signed(), revoked).error) == (403, "daemon key revoked")
    assert judged(signed(), replace(ROW, status="pending")).status == 403
    assert judged(signed(), replace(ROW, status="retiring", revoked_at=NOW + 1)).accepted


@pytest.mark.inventory("S-478")
def test_a_key_past_its_hard_expiry_is_refused() -> None:
    assert judged(signed(), replace(ROW, expires_at=NOW)).accepted
    late = judged(signed(), replace(ROW, expires_at=NOW - 0.001))
    assert (late.status, late.error) == (401, "daemon key expired")


@pytest.mark.inventory("S-479", "S-493")
@given(st.integers(-700, 700), st.sampled_from([300.0, 0.0, 10.5]))
def test_a_timestamp_passes_within_the_skew_and_a_refusal_carries_the_servers_time(off: int, skew: float) -> None:
    verdict = judged(signed(at=NOW + off), skew_s=skew)
    assert verdict.accepted == (abs(off) <= skew)
    if not verdict.accepted:
        assert (verdict.status, verdict.error) == (401, "timestamp outside skew window")
        assert verdict.body() == {"error": "timestamp outside skew window", "server_time_epoch_s": NOW}
    assert judged(signed(at=NOW + off)).accepted == (abs(off) <= 300)


@pytest.mark.parametrize("text", ["", "soon", "1750000000.5", "-5", "9" * 30])
def test_a_timestamp_that_is_none_is_outside_of_any_window(text: str) -> None:
    request = signed()
    broken = replace(request, headers={**request.headers, "x-ls-timestamp": text})
    assert judged(broken).error == "timestamp outside skew window"


@pytest.mark.inventory("S-480")
@given(st.sampled_from(["method", "path", "body", "nonce", "timestamp", "signature"]), st.data())
def test_any_change_of_any_part_is_refused_and_no_nonce_is_taken(part: str, data: st.DataObject) -> None:
    request = signed()
    nonces = Nonces()
    if part in ("method", "path"):
        text = getattr(request, part)
        at = data.draw(st.integers(0, len(text) - 1))
        other = data.draw(st.integers(0, 127).map(chr).filter(lambda c: c.upper() != text[at].upper()))
        changed = replace(request, **{part: text[:at] + other + text[at + 1 :]})
    elif part == "body":
        at = data.draw(st.integers(0, len(request.body) * 8 - 1))
        flipped = bytearray(request.body)
        flipped[at // 8] ^= 1 << at % 8
        changed = replace(request, body=bytes(flipped))
    else:
        name = f"x-ls-{part}"
        text = request.headers[name]
        at = data.draw(st.integers(0, len(text) - 1))
        other = data.draw(st.integers(0, 255).map(chr).filter(lambda c: c != text[at]))
        changed = replace(request, headers={**request.headers, name: text[:at] + other + text[at + 1 :]})
    verdict = verify(changed, find_key=finding(ROW), take_nonce=nonces.take, now=NOW)
    assert verdict.status == 401
    assert verdict.error in ("signature verification failed", "timestamp outside skew window")
    assert nonces.kept == {}
    assert verify(request, find_key=finding(ROW), take_nonce=nonces.take, now=NOW).accepted


def test_a_signature_of_another_key_under_this_ones_id_is_refused() -> None:
    request, foreign = signed(), signed(OTHER)
    forged = {**request.headers, "x-ls-signature": foreign.headers["x-ls-signature"]}
    assert judged(replace(request, headers=forged)).error == "signature verification failed"


def test_a_nonce_that_is_not_sixteen_bytes_is_refused_though_it_is_signed() -> None:
    for nonce in ("", "A" * 21, "A" * 23, "A" * 100_000, "=" * 22):
        parts = {"method": "POST", "path": "/p", "worker_id": WORKER, "key_id": KEY.key_id, "body": b""}
        message = canonical_string(**parts, timestamp=int(NOW), nonce=nonce)  # type: ignore[arg-type]
        texts = (KEY.key_id, str(int(NOW)), nonce, to_text(KEY.sign(message)))
        headers = {name.lower(): text for name, text in zip(HEADERS, texts, strict=True)}
        request = SignedRequest(method="POST", path="/p", worker_id=WORKER, headers=headers)
        assert judged(request).error == "signature verification failed"


@pytest.mark.inventory("S-481")
def test_a_request_is_let_in_once_and_its_replay_is_refused() -> None:
    nonces = Nonces()

    def once() -> Verdict:
        return verify(signed(), find_key=finding(ROW), take_nonce=nonces.take, now=NOW)

    assert once().accepted
    assert once() == replayed() == Verdict(status=401, error="replayed nonce")
    other = verify(signed(nonce=b"1" * 16), find_key=finding(ROW), take_nonce=nonces.take, now=NOW)
    assert other.accepted


@pytest.mark.inventory("S-482")
def test_two_workers_may_use_the_same_nonce() -> None:
    rows = ROW, replace(ROW, worker_id="another")
    nonces = Nonces()
    for worker_id in (WORKER, "another"):
        request = signed(worker_id=worker_id)
        assert verify(request, find_key=finding(*rows), take_nonce=nonces.take, now=NOW).accepted


@pytest.mark.inventory("S-815", "S-668")
@given(st.integers(-300, 300), st.floats(0, 2000))
def test_a_replay_is_refused_however_far_ahead_the_senders_clock_was(off: int, later: float) -> None:
    nonces = Nonces()
    request = signed(at=NOW + off)
    assert verify(request, find_key=finding(ROW), take_nonce=nonces.take, now=NOW).accepted
    nonces.now = NOW + later
    again = verify(request, find_key=finding(ROW), take_nonce=nonces.take, now=nonces.now)
    assert again.error in ("replayed nonce", "timestamp outside skew window")


def test_the_checks_are_made_in_the_documented_order() -> None:
    """A request with every fault at once is told the first; each mended, the next is told."""
    revoked, _ = revoke(replace(ROW, expires_at=NOW - 1), NOW - 5)
    nonces = Nonces()
    nonces.take(WORKER, "A" * 22, NOW + 600)
    late = signed(at=NOW - 1000)
    forged = replace(late, headers={**late.headers, "x-ls-signature": "A" * 86})

    def told(request: SignedRequest, *rows: DaemonKey) -> str | None:
        return verify(request, find_key=finding(*rows), take_nonce=nonces.take, now=NOW).error

    assert [
        told(without(forged, "x-ls-nonce")),
        told(forged),
        told(forged, revoked),
        told(forged, replace(ROW, expires_at=NOW - 1)),
        told(forged, ROW),
        told(replace(forged, headers={**forged.headers, "x-ls-timestamp": str(int(NOW))}), ROW),
        told(signed(), ROW),
    ] == [
        "incomplete signature headers",
        "unknown daemon key",
        "daemon key revoked",
        "daemon key expired",
        "timestamp outside skew window",
        "signature verification failed",
        "replayed nonce",
    ]


def test_the_first_five_checks_leave_the_nonce_to_the_transaction_that_it_guards() -> None:
    verdict = check(signed(), find_key=finding(ROW), now=NOW)
    assert verdict.accepted
    assert (verdict.nonce, verdict.nonce_until) == ("A" * 22, NOW + 600)
    assert check(signed(), find_key=finding(ROW), now=NOW, skew_s=30.0).nonce_until == NOW + 60


def test_a_request_without_headers_passes_as_far_as_signatures_go_unless_they_are_required() -> None:
    bare = without(signed(), *[name.lower() for name in HEADERS])
    assert check(bare, find_key=finding(ROW), now=NOW) == Verdict(status=200, mode="daemon-bearer")
    refused = check(bare, find_key=finding(ROW), now=NOW, required=True)
    assert refused == Verdict(status=401, error="this server takes signed requests only")


def test_a_key_in_a_state_that_this_version_does_not_know_is_refused() -> None:
    refused = check(signed(), find_key=finding(replace(ROW, status="suspended")), now=NOW)
    assert refused == Verdict(status=403, error="daemon key is not active")


@pytest.mark.inventory("S-489", "S-490")
@given(st.floats(0, 2000), st.sampled_from([600.0, 0.0, 30.0]), st.booleans())
def test_both_keys_verify_during_the_overlap_and_only_the_new_one_after_it(
    later: float, overlap: float, reaped: bool
) -> None:
    old, fresh = rotate(ROW, OTHER.public_key, NOW, overlap_s=overlap)
    now = NOW + later
    if reaped:  # whether the reaper has run makes no difference
        old = reap(old, now)
    assert judged(signed(OTHER, at=now), old, fresh, now=now).accepted
    by_old = judged(signed(at=now), old, fresh, now=now)
    assert by_old.accepted == (now <= NOW + overlap)
    if not by_old.accepted:
        assert (by_old.status, by_old.error) == (403, "daemon key revoked")


@pytest.mark.inventory("S-465", "S-485", "S-453")
@pytest.mark.parametrize("enforced", [False, True])
def test_a_new_key_is_always_signed_and_polls_acks_and_events_where_that_is_enforced(enforced: bool) -> None:
    paths = ["poll", "ack", "event", "keys", "hello", "result-chunk", "exec/01X/result", "exec/01X/chunk"]
    must = {path for path in paths if must_sign(f"/v1/daemon/{path}", enforced=enforced)}
    assert must == ({"poll", "ack", "event", "keys"} if enforced else {"keys"})
    bare = without(signed(path="/v1/daemon/keys"), *[name.lower() for name in HEADERS])
    assert judged(bare, required=must_sign(bare.path, enforced=enforced)).status == 401


@pytest.mark.inventory("S-486", "S-704")
def test_signatures_are_enforced_by_one_word_only() -> None:
    for text in ("True", "TRUE", "1", "yes", "on", "", " true", "true "):
        assert not policy_of({"LAKESHORE_REQUIRE_DAEMON_SIGNATURES": text}).enforced
    assert not policy_of({}).enforced
    assert policy_of({"LAKESHORE_REQUIRE_DAEMON_SIGNATURES": "true"}).enforced


@pytest.mark.inventory("S-701", "S-702", "S-703")
def test_the_times_are_the_operators_and_else_the_documented_ones() -> None:
    assert policy_of({"LAKESHORE_DAEMON_SKEW_S": ""}) == Policy(skew_s=300, overlap_s=600, max_age_s=2_592_000)
    names = ("LAKESHORE_DAEMON_SKEW_S", "LAKESHORE_DAEMON_KEY_OVERLAP_S", "LAKESHORE_DAEMON_KEY_MAX_AGE_S")
    said = policy_of(dict(zip(names, ("10", "20", "30.5"), strict=True)))
    assert (said.skew_s, said.overlap_s, said.max_age_s) == (10, 20, 30.5)
    for name in names:
        for wrong in ("soon", "-1", "nan", "inf"):
            with pytest.raises(ValueError, match=f"{name} must be a number of seconds"):
                policy_of({name: wrong})


@pytest.mark.inventory("S-701", "S-702", "S-703")
@pytest.mark.parametrize(
    ("name", "least", "below"),
    [
        ("LAKESHORE_DAEMON_SKEW_S", 1, "0.9"),
        ("LAKESHORE_DAEMON_KEY_OVERLAP_S", 0, "-0.1"),
        ("LAKESHORE_DAEMON_KEY_MAX_AGE_S", 1, "0.9"),
    ],
)
def test_the_least_time_that_an_operator_may_set_is_taken_and_less_is_not(name: str, least: int, below: str) -> None:
    policy = policy_of({name: f" {least} "})
    assert least in (policy.skew_s, policy.overlap_s, policy.max_age_s)
    with pytest.raises(ValueError, match=f"^{name} must be a number of seconds from {least} \\(got '{below}'\\)$"):
        policy_of({name: below})


# ---- enrolment

MACHINE = "bos14-login"
TOKEN = EnrollToken(ns="default", expires_at=NOW + 3600)


def hello(key: SigningKey = KEY, *, machine: str = MACHINE, at: float = NOW) -> SignedRequest:
    return signed(key, worker_id=machine, path="/v1/daemon/hello", at=at)


def enrolled(request: SignedRequest | None = None, **options: Any) -> Enrolment:
    given: dict[str, Any] = {
        "public_key": KEY.public_text,
        "token": TOKEN,
        "brought_token": True,
        "find_key": finding(),
        "known_as": None,
        "now": NOW,
    }
    return check_enrolment(request or hello(), **{**given, **options})


UNSIGNED = without(hello(), *[name.lower() for name in HEADERS])


@pytest.mark.inventory("S-407", "S-404")
def test_a_hello_signed_by_the_key_that_it_brings_under_its_machine_id_is_enrolled() -> None:
    got = enrolled()
    assert (got.reject, got.key_id, got.public_key, got.spends) == (None, KEY.key_id, KEY.public_key, True)
    assert enrolled(replace(hello(), worker_id=WORKER)).reject == "enroll_signature_invalid"


@pytest.mark.inventory("S-395", "S-396", "S-404")
def test_a_new_key_needs_a_token_that_exists() -> None:
    assert enrolled(brought_token=False, token=None).reject == "enroll_token_required"
    assert enrolled(token=None).reject == "invalid_enroll_token"


@pytest.mark.inventory("S-397", "S-398", "S-404")
def test_a_spent_token_and_an_old_one_are_refused() -> None:
    assert enrolled(token=replace(TOKEN, consumed_at=NOW - 1)).reject == "enroll_token_consumed"
    assert enrolled(token=replace(TOKEN, expires_at=NOW - 1)).reject == "enroll_token_expired"
    assert enrolled(token=replace(TOKEN, expires_at=NOW)).reject is None


@pytest.mark.inventory("S-399", "S-402", "S-483")
def test_a_key_must_sign_and_where_signatures_are_required_a_key_must_come() -> None:
    assert enrolled(UNSIGNED).reject == "enroll_signature_required"
    assert enrolled(UNSIGNED, public_key=None, required=True).reject == "enrollment_signature_required"
    assert enrolled(UNSIGNED, public_key=None) == Enrolment()
    assert enrolled(public_key=None).reject == "enroll_signature_required", (
        "headers without a key say that one is meant"
    )
    for name in HEADERS:
        assert enrolled(without(hello(), name.lower())).reject == "enroll_signature_required"


@pytest.mark.inventory("S-400", "S-401", "S-405")
def test_the_key_id_must_be_the_keys_and_the_signature_too() -> None:
    assert enrolled(hello(OTHER)).reject == "key_id_mismatch"
    request = hello()
    forged = {**request.headers, "x-ls-signature": hello(OTHER).headers["x-ls-signature"]}
    assert enrolled(replace(request, headers=forged)).reject == "enroll_signature_invalid"
    late = enrolled(hello(at=NOW - 301))
    assert (late.reject, late.message) == ("enroll_signature_invalid", "timestamp outside skew window")
    message = enrolled(replace(request, headers=forged)).message
    assert message == "the hello is not signed by the key that it brings", "in the code's own words"


@pytest.mark.inventory("S-815")
def test_the_nonce_of_a_hello_is_left_to_the_commit_that_stores_the_key() -> None:
    assert (enrolled().nonce, enrolled().nonce_until) == ("A" * 22, NOW + 600)
    assert enrolled(skew_s=30.0).nonce_until == NOW + 60


def test_a_daemon_that_nobody_knows_is_looked_for_under_no_name() -> None:
    def nobody(worker_id: str, key_id: str) -> DaemonKey | None:
        raise AssertionError(f"asked for {worker_id} {key_id}")

    assert enrolled(find_key=nobody).spends


@pytest.mark.inventory("S-089")
def test_no_refusal_spends_the_token() -> None:
    refusals = [
        enrolled(UNSIGNED),
        enrolled(hello(OTHER)),
        enrolled(replace(hello(), body=b"other")),
        enrolled(token=replace(TOKEN, expires_at=NOW - 1)),
    ]
    assert [(refusal.spends, refusal.public_key, refusal.nonce) for refusal in refusals] == [(False, None, None)] * 4
    assert all(refusal.reject and refusal.message for refusal in refusals)


@pytest.mark.inventory("S-381", "S-403")
@pytest.mark.parametrize("text", ["", "x", KEY.public_text + "=", KEY.public_text[:-1], "A" * 44, "é" * 43])
def test_a_public_key_that_is_no_32_bytes_is_told_as_such(text: str) -> None:
    with pytest.raises(SigningError, match="public_key must be 32 bytes"):
        enrolled(public_key=text)


@pytest.mark.inventory("S-408")
def test_the_stored_key_expires_after_the_rotations_age() -> None:
    got = enrolled()
    assert got.public_key is not None
    row = new_key(WORKER, got.public_key, NOW, max_age_s=1000)
    assert (row.status, row.created_at, row.expires_at) == ("active", NOW, NOW + 1000)
    assert row.key_id == key_id_of(KEY.public_key)


@pytest.mark.parametrize("status", ["active", "retiring"])
def test_a_daemon_that_starts_again_with_its_key_needs_no_token_and_spends_none(status: str) -> None:
    known = replace(ROW, status=status, revoked_at=NOW + 1 if status == "retiring" else None)
    for options in ({"brought_token": False, "token": None}, {"token": replace(TOKEN, consumed_at=1.0)}, {}):
        got = enrolled(known_as=WORKER, find_key=finding(known), **options)
        assert (got.reject, got.spends, got.key_id) == (None, False, KEY.key_id)


@pytest.mark.inventory("S-491")
def test_a_revoked_daemon_comes_back_with_a_fresh_token_only() -> None:
    revoked, _ = revoke(ROW, NOW)
    options = {"known_as": WORKER, "find_key": finding(revoked)}
    assert enrolled(**options, brought_token=False, token=None).reject == "enroll_token_required"
    assert enrolled(**options, token=replace(TOKEN, consumed_at=1.0)).reject == "enroll_token_consumed"
    got = enrolled(hello(OTHER), **options, public_key=OTHER.public_text)
    assert (got.reject, got.spends) == (None, True)
