"""The keeper with real jobs: what is recorded, what is ended, who outlives whom, and that nothing is left behind.

It is what DESIGN's "The daemon and its jobs" asks of the parent of all jobs; rows of the inventory that rest on it are
cited here and in the runners' tests.
"""

# ruff: noqa: ASYNC230, ASYNC240  (nothing else waits on this loop)

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path

import kept as k
import pytest
import trio

from lakeshore.nymph.keeping import processes, shelf
from lakeshore.nymph.keeping.client import (
    KeeperClient,
    KeeperError,
    KeeperLost,
    KeeperTaken,
    NotSpawned,
    Order,
    open_keeper,
)
from lakeshore.nymph.keeping.protocol import BadMessage, Decoder, encode

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts processes in /proc")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "daemon"


@pytest.mark.inventory("K-34")
def test_a_job_is_recorded_before_it_runs_and_its_end_is_written_whole(place: Path) -> None:
    async def main() -> None:
        async with k.keeper(place) as keeper:
            look = f"cat $DREAMLAKE_JOB/job.json; grep -c invocation_id {place}/begun.log >&2; exit 3"
            job = await keeper.spawn(k.bash("one", look, claim={"invocation_id": "one", "claim": 7}))
            ended = await keeper.wait("one")
            assert (ended.code, ended.signal, ended.oom, ended.timed_out, ended.cancelled_by) == (
                3,
                None,
                False,
                False,
                None,
            )
            first = json.loads((Path(job.directory) / "stdout").read_text())
            assert (first["claim"], first["boot"]) == ({"invocation_id": "one", "claim": 7}, keeper.boot)
            record = json.loads((Path(job.directory) / "job.json").read_text())
            assert record == {**first, "pid": job.pid, "start": job.start}
            assert (Path(job.directory) / "stderr").read_text().strip() == "1"
            told = json.loads((Path(job.directory) / "exit.json").read_text())
            assert told == {"code": 3, "signal": None, "oom": False, "timed_out": False, "cancelled_by": None}
            await keeper.forget("one")
            assert k.kept(place) == []
        assert not (place / "keeper.sock").exists()

    k.run(main)


def test_the_meeting_place_is_private_and_a_deep_path_is_no_obstacle(tmp_path: Path) -> None:
    place = tmp_path.joinpath(*["a-directory-with-a-long-name"] * 6)

    async def main() -> None:
        async with k.keeper(place) as keeper:
            assert len(str(place / "keeper.sock")) > 150
            assert stat.S_IMODE(place.stat().st_mode) == 0o700
            assert stat.S_IMODE((place / "keeper.sock").stat().st_mode) == 0o600
            job = await keeper.spawn(k.bash("deep", "umask; pwd", umask=0o027))
            await keeper.wait("deep")
            assert (Path(job.directory) / "stdout").read_text() == "0027\n/\n"
            modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in Path(job.directory).iterdir()}
            assert modes == dict.fromkeys(("job.json", "exit.json", "stdout", "stderr"), 0o600)

    k.run(main)


