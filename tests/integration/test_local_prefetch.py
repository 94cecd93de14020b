"""The local plane hands several short jobs to a worker in one commit, and what has not begun costs nobody anything."""

from __future__ import annotations

import itertools
import os
import struct
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lakeshore.plane.bells import PACE_S, FifoBells, MemoryBells
from lakeshore.sdk import local_source
from lakeshore.sdk.dispatch import Dispatch
from lakeshore.sdk.local_slate import LocalSlate
from lakeshore.sdk.local_source import LocalSource
from lakeshore.sdk.slate import LONG_S
from lakeshore.sdk.sources import Ending, Work

PATIENCE_S = 60.0
DONE = Ending(outcome="succeeded", result=b"1")


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[Dispatch]:
    plane = Dispatch(tmp_path / "plane.sqlite", durability="process")
    yield plane
    plane.close()


def source_of(plane: Dispatch, worker: str = "w", kind: str = "fifo", *, once: bool = False) -> LocalSource:
    return plane.source("q", worker, once=once, kind=kind, temperature=1.0, retries=1, poll_s=0.05)


def submitted(plane: Dispatch, *ids: str) -> None:
    for id_ in ids:
        plane.submit("q", b"args", id=id_)


def row_of(plane: Dispatch, id_: str) -> dict[str, object]:
    row = plane.get(id_)
    assert row is not None
    return row


def run(source: LocalSource, work: Work | None) -> str:
    """As a worker runs a short body; which it was."""
    assert work is not None
    source.begin(work, lambda why: None)
    source.end(work, DONE)
    return work.id


def warm(plane: Dispatch, source: LocalSource, *ids: str) -> Work:
    """A source that has seen a short job, and has now taken all of `ids`; the first of them, begun."""
    submitted(plane, "first", *ids)
    run(source, source.next(0.0))
    work = source.next(0.0)
    assert work is not None
    assert work.id == ids[0]
    return work


def slates_of(plane: Dispatch) -> list[Path]:
    return list(Path(f"{plane.path}.d", "workers").glob("*.slate"))


@pytest.mark.inventory("K-3", "K-33")
def test_short_jobs_are_taken_and_settled_several_in_one_commit(plane: Dispatch) -> None:
    source = source_of(plane)
    work = warm(plane, source, "a", "b", "c")
    watcher = Dispatch(plane.path)
    before = watcher._state().plane.rows("PRAGMA data_version", {})[0][0]
    ran = [run(source, work)] + [run(source, source.next(0.0)) for _ in range(2)]
    assert ran == ["a", "b", "c"]
    assert source.next(0.0) is None
    after = watcher._state().plane.rows("PRAGMA data_version", {})[0][0]
    assert after - before <= 2, "one commit for what three jobs had become, or two when it took long"
    assert [row_of(plane, id_)["state"] for id_ in "abc"] == ["succeeded"] * 3
    assert [row_of(plane, id_)["attempt"] for id_ in "abc"] == [1, 1, 1]
    watcher.close()
    source.close()
    assert slates_of(plane) == []


@pytest.mark.parametrize("how", ["once", "filo"])
def test_a_source_that_may_take_only_one_leaves_the_others(plane: Dispatch, how: str) -> None:
    source = source_of(plane, once=how == "once", kind="filo" if how == "filo" else "fifo")
    submitted(plane, "a", "b", "c")
    run(source, source.next(0.0))
    assert source.next(0.0) is not None
    assert plane.count("q") == 1
    source.close()


@pytest.mark.inventory("K-9")
def test_a_long_job_is_followed_by_one_alone(plane: Dispatch, monkeypatch: pytest.MonkeyPatch) -> None:
    source = source_of(plane)
    submitted(plane, "a", "b", "c")
    work = source.next(0.0)
    assert work is not None
    source.begin(work, lambda why: None)
    monkeypatch.setattr(source, "_began_at", time.monotonic() - 1.0)
    source.end(work, DONE)
    assert source.next(0.0) is not None
    assert plane.count("q") == 1
    source.close()


