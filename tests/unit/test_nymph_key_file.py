"""A daemon's private key on the disk: who may read it, how it is written, what is refused."""

from __future__ import annotations

import base64
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeshore.nymph.key_file import Enrolled, IdentityError, KeyFile, _seed
from lakeshore.wire.signing import SigningKey, to_text

SEED = bytes(range(224, 256))  # has both of the characters in which the two base64 alphabets differ


def put(path: Path, text: str, mode: int = 0o600) -> KeyFile:
    path.write_text(text)
    path.chmod(mode)
    return KeyFile(path)


@pytest.mark.inventory("N-061", "N-255", "N-256")
@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077])
def test_the_first_boot_makes_a_key_of_one_line_that_only_its_owner_may_read_and_later_boots_use_it(
    tmp_path: Path, mask: int
) -> None:
    path = tmp_path / "keys" / "daemon.key"
    before = os.umask(mask)
    try:
        files = KeyFile(path)
        key = files.load_or_create()
    finally:
        os.umask(before)
    assert path.read_text() == to_text(key.seed) + "\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert sorted(os.listdir(path.parent)) == ["daemon.key", "daemon.key.lock"]
    files.close()
    assert KeyFile(path).load_or_create() == key


@pytest.mark.inventory("N-257")
@pytest.mark.parametrize("spelling", [base64.urlsafe_b64encode, base64.b64encode])
@pytest.mark.parametrize("padding", [True, False])
def test_a_key_is_read_in_either_base64(tmp_path: Path, spelling: object, padding: bool) -> None:
    text = spelling(SEED).decode()  # type: ignore[operator]
    files = put(tmp_path / "k", text if padding else text.rstrip("="))
    assert files.load_or_create() == SigningKey(SEED)


@pytest.mark.inventory("N-257", "N-068")
@pytest.mark.parametrize("raw", [b"", SEED[:-1], SEED + b"x", SEED * 2])
def test_what_is_not_exactly_32_bytes_is_refused_and_left_as_it_is(tmp_path: Path, raw: bytes) -> None:
    files = put(tmp_path / "k", to_text(raw))
    with pytest.raises(IdentityError, match="holds no private key"):
        files.load_or_create()
    assert (tmp_path / "k").read_text() == to_text(raw)


@pytest.mark.parametrize("text", ["not base64!", "-----BEGIN PRIVATE KEY-----", "\0" * 43, to_text(SEED)[:-2] + "\nx"])
def test_what_is_no_key_at_all_is_refused_without_showing_it(tmp_path: Path, text: str) -> None:
    with pytest.raises(IdentityError, match="holds no private key") as refused:
        put(tmp_path / "k", text).load_or_create()
    assert text not in str(refused.value)


@given(st.binary(max_size=80))
def test_no_bytes_but_a_keys_spelling_are_read_as_one(text: bytes) -> None:
    seed = _seed(text)
    assert seed is None or len(seed) == 32


@pytest.mark.inventory("N-068")
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644])
def test_a_key_that_others_may_read_is_not_used(tmp_path: Path, mode: int) -> None:
    files = put(tmp_path / "k", to_text(SEED), mode)
    with pytest.raises(IdentityError, match=f"mode {mode:o}.*chmod 600"):
        files.load_or_create()


@pytest.mark.inventory("N-068")
def test_a_key_that_cannot_be_read_or_made_is_an_error_that_names_the_setting(tmp_path: Path) -> None:
    (tmp_path / "k").mkdir()
    with pytest.raises(IdentityError, match=r"cannot read .*\[identity\] key_file"):
        KeyFile(tmp_path / "k").load_or_create()
    (tmp_path / "file").write_text("")
    with pytest.raises(IdentityError, match=r"cannot make a key in .*\[identity\] key_file"):
        KeyFile(tmp_path / "file" / "k").load_or_create()


@pytest.mark.inventory("N-256")
def test_a_crash_while_writing_leaves_the_old_key_and_its_leftover_is_in_nobodys_way(tmp_path: Path) -> None:
    files = put(tmp_path / "k", to_text(SEED))
    assert files.load_or_create() == SigningKey(SEED)
    (tmp_path / "k.tmp").write_text("half a k")  # written and not renamed
    (tmp_path / "k.next.tmp").write_text("half a k")
    assert files.load_or_create() == SigningKey(SEED)
    assert files.load_next() is None
    fresh = files.create_next()
    files.promote_next()
    assert (files.load_or_create(), files.load_next()) == (fresh, None)


def test_the_successor_is_a_file_of_its_own_until_it_takes_the_keys_place(tmp_path: Path) -> None:
    files = KeyFile(tmp_path / "k")
    old = files.load_or_create()
    fresh = files.create_next()
    assert stat.S_IMODE((tmp_path / "k.next").stat().st_mode) == 0o600
    assert (files.load_or_create(), files.load_next()) == (old, fresh)
    files.drop_next()
    files.drop_next()
    assert (files.load_or_create(), files.load_next()) == (old, None)


def test_a_link_stays_a_link_and_its_target_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    put(tmp_path / "real" / "k", to_text(SEED))
    (tmp_path / "k").symlink_to("real/k")
    files = KeyFile(tmp_path / "k")
    assert files.load_or_create() == SigningKey(SEED)
    fresh = files.create_next()
    files.promote_next()
    assert (tmp_path / "k").is_symlink()
    assert (tmp_path / "real" / "k").read_text().strip() == to_text(fresh.seed)


def test_one_daemon_at_a_time_has_a_key_file_and_a_killed_one_leaves_it_free(tmp_path: Path) -> None:
    program = (
        "import sys, pathlib\n"
        "from lakeshore.nymph.key_file import KeyFile\n"
        "print(KeyFile(pathlib.Path(sys.argv[1])).load_or_create().key_id, flush=True)\n"
        "sys.stdin.read()\n"
    )
    path = tmp_path / "k"
    with subprocess.Popen(
        [sys.executable, "-c", program, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        key_id = other.stdout.readline().strip()
        with pytest.raises(IdentityError, match="another daemon on this host uses the key"):
            KeyFile(path).load_or_create()
        other.kill()
        other.wait()
    assert KeyFile(path).load_or_create().key_id == key_id


def test_what_was_noted_of_the_enrolment_is_read_again_and_holds_no_secret(tmp_path: Path) -> None:
    files = KeyFile(tmp_path / "k")
    key = files.load_or_create()
    assert files.enrolled() is None
    noted = Enrolled(server="https://cp", worker_id="w1", key_id=key.key_id, spent="ab12")
    files.note(noted)
    assert KeyFile(tmp_path / "k").enrolled() == noted
    assert to_text(key.seed) not in (tmp_path / "k.json").read_text()
    assert stat.S_IMODE((tmp_path / "k.json").stat().st_mode) == 0o600
    (tmp_path / "k.json").write_text("{half")
    assert files.enrolled() is None