def test_a_directory_of_somebody_else_is_refused(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a directory away")
    place = tmp_path / "theirs"
    place.mkdir()
    os.chown(place, 65534, 65534)

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            with pytest.raises(PermissionError, match="belongs to uid 65534"):
                await open_keeper(str(place), nursery)

    k.run(main)


def test_another_user_is_not_heard(place: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    as_them = (
        "import os, socket; os.setuid(65534); line = socket.socket(socket.AF_UNIX)\n"
        "line.connect('keeper.sock'); line.sendall(b'\\0\\0\\0\\2{}'); print(line.recv(10))"
    )

    async def main() -> None:
        async with k.keeper(place):
            place.chmod(0o755)
            (place / "keeper.sock").chmod(0o666)  # though somebody opened both
            told = await trio.to_thread.run_sync(
                lambda: subprocess.run([sys.executable, "-S", "-c", as_them], cwd=place, capture_output=True, text=True)
            )
            assert told.stdout == "b''\n" or "Broken pipe" in told.stderr or "reset" in told.stderr, told

    k.run(main)


ESCAPES = {
    "a child": "sleep 1000 & echo begun; wait",
    "a fork that its program leaves behind": "sleep 1000 & echo begun",
    "a group of its own": "set -m; sleep 1000 & echo begun; wait",
    "a session of its own": "setsid sleep 1000 & echo begun; wait",
    "a double fork into a session of its own": "(setsid sh -c 'sleep 1000 & sleep 1000' &) ; echo begun; sleep 1000",
    "deaf to TERM": "trap '' TERM; sleep 1000 & echo begun; while :; do sleep 1; done",
    "a double fork that is deaf to TERM": "(setsid sh -c 'trap \"\" TERM; sleep 9; sleep 9' &) ; echo begun; sleep 99",
    "a fork of a fork without a name": "(env -i setsid sh -c 'sleep 1000; sleep 1000' &) ; echo begun; sleep 1000",
}


@pytest.mark.parametrize("how", ESCAPES)
@pytest.mark.parametrize("why", ["cancel", "timeout"])
def test_stopping_a_job_ends_all_of_it(place: Path, how: str, why: str) -> None:
    async def main() -> None:
        async with k.keeper(place) as keeper:
            guard = k.parent(keeper.pid)
            timeout_s = 2.0 if why == "timeout" else None
            job = await keeper.spawn(k.bash("x", ESCAPES[how], timeout_s=timeout_s, grace_s=0.3))
            await k.until(lambda: (Path(job.directory) / "stdout").read_bytes() == b"begun\n")
            if why == "cancel":
                await keeper.stop("x")
            ended = await keeper.wait("x")
            everything = processes.table()
            assert processes.below([guard], everything) - {guard, keeper.pid} == set()
            assert k.marked(place, "x") == []
            if how != "a fork that its program leaves behind":  # that one may end by itself first
                assert ended.timed_out == (why == "timeout")
                assert ended.cancelled_by == ("cancel" if why == "cancel" else None)

    k.run(main)


@pytest.mark.parametrize("script", ["exit 0", "exit 9", "kill -9 $$"])
def test_what_a_program_leaves_running_ends_with_it_and_another_jobs_processes_do_not(place: Path, script: str) -> None:
    async def main() -> None:
        async with k.keeper(place) as keeper:
            guard = k.parent(keeper.pid)
            other = await keeper.spawn(k.bash("other", "(setsid sleep 1000 &) ; echo begun; sleep 1000"))
            await k.until(lambda: (Path(other.directory) / "stdout").read_bytes() == b"begun\n")
            await k.until(lambda: len(k.marked(place, "other")) == 2)
            await keeper.spawn(k.bash("x", f"(setsid sleep 1000 &) ; sleep 1000 & {script}"))
            ended = await keeper.wait("x")
            assert (ended.code, ended.signal) == {"exit 0": (0, None), "exit 9": (9, None)}.get(
                script, (None, "SIGKILL")
            )
            assert k.marked(place, "x") == []
            assert len(k.marked(place, "other")) == 2
            await keeper.stop("other", grace_s=0)
            await keeper.wait("other")
            assert processes.below([guard], processes.table()) - {guard, keeper.pid} == set()

    k.run(main)


def test_the_grace_lets_a_body_tidy_up_and_its_own_status_is_told(place: Path) -> None:
    async def main() -> None:
        async with k.keeper(place) as keeper:
            job = await keeper.spawn(
                k.bash("x", "trap 'echo tidied; exit 4' TERM; echo begun; while :; do sleep 0.02; done")
            )
            await k.until(lambda: (Path(job.directory) / "stdout").read_bytes() == b"begun\n")
            await keeper.stop("x", why="cancel")
            ended = await keeper.wait("x")
            assert (ended.code, ended.cancelled_by) == (4, "cancel")
            assert (Path(job.directory) / "stdout").read_text() == "begun\ntidied\n"

    k.run(main)


def test_a_flood_costs_no_more_disk_than_is_allowed_and_its_end_can_be_read(place: Path) -> None:
    limit = 1 << 20

    async def main() -> None:
        async with k.keeper(place) as keeper:
            flood = "head -c 200000000 /dev/zero | tr '\\0' x; echo; echo the end; sleep 1000"
            job = await keeper.spawn(k.bash("x", flood, output_max=limit))
            path = Path(job.directory) / "stdout"
            await k.until(lambda: path.stat().st_size == 200_000_009)
            await k.until(lambda: path.stat().st_blocks * 512 <= limit)
            with open(path, "rb") as file:
                file.seek(-10, os.SEEK_END)
                assert file.read() == b"x\nthe end\n"
            await keeper.stop("x", grace_s=0)
            assert (await keeper.wait("x")).error is None

    k.run(main)


async def _done(keeper: KeeperClient, id_: str, script: str, **more: object) -> Path:
    """A job that has ended."""
    job = await keeper.spawn(k.bash(id_, script, **more))
    assert (await keeper.wait(id_)).code == 0
    return Path(job.directory)


def test_a_directory_that_is_used_again_has_nothing_of_the_job_before(place: Path) -> None:
    async def main() -> None:
        async with k.keeper(place) as keeper:
            first = await _done(keeper, "first", "echo one; echo two >&2", claim={"long": "x" * 5000})
            inodes = {path.name: path.stat().st_ino for path in first.iterdir()}
            await keeper.forget("first")
            assert k.kept(place) == []
            look = "ls $DREAMLAKE_JOB; cat $DREAMLAKE_JOB/job.json"
            second = await _done(keeper, "second", look)
            again = {path.name: path.stat().st_ino for path in second.iterdir()}
            assert again == inodes
            listed, record = (second / "stdout").read_text().split("{", 1)
            assert listed.split() == ["exit.json.new", "job.json", "stderr", "stdout"]
            assert json.loads("{" + record)["id"] == "second"
            assert (second / "stderr").read_bytes() == b""
            assert json.loads((second / "job.json").read_text())["claim"] is None
            assert json.loads((second / "exit.json").read_text())["code"] == 0

    k.run(main)


@pytest.mark.parametrize(
    "left",
    {
        "open elsewhere": "",
        "another file": "touch $DREAMLAKE_JOB/more",
        "another name": "ln $DREAMLAKE_JOB/stdout $DREAMLAKE_JOB/../../linked",
        "no file": "rm $DREAMLAKE_JOB/stderr; mkfifo $DREAMLAKE_JOB/stderr",
        "another mode": "chmod 666 $DREAMLAKE_JOB/stdout",
    }.items(),
    ids=lambda left: left[0],
)
def test_a_directory_that_is_not_as_it_was_made_is_not_used_again(place: Path, left: tuple[str, str]) -> None:
    async def main() -> None:
        async with k.keeper(place) as keeper:
            first = await _done(keeper, "first", left[1] or "true")
            held = open(first / "stdout", "ab") if left[0] == "open elsewhere" else None  # noqa: SIM115
            await keeper.forget("first")
            assert k.kept(place) == []
            assert os.listdir(place / "spare") == []
            second = await _done(keeper, "second", "true")
            if held is not None:
                held.write(b"of a process that got away")
                held.close()
            assert (second / "stdout").read_bytes() == b""

    k.run(main)


def test_directories_are_not_hoarded_and_go_with_the_keeper(place: Path) -> None:
    async def main() -> None:
        async with k.keeper(place) as keeper:
            ids = [str(n) for n in range(shelf.MOST + 3)]
            async with trio.open_nursery() as nursery:
                for id_ in ids:
                    nursery.start_soon(_done, keeper, id_, "true")
            for id_ in ids:
                await keeper.forget(id_)
            assert len(os.listdir(place / "spare")) == shelf.MOST
        assert not (place / "spare").exists()

    k.run(main)


@pytest.mark.parametrize("version", [1, 2], ids=["of a keeper of before", "of this one"])
def test_jobs_are_forgotten_together_but_none_that_runs(place: Path, version: int) -> None:
    async def main() -> None:
        async with k.keeper(place) as keeper:
            keeper._version = version
            await keeper.spawn(k.bash("runs", "sleep 1000"))
            for id_ in ("a", "b"):
                await _done(keeper, id_, "true")
            with pytest.raises(KeeperError, match="runs still runs"):
                await keeper.forget("a", "b", "never was", "runs")
            assert [job.id for job in await keeper.jobs()] == ["runs"]
            assert os.listdir(place / "jobs") == ["runs"]
            assert b'"a"' in (place / "begun.log").read_bytes().rpartition(b'"forget"')[0]

    k.run(main)


def test_a_job_is_found_by_its_mark_when_its_keeper_died_before_it_noted_the_pid(place: Path) -> None:
    async def main() -> None:
        async with k.keeper(place, end=False) as keeper:
            await keeper.spawn(k.bash("x", "sleep 1000", grace_s=0.3))
            for pid in (k.parent(keeper.pid), keeper.pid):
                os.kill(pid, signal.SIGKILL)
            with pytest.raises(KeeperLost):
                await keeper.wait("x")
        assert len(k.marked(place, "x")) == 1
        ledger = place / "begun.log"
        lines = ledger.read_bytes().split(b"\n")
        ledger.write_bytes(b"\n".join(line for line in lines if b'"pid"' not in line))
        async with k.keeper(place) as keeper:
            assert (await keeper.wait("x")).cancelled_by == "keeper"
            assert k.marked(place, "x") == []

    k.run(main)


def test_a_child_has_none_of_the_keepers_files_signals_or_mask(place: Path) -> None:
    """Nor does it ignore what the daemon was started to ignore, in a shell's background for example."""

    async def main() -> None:
        async with k.keeper(place) as keeper:
            look = "grep -E 'SigIgn|SigBlk' /proc/self/status; umask; cat /proc/self/oom_score_adj; ls -l /proc/self/fd"
            job = await _done(keeper, "x", look)
            blocked, ignored, mask, offered, _total, *files = (job / "stdout").read_text().splitlines()
            assert [line.split()[-3] for line in files] == ["0", "1", "2", "3"]  # 3 is that of ls
            assert int(blocked.split()[1], 16) == 0
            assert int(ignored.split()[1], 16) & 0x7FFFFFFF == 0  # 32 and 33 are the C library's own
            assert (mask, offered) == ("0022", "300")

    inherited = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGQUIT, signal.SIGUSR1)}
    try:
        k.run(main)
    finally:
        for number, handler in inherited.items():
            signal.signal(number, handler)


