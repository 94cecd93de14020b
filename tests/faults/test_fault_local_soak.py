"""Producers and workers of one local plane under load, killed with -9 and frozen at random: as the soak of a server.

LOCAL_SOAK_S is how long at least (1 s), SOAK_SEED which instants and which calls; both are printed. It goes on until
everybody has been killed and calls have ended in every way.
"""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from checker import check
from final_state import StateDirectory
from history import History
from soak_cast import LocalCast

SOAK_S = float(os.environ.get("LOCAL_SOAK_S", "1"))
SEED = int(os.environ.get("SOAK_SEED", "0")) or random.SystemRandom().randrange(1, 2**32)
QUIET_S = 60.0 + SOAK_S
WAYS = {"succeeded", "failed", "killed"}


@pytest.fixture
def cast(tmp_path: Path) -> Iterator[LocalCast]:
    cast = LocalCast(tmp_path, random.Random(SEED))
    yield cast
    cast.close()


def until(what: Callable[[], object], told: Callable[[], str]) -> None:
    deadline = time.monotonic() + QUIET_S
    while not what():
        assert time.monotonic() < deadline, told()
        time.sleep(0.02)


def endings(directory: Path) -> set[str]:
    """In which ways calls have ended so far."""
    conn = sqlite3.connect(directory / "plane.sqlite", timeout=60)
    try:
        return {state for (state,) in conn.execute("SELECT DISTINCT state FROM invocation WHERE finished_at NOT NULL")}
    finally:
        conn.close()


def left(directory: Path) -> list[tuple[str, str, str | None]]:
    """Rows that have not ended."""
    conn = sqlite3.connect(directory / "plane.sqlite", timeout=60)
    try:
        return conn.execute("SELECT id, state, worker FROM invocation WHERE finished_at IS NULL LIMIT 5").fetchall()
    finally:
        conn.close()


def hurt(cast: LocalCast, rng: random.Random, for_s: float) -> None:
    """Kill one after the other, all in turn; now and then freeze one first, while the others go on."""
    ends_at = time.monotonic() + for_s
    gives_up_at = ends_at + QUIET_S
    bag: list[str] = []
    while (
        time.monotonic() < ends_at
        or not all(cast.kills[name] for name in cast.names())
        or not endings(cast.directory) >= WAYS
    ):
        assert time.monotonic() < gives_up_at, (endings(cast.directory), cast.kills)
        if not bag:
            bag = cast.names()
            rng.shuffle(bag)
        name = bag.pop()
        time.sleep(rng.uniform(0.0, 0.3))
        if rng.random() < 0.3:
            cast.freeze(name)
            time.sleep(rng.uniform(0.0, 0.2))
            if rng.random() < 0.5:
                cast.freeze(name, thaw=True)
        cast.kill(name)
        time.sleep(rng.uniform(0.0, 0.1))
        cast.start(name)


@pytest.mark.inventory("K-14", "K-16", "K-33")
def test_whoever_is_killed_on_a_local_plane_nothing_acknowledged_is_lost_or_begins_twice(
    cast: LocalCast, tmp_path: Path
) -> None:
    print(f"SOAK_SEED={SEED} LOCAL_SOAK_S={SOAK_S:g}")
    for name in cast.names():
        cast.start(name)
    until(lambda: list(tmp_path.glob("said-worker-*")), lambda: cast.log("worker-1"))
    hurt(cast, random.Random(SEED + 1), SOAK_S)
    (tmp_path / "stop").touch()
    for name in cast.names():
        if name.startswith("producer"):
            assert cast.wait(name, QUIET_S) == 0, cast.log(name)
    until(lambda: not left(tmp_path), lambda: f"{left(tmp_path)} never ended\n{cast.log('worker-1')}")
    for name in cast.names():
        if name.startswith("worker"):
            assert cast.end(name) in (0, -signal.SIGTERM), cast.log(name)
    history = History.read(tmp_path)
    with StateDirectory(tmp_path / "plane.sqlite.d", tmp_path / "plane.sqlite") as final:
        verdict = check(history, final)
    print(f"killed: {dict(sorted(cast.kills.items()))}")
    print(verdict.report())
    verdict.must_hold()
