"""The slate between a worker and its guardian: what is told is read whole, and nobody sleeps over it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from served import environment

from lakeshore.sdk.slate import ROOM, Slate

Pair = tuple[Slate, Slate]


@pytest.fixture
def pair() -> Iterator[Pair]:
    worker = Slate.create()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        worker.pass_to(ours)
        guardian = Slate.received(theirs)
    yield worker, guardian
    worker.close()
    guardian.close()


def test_the_newest_list_is_heard_once(pair: Pair) -> None:
    worker, guardian = pair
    assert guardian.heard(0) is None
    worker.tell(1, b"one")
    worker.tell(2, b"two, longer")
    worker.tell(3, b"3")
    heard = guardian.heard(0)
    assert heard is not None
    told, said = heard
    assert said == b"3"
    assert abs(time.monotonic_ns() - told) < 60e9
    assert guardian.heard(told) is None
    worker.tell(4, b"x" * ROOM)
    assert guardian.heard(told) is not None
    assert (guardian.heard(told) or (0, b""))[1] == b"x" * ROOM


def test_a_list_that_is_not_finished_leaves_the_one_before(pair: Pair) -> None:
    worker, guardian = pair
    worker.tell(1, b"whole")
    with pytest.raises(IndexError):  # stands for a kill in the middle: the list is in its place, the head is not
        worker.tell(2, b"y" * (2 * ROOM + 1))
    assert (guardian.heard(0) or (0, b""))[1] == b"whole"
    assert guardian.begun() == (1, 0)


@pytest.mark.inventory("K-12")
def test_a_guardian_that_sleeps_is_woken_and_one_that_looks_is_not(pair: Pair) -> None:
    worker, guardian = pair
    assert worker.tell(1, b"one") is False
    assert guardian.sleep(0) is False, "it would have slept over a list"
    told = (guardian.heard(0) or (0, b""))[0]
    assert guardian.sleep(told) is True
    assert worker.tell(2, b"two") is True
    guardian.wake()
    assert worker.tell(3, b"three") is False


@pytest.mark.inventory("K-9")
def test_what_was_revoked_does_not_begin_and_a_fresh_list_does(pair: Pair) -> None:
    worker, guardian = pair
    worker.tell(1, b"one")
    assert worker.begin()
    assert guardian.revoke_if_long(1, longer_than_s=3600) is None
    assert guardian.revoke_if_long(2, longer_than_s=0) is None, "of another batch"
    assert guardian.revoke_if_long(1, longer_than_s=0) == 1
    assert not worker.begin()
    worker.tell(2, b"two")
    assert guardian.begun() == (2, 0)
    assert worker.begin()
    worker.idle()
    assert guardian.revoke_if_long(2, longer_than_s=0) is None, "nothing runs"


@pytest.mark.inventory("K-12")
@pytest.mark.parametrize("system", ["memfd", "another"])
@pytest.mark.parametrize("at", ["made", "passed", "attached"])
def test_whoever_is_killed_at_any_time_leaves_no_file(tmp_path: Path, at: str, system: str) -> None:
    script = f"""
import os, signal, socket
if {system == "another"}:
    vars(os).pop("memfd_create", None)
from lakeshore.sdk.slate import Slate
slate = Slate.create()
ours, theirs = socket.socketpair()
if {at != "made"}:
    slate.pass_to(ours)
if {at == "attached"}:
    other = Slate.received(theirs)
    slate.tell(1, b"list")
    assert other.heard(0)[1] == b"list"
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", script], env=environment(TMPDIR=str(tmp_path)), timeout=60)
    assert done.returncode == -signal.SIGKILL
    assert os.listdir(tmp_path) == []
