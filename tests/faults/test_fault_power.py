"""Power cuts: what was acknowledged is there after each, wherever it falls (K-29).

A real server runs under strace. Its writes are replayed onto a model of a disk that keeps only what was synced, cut at
every sync and just before, and what is left is opened again. POWER_SEED replays a load and its cuts, POWER_ROUNDS makes
it longer. Servers that lie about one kind of sync must be found out.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import served
from disks import fast_directory
from power_check import Broken, Reopened
from power_disk import Disk, Keep, drawn, everything, instants, nothing, wipe
from power_load import Client, Kept, Promise
from power_server import LIES
from power_trace import calls, traced
from served import Served

SEED = int(os.environ.get("POWER_SEED", random.randrange(2**32)))
ROUNDS = int(os.environ.get("POWER_ROUNDS", "8"))
CLIENTS = 3


_PORT = re.compile(rb"sin_port=htons\((\d+)\)")
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


@pytest.fixture
def work(tmp_path: Path) -> Iterator[Path]:
    """Where cuts are opened."""
    with fast_directory(tmp_path) as directory:
        yield directory


# --- the run that is recorded


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """What the system calls were, below which directory, and what was promised from which line of the trace on."""

    trace: Path
    disk: Path
    promised: dict[int, list[tuple[str, Promise]]]


def record(directory: Path, lie: str, *arguments: str, seed: int, rounds: int) -> Recorded:
    """Run a server under strace and clients on it, then end it; its state is made within the trace."""
    directory.mkdir()
    disk, ready, log = directory / "disk", directory / "ready", directory / "log"
    disk.mkdir()
    command = [sys.executable, str(Path(__file__).with_name("power_server.py")), lie]
    command += ["--port", "0", "--state-dir", str(disk / "state"), "--ready-file", str(ready), "--reserve-bytes", "0"]
    with log.open("wb") as out:
        process = subprocess.Popen(
            traced(directory / "trace", [*command, *arguments]), env=served.environment(), stdout=out, stderr=out
        )
    try:
        deadline = time.monotonic() + 60
        while not ready.exists():
            assert process.poll() is None and time.monotonic() < deadline, f"no server:\n{log.read_text()}"
            time.sleep(0.01)
        server = Served(process, ready.read_text().strip(), disk / "state", log)
        kept = play(server, seed, rounds)
    finally:
        for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
            os.kill(int(pid), signal.SIGTERM)
        process.wait(60)
    assert "Traceback" not in log.read_text()
    return Recorded(trace=directory / "trace", disk=disk, promised=answered(directory / "trace", kept))


def record_local(directory: Path, *durabilities: str, seed: int, rounds: int) -> Recorded:
    """Run a program on a local plane under strace."""
    directory.mkdir()
    disk = directory / "disk"
    disk.mkdir()
    script = str(Path(__file__).with_name("power_local.py"))
    command = [sys.executable, script, str(disk / "state" / "plane.sqlite"), str(seed), str(rounds), *durabilities]
    done = subprocess.run(
        traced(directory / "trace", command), env=served.environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    promised: dict[int, list[tuple[str, Promise]]] = {}
    for call in calls(directory / "trace"):
        if call.name == "write" and call.fd() == 1:
            (line,) = call.texts()
            said = json.loads(line)
            promise = Promise(**{**said, "data": bytes.fromhex(said["data"])})
            promised[call.entered] = [(promise.kind, promise)]
    return Recorded(trace=directory / "trace", disk=disk, promised=promised)


def play(server: Served, seed: int, rounds: int) -> list[Kept]:
    """Clients at once, so that batches form; what they were promised."""
    clients = [Client(server, f"c{k}", random.Random(f"{seed}-{k}")) for k in range(CLIENTS)]
    failed: list[BaseException] = []

    def run(client: Client) -> None:
        try:
            client.run(rounds)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=(client,)) for client in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for client in clients:
        client.close()
    if failed:
        raise failed[0]
    return [kept for client in clients for kept in client.kept]


# --- the cuts


def answered(trace: Path, kept: list[Kept]) -> dict[int, list[tuple[str, Promise]]]:
    """What holds from which line of the trace on: that where the first byte of its answer is handed to the socket."""
    ports: dict[int, int] = {}
    sent: dict[int, list[tuple[int, bytes]]] = {}
    for call in calls(trace):
        if call.name in ("accept", "accept4") and call.result is not None and call.result >= 0:
            found = _PORT.search(call.arguments)
            assert found is not None
            ports[call.result] = int(found[1])
            sent[int(found[1])] = []
        elif call.name in ("sendto", "sendmsg") and call.fd() in ports and (call.result or 0) > 0:
            sent[ports[call.fd()]].append((call.entered, b"".join(call.texts())[: call.result]))
    first: dict[tuple[int, int], int] = {}
    for port, pieces in sent.items():
        whole, at, number = b"".join(data for _, data in pieces), 0, 0
        while at < len(whole):
            assert whole[at : at + 9] == b"HTTP/1.1 "
            past = 0
            for line, data in pieces:
                past += len(data)
                if past > at:
                    first[port, number] = line
                    break
            end = whole.index(b"\r\n\r\n", at)
            length = _LENGTH.search(whole, at, end)
            assert length is not None
            at, number = end + 4 + int(length[1]), number + 1
    promised: dict[int, list[tuple[str, Promise]]] = {}
    for one in kept:
        promised.setdefault(first[one.port, one.answer], []).extend((one.what, each) for each in one.promises)
    return promised


@dataclass
class Cutter:
    """Replays a recorded run and looks at what each cut leaves."""

    recorded: Recorded
    work: Path
    rng: random.Random
    database: str | None = None
    cuts: int = 0
    syncs: int = 0

    def run(self) -> None:
        """Cut everywhere. Raises Broken at the first cut after which something acknowledged is not there."""
        disk = Disk(self.recorded.disk, self.work / "pool")
        promised, promises = dict(self.recorded.promised), list[tuple[str, Promise]]()
        covered: dict[int, int] = {}
        for what, call in instants(calls(self.recorded.trace)):
            is_sync = call.name in ("fsync", "fdatasync")
            if what == "entered":
                promises += promised.pop(call.entered, ())
                disk.entered(call)
                if is_sync:
                    covered[id(call)] = disk.pending_of(call)
                    if covered[id(call)]:
                        self.cut(disk, drawn(self.rng), promises)
                        if self.rng.random() < 0.2:
                            self.cut(disk, everything, promises)
                continue
            if is_sync and covered[id(call)]:
                # This is the latest instant with what was synced so far: the most was acknowledged on it.
                self.syncs += 1
                self.cut(disk, nothing, promises)
            disk.returned(call, covered.pop(id(call), 0))
        assert not promised
        self.cut(disk, nothing, promises)
        self.cut(disk, everything, promises)

    def cut(self, disk: Disk, keep: Keep, promises: Sequence[tuple[str, Promise]]) -> None:
        """Leave what a cut leaves here, and open it."""
        self.cuts += 1
        left = self.work / "cut"
        disk.after_cut(left, keep)
        try:
            state = Reopened(left / "state", database=self.database)
        except Exception as error:
            raise Broken(f"cut {self.cuts} left what cannot be opened: {error!r}") from error
        try:
            state.check()
            state.keeps(promises)
        except Broken as broken:
            raise Broken(f"cut {self.cuts} (POWER_SEED={SEED}): {broken}") from None
        finally:
            state.close()
        wipe(left)


@pytest.mark.inventory("K-29", "K-26", "K-30")
def test_nothing_acknowledged_is_lost_by_a_power_cut_at_any_sync(tmp_path: Path, work: Path) -> None:
    print(f"POWER_SEED={SEED}")
    recorded = record(tmp_path / "run", "nothing", seed=SEED, rounds=ROUNDS)
    cutter = Cutter(recorded, work, random.Random(SEED))
    cutter.run()
    told = [promise for promises in recorded.promised.values() for _, promise in promises]
    print(f"{cutter.syncs} syncs, {cutter.cuts} cuts, {len(told)} promises")
    assert cutter.syncs > 100
    assert {promise.kind for promise in told} == {
        "submitted", "claimed", "returned", "succeeded", "ended", "frame", "posted", "session", "token", "stored",
        "minted", "cancelling",
    }  # fmt: skip


@pytest.mark.inventory("K-29", "K-26", "K-33")
@pytest.mark.parametrize("made_by", [(), ("process",)], ids=["alone", "made by one that does not sync"])
def test_nothing_acknowledged_on_a_plane_of_files_is_lost_by_a_power_cut(
    tmp_path: Path, work: Path, made_by: tuple[str, ...]
) -> None:
    print(f"POWER_SEED={SEED}")
    recorded = record_local(tmp_path / "run", *made_by, "power", seed=SEED, rounds=ROUNDS)
    cutter = Cutter(recorded, work, random.Random(SEED), database="plane.sqlite")
    cutter.run()
    print(f"{cutter.syncs} syncs, {cutter.cuts} cuts, {len(recorded.promised)} promises")
    assert cutter.syncs > 50


@pytest.mark.inventory("K-29")
@pytest.mark.parametrize("lie", LIES)
def test_a_server_that_skips_a_sync_is_found_out(tmp_path: Path, work: Path, lie: str) -> None:
    print(f"POWER_SEED={SEED}")  # in what a failure shows
    recorded = record(tmp_path / "run", lie, seed=SEED, rounds=7)
    with pytest.raises(Broken):
        Cutter(recorded, work, random.Random(SEED)).run()


@pytest.mark.inventory("K-31")
def test_a_server_of_durability_process_is_not_safe_from_power_cuts(tmp_path: Path, work: Path) -> None:
    recorded = record(tmp_path / "run", "nothing", "--durability", "process", seed=SEED, rounds=7)
    with pytest.raises(Broken, match=r"acknowledged|a success of|cannot be opened"):
        Cutter(recorded, work, random.Random(SEED)).run()


@pytest.mark.inventory("K-31")
def test_a_plane_of_files_of_durability_process_is_not_safe_from_power_cuts(tmp_path: Path, work: Path) -> None:
    recorded = record_local(tmp_path / "run", "process", seed=SEED, rounds=5)
    with pytest.raises(Broken, match=r"acknowledged|a success of|cannot be opened"):
        Cutter(recorded, work, random.Random(SEED), database="plane.sqlite").run()
