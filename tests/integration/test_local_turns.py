"""Writers of one plane take turns; the database's lock alone decides, whatever becomes of a turn."""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from lakeshore.plane import turns
from lakeshore.plane.turns import Turn
from lakeshore.sdk.dispatch import Dispatch, DispatchError

PATIENCE_S = 60.0


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[Dispatch]:
    plane = Dispatch(tmp_path / "plane.sqlite", durability="process")
    yield plane
    plane.close()


def is_free(plane: Dispatch) -> bool:
    with open(f"{plane.path}.d/turn.lock", "rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def test_who_waits_for_its_turn_has_it_when_the_one_before_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "PATIENCE_S", PATIENCE_S)
    looked = threading.Event()
    flock, order = fcntl.flock, list[str]()

    def noted(fd: int, how: int) -> None:
        try:
            flock(fd, how)
        except BlockingIOError:
            looked.set()
            raise

    def second() -> None:
        with closing(Turn(tmp_path / "turn")) as turn, turn.taken(0.0):
            order.append("second")

    monkeypatch.setattr(fcntl, "flock", noted)
    thread = threading.Thread(target=second)
    with closing(Turn(tmp_path / "turn")) as turn:
        with turn.taken(0.0):
            thread.start()
            assert looked.wait(PATIENCE_S)
            order.append("first")
        thread.join(PATIENCE_S)
    assert order == ["first", "second"]


@pytest.mark.inventory("K-33")
def test_a_writer_that_keeps_its_turn_for_ever_keeps_nobody_from_writing(plane: Dispatch) -> None:
    with open(f"{plane.path}.d/turn.lock", "rb") as stopped:
        fcntl.flock(stopped, fcntl.LOCK_EX)
        plane.submit("q", b"", id="a")
        assert plane.count("q") == 1


def test_a_turn_is_over_when_what_was_written_is_refused(plane: Dispatch) -> None:
    plane.submit("q", b"", id="a")
    assert is_free(plane)
    with pytest.raises(DispatchError):
        plane.submit("q", b"another", id="a")
    assert is_free(plane)


def test_who_is_interrupted_in_its_turn_lets_go_of_it(plane: Dispatch, monkeypatch: pytest.MonkeyPatch) -> None:
    flock = fcntl.flock

    def interrupted(fd: int, how: int) -> None:
        flock(fd, how)
        if how & fcntl.LOCK_NB:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(fcntl, "flock", interrupted)
        with pytest.raises(KeyboardInterrupt):
            plane.submit("q", b"", id="a")
    assert is_free(plane)


@pytest.mark.inventory("K-33")
def test_a_child_does_not_keep_the_turn_of_a_parent_that_forked_in_it(tmp_path: Path) -> None:
    with closing(Turn(tmp_path / "turn")) as turn, turn.taken(0.0):
        child = os.fork()
        if child == 0:
            os._exit(int(turn._fd >= 0))
        assert os.waitpid(child, 0)[1] == 0
        with open(tmp_path / "turn", "rb") as file, pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
