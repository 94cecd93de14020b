"""The file plane between real processes: sharing, killing, waking, forking (K-14, K-33, P-265)."""

from __future__ import annotations

import random
import signal
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from children import Child, children

from lakeshore.sdk.dispatch import Dispatch
from lakeshore.sdk.errors import DispatchError, InvocationFailed
from lakeshore.testing.conformance.base import begin, must_claim

HOLDER = """
    dp = Dispatch(path)
    job = dp.claim("q", "w1")
    dp.journal_append(job.id, None, b"\\x94\\x00\\x00\\xc0\\xc0", claim=job.claim)
    say(job.id, job.claim)
    hear()
    dp.ack(job.id, "w1", result=b"from the child", claim=job.claim)
    say("acked")
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "plane.sqlite"


@pytest.fixture
def dp(path: Path) -> Iterator[Dispatch]:
    plane = Dispatch(path)
    yield plane
    plane.close()


def _sound(path: Path) -> None:
    """The database is whole, and its counts are its rows."""
    conn = sqlite3.connect(path)
    try:
        assert conn.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        counted = set(conn.execute("SELECT queue, state, n FROM tally WHERE n != 0"))
        assert counted == set(conn.execute("SELECT queue, state, COUNT(*) FROM invocation GROUP BY queue, state"))
    finally:
        conn.close()


@pytest.mark.inventory("P-265", "P-453", "K-2")
def test_processes_on_one_file_share_a_queue(path: Path, dp: Dispatch) -> None:
    worker = """
        dp = Dispatch(path)
        hear()
        while (job := dp.claim("q", f"w{os.getpid()}")) is not None:
            dp.ack(job.id, f"w{os.getpid()}", result=job.envelope * 2)
            say(job.id)
    """
    ids = [f"job-{n}" for n in range(60)]
    for inv_id in ids:
        dp.submit("q", inv_id.encode(), id=inv_id)
    with children(worker, 3, path) as workers:
        for child in workers:
            child.tell()
        done = [inv_id for child in workers for inv_id in child.lines()]
        for child in workers:
            child.done()
    assert Counter(done) == Counter(ids)
    assert all(dp.result(inv_id, timeout=5) == inv_id.encode() * 2 for inv_id in ids)
    _sound(path)


@pytest.mark.inventory("K-33")
def test_many_processes_may_open_a_new_file_at_once(path: Path) -> None:
    opener = """
        hear()
        dp = Dispatch(path)
        dp.submit("q", b"", id=f"from-{os.getpid()}")
        say("submitted")
        dp.close()
    """
    for turn in range(3):
        fresh = path.with_name(f"plane-{turn}.sqlite")
        with children(opener, 6, fresh) as openers:
            for child in openers:
                child.tell()
            assert [child.line() for child in openers] == ["submitted"] * 6
        _sound(fresh)


@pytest.mark.inventory("K-33")
def test_opening_waits_for_whoever_is_creating_the_file(path: Path) -> None:
    """SQLite's own busy timeout does not cover the switch to WAL."""
    creating = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    creating.execute("CREATE TABLE other (x)")
    creating.execute("INSERT INTO other VALUES (1)")
    creating.execute("BEGIN IMMEDIATE")
    creating.execute("INSERT INTO other VALUES (2)")
    timer = threading.Timer(0.3, creating.execute, ("COMMIT",))
    timer.start()
    dp = Dispatch(path)
    timer.join()
    creating.close()
    dp.submit("q", b"", id="a")
    assert dp.count("q") == 1
    dp.close()