@pytest.mark.inventory("K-8", "K-9")
def test_a_worker_that_leaves_gives_back_what_has_not_begun(plane: Dispatch) -> None:
    source = source_of(plane)
    work = warm(plane, source, "a", "b", "c")
    source.drain()
    run(source, work)
    assert source.next(0.0) is None
    assert row_of(plane, "a")["state"] == "succeeded"
    assert [row_of(plane, id_)["state"] for id_ in "bc"] == ["queued", "queued"]
    assert [row_of(plane, id_)["attempt"] for id_ in "bc"] == [0, 0]
    source.close()


@pytest.mark.inventory("K-9", "K-27")
def test_what_is_cancelled_before_it_began_never_begins_and_its_neighbours_run(plane: Dispatch) -> None:
    source = source_of(plane)
    work = warm(plane, source, "a", "b", "c")
    canceller = Dispatch(plane.path)
    assert canceller.cancel("b") is True
    run(source, work)
    ran = []
    while (after := source.next(0.0)) is not None:
        ran.append(run(source, after))
    assert ran == ["c"]
    assert row_of(plane, "b")["state"] == "cancelled"
    assert row_of(plane, "c")["attempt"] == 1
    canceller.close()
    source.close()


@pytest.mark.inventory("K-27")
def test_what_has_begun_is_asked_and_may_still_win(plane: Dispatch) -> None:
    source = source_of(plane)
    work = warm(plane, source, "a", "b")
    canceller = Dispatch(plane.path)
    assert canceller.cancel("a") is False
    assert row_of(plane, "a")["state"] == "running"
    assert row_of(plane, "a")["attempt"] == 1
    run(source, work)
    run(source, source.next(0.0))
    source.close()
    assert row_of(plane, "a")["state"] == "succeeded"
    assert row_of(plane, "a")["attempt"] == 1
    canceller.close()


@pytest.mark.inventory("K-9")
def test_what_waits_behind_a_long_job_is_taken_by_who_has_nothing_to_do(plane: Dispatch) -> None:
    source = source_of(plane)
    work = warm(plane, source, "a", "b", "c")
    idle = Dispatch(plane.path)
    other = source_of(idle, "w2")
    deadline = time.monotonic() + 60
    taken: Work | None = None
    while taken is None and time.monotonic() < deadline:
        taken = other.next(LONG_S)
    assert [run(other, taken), run(other, other.next(0.0))] == ["b", "c"]
    other.close()
    run(source, work)
    assert source.next(0.0) is None, "what was taken away is not begun"
    source.close()
    assert [row_of(plane, id_)["worker"] for id_ in "abc"] == ["w", "w2", "w2"]
    assert [row_of(plane, id_)["attempt"] for id_ in "abc"] == [1, 1, 1]
    idle.close()


@pytest.mark.inventory("K-9")
def test_a_job_never_begins_after_somebody_took_it_away(tmp_path: Path) -> None:
    slate = LocalSlate(str(tmp_path / "s"), create=True)
    names = [("default", str(n), 1) for n in range(2000)]
    begun = 0
    slate.took(names[:1000])
    assert slate.begin()
    taken: list[tuple[str, str, int]] = []

    def take() -> None:
        other = LocalSlate(str(tmp_path / "s"))
        started.wait(60)
        taken.extend(other.revoke(names[999]))
        other.close()

    started = threading.Event()
    thief = threading.Thread(target=take)
    thief.start()
    started.set()
    begun = 1
    while begun < 999 and slate.begin():
        begun += 1
    thief.join()
    assert taken == names[begun:1000], "begun and taken away are all there is, and nothing is both"
    assert len(slate.begun()) == begun
    slate.took(names[1000:])
    assert slate.begin()
    assert not slate.revoke(names[1000])
    slate.close()


