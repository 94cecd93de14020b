"""Jobs that begin in an interpreter past its imports: they are what a cold start makes, and leave as little."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import entry_bodies as bodies
import kept as k
import pytest
import trio

import dreamlake.lakeshore as dls
from lakeshore import wire
from lakeshore.nymph import warm
from lakeshore.nymph.keeping import processes
from lakeshore.nymph.keeping.client import KeeperClient
from lakeshore.nymph.keeping.job import Job
from lakeshore.nymph.keeping.kin import Kin
from lakeshore.nymph.runners.process import Outcome, ProcessRunner, Run
from lakeshore.sdk.entry.warm import BUSY

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="nothing is kept warm elsewhere")
HERE = Path(__file__).parent
PYTHON = {"python": sys.executable, "env": {"PYTHONPATH": str(HERE), "MINE": "yes"}}


class Host:
    def __init__(self, keeper: KeeperClient, base: Path) -> None:
        self.keeper, self.root = keeper, base / "udf"
        self.runner = ProcessRunner(keeper, self.root, {"PATH": os.environ["PATH"]}, grace_s=0.5, warm=True)

    def run(self, function: Any, *arguments: Any, **more: Any) -> Run:
        envelope = dls.thunk(function, *arguments).to_envelope()
        given: dict[str, Any] = {"invocation_id": envelope.id, "args": envelope.to_bytes(), "run_config": PYTHON}
        return Run(**{**given, **more})

    async def told(self, **more: Any) -> dict[str, Any]:
        found = await self.runner.run(self.run(bodies.about_me, **more))
        assert found.state == "succeeded", found
        told: dict[str, Any] = wire.unpack(found.result)
        return told

    async def warmed(self, count: int = 1) -> None:
        """Until so many spares wait."""
        assert self.runner.warm is not None
        if not self.runner.warm._nests:
            await self.told()
        await k.until(lambda: self.runner.warm is not None and self.runner.warm.spares >= count)

    def nests(self) -> list[int]:
        """The processes of nests and of their spares."""
        return [pid for pid in processes.table() if warm.FLAG.encode() in _command(pid) and self.place in _command(pid)]

    @property
    def place(self) -> bytes:
        return os.fsencode(self.keeper.directory)


def _command(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []


@asynccontextmanager
async def host(base: Path) -> AsyncIterator[Host]:
    async with k.keeper(base / "keeper") as keeper:
        yield Host(keeper, base)
    assert not processes.below([keeper.pid], processes.table()) - {keeper.pid}


def test_a_warm_job_sees_what_a_cold_one_sees(tmp_path: Path) -> None:
    async def main() -> None:
        async with host(tmp_path) as one:
            seen: list[dict[str, str]] = []
            for number in range(3):
                id_ = f"01JOB{number}"
                told = await one.told(invocation_id=id_, claim=7, attempt=2, flags=("--allow-pickled",))
                job = f"{id_}.7"
                assert told["parent"] == one.keeper.pid
                assert told.pop("leads")
                assert told["mark"] == one.keeper.job_directory(job)
                assert told["files"] == {
                    0: "/dev/null",
                    **{fd: f"{told['mark']}/{name}" for fd, name in ((1, "stdout"), (2, "stderr"))},
                }
                assert told["path"][0] == told["cwd"] == str(one.root / id_)
                assert told["argv"] == ["entry.py", "--allow-pickled"]
                assert told["main"] == "dreamlake.lakeshore.daemon.entry"
                seen.append({name: str(what).replace(id_, "JOB") for name, what in told.items()})
                await one.warmed()
            pids = {told.pop("pid") for told in seen}
            assert len(pids) == 3
            assert [told.pop("warm") for told in seen] == ["False", "True", "True"]
            assert seen[0] == seen[1] == seen[2]
            assert seen[0]["kept"] == "0"
            assert seen[0]["threads"] == "1"

    k.run(main)


def test_its_end_is_a_programs_end(tmp_path: Path) -> None:
    path = tmp_path / "said"

    async def main() -> None:
        async with host(tmp_path) as one:
            await one.warmed()
            job = await one.runner.start(one.run(bodies.ends_untidily, str(path)))
            assert (await one.runner.ended(job)).state == "succeeded"
            assert (Path(job.directory) / "stdout").read_text() == "last words"
            assert path.read_text() == "handled finalized "
            assert path.with_name("said.unclosed").read_text() == "all of it"

    k.run(main)


async def _outcome(one: Host, run: Run, stop: str | None = None) -> Outcome:
    job = await one.runner.start(run)
    if stop is not None:
        await one.keeper.stop(job.id, why=stop)
    found = await one.runner.ended(job)
    await one.runner.release(job, keep=False)
    return found


def test_failures_limits_and_cancels_are_those_of_a_cold_job(tmp_path: Path) -> None:
    async def main() -> None:
        async with host(tmp_path) as one:
            await one.warmed()
            found = await _outcome(one, one.run(bodies.fails))
            assert (found.state, found.said, found.exit_code) == ("failed", "ValueError: no such scene", 1)
            await one.warmed()
            limited = one.run(bodies.slow_pair, 60.0, run_config={**PYTHON, "timeout_s": 0.3})
            assert (await _outcome(one, limited)).said == "Timeout: timed out after 0.3 s"
            await one.warmed()
            assert (await _outcome(one, one.run(bodies.slow_pair, 60.0), "cancel")).state == "killed"

    k.run(main)


def test_what_would_differ_starts_cold(tmp_path: Path) -> None:
    async def main() -> None:
        async with host(tmp_path) as one:
            await one.warmed()
            other = {**PYTHON, "env": {**PYTHON["env"], "MINE": "no"}}  # type: ignore[dict-item]
            told = await one.told(run_config=other)
            assert (told["warm"], told["env"]["MINE"]) == (False, "no")
            entry = {**PYTHON, "entry": "dreamlake.lakeshore.daemon.entry"}
            assert not (await one.told(run_config=entry))["warm"]
            assert (await one.told())["warm"]

    k.run(main)


def test_what_a_job_leaves_running_is_ended_with_it(tmp_path: Path) -> None:
    path = tmp_path / "stray"

    async def main() -> None:
        async with host(tmp_path) as one:
            await one.warmed()
            assert (await _outcome(one, one.run(bodies.leaves_a_stray, str(path)))).state == "succeeded"
            assert not k.alive(int(path.read_text()))

    k.run(main)


def test_many_at_once_are_each_a_process_of_their_own(tmp_path: Path) -> None:
    async def main() -> None:
        async with host(tmp_path) as one:
            await one.warmed()
            pids: list[int] = []

            async def run() -> None:
                pids.append((await one.told())["pid"])

            async with trio.open_nursery() as nursery:
                for _ in range(12):
                    nursery.start_soon(run)
            assert len(set(pids)) == 12
            await k.until(lambda: 1 < len(one.nests()) <= 1 + BUSY)  # no more wait than were forked together
            assert k.kept(tmp_path / "keeper") == [nest.id for nest in one.runner.warm._nests.values()]  # type: ignore[union-attr]

    k.run(main)


def test_a_nest_ends_with_its_daemon_and_a_job_of_it_goes_on(tmp_path: Path) -> None:
    async def main() -> None:
        async with k.keeper(tmp_path / "keeper", end=False) as keeper:
            one = Host(keeper, tmp_path)
            await one.warmed()
            job = await one.runner.start(one.run(bodies.slow_pair, 600.0))
            assert one.nests()
        await k.until(lambda: set(one.nests()) <= {job.pid})
        assert k.alive(job.pid)
        async with host(tmp_path) as two:
            assert [found.id for found in two.keeper.found] == [job.id]
            await two.keeper.stop(job.id)
            assert (await two.runner.ended(two.keeper.found[0])).state == "killed"
            await two.runner.release(job, keep=False)
            assert k.kept(tmp_path / "keeper") == []

    k.run(main)


_NEST = """
import os, time
middle = os.fork()
if middle == 0:
    spare = os.fork()
    if spare:
        print(spare, flush=True)
        os._exit(0)
