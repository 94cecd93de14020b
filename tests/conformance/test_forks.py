"""Forks of a process that has a file plane open: none hangs, and no child's rows are lost (K-33)."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from children import Child

from lakeshore.sdk.dispatch import Dispatch

FORKS = 20
IN_THREADS = """
    import threading

    dp = Dispatch(path)
    stop = threading.Event()

    def run(me):
        n = 0
        while not stop.is_set():
            n += 1
            {verbs}

    threads = [threading.Thread(target=run, args=(me,)) for me in range(4)]
    for thread in threads:
        thread.start()
    for n in range({forks}):
        pid = os.fork()
        if pid == 0:
            signal.alarm(20)  # ends a child that hangs
            dp.submit("forked", b"", id=f"child-{{n}}")
            dp.submit("forked", b"", id=f"child-{{n}}-new", new=True)
            os._exit(0)
        say(os.waitpid(pid, 0)[1])
    stop.set()
    for thread in threads:
        thread.join()
    dp.close()
"""
VERBS = {
    "commits": 'dp.submit("q", b"", id=f"{me}-{n}")',
    "leaves in the inbox": 'dp.submit("q", b"", id=f"{me}-{n}", new=True); dp.count("q")',
    "claims": 'job = dp.claim("q", f"w{me}"); dp.submit("q", b"", id=f"{me}-{n}"); job and dp.ack(job.id, f"w{me}")',
    "reads": 'dp.get("nobody"); dp.count("q")',
    "waits": 'dp.submit("q", b"", id=f"{me}-{n}"); dp.wait_for_work("other", 0.001); list(dp.endings([f"{me}-{n}"]))',
    "opens and closes": 'other = Dispatch(path if me % 2 else f"{path}-{me}"); other.count("q"); other.close()',
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "plane.sqlite"


def _sound(path: Path) -> None:
    conn = sqlite3.connect(path)
    try:
        assert conn.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    finally:
        conn.close()


@pytest.mark.inventory("K-33")
@pytest.mark.parametrize("verbs", VERBS.values(), ids=VERBS.keys())
def test_no_child_hangs_that_is_forked_while_threads_are_in_the_plane(path: Path, verbs: str) -> None:
    with Child(IN_THREADS.format(verbs=verbs, forks=FORKS), path) as child:
        assert [child.line() for _ in range(FORKS)] == ["0"] * FORKS
        child.done()
    plane = Dispatch(path)
    assert plane.count("forked") == 2 * FORKS
    plane.close()
    _sound(path)


@pytest.mark.inventory("K-33", "K-29")
@pytest.mark.parametrize("last", ["the parent", "another process"])
def test_who_closes_the_file_does_not_delete_the_log_that_a_forked_child_writes_to(path: Path, last: str) -> None:
    """Whoever believes to be the last one folds the log into the file and removes it."""
    forker = """
        dp, too = Dispatch(path), Dispatch(path)
        dp.submit("q", b"", id="parents")
        readable, writable = os.pipe()
        pid = os.fork()
        if pid == 0:
            dp.submit("q", b"", id="first")
            say("first")
            os.write(writable, b"!")
            hear()
            dp.submit("q", b"", id="second")
            too.submit("q", b"", id="third")
            say("second", "third")
            hear()
            os._exit(0)
        if sys.argv[2] == "the parent":
            os.read(readable, 1)  # what the test says is for the child
            dp.close()
            too.close()
            say("closed")
        else:
            os.kill(os.getpid(), signal.SIGKILL)
    """
    with Child(forker, path, last) as child:
        assert child.line() == "first"
        if last == "the parent":
            assert child.line() == "closed"
        else:
            Dispatch(path).close()
        child.tell()
        assert child.line() == "second third"
        plane = Dispatch(path)
        assert plane.count("q") == 4
        plane.close()
        child.tell()
    _sound(path)


@pytest.mark.inventory("K-33")
def test_a_fork_in_the_middle_of_a_commit_neither_undoes_it_nor_spoils_the_file(path: Path) -> None:
    """As a signal's handler may do it, which runs in the thread that has the turn."""
    forker = """
        dp = Dispatch(path)

        def fork():
            pid = os.fork()
            if pid == 0:
                os._exit(0)
            say(os.waitpid(pid, 0)[1])

        def handle(*_):
            signal.setitimer(signal.ITIMER_REAL, 0)
            fork()

        signal.signal(signal.SIGALRM, handle)
        for n in range(30):
            signal.setitimer(signal.ITIMER_REAL, 0.0005 + n % 10 / 10_000)
            dp.submit("q", b"x" * 5000, id=f"a{n}")
        signal.setitimer(signal.ITIMER_REAL, 0)
        say("count", dp.count("q"))
        dp.close()
    """
    with Child(forker, path) as child:
        said = list(child.lines())
        child.done()
    assert said[-1] == "count 30"
    assert set(said[:-1]) == {"0"}
    _sound(path)