@pytest.mark.inventory("K-14", "P-454")
def test_a_killed_worker_is_detected_at_the_next_claim(path: Path, dp: Dispatch) -> None:
    dp.submit("q", b"args", id="a")
    with Child(HOLDER, path) as child:
        assert child.line() == "a 1"
        assert dp.claim("q", "w2") is None, "its holder lives"
        child.kill()
        started = time.monotonic()
        job = must_claim(dp, "q", "w2")
        assert time.monotonic() - started < 1.0, "no lease has to run out on one machine"
    assert (job.id, job.claim, job.attempt, job.first_seq) == ("a", 2, 2, 1)
    with pytest.raises(DispatchError):
        dp.ack("a", "w1", result=b"late", claim=1)
    dp.ack("a", "w2", result=b"r", claim=2)
    assert dp.result("a", timeout=5) == b"r"
    _sound(path)


@pytest.mark.inventory("K-14", "K-7")
def test_workers_that_are_killed_every_time_leave_worker_lost(path: Path, dp: Dispatch) -> None:
    dp.submit("q", b"", id="a", run_config={"max_attempts": 2})
    for claim in (1, 2):
        with Child(HOLDER, path) as child:
            assert child.line() == f"a {claim}"
            child.kill()
        dp.claim("nothing-here", "w2")
    with pytest.raises(InvocationFailed, match="WorkerLost"):
        dp.result("a", timeout=5)
    _sound(path)


@pytest.mark.inventory("K-14", "K-12")
def test_a_stopped_worker_is_not_a_dead_one(path: Path, dp: Dispatch) -> None:
    dp.submit("q", b"", id="a")
    with Child(HOLDER, path) as child:
        assert child.line() == "a 1"
        child.process.send_signal(signal.SIGSTOP)
        assert dp.claim("q", "w2") is None
        child.process.send_signal(signal.SIGCONT)
        child.tell()
        assert child.line() == "acked"
    assert dp.result("a", timeout=5) == b"from the child"


@pytest.mark.inventory("K-14")
def test_a_loss_wakes_those_who_wait_for_work(path: Path, dp: Dispatch) -> None:
    """Whoever finds a dead worker tells the others what came back."""
    waiter = """
        dp = Dispatch(path)
        say("waiting")
        dp.wait_for_work("q", 30.0)
        while (job := dp.claim("q", "w3")) is None:
            dp.wait_for_work("q", 30.0)
        say(job.id, time.monotonic())
        hear()
    """
    dp.submit("q", b"", id="a")
    with Child(HOLDER, path) as holder:
        assert holder.line() == "a 1"
        child = Child(waiter, path)
        assert child.line() == "waiting"
        holder.kill()
        dp.claim("another-queue", "w2")
        with child:
            assert child.line().startswith("a ")


@pytest.mark.inventory("K-14")
def test_lock_files_of_the_dead_do_not_pile_up(path: Path, dp: Dispatch) -> None:
    for _ in range(3):
        with Child("dp = Dispatch(path); say('open'); hear()", path) as child:
            assert child.line() == "open"
            child.kill()
    dp.submit("q", b"", id="a")
    job = must_claim(dp)
    other = Dispatch(path)
    assert len(list((path.parent / "plane.sqlite.d" / "workers").iterdir())) == 2
    assert other.claim("q", "w2") is None
    dp.ack("a", "w1", claim=job.claim)
    other.close()


