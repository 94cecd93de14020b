"""A call on the local plane that is waited for is one submit and one result, and on disk whenever somebody is told."""

from __future__ import annotations

import errno
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lakeshore.sdk import local_wait
from lakeshore.sdk.dispatch import Dispatch, DispatchError
from lakeshore.sdk.errors import InvocationFailed, Timeout

QUEUE = "q"
PATIENCE_S = 60.0


@pytest.fixture(params=["power", "process", "memory"])
def plane(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Dispatch]:
    where = {} if request.param == "memory" else {"path": tmp_path / "plane.sqlite", "durability": request.param}
    plane = Dispatch(**where)
    known(plane)
    yield plane
    plane.close()


@pytest.fixture
def safe(tmp_path: Path) -> Iterator[Dispatch]:
    plane = Dispatch(tmp_path / "plane.sqlite", durability="power")
    known(plane)
    yield plane
    plane.close()


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Semaphore]:
    """Released by each sync that this process asks for, but SQLite's own."""
    made = threading.Semaphore(0)
    sync = os.fdatasync

    def counted(fd: int) -> None:
        sync(fd)
        made.release()

    monkeypatch.setattr(os, "fdatasync", counted)
    yield made


def known(plane: Dispatch) -> None:
    """From now on the queue is known, and new submits go into the inbox."""
    plane.submit(QUEUE, b"", id="first")
    job = plane.claim(QUEUE, "w")
    assert job is not None
    plane.ack(job.id, "w")


def serve(plane: Dispatch, end: Callable[[str], None]) -> None:
    """Take one job, as soon as there is one, and end it."""
    while (job := plane.claim(QUEUE, "w")) is None:
        plane.wait_for_work(QUEUE, PATIENCE_S)
    end(job.id)


@pytest.fixture
def worker(plane: Dispatch) -> Iterator[Callable[[Callable[[str], None]], None]]:
    threads: list[threading.Thread] = []

    def start(end: Callable[[str], None]) -> None:
        threads.append(threading.Thread(target=serve, args=(plane, end)))
        threads[-1].start()

    yield start
    for thread in threads:
        thread.join(PATIENCE_S)


def test_a_call_that_is_waited_for_ends_as_its_body_did(
    plane: Dispatch, worker: Callable[[Callable[[str], None]], None]
) -> None:
    worker(lambda id_: plane.ack(id_, "w", result=b"r"))
    assert plane.submit_and_wait(QUEUE, b"", id="a", timeout=PATIENCE_S, new=True) == b"r"
    worker(lambda id_: plane.nack(id_, "w", error="no", retry=False))
    with pytest.raises(InvocationFailed, match="no"):
        plane.submit_and_wait(QUEUE, b"", id="b", timeout=PATIENCE_S, new=True)
    worker(lambda id_: plane.ack(id_, "w", result=b"of the key"))
    for id_ in "cd":
        assert plane.submit_and_wait(QUEUE, b"", id=id_, timeout=None, key="k", new=True) == b"of the key"
    with pytest.raises(Timeout):
        plane.submit_and_wait(QUEUE, b"", id="e", timeout=0, new=True)
    assert plane.count(QUEUE) == 1


def test_a_result_that_comes_at_once_needs_no_sync_but_its_row_s(
    safe: Dispatch, synced: threading.Semaphore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_wait, "SOON_S", PATIENCE_S)
    thread = threading.Thread(target=serve, args=(safe, lambda id_: safe.ack(id_, "w", result=b"r")))
    thread.start()
    assert safe.submit_and_wait(QUEUE, b"", id="a", timeout=PATIENCE_S, new=True) == b"r"
    thread.join(PATIENCE_S)
    assert not synced.acquire(blocking=False)


@pytest.mark.inventory("K-29", "K-16")
def test_a_call_that_waits_long_is_on_disk_before_its_result(safe: Dispatch, synced: threading.Semaphore) -> None:
    def end() -> None:
        assert synced.acquire(timeout=PATIENCE_S)
        serve(safe, lambda id_: safe.ack(id_, "w", result=b"r"))

    thread = threading.Thread(target=end)
    thread.start()
    assert safe.submit_and_wait(QUEUE, b"", id="a", timeout=PATIENCE_S, new=True) == b"r"
    thread.join(PATIENCE_S)


@pytest.mark.inventory("K-29", "K-22")
@pytest.mark.parametrize("stopped", ["time", "ctrl-c"])
def test_who_is_told_the_id_of_a_call_without_a_result_is_told_of_one_on_disk(
    safe: Dispatch, synced: threading.Semaphore, monkeypatch: pytest.MonkeyPatch, stopped: str
) -> None:
    monkeypatch.setattr(local_wait, "SOON_S", PATIENCE_S)

    listens = threading.Event()

    def stop() -> None:
        with safe._state().bells.listen(f"work/default/{QUEUE}") as bell:
            listens.set()
            bell.wait(PATIENCE_S)
            while not safe._state().has_mail():
                bell.wait(PATIENCE_S)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    thread = threading.Thread(target=stop)
    if stopped == "ctrl-c":
        thread.start()
        assert listens.wait(PATIENCE_S)
    timeout = 0.001 if stopped == "time" else PATIENCE_S
    with pytest.raises(Timeout if stopped == "time" else KeyboardInterrupt):
        safe.submit_and_wait(QUEUE, b"", id="a", timeout=timeout, new=True)
    assert synced.acquire(blocking=False)
    if stopped == "ctrl-c":
        thread.join(PATIENCE_S)
    assert safe.count(QUEUE) == 1


@pytest.mark.inventory("K-29")
def test_a_call_whose_sync_fails_says_so_and_not_that_it_goes_on(
    safe: Dispatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_fd: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fdatasync", refused)
        with pytest.raises(DispatchError, match="Input/output"):
            safe.submit_and_wait(QUEUE, b"", id="a", timeout=0.001, new=True)


def test_a_submit_wakes_a_worker_while_its_own_sync_is_under_way(
    safe: Dispatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync = os.fdatasync
    ended = threading.Event()

    def slow(fd: int) -> None:
        assert ended.wait(PATIENCE_S), "the worker was not woken, or saw nothing"
        sync(fd)

    def end(id_: str) -> None:
        safe.ack(id_, "w", result=b"r")
        ended.set()

    thread = threading.Thread(target=serve, args=(safe, end))
    thread.start()
    with monkeypatch.context() as patched:
        patched.setattr(os, "fdatasync", slow)
        safe.submit(QUEUE, b"", id="a", new=True)
    thread.join(PATIENCE_S)
    assert safe.result("a") == b"r"
