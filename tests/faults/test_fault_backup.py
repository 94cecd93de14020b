"""A backup of a server under load holds everything that was acknowledged before it began, is checked, and restores.

BACKUP_SEED decides which calls are made; it is printed. The long form is BACKUPS=20: so many copies of one run.
"""

from __future__ import annotations

import json
import os
import random
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import old_states
import pytest
import served
from checker import check
from final_state import StateDirectory
from history import History
from soak_cast import PRODUCERS, WORKERS, Cast

from lakeshore.plane.locks import files_lock
from lakeshore.server import backup as copies

SEED = int(os.environ.get("BACKUP_SEED", "0")) or random.SystemRandom().randrange(1, 2**32)
BACKUPS = int(os.environ.get("BACKUPS", "3"))
DEADLINE_S = 60.0


def lakeshore(*arguments: str, code: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "lakeshore", *arguments],
        env=served.environment(),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def files(directory: Path) -> dict[str, bytes]:
    return {str(p.relative_to(directory)): p.read_bytes() for p in directory.rglob("*") if p.is_file()}


@pytest.fixture
def cast(tmp_path: Path) -> Iterator[Cast]:
    cast = Cast(tmp_path, random.Random(SEED))
    yield cast
    cast.close()


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A state directory with a bit of everything, that no server has open."""
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    old_states.make(state)
    return state


@pytest.mark.inventory("K-16", "K-26", "K-29")
def test_a_backup_under_load_holds_what_was_acknowledged_before_it_began(cast: Cast, tmp_path: Path) -> None:
    print(f"BACKUP_SEED={SEED}")
    for name in cast.names():
        cast.start(name)
    began: list[float] = []
    wanted = 0
    for k in range(BACKUPS):
        wanted += 4000
        deadline = time.monotonic() + DEADLINE_S
        while sum(path.stat().st_size for path in tmp_path.glob("said-*")) < wanted:
            assert time.monotonic() < deadline, cast.log("server")
            time.sleep(0.05)
        began.append(time.monotonic())
        lakeshore("backup", str(tmp_path / f"copy-{k}"), "--state-dir", str(tmp_path / "state"))
    (tmp_path / "stop").touch()
    for name in (*PRODUCERS, "hand"):
        assert cast.wait(name, DEADLINE_S) == 0, cast.log(name)
    for name in (*WORKERS, "server"):
        cast.end(name)
    sizes = []
    for k in range(BACKUPS):
        restored = tmp_path / f"restored-{k}"
        lakeshore("restore", str(tmp_path / f"copy-{k}"), "--state-dir", str(restored))
        history = History.read(tmp_path)
        history.forget(began[k])
        with StateDirectory(restored) as final:
            verdict = check(history, final, ended=False)
            sizes.append(len(final.rows()))
        print(verdict.report())
        verdict.must_hold()
    assert sizes == sorted(sizes) and sizes[0] > 0
    with served.running(tmp_path / "again", "--state-dir", str(restored)) as server:
        listed = server.get("/v1/namespaces/default/invocations").body["invocations"]
        assert listed
        ended = [row["id"] for row in listed if row["state"] == "succeeded"][:1]
        for id_ in ended:
            told = server.post("/v1/producer/await", {"invocation_id": id_, "timeout_s": 5}).body
            assert told["state"] == "succeeded"


def test_a_copy_can_be_served_as_it_is_and_is_private(state: Path, tmp_path: Path) -> None:
    (state / "secrets.key").write_text("k")
    said = lakeshore("backup", str(tmp_path / "copy"), "--state-dir", str(state))
    assert "checked: 7 invocations, 7 frames, 2 payloads" in said
    copy = tmp_path / "copy"
    assert copy.stat().st_mode & 0o077 == 0
    assert all(path.stat().st_mode & 0o077 == 0 for path in copy.rglob("*") if path.is_file())
    assert {"lakeshore.db", "records.db", "secrets.key", "backup.json"} <= {path.name for path in copy.iterdir()}
    (copy / "secrets.key").unlink()
    with served.running(tmp_path / "run", "--state-dir", str(copy)) as server:
        listed = server.get("/v1/namespaces/default/invocations").body["invocations"]
        assert {row["id"]: row["state"] for row in listed} == old_states.STATES
    said = lakeshore("restore", str(copy), "--state-dir", str(tmp_path / "other"), code=1)
    assert "has been served since it was made" in said


def test_json_tells_what_a_copy_holds(state: Path, tmp_path: Path) -> None:
    told = json.loads(lakeshore("backup", str(tmp_path / "copy"), "--state-dir", str(state), "--json"))
    assert (told["invocations"], told["frames"], told["payloads"]) == (7, 7, 2)
    again = json.loads(lakeshore("restore", str(tmp_path / "copy"), "--state-dir", str(tmp_path / "new"), "--json"))
    assert again["beganAt"] == told["beganAt"]


@pytest.mark.parametrize("what", ["lakeshore.db", "journal/*", "blobs/**/*.result", "blobs/**/*.args"])
def test_a_damaged_file_makes_no_copy_and_leaves_nothing(state: Path, tmp_path: Path, what: str) -> None:
    path = next(path for path in state.glob(what) if path.is_file())
    content = bytearray(path.read_bytes())
    damage = 4096 * 3 if path.suffix == ".db" else 60
    content[damage : damage + 64] = b"\xff" * 64
    path.write_bytes(content)
    before = files(state)
    with pytest.raises(copies.BackupError, match=r"damaged|is not what its row says|malformed"):
        copies.backup(state, tmp_path / "copy")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["state"]
    assert {name: data for name, data in files(state).items() if name in before} == before


def test_a_copy_that_rotted_is_not_restored(state: Path, tmp_path: Path) -> None:
    copies.backup(state, tmp_path / "copy")
    path = next((tmp_path / "copy" / "journal").iterdir())
    path.write_bytes(path.read_bytes()[:-3] + b"rot")
    with pytest.raises(copies.BackupError, match="damaged"):
        copies.restore(tmp_path / "copy", tmp_path / "new")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("verb", ["backup", "restore"])
def test_nothing_is_overwritten(state: Path, tmp_path: Path, verb: str) -> None:
    copies.backup(state, tmp_path / "copy")
    there = tmp_path / "there"
    there.mkdir()
    (there / "mine").write_text("mine")
    with pytest.raises(copies.BackupError, match="exists already"):
        if verb == "backup":
            copies.backup(state, there)
        else:
            copies.restore(tmp_path / "copy", there)
    assert files(there) == {"mine": b"mine"}


def test_what_is_no_state_and_what_is_no_backup_are_told(state: Path, tmp_path: Path) -> None:
    with pytest.raises(copies.BackupError, match="--state-dir"):
        copies.backup(tmp_path / "nowhere", tmp_path / "copy")
    with pytest.raises(copies.BackupError, match="no finished backup"):
        copies.restore(state, tmp_path / "new")


def test_a_later_schema_is_not_copied(state: Path, tmp_path: Path) -> None:
    conn = sqlite3.connect(state / "lakeshore.db")
    conn.execute("PRAGMA user_version = 99")
    conn.close()
    with pytest.raises(copies.BackupError, match="newer Lakeshore"):
        copies.backup(state, tmp_path / "copy")


def test_who_copies_keeps_files_from_being_deleted(tmp_path: Path) -> None:
    with files_lock(tmp_path, shared=True), files_lock(tmp_path, shared=True), files_lock(tmp_path) as mine:
        assert not mine
    with files_lock(tmp_path) as mine:
        assert mine