def test_a_program_that_is_not_there_is_told_and_a_job_that_cannot_begin_leaves_nothing(place: Path) -> None:
    async def main() -> None:
        async with k.keeper(place) as keeper:
            await keeper.spawn(Order(id="x", argv=("no-such-program",), env=k.ENV))
            ended = await keeper.wait("x")
            assert (ended.code, ended.signal, ended.error) == (None, None, "no-such-program: No such file or directory")
            await keeper.spawn(Order(id="y", argv=("true",), env=k.ENV, cwd="/no/such"))
            assert "the directory /no/such" in str((await keeper.wait("y")).error)
            for order, why in (
                (Order(id="x", argv=("true",)), "is here already"),
                (Order(id="../x", argv=("true",)), "cannot name a job"),
                (Order(id="z", argv=()), "argv is empty"),
                (Order(id="z", argv=("true",), stdin="/no/such"), "No such file"),
                (Order(id="z", argv=("true",), env={"big": "x" * (17 << 20)}), "a message to or from the keeper"),
            ):
                with pytest.raises(NotSpawned, match=why):
                    await keeper.spawn(order)
            with pytest.raises(KeeperError, match="no job nobody"):
                await keeper.stop("nobody")
            assert k.kept(place) == ["x", "y"]

    k.run(main)


