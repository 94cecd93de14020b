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
        say("count", dp.count("q"))
        dp.close()
    """
    with Child(forker, path) as child:
        said = list(child.lines())
        child.done()
    assert said[-1] == "count 30"
    assert set(said[:-1]) == {"0"}
    _sound(path)