else:
    os.waitpid(middle, 0)
    print("it has no parent of ours", flush=True)
time.sleep(600)
"""


def test_a_job_that_has_not_left_its_nests_session_yet_goes_on_when_the_nest_is_ended(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", _NEST], stdout=subprocess.PIPE, start_new_session=True) as nest:
        assert nest.stdout is not None
        spare, _ = int(nest.stdout.readline()), nest.stdout.readline()
        try:
            job = Job("nest", str(tmp_path))
            job.pid, job.nest = nest.pid, True
            kin = Kin(str(tmp_path), {job.id: job}, {nest.pid: job})
            both = {nest.pid, spare}  # whatever else this process may have left is none of the nest's
            assert kin.members(job, processes.table()) & both == both
            kin.promised(spare)
            kin.signal(job, signal.SIGKILL, kin.members(job, processes.table()) & both)
            assert nest.wait() == -signal.SIGKILL
            assert k.alive(spare)
            kin.reaped(spare)
            assert kin.members(job, processes.table()) & both == {spare}
        finally:
            nest.kill()
            os.kill(spare, signal.SIGKILL)


def test_a_nest_that_is_killed_costs_nobody_a_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warm, "AGAIN_S", 0.0)

    async def main() -> None:
        async with host(tmp_path) as one:
            await one.warmed()
            job = await one.runner.start(one.run(bodies.slow_pair, 0.5))
            for pid in one.nests():
                if pid != job.pid:
                    with contextlib.suppress(ProcessLookupError):  # its nest was killed first, and took it along
                        os.kill(pid, signal.SIGKILL)
            assert (await one.runner.ended(job)).state == "succeeded"
            assert not (await one.told())["warm"]
            await k.until(lambda: len(one.nests()) > 2)  # begun beside that one
            await one.warmed()
            assert (await one.told())["warm"]

    k.run(main)


def test_a_killed_keeper_takes_nests_and_jobs_with_it_and_the_next_one_knows_of_no_nest(tmp_path: Path) -> None:
    async def main() -> None:
        async with k.keeper(tmp_path / "keeper", end=False) as keeper:
            one = Host(keeper, tmp_path)
            await one.warmed()
            job = await one.runner.start(one.run(bodies.slow_pair, 60.0))
            os.kill(keeper.pid, signal.SIGKILL)
            await k.until(lambda: not k.alive(job.pid) and not one.nests())
        async with host(tmp_path) as two:
            assert [found.id for found in two.keeper.found] == [job.id]

    k.run(main)


def test_a_nest_that_nobody_uses_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warm, "IDLE_S", 0.4)

    async def main() -> None:
        async with host(tmp_path) as one:
            await one.told()
            await k.until(lambda: not one.nests() and k.kept(tmp_path / "keeper") == [])
            assert one.runner.warm is not None
            left = one.runner.warm._not_before
            await k.until(lambda: len(left) == 1)  # it was there

    k.run(main)