def test_a_second_daemon_on_the_same_directory_is_refused_and_the_first_goes_on(place: Path) -> None:
    async def main() -> None:
        async with k.keeper(place) as keeper:
            async with trio.open_nursery() as nursery:
                with pytest.raises(KeeperTaken, match="another daemon uses"):
                    await open_keeper(str(place), nursery)
            await keeper.spawn(k.bash("x", "cat", stdin="/etc/hostname"))
            assert (await keeper.wait("x")).code == 0

    k.run(main)


def test_many_daemons_that_start_at_once_get_one_keeper(place: Path) -> None:
    async def main() -> None:
        got: list[int] = []

        async def one(nursery: trio.Nursery) -> None:
            try:
                got.append((await open_keeper(str(place), nursery)).pid)
            except KeeperTaken:
                got.append(0)

        async with trio.open_nursery() as outer:
            async with trio.open_nursery() as starting:
                for _ in range(4):
                    starting.start_soon(one, outer)
            outer.cancel_scope.cancel()
        pids = [pid for pid in got if pid]
        assert len(pids) == 1
        assert len(got) == 4
        await k.until(lambda: not k.alive(pids[0]))

    k.run(main)


def test_a_keeper_without_jobs_ends_with_its_daemon(place: Path) -> None:
    async def main() -> None:
        async with k.keeper(place, end=False) as keeper:
            pids = (keeper.pid, k.parent(keeper.pid))
        await k.until(lambda: not any(map(k.alive, pids)))
        assert sorted(path.name for path in place.iterdir()) == ["begun.log", "jobs", "keeper.lock", "keeper.log"]
        assert (place / "keeper.log").read_text() == ""

    k.run(main)


