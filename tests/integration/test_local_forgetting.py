"""A plane of files forgets what ended over 30 days ago, gives its space back, and keeps everything younger (K-16)."""

from __future__ import annotations

import os
import secrets
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from served import environment

from lakeshore import Dispatch, DispatchError, wire
from lakeshore.sdk import local_forgetting

DAY_S = 24 * 3600.0
BIG = 100_000
"""Of a payload that has a file."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "plane.sqlite"


def done(plane: Dispatch, *, stream: bool = False) -> str:
    inv = plane.submit("q", b"a" * BIG, id=secrets.token_hex(8))
    job = plane.claim("q", "w")
    assert job is not None
    assert job.id == inv
    if stream:
        plane.journal_append(inv, 0, wire.FrameWriter(0).value("v" * 1000), claim=job.claim)
    plane.ack(inv, "w", result=b"r" * BIG, claim=job.claim, last_seq=0 if stream else None)
    return inv


def age(path: Path, ids: Iterable[str], days: float) -> None:
    """What these would look like after so many days, and all files; the hourly look is due."""
    then = time.time() - days * DAY_S
    with closing(sqlite3.connect(path)) as conn, conn:
        conn.executemany("UPDATE invocation SET finished_at = ? WHERE id = ?", [(then, id_) for id_ in ids])
        conn.execute("UPDATE topic SET posted_at = ?", (then,))
    conn.close()
    for kind in ("blobs", "journal"):
        for file in files(path, kind):
            os.utime(file, (then, then))
    (path.with_name("plane.sqlite.d") / "forgot").unlink(missing_ok=True)


def files(path: Path, kind: str) -> list[Path]:
    return [file for file in (path.with_name("plane.sqlite.d") / kind).rglob("*") if file.is_file()]


@pytest.fixture
def used(path: Path) -> Iterator[list[str]]:
    with_frames = Dispatch(path)
    ids = [done(with_frames, stream=True) for _ in range(5)]
    with_frames.topic_post("q", "t", wire.pack(1))
    with_frames.close()
    yield ids


@pytest.mark.inventory("K-16")
def test_what_ended_long_ago_is_forgotten_with_its_files_by_who_writes(path: Path, used: list[str]) -> None:
    assert len(files(path, "blobs")) == 10
    age(path, used, 31)
    plane = Dispatch(path)
    young = done(plane)
    assert [plane.get(id_) for id_ in used] == [None] * 5
    with pytest.raises(DispatchError, match="purged"):
        plane.submit("q", b"a", id=used[0])
    assert list(plane.result(young)) == list(b"r" * BIG)
    assert len(files(path, "blobs")) == 2, "those of the young one"
    assert plane.count("q", "succeeded") == 1
    for _ in range(20 * 256):  # on a busy machine the topic waits for another look
        if (path.with_name("plane.sqlite.d") / "forgot").exists():
            break
        plane.cancel(young)  # a write that changes nothing
    with pytest.raises(TimeoutError):
        next(plane.topic_read("q", "t", timeout=0.05))
    plane.close()
    assert files(path, "journal"), "no file is removed while anybody may append to it"
    Dispatch(path).close()
    opened = Dispatch(path)
    assert opened.get(young) is not None
    assert not files(path, "journal")
    opened.close()


@pytest.mark.inventory("K-16")
def test_nothing_younger_is_forgotten_and_nothing_that_has_not_ended(path: Path, used: list[str]) -> None:
    plane = Dispatch(path)
    queued = plane.submit("q2", b"a" * BIG, id="queued")
    plane.close()
    with closing(sqlite3.connect(path)) as conn, conn:
        conn.execute("UPDATE invocation SET submitted_at = 0")
    conn.close()
    age(path, used, 29)
    plane = Dispatch(path)
    for n in range(600):  # more than one look
        plane.topic_post("q", "other", wire.pack(n))
    assert all(plane.result(id_) == b"r" * BIG for id_ in used)
    assert [len(list(plane.journal_read(id_))) for id_ in used] == [2] * 5
    assert plane.count("q2") == 1
    assert plane.get(queued) is not None
    assert next(iter(plane.topic_read("q", "t")))[0] == 0
    plane.close()


@pytest.mark.inventory("K-16", "K-33")
def test_of_very_much_each_look_forgets_a_little(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_forgetting, "ROWS_AT_ONCE", 20)
    plane = Dispatch(path, durability="process")
    ids = [plane.submit("q", b"a", id=f"i{n}") for n in range(50)]
    for id_ in ids:
        plane.cancel(id_)
    plane.close()
    age(path, ids, 31)
    plane = Dispatch(path, durability="process")
    left = []
    for n in range(6 * 256 + 1):
        plane.topic_post("q", "t", wire.pack(n))
        left.append(plane.count("q", "cancelled"))
    assert 30 <= left[0] <= 34, "one look, at the first write: 20 of them, or 16 where the machine is busy"
    assert left[255] == left[0]
    assert left[-1] == 0
    assert (path.with_name("plane.sqlite.d") / "forgot").exists()
    plane.close()


@pytest.mark.inventory("K-33")
def test_a_segment_that_a_living_process_appends_to_is_never_taken_for_garbage(path: Path, used: list[str]) -> None:
    """It held frames of forgotten ones alone, and is old; its process is still there."""
    script = f"""
from lakeshore import Dispatch, wire
plane = Dispatch({str(path)!r})
plane.topic_post("q", "theirs", wire.pack(0))
print("up", flush=True)
input()
print(plane.topic_post("q", "alive", wire.pack("kept")), flush=True)
plane.close()
"""
    other = subprocess.Popen(
        [sys.executable, "-c", script], env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert other.stdin is not None
        assert other.stdout is not None
        assert other.stdout.readline() == "up\n"
        age(path, used, 31)
        for _ in range(2):
            plane = Dispatch(path)
            plane.submit("q2", b"", id=secrets.token_hex(8))
            plane.close()
        assert [row for row in files(path, "journal") if row.stat().st_size], "theirs is there"
        other.stdin.write("\n")
        other.stdin.flush()
        assert other.stdout.readline() == "0\n"
        assert other.wait(60) == 0
    finally:
        other.kill()
        other.wait()
        for pipe in (other.stdin, other.stdout):
            if pipe is not None:
                pipe.close()
    plane = Dispatch(path)
    ((seq, frame),) = [next(iter(plane.topic_read("q", "alive")))]
    assert (seq, wire.Frame.from_bytes(frame).body) == (0, "kept")
    plane.close()