@pytest.mark.inventory("K-16", "K-29", "K-31")
def test_what_was_acknowledged_survives_a_kill(path: Path) -> None:
    writer = """
        dp = Dispatch(path)
        for n in range(100_000):
            dp.submit("q", b"x" * (n % 3) * 40_000, id=f"job-{n}")
            if n % 2:
                job = dp.claim("q", "w1")
                dp.journal_append(job.id, 0, b"\\x94\\x00\\x00\\xc0\\xc0")
                dp.ack(job.id, "w1", result=b"r" * (n % 5) * 20_000)
            say(n)
    """
    said = -1
    with Child(writer, path) as child:
        while said < 40:
            said = int(child.line())
        child.kill()
        for line in child.lines():
            said = int(line)
    dp = Dispatch(path)
    for n in range(said + 1):
        row = dp.get(f"job-{n}")
        assert row is not None, f"job-{n} was acknowledged and is gone"
    done = dp.count("q", "succeeded")
    assert done in ((said + 1) // 2, (said + 2) // 2)
    for n in range(done):
        assert dp.result(f"job-{n}", timeout=5) == b"r" * ((2 * n + 1) % 5) * 20_000
    dp.close()
    _sound(path)


@pytest.mark.inventory("K-24", "P-468")
def test_a_stream_is_followed_live_across_processes(path: Path, dp: Dispatch) -> None:
    producer = """
        dp = Dispatch(path)
        job = dp.claim("q", "w1")
        for seq in range(20):
            dp.journal_append(job.id, seq, bytes([0x94, 0, seq, 0xc0, 0xc0]))
            say(seq)
            hear()
        dp.ack(job.id, "w1", result=b"r", last_seq=19)
    """
    dp.submit("q", b"", id="a")
    with Child(producer, path) as child:
        got = []
        assert child.line() == "0"
        for seq, _data in dp.journal_read("a", timeout=30):
            got.append(seq)
            if seq < 20:
                child.tell()
        child.done()
    assert got == list(range(21))


WAITER = """
    dp = Dispatch(path)
    dp.claim("q", "w1")
    say("ready")
    while True:
        dp.wait_for_work("q", 10.0)
        woken = time.monotonic()
        job = dp.claim("q", "w1")
        if job is not None:
            dp.ack(job.id, "w1", claim=job.claim)
            say(job.id, woken)
"""


@pytest.mark.inventory("K-9", "K-14")
def test_an_idle_waiter_learns_of_work_within_two_milliseconds(path: Path, dp: Dispatch) -> None:
    """250 submits at random ages of an idle wait, from the return of the submit to the return of the wait.

    A machine that others use wakes nobody on time, so beside each submit a bare pipe wakes a process that does nothing
    else. Half of the waits end within 1 ms, nine in ten within 2 ms more than the pipe's nine in ten, and the p99
    within 2 ms more than twice the pipe's. Three tries. None may ever take as long as the pace at which a waiter looks
    for itself: that would be a bell that nobody heard.
    """
    rng, tries = random.Random(7), []
    with Child(WAITER, path) as child, Child("while hear() != '': say(time.monotonic())", path) as bare:
        assert child.line() == "ready"
        for attempt in range(3):
            late, noise = [], []
            for n in range(250):
                time.sleep(rng.choice([0.0, 0.001, 0.004, 0.012]) * rng.random())
                dp.submit("q", b"", id=f"job-{attempt}-{n}")
                done = time.monotonic()
                inv_id, woken = child.line().split()
                assert inv_id == f"job-{attempt}-{n}"
                late.append(max(0.0, float(woken) - done) * 1000)
                started = time.monotonic()
                bare.tell("wake")
                noise.append((float(bare.line()) - started) * 1000)
            late.sort()
            noise.sort()
            (p50, p90, p99, worst), (n90, n99) = (late[125], late[225], late[247], late[-1]), (noise[225], noise[247])
            tries.append(f"{p50:.2f} {p90:.2f} {p99:.2f} worst {worst:.2f} ms; a pipe {n90:.2f} {n99:.2f} ms")
            assert worst < 500, tries
            if p50 <= 1.0 and p90 <= 2.0 + n90 and p99 <= 2.0 + 2 * n99:
                break
        else:
            raise AssertionError(tries)
    print(tries)


@pytest.mark.inventory("K-9", "K-14")
def test_an_idle_waiter_costs_next_to_nothing(path: Path) -> None:
    """In four seconds of waiting a few wake-ups and some hundred steps, at most 0.1 % of a core. The processor's
    time says less: a busy host charges each wake-up with milliseconds.
    """
    idler = """
        import resource
        import sys

        dp = Dispatch(path)
        dp.wait_for_work("q", 0.01)
        dp.claim("q", "w1")
        steps = []
        wakes, wall = resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw, time.monotonic()
        sys.setprofile(lambda frame, event, arg: steps.append(event))
        while time.monotonic() < wall + 4.0:
            dp.wait_for_work("q", 10.0)
            assert dp.claim("q", "w1") is None
        sys.setprofile(None)
        say(resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw - wakes, len(steps))
    """
    with Child(idler, path) as child:
        wakes, steps = map(int, child.line().split())
    assert wakes <= 12, wakes
    assert steps <= 1500, steps


@pytest.mark.inventory("K-33")
def test_a_forked_child_has_handles_of_its_own(path: Path, dp: Dispatch) -> None:
    forker = """
        dp = Dispatch(path)
        dp.submit("q", b"", id="before")
        mine = dp.claim("q", "parent")
        pid = os.fork()
        if pid == 0:
            dp.submit("q", b"", id="child")
            job = dp.claim("q", "child")
            say(job.id, dp.claim("q", "child"))
            dp.ack(job.id, "child", result=b"c" * 70_000)
            os._exit(0)
        os.waitpid(pid, 0)
        dp.submit("q", b"", id="after")
        dp.ack("before", "parent", result=b"p", claim=mine.claim)
        say(dp.count("q"), len(dp.result("child", timeout=5)))
    """
    with Child(forker, path) as child:
        assert child.line() == "child None", "the parent's claim is not dead"
        assert child.line() == "1 70000"
        child.done()
    assert dp.result("before", timeout=5) == b"p"
    _sound(path)


@pytest.mark.inventory("K-33", "K-14")
def test_a_child_does_not_keep_a_dead_parents_claims_alive(path: Path, dp: Dispatch) -> None:
    forker = """
        dp = Dispatch(path)
        job = dp.claim("q", "parent")
        pid = os.fork()
        if pid == 0:
            say("forked")
            hear()
            os._exit(0)
        time.sleep(60)
    """
    dp.submit("q", b"", id="a")
    with Child(forker, path) as child:
        assert child.line() == "forked"
        assert dp.claim("q", "w2") is None
        child.kill()
        job = must_claim(dp, "q", "w2")
        assert (job.id, job.attempt) == ("a", 2)
        child.tell()


@pytest.mark.inventory("K-33")
def test_a_childs_end_does_not_end_its_parents_claims(path: Path, dp: Dispatch) -> None:
    """Also when the child closes the plane, or ends in an orderly way."""
    forker = """
        dp = Dispatch(path)
        job = dp.claim("q", "parent")
        for how in ("exit", "close", "use"):
            pid = os.fork()
            if pid == 0:
                if how == "close":
                    dp.close()
                if how == "use":
                    dp.count("q")
                    dp.close()
                sys.exit(0)
            os.waitpid(pid, 0)
        say(job.claim)
        hear()
        dp.ack(job.id, "parent", result=b"still mine")
    """
    dp.submit("q", b"", id="a")
    with Child(forker, path) as child:
        assert child.line() == "1"
        assert dp.claim("q", "w2") is None
        child.tell()
        child.done()
    assert dp.result("a", timeout=5) == b"still mine"


@pytest.mark.inventory("K-33")
def test_a_memory_plane_says_that_it_does_not_cross_a_fork(path: Path) -> None:
    forker = """
        dp = Dispatch(":memory:")
        pid = os.fork()
        if pid == 0:
            try:
                dp.submit("q", b"", id="a")
            except DispatchError as exc:
                say(exc)
            os._exit(0)
        os.waitpid(pid, 0)
        dp.submit("q", b"", id="a")
        say(dp.count("q"))
    """
    with Child(forker, path) as child:
        assert "does not cross a fork" in child.line()
        assert child.line() == "1"


@pytest.mark.inventory("K-14")
def test_a_closed_plane_gives_its_claims_back(path: Path, dp: Dispatch) -> None:
    other = Dispatch(path)
    dp.submit("q", b"", id="a")
    job = must_claim(other)
    begin(other, job)
    other.close()
    assert must_claim(dp, "q", "w2").claim == 2
    with pytest.raises(DispatchError, match="closed"):
        other.count("q")