BEGIN_TWO = """\
env = dict(PATH=os.environ['PATH'])
await keeper.spawn(Order(id='runs', argv=('sleep', '1000'), env=env, claim={'claim': 3}, grace_s=0.3))
await keeper.spawn(Order(id='ends', argv=('bash', '-c', 'sleep 0.2; exit 6'), env=env))
"""


def test_a_daemons_kill_9_costs_no_job_when_it_comes_back(place: Path, tmp_path: Path) -> None:
    async def main() -> None:
        before = await k.killed_when_ready(k.daemon(place, tmp_path / "ready", BEGIN_TWO), tmp_path / "ready")
        await k.until((place / "jobs/ends/exit.json").exists)
        async with k.keeper(place) as keeper:
            assert keeper.pid == before
            found = {job.id: job for job in keeper.found}
            assert sorted(found) == ["ends", "runs"]
            assert (found["runs"].claim, found["runs"].phase, found["runs"].exit) == ({"claim": 3}, "running", None)
            assert k.alive(found["runs"].pid)
            assert (await keeper.wait("ends")).code == 6
            await keeper.stop("runs", why="lost")
            ended = await keeper.wait("runs")
            assert (ended.signal, ended.cancelled_by) == ("SIGTERM", "lost")
            for id_ in found:
                await keeper.forget(id_)
            assert k.kept(place) == k.marked(place, "runs", "ends") == []

    k.run(main)


@pytest.mark.inventory("K-11")
def test_without_a_daemon_the_jobs_end_before_their_leases_do_and_their_ends_are_told_later(
    place: Path, tmp_path: Path
) -> None:
    async def main() -> None:
        program = f"# ORPHANS\n{BEGIN_TWO}"
        before = await k.killed_when_ready(k.daemon(place, tmp_path / "ready", program), tmp_path / "ready")
        await k.until(lambda: not k.alive(before))
        assert k.marked(place, "runs", "ends") == []
        async with k.keeper(place) as keeper:
            assert keeper.pid != before
            told = {job.id: job.exit for job in keeper.found}
            assert told["ends"] is not None
            assert told["runs"] is not None
            assert (told["ends"].code, told["runs"].cancelled_by) == (6, "daemon gone")

    k.run(main)


@pytest.mark.parametrize("also", ["the keeper alone", "its guard as well", "the guard alone"])
def test_a_keeper_that_dies_takes_its_jobs_with_it_and_the_next_one_says_so(place: Path, also: str) -> None:
    async def main() -> None:
        async with k.keeper(place, end=False) as keeper:
            guard = k.parent(keeper.pid)
            script = "(setsid sh -c 'trap \"\" TERM; sleep 1000; sleep 1000' &) ; echo begun; sleep 1000"
            job = await keeper.spawn(k.bash("x", script, claim=5, grace_s=0.3))
            await k.until(lambda: (Path(job.directory) / "stdout").read_bytes() == b"begun\n")
            await k.until(lambda: len(k.marked(place, "x")) == 3)
            for pid in {"the keeper alone": [keeper.pid], "the guard alone": [guard]}.get(also, [guard, keeper.pid]):
                os.kill(pid, signal.SIGKILL)
            if also == "the guard alone":
                assert (await keeper.wait("x")).cancelled_by == "keeper"
            else:
                with pytest.raises(KeeperLost):
                    await keeper.wait("x")
                with pytest.raises(KeeperLost):
                    await keeper.jobs()
        if also != "its guard as well":  # then nobody was left to do it, but the next keeper
            await k.until(lambda: k.marked(place, "x") == [])
            await k.until(lambda: not k.alive(guard))
        async with k.keeper(place) as keeper:
            (found,) = keeper.found
            ended = await keeper.wait("x")
            assert found.claim == 5
            assert ended.cancelled_by == "keeper"
            assert k.marked(place, "x") == []
            await keeper.forget("x")
            assert k.kept(place) == []

    k.run(main)


