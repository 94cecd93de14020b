"""The inbox of the local plane: a new submit is on disk without the database's lock, and nobody can tell."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import sqlite3
import struct
import subprocess
import sys
import textwrap
import threading
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgpack
import pytest

from lakeshore.cli.checks import local
from lakeshore.plane import inbox, queues, retention
from lakeshore.plane.contract import Ended
from lakeshore.plane.database import Durability, connect, number_of
from lakeshore.sdk import dispatch
from lakeshore.sdk.dispatch import Dispatch, DispatchError
from lakeshore.sdk.ids import new_id

QUEUE = "q"


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[Dispatch]:
    plane = Dispatch(tmp_path / "plane.sqlite", durability="process")
    plane.submit(QUEUE, b"", id="first")  # from now on the queue is known
    job = plane.claim(QUEUE, "w")
    assert job is not None
    plane.ack(job.id, "w")
    yield plane
    plane.close()


@pytest.fixture
def other(plane: Dispatch) -> Iterator[Dispatch]:
    other = Dispatch(plane.path, durability="power")
    yield other
    other.close()


def rows_of(plane: Dispatch) -> int:
    """How many rows the file has, to who looks into it alone."""
    conn = sqlite3.connect(plane.path)
    try:
        return int(conn.execute("SELECT COUNT(*) FROM invocation").fetchone()[0])
    finally:
        conn.close()


def leave(plane: Dispatch, *ids: str) -> None:
    before = rows_of(plane)
    for id_ in ids:
        assert plane.submit(QUEUE, id_.encode(), id=id_, new=True) == id_
    assert rows_of(plane) == before, "it went into the database"


def _refused(*_: object) -> int:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


def put_in(plane: Dispatch) -> None:
    plane._write(lambda tx: None)


def drained(plane: Dispatch) -> list[str]:
    found = []
    while (job := plane.claim(QUEUE, "w")) is not None:
        found.append(job.id)
        plane.ack(job.id, "w", result=job.envelope)
    return found


@pytest.mark.inventory("K-33")
def test_what_is_in_the_inbox_is_there_for_every_verb_of_every_process(plane: Dispatch, other: Dispatch) -> None:
    leave(plane, "a")
    assert other.get("a") is not None and plane.get("a") == other.get("a")
    leave(plane, "b")
    assert other.count(QUEUE) == 2
    leave(plane, "c")
    assert other.cancel("c")
    leave(plane, "d")
    assert list(other.journal_read("d", timeout=0.0 if other.cancel("d") else 5.0)) == []
    leave(plane, "e")
    with pytest.raises(TimeoutError, match="queued"):
        other.result("e", timeout=0.0)
    assert [one.state for one in other.endings(["e"])] == ["pending"]
    leave(plane, "f")
    with pytest.raises(DispatchError, match="queued"):
        other.retry("f")
    assert drained(other) == ["a", "b", "e", "f"]
    assert [plane.result(id_) for id_ in "abef"] == [b"a", b"b", b"e", b"f"]


@pytest.mark.inventory("K-3", "K-33")
def test_submits_keep_their_order_whichever_way_they_take(plane: Dispatch, other: Dispatch) -> None:
    leave(plane, "a")
    leave(other, "b")
    other.submit(QUEUE, b"", id="c")
    leave(plane, "d", "e")
    plane.submit(QUEUE, b"", id="f", key="k")
    leave(other, "g")
    assert drained(plane) == list("abcdefg")


@pytest.mark.inventory("K-16")
def test_an_id_that_comes_again_finds_the_submit_that_is_in_the_inbox(plane: Dispatch, other: Dispatch) -> None:
    leave(plane, "a")
    assert other.submit(QUEUE, b"a", id="a") == "a"
    with pytest.raises(DispatchError, match="taken"):
        other.submit(QUEUE, b"another", id="a")
    assert drained(other) == ["a"]


def test_more_than_the_inbox_holds_is_taken_and_in_order(plane: Dispatch) -> None:
    ids = [f"{n:03d}" for n in range(310)]
    for id_ in ids:
        plane.submit(QUEUE, id_.encode().ljust(700), id=id_, new=True)
    assert 1 < rows_of(plane) < 311, "the inbox was never full, or never used"
    large = bytes(inbox.SIZE)
    plane.submit(QUEUE, large, id="large", new=True)
    assert drained(plane) == [*ids, "large"]
    assert plane.result("large") == large


@pytest.mark.inventory("K-17")
@pytest.mark.parametrize("since", ["queued", "running", "succeeded", "purged"])
def test_what_is_put_in_twice_because_somebody_died_in_between_is_one_submit(
    plane: Dispatch, other: Dispatch, since: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave(plane, "a", "b")
    with monkeypatch.context() as patched:
        patched.setattr(inbox.Inbox, "done", lambda *_: None)  # killed when it had committed
        put_in(other)
        if since != "queued":
            assert other.claim(QUEUE, "w") is not None
        if since in ("succeeded", "purged"):
            other.ack("a", "w", result=b"1")
        if since == "purged":
            other._write(lambda tx: retention.purge(tx, before=time.time() + 1, now=time.time()))
        assert plane.submit(QUEUE, b"c", id="c", new=True)
    put_in(plane)
    state = plane.get("a")
    assert (state is None) if since == "purged" else (state is not None and state["state"] == since)
    assert drained(plane) == (["a", "b", "c"] if since == "queued" else ["b", "c"])
    assert plane.count(QUEUE) == 0


@pytest.mark.inventory("K-29")
@pytest.mark.parametrize("torn", [b"\xff", b"\x00" * 40])
def test_what_a_power_cut_tore_was_promised_to_nobody_and_what_is_before_it_stays(
    plane: Dispatch, torn: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    leave(plane, "a", "b")
    state = plane._state()
    assert state.plane.inbox is not None
    end = state.plane.inbox.look().until
    with open(f"{plane.path}.d/inbox", "r+b") as file:
        file.seek(end - len(torn))
        file.write(torn)
    assert drained(plane) == ["a"]
    assert "power cut" in caplog.text
    leave(plane, "c")
    assert drained(plane) == ["c"]


@pytest.mark.inventory("K-29", "K-30")
def test_who_promised_less_commits_what_was_promised_more_with_a_sync(plane: Dispatch, other: Dispatch) -> None:
    said: list[str] = []
    plane._state().plane.conn.set_trace_callback(said.append)

    def syncs() -> list[str]:
        """How the commits since were made."""
        now, found = "NORMAL", []
        for line in said:
            if "synchronous" in line:
                now = line.rpartition(" ")[2]
            elif line == "COMMIT":
                found.append(now)
        return found

    leave(plane, "a")
    put_in(plane)
    assert syncs() == ["NORMAL"]
    leave(other, "b")
    leave(plane, "c")
    put_in(plane)
    assert syncs() == ["NORMAL", "FULL"]
    leave(plane, "d")
    put_in(plane)
    assert syncs() == ["NORMAL", "FULL", "NORMAL"]
    leave(plane, "e")
    put_in(other)
    assert drained(other) == list("abcde")


@pytest.mark.parametrize("fields", [{"state": "paused", "max_depth": 9}, {"max_depth": 1}, {"state": "archived"}])
def test_a_queue_that_may_refuse_is_asked_each_time(plane: Dispatch, fields: dict[str, object]) -> None:
    leave(plane, "a")
    row = queues.QueueRow(ns="default", name=QUEUE, created_at=time.time(), **fields)  # type: ignore[arg-type]
    plane._write(lambda tx: queues.change(tx, row))
    assert rows_of(plane) == 2, "what was there before is put in first, whatever the queue says now"
    if fields.get("max_depth") == 9:
        plane.submit(QUEUE, b"", id="b", new=True)
        assert rows_of(plane) == 3
    else:
        with pytest.raises(DispatchError, match=r"full|archived"):
            plane.submit(QUEUE, b"", id="b", new=True)
        assert plane.get("b") is None


def test_threads_and_processes_leave_all_of_what_they_submit(plane: Dispatch, other: Dispatch) -> None:
    ids: list[str] = []

    def produce(plane: Dispatch) -> None:
        ids.extend([plane.submit(QUEUE, b"x", id=new_id(), new=True) for _ in range(60)])

    threads = [threading.Thread(target=produce, args=(one,)) for one in (plane, other) * 3]
    for thread in threads:
        thread.start()
    found = []
    while any(thread.is_alive() for thread in threads):
        found += drained(other)
    for thread in threads:
        thread.join()
    found += drained(plane)
    assert len(ids) == 360 and sorted(found) == sorted(ids)


@pytest.mark.inventory("K-29")
def test_what_a_killed_producer_left_is_there_for_the_next_who_opens_the_plane(tmp_path: Path) -> None:
    script = """
        import os, signal, sys
        from lakeshore.sdk.dispatch import Dispatch
        plane = Dispatch(sys.argv[1])
        for id in "abc":
            plane.submit("q", id.encode(), id=id, new=True)
        if os.fork() == 0:
            print("forked", flush=True)
            os.read(0, 1)  # lives on, with what its parent had open
        os.kill(os.getpid(), signal.SIGKILL)
    """
    path = tmp_path / "plane.sqlite"
    child = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script), str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert child.stdout is not None and child.stdin is not None
    assert child.stdout.readline() == b"forked\n"
    child.wait(60)
    assert os.stat(f"{path}.d/inbox").st_size == inbox.SIZE
    plane = Dispatch(path)
    assert rows_of(plane) == 3
    assert drained(plane) == ["a", "b", "c"]
    plane.close()
    child.stdin.close()
    child.stdout.close()


def test_who_waits_misses_no_submit_that_becomes_a_row_while_it_looks(
    plane: Dispatch, other: Dispatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave(plane, "a")
    look, looks = dispatch.rows.ended_many, []

    def ended_many(*asked: object) -> list[Ended]:
        found: list[Ended] = look(*asked)  # type: ignore[arg-type]  # as it was asked
        looks.append(found)
        if len(looks) == 1:
            put_in(other)
        return found

    with monkeypatch.context() as patched:
        patched.setattr(dispatch.rows, "ended_many", ended_many)
        (one,) = plane.endings(["a"])
    assert [found[0].state for found in looks] == ["unknown", "pending"]
    assert one.state == "pending"
    leave(plane, "b")
    assert [one.state for one in plane.endings(["first", "b", "nowhere", "a"])] == [
        "succeeded", "pending", "unknown", "pending",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "asked",
    [{"priority": float("nan")}, {"run_config": {"max_attempts": 2**63}}, {"parent": 2**63}, {"parent": {"a": 1}}],
)
def test_what_no_row_can_have_is_refused_to_who_asks_it_and_is_in_nobody_s_way(
    plane: Dispatch, other: Dispatch, asked: dict[str, Any]
) -> None:
    leave(plane, "a")
    with pytest.raises((DispatchError, TypeError), match=r"nan|at most|a str"):
        plane.submit(QUEUE, b"", id="b", new=True, **asked)
    good, bad = (QUEUE, b"", {"id": "c", "new": True}), (QUEUE, b"", {"id": "d", "new": True, **asked})
    first, second, third = plane.submit_together([good, bad, (QUEUE, b"", {"id": "e", "new": True})])
    assert (first, third) == ("c", "e") and isinstance(second, Exception)
    other.submit(QUEUE, b"", id="f")
    assert drained(other) == ["a", "c", "e", "f"]


@pytest.mark.inventory("K-30")
def test_who_cannot_read_the_inbox_lets_go_of_the_database(
    plane: Dispatch, other: Dispatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave(plane, "a")
    with monkeypatch.context() as patched:
        patched.setattr(os, "pread", _refused)
        with pytest.raises(DispatchError, match="Input/output"):
            plane.submit(QUEUE, b"", id="b")
    other.submit(QUEUE, b"", id="c")
    plane.submit(QUEUE, b"", id="d")
    assert drained(other) == ["a", "c", "d"]


@pytest.mark.inventory("K-30")
def test_what_is_committed_is_not_done_again_when_the_inbox_cannot_be_told(
    plane: Dispatch, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    leave(plane, "a")
    done: list[int] = []
    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", _refused)
        answers = plane._state().plane.batch([lambda tx: done.append(1), lambda tx: done.append(2)])
    assert answers == [None, None] and done == [1, 2]
    assert "could not be noted" in caplog.text
    assert drained(plane) == ["a"]


@pytest.mark.inventory("K-16", "K-32")
def test_what_a_full_disk_takes_a_part_of_is_not_acknowledged(
    plane: Dispatch, other: Dispatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave(plane, "a")
    pwrite = os.pwrite
    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", lambda fd, data, at: pwrite(fd, data[: len(data) // 2], at))
        with pytest.raises(DispatchError, match="no space left"):
            plane.submit(QUEUE, b"b", id="b", new=True)
    leave(plane, "c")
    assert drained(other) == ["a", "c"]


@pytest.mark.inventory("K-29")
def test_after_a_sync_that_failed_no_submit_is_acknowledged_from_the_inbox(
    other: Dispatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave(other, "a")
    with monkeypatch.context() as patched:
        patched.setattr(os, "fdatasync", _refused)
        with pytest.raises(DispatchError, match="Input/output"):
            other.submit(QUEUE, b"", id="b", new=True)
    before = rows_of(other)
    other.submit(QUEUE, b"", id="c", new=True)
    assert rows_of(other) == before + 3, "a, b and c are in the database, where a sync says what it says of all"


def test_a_system_without_fdatasync_syncs(other: Dispatch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "fdatasync")  # as on macOS
    leave(other, "a")
    assert drained(other) == ["a"]


def test_who_is_interrupted_with_the_inbox_s_lock_lets_go_of_it(
    plane: Dispatch, other: Dispatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    flock = fcntl.flock

    def interrupted(fd: int, what: int) -> None:
        flock(fd, what)
        if what == fcntl.LOCK_EX:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(fcntl, "flock", interrupted)
        with pytest.raises(KeyboardInterrupt):
            plane.submit(QUEUE, b"", id="a", new=True)
    with open(f"{plane.path}.d/inbox", "rb") as file:
        flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    leave(other, "b")
    assert drained(other) == ["b"]


@pytest.mark.inventory("K-32")
@pytest.mark.parametrize("filling, done, end", [(7, 90, 20), (7, 20, 1 << 31), (7, 0, 0), ((1 << 64) - 1, 1, 1)])
def test_a_head_that_cannot_be_is_said_and_begun_anew(
    plane: Dispatch, filling: int, done: int, end: int, caplog: pytest.LogCaptureFixture
) -> None:
    with open(f"{plane.path}.d/inbox", "r+b") as file:
        file.write(struct.pack("<QIII", filling, done, end, 0))
    again = Dispatch(plane.path, durability="process")
    leave(again, "a")
    assert "damaged" in caplog.text
    assert drained(plane) == ["a"]
    again.close()


def test_an_inbox_that_was_cut_off_keeps_what_it_still_has(plane: Dispatch) -> None:
    leave(plane, "a")
    os.truncate(f"{plane.path}.d/inbox", 8192)
    again = Dispatch(plane.path, durability="process")
    assert os.stat(f"{plane.path}.d/inbox").st_size == inbox.SIZE
    assert drained(again) == ["a"]
    again.close()


def test_a_submit_to_a_plane_that_is_closed_meanwhile_says_so(tmp_path: Path) -> None:
    plane = Dispatch(tmp_path / "plane.sqlite", durability="process")
    plane.submit(QUEUE, b"", id="first")
    state = plane._state()
    assert state.plane.inbox is not None
    state.plane.inbox.close()
    with pytest.raises(DispatchError, match="closed"):
        plane.submit(QUEUE, b"", id="a", new=True)
    plane.close()


@pytest.mark.inventory("K-16")
def test_who_has_a_database_open_that_was_replaced_takes_nothing_that_is_for_the_new_one(plane: Dispatch) -> None:
    for end in ("", "-wal", "-shm"):
        os.unlink(plane.path + end)
    new = Dispatch(plane.path, durability="process")
    new.submit(QUEUE, b"", id="first")
    leave(new, "a")
    with pytest.raises(DispatchError, match="removed or replaced; start this process again"):
        plane.claim(QUEUE, "w")
    assert drained(new) == ["first", "a"]
    new.close()


def _remove_database(path: str) -> None:
    for end in ("", "-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path + end)


@pytest.mark.inventory("K-16")
def test_what_was_left_for_a_database_that_is_gone_is_put_aside_and_not_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    plane = Dispatch(tmp_path / "plane.sqlite", durability="process")
    plane.submit(QUEUE, b"", id="first")
    leave(plane, "a", "b")
    _remove_database(plane.path)
    new = Dispatch(plane.path, durability="process")
    assert rows_of(new) == 0
    (aside,) = (tmp_path / "plane.sqlite.d").glob("inbox.of-*")
    assert str(aside) in caplog.text and "removed or replaced" in caplog.text
    whose = inbox._owner(aside.read_bytes())
    assert [item.id for item in inbox.peek(aside, whose)] == ["a", "b"]
    assert inbox.peek(aside, whose + 1) == []
    new.submit(QUEUE, b"", id="second")
    leave(new, "c")
    assert drained(new) == ["second", "c"]
    new.close()
    plane.close()


@pytest.mark.inventory("K-16", "K-29")
def test_a_copy_of_a_plane_and_a_backup_of_its_database_have_what_was_left(plane: Dispatch) -> None:
    leave(plane, "a")
    place = Path(plane.path)
    for copy in ("whole", "backup"):
        there = place.with_name(copy) / place.name
        shutil.copytree(f"{place}.d", f"{there}.d")
        if copy == "whole":
            shutil.copy(place, there)
            shutil.copy(f"{place}-wal", f"{there}-wal")
        else:
            with contextlib.closing(sqlite3.connect(place)) as here, contextlib.closing(sqlite3.connect(there)) as to:
                here.backup(to)
        again = Dispatch(there, durability="process")
        assert drained(again) == ["a"]
        again.close()


@pytest.mark.inventory("K-29")
@pytest.mark.parametrize("end", [20, inbox.SIZE])
def test_an_inbox_of_the_version_that_named_no_database_is_read(plane: Dispatch, end: int) -> None:
    """It had records up to the end of the file."""
    leave(plane, "a")
    with open(f"{plane.path}.d/inbox", "r+b") as file:
        if end == inbox.SIZE:
            data = file.read()
            filling, done, until, owed = struct.unpack_from("<QIII", data)
            moved = inbox.SIZE - (until - done)
            file.seek(moved)
            file.write(data[done:until])
            file.seek(0)
            file.write(struct.pack("<QIII", filling, moved, inbox.SIZE, owed))
        else:
            file.seek(inbox.SIZE - 16)
            file.write(bytes(16))
    again = Dispatch(plane.path, durability="process")
    assert drained(again) == ["a"]
    leave(again, "b")
    assert drained(plane) == ["b"]
    again.close()


@pytest.mark.inventory("K-29")
@pytest.mark.parametrize("body", [msgpack.packb([1.0] * 12), msgpack.packb({"v": 2}), msgpack.packb(2), b"\xc1"])
def test_a_record_of_a_newer_version_is_left_alone_and_said(plane: Dispatch, body: bytes) -> None:
    leave(plane, "a")
    with open(f"{plane.path}.d/inbox", "r+b") as file:
        filling, done, end, owed = struct.unpack("<QIII", file.read(20))
        record = struct.pack("<II", len(body), zlib.crc32(body, filling)) + body
        file.seek(end)
        file.write(record)
        file.seek(0)
        file.write(struct.pack("<QIII", filling, done, end + len(record), owed))
    for verb in (lambda: plane.count(QUEUE), lambda: plane.claim(QUEUE, "w"), lambda: plane.submit(QUEUE, b"", id="b")):
        with pytest.raises(DispatchError, match="another version of lakeshore"):
            verb()
    with open(f"{plane.path}.d/inbox", "rb") as file:
        assert struct.unpack("<QIII", file.read(20)) == (filling, done, end + len(record), owed)
    with open(f"{plane.path}.d/inbox", "r+b") as file:  # the newer version has taken it
        file.write(struct.pack("<QIII", filling, done, end, owed))
    assert drained(plane) == ["a"]


def test_the_doctor_counts_what_is_in_the_inbox_once(plane: Dispatch) -> None:
    """Whoever dies between a commit and the inbox's head leaves records that are rows."""
    leave(plane, "a", "b")
    with open(f"{plane.path}.d/inbox", "r+b") as file:
        before = file.read(20)
        put_in(plane)
        file.seek(0)
        file.write(before)
    leave(plane, "c")
    (found,) = local._work(Path(plane.path), ["somebody"])
    assert found.seen.startswith("3 queued")


@pytest.mark.inventory("K-29")
@pytest.mark.parametrize("durability", ["power", "process", "none"])
def test_the_number_of_a_database_is_synced_whatever_else_is(tmp_path: Path, durability: Durability) -> None:
    conn = connect(str(tmp_path / "plane.db"), durability=durability, shared=True)
    usual = conn.execute("PRAGMA synchronous").fetchall()
    said: list[str] = []
    conn.set_trace_callback(said.append)
    number = number_of(conn)
    conn.set_trace_callback(None)
    syncing = said.index("PRAGMA synchronous = FULL")
    assert syncing < said.index("BEGIN IMMEDIATE") < said.index("COMMIT")
    assert not any("synchronous" in statement for statement in said[syncing + 1 : said.index("COMMIT")])
    assert conn.execute("PRAGMA synchronous").fetchall() == usual
    assert number_of(conn) == number != 0
    conn.close()