@pytest.mark.inventory("K-33")
def test_threads_that_fork_at_the_same_time_do_not_let_go_of_each_others_locks(path: Path) -> None:
    forker = """
        import sys, threading

        sys.setswitchinterval(1e-6)
        dp = Dispatch(path, durability="process")

        stop = threading.Event()

        def look():
            while not stop.is_set():
                dp.count("q")

        def fork():
            for _ in range(150):
                pid = os.fork()
                if pid == 0:
                    os._exit(0)
                os.waitpid(pid, 0)

        sys.unraisablehook = lambda told: say("unraisable", told.exc_value)
        threads = [threading.Thread(target=fork, daemon=True) for _ in range(4)]
        lookers = [threading.Thread(target=look, daemon=True) for _ in range(2)]
        for thread in (*threads, *lookers):
            thread.start()
        for thread in threads:
            thread.join(40)
        stop.set()
        say("count" if not any(thread.is_alive() for thread in threads) else "hangs", dp.count("q"))
        os._exit(0)
    """
    with Child(forker, path) as child:
        assert list(child.lines()) == ["count 0"]


@pytest.mark.inventory("K-33")
@pytest.mark.parametrize("used", [True, False], ids=["which uses the plane", "which does not use the plane"])
def test_a_child_forks_in_its_turn(path: Path, used: bool) -> None:
    """As daemons do: what the first child has let go of is not let go of again."""
    forker = """
        sys.unraisablehook = lambda told: say("unraisable", told.exc_value)
        dp, other = Dispatch(path), Dispatch(path + "-other")
        dp.submit("q", b"", id="parent")
        if os.fork() == 0:
            if sys.argv[2] == "True":
                dp.submit("q", b"", id="child")
            if os.fork() == 0:
                dp.submit("q", b"", id="grandchild")
                other.submit("q", b"", id="grandchild")
                os._exit(0)
            os.wait()
            os._exit(0)
        os.wait()
        say(dp.count("q"), other.count("q"))
    """
    with Child(forker, path, used) as child:
        assert list(child.lines()) == [f"{2 + used} 1"]
        child.done()
    _sound(path)


@pytest.mark.inventory("K-33")
def test_a_signals_handler_may_fork_while_its_thread_forks_or_holds_a_lock_of_ours(path: Path) -> None:
    forker = """
        from lakeshore.sdk import warned

        dp = Dispatch(path)

        def fork(*_):
            pid = os.fork()
            if pid == 0:
                os._exit(0)
            os.waitpid(pid, 0)

        def handle(*_):
            signal.setitimer(signal.ITIMER_REAL, 0)
            fork()

        signal.signal(signal.SIGALRM, handle)
        with warned._lock:
            handle()
        for n in range(300):
            signal.setitimer(signal.ITIMER_REAL, 0.00001 + n % 60 / 100_000)
            fork()
            dp.submit("q", b"", id=f"a{n}", new=True)
        say(dp.count("q"))
        signal.setitimer(signal.ITIMER_REAL, 0.0001)
        dp.close()
    """
    with Child(forker, path) as child:
        assert list(child.lines()) == ["300"]
        child.done()
    _sound(path)