@pytest.mark.inventory("K-6", "K-14")
def test_a_body_that_kills_its_worker_costs_its_neighbours_nothing(plane: Dispatch, tmp_path: Path) -> None:
    (tmp_path / "bodies.py").write_text(
        textwrap.dedent("""
        import os
        import dreamlake.lakeshore as dls

        @dls.udf(queue="q")
        def job(n):
            if n == 3:
                os._exit(9)
            return n
        """)
    )
    (tmp_path / "work.py").write_text(
        textwrap.dedent(f"""
        import sys
        sys.path.insert(0, {str(tmp_path)!r})
        import dreamlake.lakeshore as dls
        q = dls.SyncQueue("q", dispatch=dls.Dispatch({plane.path!r}, durability="process"))
        print("ready", flush=True)
        dls.run_worker(q, once=False, retries=1, stop=lambda: not (q.count("queued") or q.count("running")))
        """)
    )
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "import bodies, dreamlake.lakeshore as dls\n"
        f"plane = dls.Dispatch({plane.path!r}, durability='process')\n"
        "print(*[bodies.job.submit(n, _dispatch=plane) for n in range(8)])"
    )
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    ids = subprocess.run(
        [sys.executable, "-c", code], env=environ, check=True, capture_output=True, text=True, timeout=60
    ).stdout.split()
    codes = []
    for _ in range(4):
        worker = subprocess.run([sys.executable, str(tmp_path / "work.py")], env=environ, timeout=60, check=False)
        codes.append(worker.returncode)
        if worker.returncode == 0:
            break
    rows = [row_of(plane, id_) for id_ in ids]
    assert [row["state"] for row in rows] == ["succeeded"] * 3 + ["failed"] + ["succeeded"] * 4
    assert rows[3]["attempt"] == 3, "its attempts are bounded"
    assert codes == [9, 9, 9, 0]
    assert [row["attempt"] for row in rows[4:]] == [1] * 4, "what had not begun pays nothing"
    assert slates_of(plane) == []


@pytest.mark.inventory("K-32")
def test_where_no_slate_can_be_written_jobs_are_taken_one_by_one(
    plane: Dispatch, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    slates = plane._claims().prefetched()
    assert slates is not None

    def full() -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(slates, "make", full)
    source = source_of(plane)
    submitted(plane, "a", "b", "c")
    assert [run(source, source.next(0.0)) for _ in range(3)] == ["a", "b", "c"]
    source.close()
    assert [row_of(plane, id_)["state"] for id_ in "abc"] == ["succeeded"] * 3
    assert "one by one: [Errno 28]" in caplog.text


@pytest.mark.inventory("K-14", "K-32")
@pytest.mark.parametrize(
    "left",
    [
        b"",
        bytes(10),
        struct.pack("<IIIIQ", 2, 1, 0, 9, 1),
        struct.pack("<IIIIQ", 2, 1, 0, 9, 1) + bytes(9),
        struct.pack("<IIIIQ", 2, 1, 0, 5, 1) + b"\x92\x93\x90\x90\x90",
        struct.pack("<IIIIQ", 2, 1, 0, 3, 1) + b"\x92\xa2\xff",
    ],
    ids=["empty", "half a head", "no list", "a blank list", "no names", "half a list"],
)
def test_a_slate_that_was_killed_at_birth_or_cut_says_nothing_and_ends_nobody(plane: Dispatch, left: bytes) -> None:
    slates = plane._claims().prefetched()
    assert slates is not None
    submitted(plane, "a", "b")
    directory = Path(f"{plane.path}.d", "workers")
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "somebody-0.slate").write_bytes(left)
    assert slates.begun_by("somebody") == set()
    assert slates.revoke("somebody", ("default", "a", 1)) == []
    assert slates.revoke_behind_long(None)[0] == []
    slates.given_back([("default", "a", 1)])
    source = source_of(plane)
    assert [run(source, source.next(0.0)) for _ in range(2)] == ["a", "b"]
    source.close()


