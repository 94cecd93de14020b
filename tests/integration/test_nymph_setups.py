"""Setup scripts with a real keeper: as whom they run, what is told of them, and that nothing of them is left."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import kept as k
import pytest
import trio
import trio.testing

from lakeshore.nymph.keeping import processes
from lakeshore.nymph.keeping.client import KeeperClient
from lakeshore.nymph.runners import process
from lakeshore.nymph.setups import Setups

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts processes in /proc")
ENVIRON = {"PATH": os.environ["PATH"], "LAKESHORE_TOKEN": "secret"}


class Host:
    def __init__(self, base: Path) -> None:
        self.place, self.root = base / "keeper", base / "udf"
        self.keeper: KeeperClient
        self.setups: Setups

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Setups]:
        async with k.keeper(self.place) as self.keeper:
            self.setups = Setups(self.keeper, self.root, ENVIRON)
            yield self.setups

    def left(self) -> list[str]:
        guard = k.parent(self.keeper.pid)
        running = processes.below([guard], processes.table()) - {guard, self.keeper.pid}
        return [*map(str, running), *k.kept(self.place), *(os.listdir(self.root) if self.root.exists() else ())]

    async def result(self, **body: Any) -> dict[str, Any]:
        told = await self.setups.run("s1", body)
        await self.setups.release("s1")
        assert self.left() == []
        return told


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


@pytest.mark.inventory("N-138", "N-140")
@pytest.mark.parametrize("name", [None, "apt"])
def test_a_script_runs_in_a_directory_of_its_own_and_its_end_is_told(host: Host, name: str | None) -> None:
    async def main() -> None:
        async with host.open():
            told = await host.result(script="pwd; env | grep -c secret; echo no >&2; touch here; exit 3", name=name)
            assert told.pop("duration_ms") >= 0
            assert told == {
                "function": f"_setup:{name or 'setup'}",
                "name": name or "setup",
                "state": "failed",
                "exit_code": 3,
                "error": "DaemonError: the script exited with status 3; it said last:\nno",
                "stdout_tail": f"{host.root}/setup-s1\n0\n",
                "stderr_tail": "no\n",
            }

    k.run(main)


def test_a_success_has_no_error(host: Host) -> None:
    async def main() -> None:
        async with host.open():
            told = await host.result(script="true", refresh_capabilities=True)
            assert (told["state"], told["exit_code"], told["error"]) == ("succeeded", 0, None)

    k.run(main)


@pytest.mark.inventory("N-141")
def test_sudo_makes_a_script_root_s(host: Host) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root's daemon uses runuser")

    async def main() -> None:
        async with host.open():
            told = await host.result(script="id -un; echo $HOME; ps -o args= -p $PPID", sudo=True)
            assert told["error"] is None
            assert told["stdout_tail"].startswith("root\n/root\nrunuser -u root -- bash -c ")

    k.run(main)


@pytest.mark.inventory("N-414")
@pytest.mark.parametrize("there", [True, False], ids=["sudo is there", "sudo is not there"])
def test_where_the_daemon_is_not_root_sudo_is_asked_without_a_password(
    host: Host, tmp_path: Path, there: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A `sudo` that tells what it was asked for stands in for the host's, whose rules are not ours to change."""
    bin_ = tmp_path / "bin"
    bin_.mkdir()
    for name in ("bash", "env"):
        (bin_ / name).symlink_to(str(shutil.which(name)))
    if there:
        (bin_ / "sudo").write_text('#!/bin/bash\necho "$1 $2 $3 ${@: -3:2}"\n')
        (bin_ / "sudo").chmod(0o755)
    monkeypatch.setitem(ENVIRON, "PATH", str(bin_))

    async def main() -> None:
        async with host.open() as setups:
            monkeypatch.setattr(process.os, "geteuid", lambda: 65534)
            told = await setups.run("s1", {"script": "true", "sudo": True})
            monkeypatch.undo()
            await setups.release("s1")
            assert host.left() == []
            if there:
                assert told["stdout_tail"] == "-n -u root bash -c\n"
            else:
                assert told["error"] == "as_user: the daemon is not root, and this host has no sudo to become root"

    k.run(main)


@pytest.mark.parametrize("moment", ["while it runs", "while it begins", "before it is to begin"])
def test_a_script_that_is_stopped_says_why_and_leaves_nothing(host: Host, moment: str) -> None:
    async def main() -> None:
        async with host.open() as setups, trio.open_nursery() as nursery:
            results: list[dict[str, Any]] = []

            async def one() -> None:
                results.append(await setups.run("s1", {"script": "(setsid sleep 100 &); echo begun; sleep 100"}))

            if moment == "before it is to begin":  # two tasks of the shell may come in any order
                await setups.stop("s1", "the daemon is shutting down", 0.5)
            nursery.start_soon(one)
            if moment == "while it runs":
                printed = Path(host.keeper.job_directory("setup-s1"), "stdout")
                await k.until(lambda: printed.exists() and printed.read_bytes() == b"begun\n")
            else:
                await trio.testing.wait_all_tasks_blocked()
            await setups.stop("s1", "the daemon is shutting down", 0.5)
            await k.until(lambda: results != [])
            assert (results[0]["state"], results[0]["error"]) == ("killed", "the daemon is shutting down")
            await setups.release("s1")
            assert host.left() == []

    k.run(main)


DAEMON = """\
from pathlib import Path
from lakeshore.nymph.runners import process
from lakeshore.nymph.setups import Setups
setups = Setups(keeper, Path({root!r}), dict(os.environ))
nursery.start_soon(setups.run, 'ends', {{'script': 'echo told; exit 6', 'name': 'n'}})
nursery.start_soon(setups.run, 'runs', {{'script': '(setsid sleep 1000 &); echo x; sleep 1000'}})
for id in ('ends', 'runs'):
    while not os.path.exists(keeper.job_directory('setup-' + id) + '/' + {{'ends': 'exit.json', 'runs': 'stdout'}}[id]):
        await trio.sleep(0.01)
"""


@pytest.mark.inventory("N-417")
def test_after_a_kill_9_it_is_told_how_scripts_went(host: Host, tmp_path: Path) -> None:
    async def main() -> None:
        program = DAEMON.format(root=str(host.root))
        await k.killed_when_ready(k.daemon(host.place, tmp_path / "ready", program), tmp_path / "ready")
        async with host.open() as setups:
            told = await setups.recovered()
            assert {id_: (one["name"], one["exit_code"], one["stdout_tail"]) for id_, one in told.items()} == {
                "ends": ("n", 6, "told\n"),
                "runs": ("setup", None, "x\n"),
            }
            assert told["runs"]["error"] == "daemon restarted"
            for id_ in told:
                await setups.release(id_)
            assert host.left() == []

    k.run(main)
