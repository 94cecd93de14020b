"""Producers, workers and the server under load, each killed with -9 again and again: nothing acknowledged is lost.

SOAK_S is how long (30 s; 300 for the long one), SOAK_SEED which instants and which calls; both are printed.
"""

from __future__ import annotations

import functools
import os
import random
import signal
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from checker import check
from final_state import Served, StateDirectory
from history import History
from soak_cast import PRODUCERS, WORKERS, Cast

SOAK_S = float(os.environ.get("SOAK_S", "30"))
SEED = int(os.environ.get("SOAK_SEED", "0")) or random.SystemRandom().randrange(1, 2**32)
QUIET_S = 60.0 + SOAK_S / 5
WAYS = {"succeeded", "failed", "killed"}
ASKED = 1000
"""So many invocations are also asked for over HTTP, one by one."""


@pytest.fixture
def cast(tmp_path: Path) -> Iterator[Cast]:
    cast = Cast(tmp_path, random.Random(SEED))
    yield cast
    cast.close()


def until(what: Callable[[], Any], told: Callable[[], str]) -> None:
    deadline = time.monotonic() + QUIET_S
    while not what():
        assert time.monotonic() < deadline, told()
        time.sleep(0.05)


def left(cast: Cast) -> int:
    """Rows that have not ended."""
    conn = sqlite3.connect(f"file:{cast.directory / 'state' / 'lakeshore.db'}?mode=ro", uri=True)
    try:
        return int(conn.execute("SELECT COUNT(*) FROM invocation WHERE finished_at IS NULL").fetchone()[0])
    finally:
        conn.close()


def endings(cast: Cast) -> set[str]:
    """In which ways calls have ended so far."""
    conn = sqlite3.connect(f"file:{cast.directory / 'state' / 'lakeshore.db'}?mode=ro", uri=True, timeout=60)
    try:
        return {state for (state,) in conn.execute("SELECT DISTINCT state FROM invocation WHERE finished_at NOT NULL")}
    finally:
        conn.close()


def said(directory: Path) -> int:
    """Bytes that everybody has written down."""
    return sum(path.stat().st_size for path in directory.glob("said-*"))


def lacking(cast: Cast) -> list[str]:
    """What has not occurred yet: a soak without it shows nothing about it."""
    history = History.read(cast.directory)
    kinds = ("calls", "told", "reads", "values", "began", "appended", "settled", "cancelled", "retrying")
    unhurt = [f"a kill of {name}" for name in cast.names() if not cast.kills[name]]
    unseen = sorted(WAYS - endings(cast))
    return [kind for kind in kinds if not getattr(history, kind)] + unhurt + unseen


def kill_them(cast: Cast, rng: random.Random, for_s: float) -> None:
    """At random instants; two at once are a power cut of one desk.

    Now and then at once, while who was killed last is still coming up; mostly once something was acknowledged, so that
    a busy machine kills no less work than an idle one. It goes on until everything has occurred.
    """
    ends_at = time.monotonic() + for_s
    bag: list[str] = []
    missing: list[str] = []
    while time.monotonic() < ends_at or (missing := lacking(cast)):
        assert time.monotonic() < ends_at + 2 * QUIET_S, f"the soak shows nothing about {missing}"
        wanted = said(cast.directory) + rng.choice((0, 1000, 3000, 10_000))
        latest = time.monotonic() + 8.0
        while said(cast.directory) < wanted and time.monotonic() < latest:
            time.sleep(0.01)
        time.sleep(rng.uniform(0.0, 0.3))
        victims = set()
        for _ in range(rng.choice((1, 1, 2))):
            if not bag:  # so all are hurt in turn, the server most
                bag = [*cast.names(), *WORKERS, "server", "server"]
                rng.shuffle(bag)
            victims.add(bag.pop())
        for name in sorted(victims):
            cast.kill(name)
        time.sleep(rng.uniform(0.0, 0.4))
        for name in sorted(victims):
            cast.start(name)


@pytest.mark.inventory("K-16", "K-24", "K-29")
def test_whoever_is_killed_nothing_acknowledged_is_lost_or_altered(cast: Cast, tmp_path: Path) -> None:
    print(f"SOAK_SEED={SEED} SOAK_S={SOAK_S:g}")
    rng = random.Random(SEED + 1)
    for name in cast.names():
        cast.start(name)
    for name in (*PRODUCERS, "hand"):
        until((tmp_path / f"said-{name}").exists, functools.partial(cast.log, name))
    until(lambda: list(tmp_path.glob("said-worker-*")), lambda: cast.log("worker-1"))
    kill_them(cast, rng, SOAK_S)
    (tmp_path / "stop").touch()
    for name in (*PRODUCERS, "hand"):
        assert cast.wait(name, QUIET_S) == 0, cast.log(name)
    until(lambda: left(cast) == 0, lambda: f"{left(cast)} rows never ended\n{cast.log('server')}")

    history = History.read(tmp_path)
    asked = set(rng.sample(sorted(history.calls), min(ASKED, len(history.calls))))
    with Served(cast.url) as final:
        check(history, final, only=asked).must_hold()
    for name in (*WORKERS, "server"):
        assert cast.end(name) in (0, -signal.SIGTERM), cast.log(name)  # one may not have begun to listen for it
    assert "Traceback" not in (tmp_path / "log-server").read_text()
    with StateDirectory(tmp_path / "state") as final:
        verdict = check(history, final)
    print(f"killed: {dict(sorted(cast.kills.items()))}")
    print(verdict.report())
    verdict.must_hold()
