"""The life of a daemon's key: when it is told to rotate, what a rotation does, how it ends."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeshore.wire.daemon_keys import (
    MAX_AGE_S,
    OVERLAP_S,
    RotationRefused,
    new_key,
    reap,
    revoke,
    rotate,
    rotate_command,
    rotated_body,
    rotation_due,
)
from lakeshore.wire.signing import SKEW_S, SigningKey
from lakeshore.wire.states import IllegalTransition

OLD, NEW = SigningKey(b"o" * 32), SigningKey(b"n" * 32)
NOW = 1_750_000_000.0
ROW = new_key("w1", OLD.public_key, NOW)


@pytest.mark.inventory("S-493", "S-668", "S-490")
def test_the_documented_times_are_the_defaults() -> None:
    assert (MAX_AGE_S, OVERLAP_S, SKEW_S) == (2_592_000, 600, 300)


@pytest.mark.inventory("S-816")
def test_a_key_is_told_to_rotate_one_overlap_before_it_would_expire() -> None:
    due = NOW + MAX_AGE_S - OVERLAP_S
    assert rotation_due(ROW, due - 1) is None
    assert rotation_due(ROW, due) == "max_age_exceeded"


@pytest.mark.inventory("S-488", "S-436")
def test_the_reasons_are_age_and_expiry() -> None:
    assert rotation_due(ROW, NOW + MAX_AGE_S) == "max_age_exceeded"
    assert rotation_due(ROW, NOW + MAX_AGE_S + 1) == "key_expired"


@given(st.floats(1, 1e7), st.floats(0, 1e7), st.floats(0, 1e7))
def test_a_key_is_never_told_at_birth_and_always_before_it_expires(age: float, overlap: float, share: float) -> None:
    key = new_key("w1", OLD.public_key, 0.0, max_age_s=age)
    assert rotation_due(key, 0.0, max_age_s=age, overlap_s=overlap) is None
    assert rotation_due(key, age, max_age_s=age, overlap_s=overlap) == "max_age_exceeded"


@pytest.mark.inventory("S-494")
def test_a_lower_age_pulls_the_rotation_forward_for_keys_that_exist() -> None:
    assert rotation_due(ROW, NOW + 5000) is None
    assert rotation_due(ROW, NOW + 5000, max_age_s=3600) == "max_age_exceeded"


@pytest.mark.inventory("S-435", "S-437", "S-438")
def test_the_command_says_why_until_when_and_which_key() -> None:
    assert rotate_command(ROW, "max_age_exceeded", NOW + 0.9) == {
        "id": "cmd-rotate_key-1750000000",
        "kind": "rotate_key",
        "body": {"reason": "max_age_exceeded", "deadline_epoch_s": 1750000600, "key_id": OLD.key_id},
    }


@pytest.mark.inventory("S-489", "S-487", "S-561")
def test_a_rotation_makes_the_new_key_active_and_the_old_one_retiring_until_a_deadline_ahead() -> None:
    old, fresh = rotate(ROW, NEW.public_key, NOW + 50)
    assert (fresh.status, fresh.key_id, fresh.worker_id) == ("active", NEW.key_id, "w1")
    assert fresh.expires_at == NOW + 50 + MAX_AGE_S
    assert (old.status, old.retiring_at, old.revoked_at) == ("retiring", NOW + 50, NOW + 650)
    assert rotation_due(old, NOW + 1e9) is None


@pytest.mark.inventory("S-455")
def test_the_same_key_is_none_to_rotate_to() -> None:
    with pytest.raises(RotationRefused, match="new key must differ from the current key") as refused:
        rotate(ROW, OLD.public_key, NOW)
    assert refused.value.status == 422


@pytest.mark.inventory("S-456")
def test_the_answer_says_the_new_keys_id_state_and_times() -> None:
    _, fresh = rotate(ROW, NEW.public_key, NOW)
    assert rotated_body(fresh, NOW) == {
        "key_id": NEW.key_id,
        "status": "active",
        "expires_at": NOW + MAX_AGE_S,
        "overlap_s": 600,
        "server_time_epoch_s": NOW,
    }


def test_a_rotation_whose_answer_was_lost_is_answered_again_and_done_once() -> None:
    old, fresh = rotate(ROW, NEW.public_key, NOW)
    assert rotate(old, NEW.public_key, NOW + 30, successor=fresh) == (old, fresh)


def test_a_key_has_one_successor_and_no_key_comes_back() -> None:
    old, fresh = rotate(ROW, NEW.public_key, NOW)
    with pytest.raises(RotationRefused, match="has a successor") as refused:
        rotate(old, SigningKey(b"t" * 32).public_key, NOW)
    assert refused.value.status == 409
    with pytest.raises(RotationRefused, match="had that key before"):
        rotate(fresh, OLD.public_key, NOW, successor=old)
    revoked, _ = revoke(ROW, NOW)
    with pytest.raises(IllegalTransition):
        rotate(revoked, NEW.public_key, NOW)


@pytest.mark.inventory("S-629")
def test_the_reaper_revokes_what_retires_after_its_deadline_and_nothing_else() -> None:
    old, fresh = rotate(ROW, NEW.public_key, NOW)
    assert reap(old, NOW + 600) == old
    gone = reap(old, NOW + 601)
    assert (gone.status, gone.revoked_at) == ("revoked", NOW + 600)
    assert reap(gone, NOW + 999) == gone
    assert reap(fresh, NOW + 1e9) == fresh


@pytest.mark.parametrize("status", ["active", "retiring"])
def test_a_revocation_is_at_once_and_idempotent(status: str) -> None:
    key = replace(ROW, status=status, revoked_at=NOW + 600 if status == "retiring" else None)
    revoked, already = revoke(key, NOW + 5)
    assert (revoked.status, revoked.revoked_at, already) == ("revoked", NOW + 5, False)
    assert revoke(revoked, NOW + 9) == (revoked, True)


@pytest.mark.inventory("S-560", "S-562")
def test_what_the_list_shows_of_a_key() -> None:
    old, _ = rotate(ROW, NEW.public_key, NOW)
    assert old.public() == {
        "keyId": OLD.key_id,
        "status": "retiring",
        "createdAt": NOW,
        "retiringAt": NOW,
        "revokedAt": NOW + 600,
        "expiresAt": NOW + MAX_AGE_S,
        "publicKey": OLD.public_text,
    }
