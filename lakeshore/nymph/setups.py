"""Setup scripts of the server on this host (nymph/protocol, "setup"). The core lets one begin when the one before it
has ended.

A script is a job of the process runner without arguments, `_setup:<name>`: it runs with `bash -c` in a directory of its
own, which is gone afterwards. `sudo` makes it root's: by `runuser`, or `sudo -n` where the daemon is not root. How it
went is told as {function, name, state, exit_code, duration_ms,
error, stdout_tail, stderr_tail}. A daemon that comes back tells
of those that ended without it, and ends what still runs: a script can be run again.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import trio

from . import follow
from .exec_result import RESTARTED, ended_by_itself, lasted_ms
from .keeping.client import Exit, KeeperClient, KeeperLost, Kept, NotSpawned, Order
from .keeping.job import GRACE_S
from .keeping.protocol import STDERR, STDOUT, is_id
from .runners.process import Run, order, outcome
from .workdir import Account, Workdir, WorkdirError

KIND: Final = "setup"
ROOT: Final = "root"
KEEPER_KILLED: Final = "the daemon's keeper was killed, and the script with it"
_TAIL: Final = 4 << 10


class Setups:
    """`root` is where the process runner's directories are; `environ` is the daemon's environment."""

    def __init__(self, keeper: KeeperClient, root: Path, environ: Mapping[str, str]) -> None:
        self._keeper, self._root, self._environ = keeper, root, dict(environ)
        self._jobs: dict[str, Kept | None] = {}
        """Of this daemon, by setup_id; None until it has begun."""
        self._stopped: dict[str, str] = {}
        """Why, of those that were asked to end, also before `run` was called; until `release`."""

    async def run(self, setup_id: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """How it went, when nothing of it runs any more."""
        began = time.monotonic()
        name = str(body.get("name") or KIND)
        self._jobs[setup_id] = None
        try:
            if setup_id in self._stopped:
                return _result(name, "killed", self._stopped[setup_id], began)
            wanted = await trio.to_thread.run_sync(self._order, setup_id, body, name)
            job = self._jobs[setup_id] = await self._keeper.spawn(wanted)
            if setup_id in self._stopped:  # meanwhile
                await self._keeper.stop(job.id, why=self._stopped[setup_id])
            ended = await self._keeper.wait(job.id)
            return await self._told(job, ended, self._stopped.get(setup_id), began)
        except (NotSpawned, WorkdirError, OSError) as error:
            return _result(name, "failed", str(error), began)
        except KeeperLost:
            return _result(name, "lost", KEEPER_KILLED, began)
        finally:
            del self._jobs[setup_id]

    async def stop(self, setup_id: str, why: str, grace_s: float) -> None:
        """Ask it to end, also before it has begun; `run` returns when nothing of it runs any more."""
        self._stopped.setdefault(setup_id, why)
        job = self._jobs.get(setup_id)
        if job is not None:
            await self._keeper.stop(job.id, why=why, grace_s=grace_s)

    async def release(self, setup_id: str) -> None:
        """Its outcome was taken: nothing of it stays."""
        self._stopped.pop(setup_id, None)
        if not is_id(_job_id(setup_id)):
            return  # it was refused
        with contextlib.suppress(KeyError, KeeperLost):  # it never began; or the next keeper tells it to `recovered`
            await self._keeper.wait(_job_id(setup_id))
            await self._keeper.forget(_job_id(setup_id))
        await trio.to_thread.run_sync(Workdir.at(self._root, _job_id(setup_id)).remove)

    async def recovered(self) -> dict[str, dict[str, Any]]:
        """How those went that an earlier daemon began and did not tell of; what still runs of them is ended first. To
        be called once, before the first `run`.
        """
        found: dict[str, dict[str, Any]] = {}
        for job in self._keeper.found:
            if not isinstance(job.claim, Mapping) or job.claim.get("kind") != KIND:
                continue
            if job.exit is None:
                await self._keeper.stop(job.id, why=RESTARTED)
            ended = await self._keeper.wait(job.id)
            why = None if ended_by_itself(ended) else RESTARTED
            told = await self._told(job, ended, why, 0.0)
            found[str(job.claim["setup_id"])] = {**told, "duration_ms": lasted_ms(job)}
        return found

    def _order(self, setup_id: str, body: Mapping[str, Any], name: str) -> Order:
        owner = Account.named(ROOT) if body.get("sudo") else None
        id_ = _job_id(setup_id)
        workdir = Workdir.create(self._root, id_, None, owner)
        run = Run(invocation_id=id_, script=str(body["script"]), as_user=None if owner is None else ROOT)
        made = order(run, workdir, self._environ, owner, grace_s=GRACE_S)
        return replace(made, id=id_, claim={**made.claim, "kind": KIND, "setup_id": setup_id, "name": name})

    async def _told(self, job: Kept, ended: Exit, why: str | None, began: float) -> dict[str, Any]:
        workdir = Workdir.at(self._root, job.claim["invocation_id"])
        found = await trio.to_thread.run_sync(outcome, job.claim, ended, workdir, Path(job.directory))
        error = (why if ended.cancelled_by is not None else None) or found.said or None
        told = _result(job.claim["name"], found.state, error, began)
        told["exit_code"] = ended.code
        for stream in (STDOUT, STDERR):
            told[f"{stream}_tail"] = follow.tail(Path(job.directory, stream), most=_TAIL).decode(errors="replace")
        return told


def _job_id(setup_id: str) -> str:
    return f"{KIND}-{setup_id}"


def _result(name: str, state: str, error: str | None, began: float) -> dict[str, Any]:
    return {
        "function": f"_setup:{name}",
        "name": name,
        "state": state,
        "exit_code": -1,
        "duration_ms": int((time.monotonic() - began) * 1000),
        "error": error,
        "stdout_tail": "",
        "stderr_tail": "",
    }