@pytest.mark.parametrize("kind", ["memory", "fifo"])
def test_a_bell_is_awaited_until_it_has_been_rung(kind: str, tmp_path: Path) -> None:
    bells = MemoryBells() if kind == "memory" else FifoBells(tmp_path / "bells")
    assert not bells.awaited("done", "frames/1")
    with bells.listen("done") as bell:
        assert bells.awaited("frames/1", "done")
        assert not bells.awaited("frames/1")
        bells.ring("done")
        bell.wait(5.0)
    bells.ring("done")
    assert not bells.awaited("done"), "nobody listens any more, though the bell may still be up"
    bells.close()


@pytest.mark.parametrize("kind", ["memory", "fifo"])
def test_one_ring_wakes_one_who_waits_and_the_next_another(kind: str, tmp_path: Path) -> None:
    bells = MemoryBells() if kind == "memory" else FifoBells(tmp_path / "bells")
    woken: list[int] = []
    ready = [threading.Event() for _ in range(3)]

    def wait(number: int) -> None:
        with bells.listen("work") as bell:
            ready[number].set()
            asleep = time.monotonic()
            bell.wait(60.0)
            while time.monotonic() - asleep >= PACE_S:  # it looked for itself
                asleep = time.monotonic()
                bell.wait(60.0)
        woken.append(number)
        released.wait(60.0)

    released = threading.Event()
    threads = [threading.Thread(target=wait, args=(number,)) for number in range(3)]
    for thread, event in zip(threads, ready, strict=True):
        thread.start()
        event.wait(60)
    with bells.listen("work"):
        pass  # who has left is not rung in the place of one who waits
    for n in (1, 2, 3):
        bells.ring_one("work", "nobody's")
        deadline = time.monotonic() + 60
        while len(woken) < n and time.monotonic() < deadline:
            time.sleep(0.001)
        assert len(woken) == n
    released.set()
    for thread in threads:
        thread.join()
    bells.close()


@pytest.mark.parametrize("kind", ["memory", "fifo"])
def test_a_ring_for_one_wakes_all_who_wait_for_many_queues_besides(kind: str, tmp_path: Path) -> None:
    bells = MemoryBells() if kind == "memory" else FifoBells(tmp_path / "bells")
    ready, woken = threading.Semaphore(0), threading.Semaphore(0)

    def wait(name: str) -> None:
        with bells.listen(name) as bell:
            ready.release()
            asleep = time.monotonic()
            bell.wait(60.0)
            if time.monotonic() - asleep < PACE_S:
                woken.release()

    threads = [threading.Thread(target=wait, args=(name,)) for name in ("work", "many", "many")]
    for thread in threads:
        thread.start()
        ready.acquire()
    bells.ring_one("work", "many")
    for thread in threads:
        thread.join(60)
    assert all(woken.acquire(blocking=False) for _ in threads)
    bells.close()