@pytest.mark.inventory("K-11")
def test_a_lease_that_is_not_renewed_ends_its_job_while_the_daemon_hangs(place: Path) -> None:
    async def main() -> None:
        async with k.keeper(place) as keeper:
            await keeper.spawn(k.bash("renewed", "sleep 1000", lease_s=2.0))
            await keeper.renew(60, ["renewed"])
            await keeper.spawn(k.bash("short", "sleep 1000", lease_s=2.2))
            assert (await keeper.wait("short")).cancelled_by == "lease"
            assert len(k.marked(place, "renewed")) == 1

    k.run(main)


def test_a_keeper_that_is_told_to_end_ends_everything_first(place: Path) -> None:
    async def main() -> None:
        async with k.keeper(place, end=False) as keeper:
            await keeper.spawn(k.bash("x", "sleep 1000"))
            os.kill(keeper.pid, signal.SIGTERM)
            assert (await keeper.wait("x")).cancelled_by == "keeper"
            await k.until(lambda: not k.alive(keeper.pid))
            assert k.marked(place, "x") == []

    k.run(main)


def test_what_is_no_message_ends_that_conversation_only(place: Path) -> None:
    async def main() -> None:
        async with k.keeper(place) as keeper:
            for words, answer in (
                (b"\xff\xff\xff\xff", "a message of"),
                (b"\0\0\0\2[]", "no object"),
                (b"\0\0\0\1x", "no JSON"),
                (encode({"do": "spawn", "n": 1}), "say hello first"),
                (encode({"do": "dance", "n": 1}), "does not know 'dance'"),
            ):
                with socket.socket(socket.AF_UNIX) as line:
                    line.connect(str(place / "keeper.sock"))
                    line.sendall(words)
                    line.settimeout(k.PATIENCE_S)
                    (told,) = Decoder().feed(await trio.to_thread.run_sync(line.recv, 4096))
                    assert answer in told["error"]
            await keeper.spawn(k.bash("x", "true"))
            assert (await keeper.wait("x")).code == 0

    k.run(main)


LOADS = "import sys; sys.path.insert(0, sys.argv[1]); import lakeshore.nymph.keeper; print(*sys.modules)"


def test_it_stays_small_and_loads_little(place: Path) -> None:
    async def main() -> None:
        async with k.keeper(place) as keeper:
            await keeper.spawn(k.bash("x", "true"))
            await keeper.wait("x")
            for pid in (keeper.pid, k.parent(keeper.pid)):
                lines = Path(f"/proc/{pid}/status").read_text().splitlines()
                resident = next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))
                assert resident < 15 * 1024, f"{resident} KiB"

    k.run(main)
    loaded = subprocess.run(
        [sys.executable, "-I", "-S", "-c", LOADS, str(k.ROOT)], capture_output=True, text=True, check=True
    ).stdout.split()
    costly = {"typing", "dataclasses", "inspect", "subprocess", "threading", "pathlib", "logging", "trio", "msgpack"}
    assert sorted(costly & set(loaded)) == []


def test_bytes_of_any_cut_make_the_same_messages() -> None:
    messages = [{"do": "spawn", "name": "\udcff"}, {}, {"n": 1}]
    data = b"".join(map(encode, messages))
    decoder = Decoder()
    heard = [message for at in range(len(data)) for message in decoder.feed(data[at : at + 1])]
    assert heard == messages
    with pytest.raises(BadMessage):
        encode({"x": "x" * (17 << 20)})
