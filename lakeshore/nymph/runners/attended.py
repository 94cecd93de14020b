"""Jobs whose work is elsewhere: a container, a batch job, a pod. Under the keeper stands an attendant for each.

The attendant (`attending/`) is what the keeper starts, times, stops and records, so that adoption and endings are those
of any job. What is elsewhere ends with it; where it was killed first, `release` sweeps: the command that removes the
rest is written into the job's claim, and a later daemon finds it there.
Reference: nymph/daemons.md, "Runners"; api/function-protocol.md, "The workdir contract".
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import trio

from lakeshore._self import python_path

from ..keeping.client import KeeperClient, Kept, NotSpawned, Order
from ..keeping.job import GRACE_S
from ..workdir import Account, Workdir, WorkdirError, made_root
from .given import seconds
from .process import ENTRY, LOST, Outcome, ProcessRunner, Refused, Run, failed, job_id, script_command

_BOOT = (
    "import sys; sys.path.insert(0, sys.argv[1]); "
    "from lakeshore.nymph.runners.attending.main import main; sys.exit(main())"
)
SWEEP_S = 60.0
STOP_S = 15.0
"""What an elsewhere may take to stop a job before the attendant itself is killed, seconds."""
_HANDLE = re.compile(r"[A-Za-z0-9_-]{1,128}")


class Place(Protocol):
    """One kind of elsewhere."""

    kind: str

    async def prepare(self, run: Run, environ: Mapping[str, str], private: Path) -> dict[str, str]:
        """What is needed beforehand; more environment for the attendant. `private` is a directory of the daemon's for
        this job, not made yet. Refused when the job cannot be run.
        """

    def plan(self, run: Run, workdir: Workdir, environ: Mapping[str, str], owner: Account | None) -> Plan:
        """What the attendant is told. WorkdirError for a run_config that makes no sense."""


class Plan:
    """`told` is the attendant's task, `env` its environment, `argv` what becomes the job's user before it, `sweep` the
    command that removes what may be left, `handle` the file in the working directory that ends this command.
    """

    def __init__(
        self,
        told: dict[str, Any],
        *,
        env: dict[str, str],
        argv: Sequence[str] = (),
        sweep: Sequence[str],
        handle: str | None = None,
    ) -> None:
        self.told, self.env, self.argv, self.sweep, self.handle = told, env, list(argv), list(sweep), handle


class AttendedRunner(ProcessRunner):
    """Runs invocations in one kind of place. Its verbs are those of the process runner."""

    def __init__(
        self,
        kind: str,
        place: Place,
        keeper: KeeperClient,
        root: Path,
        environ: Mapping[str, str],
        *,
        grace_s: float = GRACE_S,
    ) -> None:
        super().__init__(keeper, root, environ, grace_s=grace_s)
        self._kind, self._place = kind, place
        self.turns = None  # an image may be fetched for minutes

    async def start(self, run: Run) -> Kept:
        private = self._private(job_id(run))
        try:
            return await self._begin(run, private)
        except Refused as error:
            refused = error
        except (NotSpawned, WorkdirError, OSError) as error:
            refused = Refused(failed("DaemonError", str(error)))
        await trio.to_thread.run_sync(remove_private, private)  # a login of this job may be in it
        raise refused

    async def _begin(self, run: Run, private: Path) -> Kept:
        owner = None if run.as_user is None else Account.named(run.as_user)
        more = await self._place.prepare(run, self._environ, private)
        workdir = Workdir.at(self._root, run.invocation_id)
        run, archive = run.with_code(workdir.path, beside=True)
        await trio.to_thread.run_sync(Workdir.create, self._root, run.invocation_id, run.args, owner, archive)
        try:
            plan = self._place.plan(run, workdir, self._environ, owner)
            order = await trio.to_thread.run_sync(self._order, run, workdir, plan, more)
            return await self._keeper.spawn(order)
        except (NotSpawned, WorkdirError, OSError):
            await trio.to_thread.run_sync(workdir.remove)
            raise

    async def ended(self, job: Kept) -> Outcome:
        found = await super().ended(job)
        ended = await self._keeper.wait(job.id)
        if ended.signal is not None or ended.code is None or ended.cancelled_by in LOST:
            await self._sweep(job)
        return found

    async def release(self, job: Kept, *, keep: bool) -> None:
        await trio.to_thread.run_sync(remove_private, self._private(job.id))
        await super().release(job, keep=keep)

    def _private(self, job: str) -> Path:
        return self._root / f".private-{job}"

    def _order(self, run: Run, workdir: Workdir, plan: Plan, more: Mapping[str, str]) -> Order:
        private = self._private(job_id(run))
        made_private(private)
        here = private / "task.json"
        task = {"kind": self._place.kind, "here": str(here), "workdir": str(workdir.path), **plan.told}
        fd = os.open(here, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with open(fd, "w") as file:
            json.dump(task, file)
        timeout_s = seconds(run.run_config.get("timeout_s"), "run_config.timeout_s")
        return Order(
            id=job_id(run),
            argv=[*plan.argv, sys.executable, "-I", "-S", "-c", _BOOT, python_path()[0]],
            env={**plan.env, **more},
            cwd=str(workdir.path),
            stdin=str(here),
            timeout_s=timeout_s,
            grace_s=max(self._grace_s, STOP_S),
            claim={
                "kind": "run",
                "runner": self._kind,
                "invocation_id": run.invocation_id,
                "claim": run.claim,
                "attempt": run.attempt,
                "first_seq": run.first_seq,
                "script": run.script is not None,
                "timeout_s": timeout_s,
                "sweep": plan.sweep,
                "handle": plan.handle,
            },
        )

    async def _sweep(self, job: Kept) -> None:
        argv = list(job.claim.get("sweep") or ())
        handle = job.claim.get("handle")
        if handle is not None:
            try:
                found = (Workdir.at(self._root, job.claim["invocation_id"]).path / handle).read_text().strip()
            except (OSError, ValueError):
                return
            if not _HANDLE.fullmatch(found):
                return
            argv.append(found)
        if argv:
            with trio.move_on_after(SWEEP_S):
                try:
                    await trio.run_process(
                        argv, env=self._environ, capture_stdout=True, capture_stderr=True, check=False
                    )
                except OSError:
                    return


def made_private(directory: Path) -> None:
    """A directory of the daemon's alone, beside those of the jobs."""
    made_root(directory.parent)
    directory.mkdir(mode=0o700, exist_ok=True)


def remove_private(directory: Path) -> None:
    """With what is in it."""
    shutil.rmtree(directory, ignore_errors=True)


def command(run: Run, workdir: Workdir, python: str, at: str) -> list[str]:
    """What runs in the place: the entry, or `bash -c` with the script. `at` is what the place calls the directory."""
    if run.script is None:
        return [
            str(run.run_config.get("python") or python),
            "-m",
            str(run.run_config.get("entry") or ENTRY),
            *run.flags,
        ]
    return script_command(run.script, workdir, at)
