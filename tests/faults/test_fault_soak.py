"""Producers, workers and the server under load, each killed with -9 again and again: nothing acknowledged is lost.

SOAK_S is how long (20 s), SOAK_SEED which instants; both are printed.
"""

from __future__ import annotations

import hashlib
import os
import random
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fault_bodies as bodies
import pytest
import served

from lakeshore import wire
from lakeshore.plane.journal import Journal, Location

HERE = Path(__file__).parent
SOAK_S = float(os.environ.get("SOAK_S", "20"))
SEED = int(os.environ.get("SOAK_SEED", "0")) or random.SystemRandom().randrange(1, 2**32)
QUIET_S = 60.0
LEASE_S = 2.0


class Cast:
    """The processes of a soak: each has a name, can be killed, and is started again as another."""

    def __init__(self, directory: Path, port: int, rng: random.Random) -> None:
        self.directory, self.port, self._rng = directory, port, rng
        self.url = f"http://127.0.0.1:{port}"
        self.kills: Counter[str] = Counter()
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._starts: dict[str, Callable[[], list[str]]] = {
            "server": self._server,
            "worker-1": self._worker,
            "worker-2": self._worker,
            "producer-1": lambda: self._producer("p1"),
            "producer-2": lambda: self._producer("p2"),
            "hand": lambda: [str(HERE / "soak_hand.py"), self.url, str(directory)],
        }

    def names(self) -> list[str]:
        return list(self._starts)

    def start(self, name: str) -> None:
        with (self.directory / f"log-{name}").open("ab") as log:
            self._running[name] = subprocess.Popen(
                [sys.executable, *self._starts[name]()],
                cwd=HERE,
                env=served.environment(PYTHONPATH=os.pathsep.join([str(HERE.parents[1]), str(HERE)])),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def kill(self, name: str) -> None:
        process = self._running[name]
        assert process.poll() is None, f"{name} ended by itself:\n{self.log(name)}"
        process.kill()
        process.wait()
        self.kills[name] += 1

    def end(self, name: str, timeout: float = 30.0) -> int:
        process = self._running[name]
        process.terminate()
        return process.wait(timeout)

    def wait(self, name: str, timeout: float) -> int:
        return self._running[name].wait(timeout)

    def log(self, name: str) -> str:
        return (self.directory / f"log-{name}").read_text(errors="replace")[-4000:]

    def close(self) -> None:
        for process in self._running.values():
            if process.poll() is None:
                process.kill()
            process.wait()

    def _server(self) -> list[str]:
        state = str(self.directory / "state")
        flags = ["--port", str(self.port), "--state-dir", state, "--reserve-bytes", "0", "--lease-s", str(LEASE_S)]
        return ["-m", "lakeshore.server.serve", *flags]

    def _worker(self) -> list[str]:
        return ["-m", "dreamlake.lakeshore.daemon", "--queue", "soak", "--url", self.url]

    def _producer(self, name: str) -> list[str]:
        # Another seed for each life, so that it says something new.
        return [str(HERE / "soak_producer.py"), self.url, str(self.directory), name, str(self._rng.randrange(2**31))]


@pytest.fixture
def cast(tmp_path: Path) -> Iterator[Cast]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    cast = Cast(tmp_path, port, random.Random(SEED))
    yield cast
    cast.close()


def expected(kind: str, number: str, seed: int) -> Any:
    if kind == "small":
        return [seed, seed * seed]
    if kind == "streamed":
        return [seed + step for step in range(4)]
    return (number.encode() * (bodies.BIG // len(number)))[::-1] + str(seed).encode()


class Said:
    """What the processes wrote down: each line is something that was acknowledged to them. A cut last line is none."""

    def __init__(self, directory: Path) -> None:
        self.calls: dict[str, tuple[str, str, int]] = {}
        self.by_hand: set[str] = set()
        self.frames: set[tuple[str, int, str]] = set()
        self.appended: dict[tuple[str, int, int], str] = {}
        self.results: dict[str, set[str]] = defaultdict(set)
        self.acks: dict[str, dict[int, str]] = defaultdict(dict)
        self.errors: list[str] = []
        for path in directory.glob("said-*"):
            for line in path.read_text().split("\n")[:-1]:
                self._take(line.split(" "), path.name == "said-hand")

    def _take(self, words: list[str], by_hand: bool) -> None:
        match words:
            case ["A", inv] if by_hand:
                self.by_hand.add(inv)
            case ["A", inv, kind, number, seed]:
                self.calls[inv] = (kind, number, int(seed))
            case ["F", inv, seq, digest]:
                self.frames.add((inv, int(seq), digest))
            case ["R", inv, digest]:
                self.results[inv].add(digest)
            case ["J", inv, claim, seq, digest]:
                assert self.appended.setdefault((inv, int(claim), int(seq)), digest) == digest
            case ["K", inv, claim, digest]:
                self.acks[inv][int(claim)] = digest
            case _:
                self.errors.append(" ".join(words))


class Kept:
    """What is on the disk once everybody has stopped, read without any server."""

    def __init__(self, state: Path) -> None:
        self._blobs = state / "blobs"
        self._conn = sqlite3.connect(state / "lakeshore.db")
        self._journal = Journal(state / "journal", sync=False)

    def close(self) -> None:
        self._journal.close()
        self._conn.close()

    def check_whole(self) -> None:
        assert self._conn.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        counted = set(self._conn.execute("SELECT ns, queue, state, n FROM tally WHERE n != 0"))
        rows = set(self._conn.execute("SELECT ns, queue, state, COUNT(*) FROM invocation GROUP BY ns, queue, state"))
        assert counted == rows, "the kept counts are not the rows"

    def rows(self) -> dict[str, dict[str, Any]]:
        names = ("seq", "id", "queue", "state", "claim", "attempt", "settled_claim", "settled_as", "last_frame")
        found = self._conn.execute(f"SELECT {', '.join(names)} FROM invocation").fetchall()
        rows = {row[1]: dict(zip(names, row, strict=True)) for row in found}
        assert len(rows) == len(found)
        return rows

    def result(self, seq: int) -> bytes:
        ((data, blob, size, digest),) = self._conn.execute(
            "SELECT data, blob, size, sha256 FROM result WHERE seq = ?", (seq,)
        ).fetchall()
        if blob is not None:
            data = (self._blobs / blob).read_bytes()
            assert hashlib.sha256(data).hexdigest() == digest
        assert len(data) == size
        return bytes(data)

    def frames(self, seq: int) -> list[tuple[int, int, bytes]]:
        """(seq, claim, bytes); the journal raises for a record that is damaged."""
        stored = self._conn.execute(
            "SELECT seq, claim, segment, offset, length FROM frame WHERE channel = ? ORDER BY seq", (seq,)
        ).fetchall()
        return [
            (at, claim, self._journal.read(seq, claim, at, Location(segment=segment, offset=offset, length=length)))
            for at, claim, segment, offset, length in stored
        ]


def until(what: Callable[[], Any], told: Callable[[], str]) -> None:
    deadline = time.monotonic() + QUIET_S
    while not what():
        assert time.monotonic() < deadline, told()
        time.sleep(0.05)


def left(cast: Cast) -> int:
    """Rows that have not ended, as the server tells."""
    conn = sqlite3.connect(f"file:{cast.directory / 'state' / 'lakeshore.db'}?mode=ro", uri=True)
    try:
        return int(conn.execute("SELECT COUNT(*) FROM invocation WHERE finished_at IS NULL").fetchone()[0])
    finally:
        conn.close()


@pytest.mark.inventory("K-16", "K-24", "K-29")
def test_whoever_is_killed_nothing_acknowledged_is_lost_or_altered(cast: Cast, tmp_path: Path) -> None:
    print(f"SOAK_SEED={SEED} SOAK_S={SOAK_S:g}")
    rng = random.Random(SEED + 1)
    for name in cast.names():
        cast.start(name)
    until(lambda: all((tmp_path / f"said-{name}").exists() for name in ("p1", "p2", "hand")), lambda: cast.log("p1"))
    until(lambda: (tmp_path / "runs").exists(), lambda: cast.log("worker-1"))
    ends_at = time.monotonic() + SOAK_S
    while time.monotonic() < ends_at:
        time.sleep(rng.uniform(0.05, 1.0))
        # The server dies as often as all the others together can notice; two at once are a power cut of one desk.
        victims = {rng.choices(cast.names(), (2, 2, 2, 1, 1, 2))[0] for _ in range(rng.choice((1, 1, 2)))}
        for name in sorted(victims):
            cast.kill(name)
        time.sleep(rng.uniform(0.0, 0.4))
        for name in sorted(victims):
            cast.start(name)
    (tmp_path / "stop").touch()
    for name in ("producer-1", "producer-2", "hand"):
        assert cast.wait(name, QUIET_S) == 0, cast.log(name)
    until(lambda: left(cast) == 0, lambda: f"{left(cast)} rows never ended\n{cast.log('server')}")
    for name in ("worker-1", "worker-2", "server"):
        assert cast.end(name) in (0, -signal.SIGTERM), cast.log(name)  # one may not have begun to listen for it
    assert "Traceback" not in (tmp_path / "log-server").read_text()

    said, kept = Said(tmp_path), Kept(tmp_path / "state")
    try:
        check(said, kept)
    finally:
        kept.close()
    runs = Counter((tmp_path / "runs").read_text().split())
    again = sum(n - 1 for n in runs.values())
    told = sum(len(found) for found in said.results.values())
    print(f"killed: {dict(sorted(cast.kills.items()))}")
    submits = len(said.calls) + len(said.by_hand)
    print(f"acknowledged: {submits} submits, {told} results, {len(said.acks)} acks by hand,")
    print(f"  {len(said.frames)} frames read, {len(said.appended)} appended; {len(said.errors)} refusals")
    print(f"executions: {sum(runs.values())} of {len(runs)} calls, {again} of them again")
    assert said.calls, "nothing was submitted: the test shows nothing"
    assert said.acks
    assert cast.kills["server"] > 0


def check(said: Said, kept: Kept) -> None:
    kept.check_whole()
    rows = kept.rows()
    missing = (set(said.calls) | said.by_hand) - set(rows)
    assert not missing, f"acknowledged and gone: {sorted(missing)}"
    for row in rows.values():
        assert row["state"] == "succeeded", row
        assert (row["settled_claim"], row["settled_as"]) == (row["claim"], "succeeded"), row
        assert 1 <= row["attempt"] <= row["claim"], row
    for inv, (kind, number, seed) in said.calls.items():
        assert wire.unpack(kept.result(rows[inv]["seq"])) == expected(kind, number, seed), (inv, kind)
    for inv, digests in said.results.items():
        assert digests == {hashlib.sha256(kept.result(rows[inv]["seq"])).hexdigest()}, f"another result of {inv}"
    for inv, by_claim in said.acks.items():
        # Each was acknowledged, so each must be the one that stands.
        assert by_claim == {rows[inv]["settled_claim"]: hashlib.sha256(kept.result(rows[inv]["seq"])).hexdigest()}, inv
    frames = {inv: kept.frames(row["seq"]) for inv, row in rows.items()}
    for inv, stored in frames.items():
        assert [seq for seq, _, _ in stored] == list(range(rows[inv]["last_frame"] + 1)), f"a hole in {inv}"
    for (inv, claim, seq), digest in said.appended.items():
        at, by, data = frames[inv][seq]
        assert (at, by, hashlib.sha256(data).hexdigest()) == (seq, claim, digest), f"frame {seq} of {inv} is another"
    for inv, seq, digest in said.frames:
        assert hashlib.sha256(frames[inv][seq][2]).hexdigest() == digest, f"frame {seq} of {inv} was read as another"
    for inv, (kind, _number, seed) in said.calls.items():
        if kind == "streamed":
            check_stream([wire.Frame.from_bytes(data) for _, _, data in frames[inv]], seed, inv)


def check_stream(frames: list[wire.Frame], seed: int, inv: str) -> None:
    """Executions one after another, each a prefix of the yields; the last one whole, and one END."""
    kinds = [frame.kind.name for frame in frames]
    assert kinds == ["VALUE"] * (len(frames) - 1) + ["END"], inv
    whole = [seed + step for step in range(4)]
    assert [frame.body for frame in frames[-5:-1]] == whole, inv
    by_attempt: dict[Any, list[Any]] = defaultdict(list)
    for frame in frames[:-1]:
        by_attempt[(frame.meta or {}).get("attempt")].append(frame.body)
    for values in by_attempt.values():
        assert values == whole[: len(values)], inv
