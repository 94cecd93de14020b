"""Keepers for the tests: one in a directory of its own, and the count of what a test has left behind."""

# ruff: noqa: ASYNC240  (nothing else waits on this loop)

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import trio

from lakeshore.nymph.keeping import processes
from lakeshore.nymph.keeping.client import KeeperClient, Order, open_keeper
from lakeshore.nymph.keeping.protocol import JOBS, MARK

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 60.0
ENV = {"PATH": os.environ["PATH"]}


def run(function: Callable[[], Awaitable[None]]) -> None:
    """Run it on trio, for at most two minutes."""

    async def limited() -> None:
        with trio.fail_after(120):
            await function()

    trio.run(limited)


@contextlib.asynccontextmanager
async def keeper(directory: Path, *, orphan_s: float = 30.0, end: bool = True) -> AsyncIterator[KeeperClient]:
    """One daemon's connection; after the block keeper and jobs are gone (`end=False`: they are left)."""
    async with trio.open_nursery() as nursery:
        client = await open_keeper(str(directory), nursery, orphan_s=orphan_s)
        try:
            yield client
        finally:
            if end:
                with trio.CancelScope(shield=True):
                    with contextlib.suppress(Exception):
                        await client.end()
                    await until(lambda: not alive(client.pid))
            nursery.cancel_scope.cancel()


def bash(id_: str, script: str, **more: object) -> Order:
    return Order(id=id_, argv=("bash", "-c", script), env=ENV, **more)  # type: ignore[arg-type]


async def until(true: Callable[[], bool]) -> None:
    """Wait, with a deadline, for what nobody announces."""
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < deadline, "waited in vain"
        await trio.sleep(0.01)


def alive(pid: int) -> bool:
    found = processes.look(pid)
    return found is not None and not found.zombie


def parent(pid: int) -> int:
    found = processes.look(pid)
    assert found is not None
    return found.parent


def marked(directory: Path, *ids: str) -> list[int]:
    """What runs with one of these jobs' names in its environment."""
    wanted = {str(directory.resolve() / JOBS / id_) for id_ in ids}
    return [pid for pid in processes.table() if processes.variable(pid, MARK) in wanted]


def kept(directory: Path) -> list[str]:
    """The jobs that are recorded."""
    return sorted(os.listdir(directory / JOBS))


def daemon(directory: Path, ready: Path, program: str) -> subprocess.Popen[bytes]:
    """A daemon's side in a process of its own: runs `program` (of a coroutine, with `keeper`), then says that it is
    ready by making a file, and waits to be killed."""
    text = (
        "import os, sys, trio\n"
        "from lakeshore.nymph.keeping.client import *\n"
        "async def main():\n"
        "    async with trio.open_nursery() as nursery:\n"
        f"        keeper = await open_keeper({str(directory)!r}, nursery, orphan_s=float(sys.argv[1]))\n"
        + "".join(f"        {line}\n" for line in program.splitlines())
        + f"        open({str(ready)!r}, 'w').write(str(keeper.pid))\n"
        "        await trio.sleep_forever()\n"
        "trio.run(main)\n"
    )
    orphan_s = "3.0" if "ORPHANS" in program else "30.0"
    return subprocess.Popen([sys.executable, "-c", text, orphan_s], cwd=ROOT)


async def killed_when_ready(process: subprocess.Popen[bytes], ready: Path) -> int:
    """kill -9 as soon as it is ready; the pid of its keeper."""
    try:
        await until(lambda: (ready.exists() and ready.read_text() != "") or process.poll() is not None)
    finally:
        process.send_signal(signal.SIGKILL)
        await trio.to_thread.run_sync(process.wait)
    return int(ready.read_text())