@pytest.mark.inventory("K-33")
def test_every_job_that_comes_wakes_a_worker_that_has_nothing_to_do(
    plane: Dispatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of three is in a body when the next job comes; none waits for the pace at which a worker looks anyway."""
    monkeypatch.setattr("lakeshore.plane.bells.PACE_S", 3 * PATIENCE_S)
    gate = threading.Event()
    began: list[float] = []

    def work(number: int) -> None:
        mine = Dispatch(plane.path)
        source = source_of(mine, f"w{number}")
        while (taken := source.next(3 * PATIENCE_S)) is None:
            pass
        began.append(time.monotonic())
        gate.wait(PATIENCE_S)
        run(source, taken)
        source.close()
        mine.close()

    threads = [threading.Thread(target=work, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + 60
    bells = Path(f"{plane.path}.d", "bells")
    while len(list(bells.glob("*.bell"))) < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    submitted(plane, "a", "b", "c")
    at = time.monotonic()
    while len(began) < 3 and time.monotonic() < deadline:
        time.sleep(0.005)
    gate.set()
    for thread in threads:
        thread.join()
    assert len(began) == 3
    assert max(began) - at < PATIENCE_S, "somebody was not woken, and looked for itself"


@pytest.mark.inventory("K-6", "K-9")
def test_what_has_ended_is_told_while_the_next_body_runs_which_may_wait_for_it(
    plane: Dispatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = source_of(plane)
    work = warm(plane, source, "a", "b")
    monkeypatch.setattr(local_source, "GATHER_S", 60.0)  # the first body took no time, however slow this machine is
    run(source, work)
    found = source.next(0.0)
    monkeypatch.undo()
    assert found is not None
    assert found.id == "b", "it was prefetched with what has just ended"
    source.begin(found, lambda why: None)
    assert plane.result("a", timeout=60) == b"1"
    source.end(found, DONE)
    source.close()
    assert row_of(plane, "b")["state"] == "succeeded"


@pytest.mark.inventory("K-9")
def test_a_worker_that_always_has_work_takes_what_waits_behind_a_long_job_when_its_turn_comes(
    plane: Dispatch,
) -> None:
    long = source_of(plane, "long")
    work = warm(plane, long, "a", "b")
    long.begin(work, lambda why: None)
    busy = source_of(plane, "busy")
    submitted(plane, *(f"later-{k}" for k in range(20)))
    time.sleep(LONG_S * 2)
    ran = []
    while (found := busy.next(0.0)) is not None:
        ran.append(run(busy, found))
    assert "b" in ran[:2], "it is older than all the others"
    assert len(ran) == 21
    long.end(work, DONE)
    long.close()
    busy.close()


@pytest.mark.inventory("K-9", "K-14")
def test_who_dies_between_taking_away_and_giving_back_leaves_it_to_others(plane: Dispatch) -> None:
    long = source_of(plane, "long")
    work = warm(plane, long, "a", "b")
    long.begin(work, lambda why: None)
    time.sleep(LONG_S * 2)
    slates = plane._claims().prefetched()
    assert slates is not None
    assert [id_ for _ns, id_, _claim in slates.revoke_behind_long(None)[0]] == ["b"]
    other = source_of(plane, "other")
    found = other.next(5.0)
    assert run(other, found) == "b"
    assert slates.revoke_behind_long(None) == ([], False), "once it is back nobody gives it back again"
    long.end(work, DONE)
    assert long.next(0.0) is None
    other.close()
    long.close()
    assert [row_of(plane, id_)["attempt"] for id_ in ("a", "b")] == [1, 1]


def test_jobs_taken_one_by_one_start_no_thread(plane: Dispatch) -> None:
    submitted(plane, "a", "b")
    source = source_of(plane, once=True)
    before = threading.active_count()
    run(source, source.next(0.0))
    run(source, source.next(0.0))
    assert threading.active_count() == before
    source.close()


def test_whoever_rings_writes_into_no_file_that_was_opened_in_a_bells_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bells, listeners = FifoBells(tmp_path / "bells"), FifoBells(tmp_path / "bells")
    bell = listeners.listen("news")
    bell.__enter__()
    bells.awaited("news")
    monkeypatch.setattr("lakeshore.plane.bells.MOST_ROPES", 0)  # what hangs no more is let go at each ring
    opened: list[int] = []
    rope_of, asked = bells._rope, itertools.count()

    def rope(file: str) -> int | None:
        """Before the ring the bell is taken down, another thread lets go of its rope, and files are opened."""
        found = rope_of(file)
        if next(asked) == 1:
            bell.__exit__()
            listeners.close()
            other = threading.Thread(target=bells.ring, args=("other",))
            other.start()
            other.join(0.2)
            opened.extend(os.open(tmp_path / f"file-{n}", os.O_RDWR | os.O_CREAT) for n in range(8))
        return found

    with monkeypatch.context() as patched:
        patched.setattr(bells, "_rope", rope)
        bells.ring("news")
    assert len(opened) == 8
    for file in opened:
        os.close(file)
    assert {path.read_bytes() for path in tmp_path.glob("file-*")} == {b""}, "a ring was written into a file"
    bells.close()
