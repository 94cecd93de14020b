"""A worker's end of the local plane: an ending travels with the next claim, and waits while the plane has no room."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from lakeshore.plane.bells import KEPT, FifoBells
from lakeshore.plane.contract import PlaneFull
from lakeshore.sdk.dispatch import Dispatch
from lakeshore.sdk.errors import DispatchError
from lakeshore.sdk.local_source import LocalSource
from lakeshore.sdk.sources import Ending


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[Dispatch]:
    plane = Dispatch(tmp_path / "plane.sqlite", durability="process")
    yield plane
    plane.close()


def source_of(plane: Dispatch) -> LocalSource:
    return plane.source("q", "w", once=False, kind="fifo", temperature=1.0, retries=1, poll_s=0.05)


def submitted(plane: Dispatch, *ids: str) -> None:
    for id_ in ids:
        plane.submit("q", b"args", id=id_)


def state_of(plane: Dispatch, id_: str) -> str:
    row = plane.get(id_)
    assert row is not None
    return str(row["state"])


@pytest.mark.inventory("K-3", "K-33")
def test_an_ending_is_settled_by_the_commit_that_takes_the_next_job(plane: Dispatch) -> None:
    submitted(plane, "a", "b")
    source = source_of(plane)
    first = source.next(0.0)
    assert first is not None
    source.end(first, Ending(outcome="succeeded", result=b"1"))
    other = Dispatch(plane.path)
    changes = other._state().plane.rows("PRAGMA data_version", {})
    second = source.next(0.0)
    assert second is not None
    assert (first.id, second.id) == ("a", "b")
    assert plane.result("a", timeout=0) == b"1"
    assert other._state().plane.rows("PRAGMA data_version", {})[0][0] == changes[0][0] + 1, "one commit for both"
    other.close()
    source.end(second, Ending(outcome="failed", error={"type": "E", "message": "no"}, retry=False))
    source.close()
    assert state_of(plane, "b") == "failed"


@pytest.mark.inventory("K-8", "K-32")
def test_an_ending_waits_while_the_plane_has_no_room(plane: Dispatch, monkeypatch: pytest.MonkeyPatch) -> None:
    submitted(plane, "a", "b")
    source = source_of(plane)
    work = source.next(0.0)
    assert work is not None
    source.end(work, Ending(outcome="succeeded", result=b"1"))

    def no_room(*_: object) -> None:
        raise DispatchError("no space left") from PlaneFull("no space left")

    with monkeypatch.context() as full:
        full.setattr(plane._state(), "write", no_room)
        assert source.next(0.0) is None
        source.drain()
        assert source.next(0.0) is None
    assert state_of(plane, "a") == "running"
    source.close()
    assert plane.result("a", timeout=0) == b"1"
    assert state_of(plane, "b") == "queued", "nothing is begun on the way out"


@pytest.mark.inventory("K-5")
def test_an_ending_that_is_not_wanted_any_more_does_not_cost_the_next_job(
    plane: Dispatch, caplog: pytest.LogCaptureFixture
) -> None:
    submitted(plane, "a", "b")
    source = source_of(plane)
    work = source.next(0.0)
    assert work is not None
    plane.nack("a", "w", error="lost", retry=False, claim=work.claim)
    source.end(work, Ending(outcome="succeeded", result=b"1"))
    after = source.next(0.0)
    assert after is not None
    assert after.id == "b"
    assert state_of(plane, "a") == "failed"
    assert "the ending of a was not taken" in caplog.text


@pytest.mark.inventory("K-33")
def test_a_bell_that_stays_up_tells_what_rang_before_its_next_listener_only_by_the_rows(tmp_path: Path) -> None:
    bells = FifoBells(tmp_path / "bells")
    with bells.listen("done") as bell:
        bells.ring("done")
        bell.wait(5.0)
    bells.ring("done")  # nobody listens: the bell is up, and its ring is stale
    rung = threading.Event()
    with bells.listen("done") as bell:
        ringer = threading.Timer(0.2, lambda: (rung.set(), bells.ring("done")))
        ringer.start()
        bell.wait(5.0)
        assert rung.is_set(), "an old ring woke a new listener"
    ringer.join()
    for n in range(KEPT + 3):
        with bells.listen(f"frames/{n}"):
            pass
    assert len(list((tmp_path / "bells").iterdir())) == KEPT
    bells.close()
    assert list((tmp_path / "bells").iterdir()) == []


def test_a_bell_that_an_interrupt_left_behind_is_taken_down(tmp_path: Path) -> None:
    bells = FifoBells(tmp_path / "bells")
    for _ in range(3):
        bells.listen("done").__enter__()  # and what would have left it was never begun
    gc.collect()
    assert not list((tmp_path / "bells").iterdir())
    left = bells.listen("done")
    left.__enter__()
    if (child := os.fork()) == 0:
        del left
        gc.collect()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert bells.awaited("done")
    bells.close()


@pytest.mark.inventory("K-8", "K-32")
def test_a_large_result_waits_while_the_disk_has_no_room_for_it(
    plane: Dispatch, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    submitted(plane, "a", "b")
    source = source_of(plane)
    work = source.next(0.0)
    assert work is not None
    blobs = plane._state().plane.blobs
    keep, refused = blobs.keep, iter(range(2))

    def little_room(inv_id: str, kind: str, data: bytes) -> object:
        if next(refused, None) is not None:
            raise OSError(28, "No space left on device")
        return keep(inv_id, kind, data)

    monkeypatch.setattr(blobs, "keep", little_room)
    source.end(work, Ending(outcome="succeeded", result=b"r" * 100_000))
    source.close()
    assert plane.result("a", timeout=0) == b"r" * 100_000
    assert caplog.text.count("no space left") == 2


def test_a_result_that_cannot_be_kept_when_its_worker_leaves_is_that_jobs_failure_and_may_run_again(
    plane: Dispatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    submitted(plane, "a")
    source = source_of(plane)
    work = source.next(0.0)
    assert work is not None

    def no_room(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(plane._state().plane.blobs, "keep", no_room)
    source.drain()
    source.end(work, Ending(outcome="succeeded", result=b"r" * 100_000))
    source.close()
    assert state_of(plane, "a") == "queued"
    row = plane.get("a")
    assert row is not None
    assert "no space left" in str(row["error"])


@pytest.mark.inventory("K-20")
@pytest.mark.parametrize("where", ["file", "memory"])
def test_what_is_too_large_to_travel_is_refused_before_it_is_stored(where: str, tmp_path: Path) -> None:
    plane = Dispatch(":memory:" if where == "memory" else tmp_path / "plane.sqlite")
    with pytest.raises(DispatchError, match=r"101\.0 MiB, the limit is 100 MiB; pass a key or a path"):
        plane.submit("q", b"x" * (101 * 2**20), id="a")
    assert plane.get("a") is None
    plane.close()
