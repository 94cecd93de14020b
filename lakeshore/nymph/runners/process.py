"""The `process` runner (alias `subprocess`): an invocation as a process of this host, without isolation.

Rules: the interpreter is the user's (`run_config.python`, else `python3`) and needs nothing installed: PYTHONPATH
carries our two packages, whose third-party fallbacks come last. `script` runs under `bash -c` instead, and its status
alone decides. The environment is the daemon's without its credentials and its Python's settings (but PYTHONPATH, by
which a host's own modules are found), then `run_config.env`, then DREAMLAKE_*. `as_user` is an argument of its own,
never part of a shell string.

`order` is what the keeper starts, `outcome` what its end means; both can be called by a daemon that found the job
running. Reference: nymph/daemons.md, "process"; api/function-protocol.md, "The workdir contract".
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import trio

from lakeshore._self import import_path

from .. import follow
from ..brief import Brief
from ..keeping.client import Exit, KeeperClient, Kept, NotSpawned, Order
from ..keeping.job import GRACE_S
from ..warm import Warm
from ..workdir import CODE, FRAMES, Account, Workdir, WorkdirError
from .given import pairs, seconds
from .interpreter import explained
from .library import readable_by

ENTRY = "dreamlake.lakeshore.daemon.entry"
PYTHON = "python3"
LONGEST_WORD = 100 << 10
"""Of one argument, in bytes: Linux takes 128 KiB. A longer script is run from a file."""
LOST = ("lease", "daemon gone", "keeper", "lost")
"""Endings by which an attempt is lost, not failed: the claim is given back, and nothing is acked."""
SHUTDOWN = "shutdown"
AT_ONCE = 8
"""Jobs that are begun at the same time: each waits for no more than these, and its claim was looked at right before."""
SMALL = 64 << 10
"""Bytes that are not worth a thread."""
_STRIPPED = ("LAKESHORE_", "LAKESHORED_", "DREAMLAKE_", "PYTHON", "SECRETS_KEY")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCode:
    """What a job is told of the commit that its call was made in: where it is on this host, or why it is not; and the
    daemon's own LAKESHORE_CODE.
    """

    tree: Path | None = None
    archive: Path | None = None
    error: str | None = None
    rule: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What the daemon was told to run. `args` is None for a script; a Path is a downloaded file, which is moved."""

    invocation_id: str
    args: bytes | Path | None = None
    run_config: Mapping[str, Any] = field(default_factory=dict)
    script: str | None = None
    as_user: str | None = None
    parent_id: str | None = None
    root_id: str | None = None
    claim: int = 0
    attempt: int = 1
    first_seq: int = 0
    flags: tuple[str, ...] = ()
    """Of the entry: `--allow-pickled` and the like, by the daemon's policy."""
    env: Mapping[str, str] = field(default_factory=dict)
    """What the daemon adds, after everything else."""
    code: JobCode | None = None
    """The commit that the call was made in."""

    def with_code(self, workdir: Path, *, beside: bool) -> tuple[Run, Path | None]:
        """The same with its commit in its environment; and the archive that goes into its directory then, where
        (`beside`) it cannot read what is the daemon's.
        """
        code = self.code
        if code is None:
            return self, None
        archive = code.archive if beside else None
        told = {"LAKESHORE_CODE": code.rule} if code.rule else {}
        if code.error is not None:
            told["DREAMLAKE_CODE_ERROR"] = code.error
        elif code.tree is not None:
            told["DREAMLAKE_CODE"] = str(code.tree if archive is None else workdir / CODE)
        return replace(self, env={**self.env, **told}), archive


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How it went, as it is acked. `state`: succeeded, failed, killed, timeout; or lost (see `LOST`)."""

    state: str
    result: bytes = b""
    error: dict[str, Any] | None = None
    exit_code: int | None = None

    @property
    def ending(self) -> dict[str, Any]:
        """As the core is told of it. A lost attempt has none: it is not acked but given back."""
        told = {"state": self.state, "result_blob": self.result, "error": self.error, "exit_code": self.exit_code}
        return {name: value for name, value in told.items() if value is not None}

    @property
    def said(self) -> str:
        """`<type>: <message>`; empty after a success."""
        return "" if self.error is None else f"{self.error['type']}: {self.error['message']}"


def failed(type_: str, message: str) -> Outcome:
    """Without a traceback."""
    return Outcome(state="failed", error={"type": type_, "message": message, "traceback": ""})


class Refused(Exception):
    """It cannot be run here; `outcome` says why."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome.said)
        self.outcome = outcome


class ProcessRunner:
    """Runs invocations below `root` through the keeper. `environ` is the daemon's environment. With `warm`, an
    interpreter is kept for the next job of the same kind.
    """

    def __init__(
        self,
        keeper: KeeperClient,
        root: Path,
        environ: Mapping[str, str],
        *,
        grace_s: float = GRACE_S,
        warm: bool = False,
    ) -> None:
        self._keeper, self._root, self._environ, self._grace_s = keeper, root, dict(environ), grace_s
        self.warm = Warm(keeper) if warm else None
        self._brief = Brief()
        self.turns: trio.Semaphore | None = trio.Semaphore(AT_ONCE)
        """For whoever begins a job; None: no turns are taken."""

    async def run(self, run: Run) -> Outcome:
        """From the directory to the outcome; nothing of it is left but a failed one's directory. KeeperLost when the
        keeper is killed meanwhile (the attempt is lost).
        """
        try:
            job = await self.start(run)
        except Refused as refused:
            return refused.outcome
        found = await self.ended(job)
        await self.release(job, keep=found.state in ("failed", "killed", "timeout"))
        return found

    async def start(self, run: Run) -> Kept:
        """Prepare and begin; Refused when it cannot be."""
        try:
            owner = None if run.as_user is None else Account.named(run.as_user)
            run, archive = run.with_code(Workdir.at(self._root, run.invocation_id).path, beside=owner is not None)
            made_of = self._root, run.invocation_id, run.args, owner, archive
            if owner is None and isinstance(run.args, bytes) and len(run.args) <= SMALL:
                await self._brief.run(Workdir.create, *made_of)
            else:
                await trio.to_thread.run_sync(Workdir.create, *made_of)
        except (WorkdirError, OSError) as error:
            raise Refused(failed("DaemonError", str(error))) from None
        workdir = Workdir.at(self._root, run.invocation_id)
        try:
            made = order(run, workdir, self._environ, owner, grace_s=self._grace_s)
            if self.warm is None or run.script is not None or owner is not None or run.run_config.get("entry"):
                return await self._keeper.spawn(made)
            return await self.warm.spawn(made)
        except (NotSpawned, WorkdirError) as error:
            await trio.to_thread.run_sync(workdir.remove)
            raise Refused(failed("DaemonError", str(error))) from None

    async def ended(self, job: Kept) -> Outcome:
        """Wait for a job, its own or one that was found running, and read how it went. Everything stays where it is, so
        that it can be read again, until `release`.
        """
        ended = await self._keeper.wait(job.id)
        workdir = Workdir.at(self._root, job.claim["invocation_id"])
        if ended.code == 0 and workdir.result_size() <= SMALL:
            return await self._brief.run(outcome, job.claim, ended, workdir, Path(job.directory))
        return await trio.to_thread.run_sync(outcome, job.claim, ended, workdir, Path(job.directory))

    async def release(self, job: Kept, *, keep: bool) -> None:
        """Its outcome has been told: the keeper forgets it; its directory goes, or (`keep`) is left to be looked at."""
        workdir = Workdir.at(self._root, job.claim["invocation_id"])
        if keep:
            await trio.to_thread.run_sync(workdir.keep, Path(job.directory))
        elif not await self._brief.run(workdir.remove_plain):
            await trio.to_thread.run_sync(workdir.remove)
        await self._keeper.forget(job.id)


def order(run: Run, workdir: Workdir, environ: Mapping[str, str], owner: Account | None, *, grace_s: float) -> Order:
    """What the keeper is to start. WorkdirError for a run_config that makes no sense."""
    env = environment(run, workdir, environ, owner)
    python = str(run.run_config.get("python") or PYTHON)
    timeout_s = seconds(run.run_config.get("timeout_s"), "run_config.timeout_s")
    if run.script is None:
        argv = [python, "-m", str(run.run_config.get("entry") or ENTRY), *run.flags]
        env |= entry_path(python, env, workdir.path.parent, owner)
    else:
        argv = script_command(run.script, workdir, str(workdir.path))
    return Order(
        id=job_id(run),
        argv=as_owner(owner, argv, env),
        env=env,
        cwd=str(workdir.path),
        timeout_s=timeout_s,
        grace_s=grace_s,
        claim={
            "kind": "run",
            "invocation_id": run.invocation_id,
            "claim": run.claim,
            "attempt": run.attempt,
            "first_seq": run.first_seq,
            "script": run.script is not None,
            "python": python,
            "path": env.get("PATH", os.defpath),
            "prefix": as_owner(owner, [], env),
            "timeout_s": timeout_s,
        },
    )


def script_command(script: str, workdir: Workdir, at: str) -> list[str]:
    """What runs a script; `at` is what the job calls its directory."""
    if len(script.encode(errors="surrogateescape")) <= LONGEST_WORD:
        return ["bash", "-c", script]
    path = workdir.path / "script.sh"
    path.write_text(script, encoding="utf-8", errors="surrogateescape")
    path.chmod(0o755)  # in a directory that only the job's user can pass
    return ["bash", f"{at}/script.sh"]


def job_id(run: Run) -> str:
    """The keeper's name of one attempt: a newer claim of the same invocation is another job."""
    return f"{run.invocation_id}.{run.claim}" if run.claim else run.invocation_id


def outcome(claim: Mapping[str, Any], ended: Exit, workdir: Workdir, job: Path) -> Outcome:
    """What an end means. `claim` is what `order` gave to the keeper, `job` the keeper's directory of it."""
    return replace(_outcome(claim, ended, workdir, job), exit_code=ended.code)


def _outcome(claim: Mapping[str, Any], ended: Exit, workdir: Workdir, job: Path) -> Outcome:
    if ended.timed_out:
        text = f"timed out after {claim['timeout_s']:g} s"
        return Outcome(state="timeout", error={"type": "Timeout", "message": text, "traceback": ""})
    if ended.cancelled_by in LOST:
        text = f"the attempt was lost: {ended.error or ended.cancelled_by}"
        return Outcome(state="lost", error={"type": "WorkerLost", "message": text, "traceback": ""})
    if ended.code == 0:
        if claim.get("script"):
            return Outcome(state="succeeded")
        try:
            return Outcome(state="succeeded", result=workdir.result())
        except WorkdirError as error:
            return failed("DaemonError", f"it ended with status 0, but {error}")
    if ended.cancelled_by == "output":
        return failed("DaemonError", ended.error or "it printed too much")
    if ended.cancelled_by is not None:
        text = "daemon shutdown grace expired" if ended.cancelled_by == SHUTDOWN else "cancelled"
        return Outcome(state="killed", error={"type": "Cancelled", "message": text, "traceback": ""})
    told = workdir.error() if not claim.get("script") or "sweep" in claim else None
    if told is not None:
        return Outcome(state="failed", error=told)
    if not claim.get("script") and "python" in claim:
        found = explained(claim["python"], claim["path"], claim["prefix"])
        if found is not None:
            return failed("InterpreterError", found)
    return failed("DaemonError", _death(claim, ended, job))


def _death(claim: Mapping[str, Any], ended: Exit, job: Path) -> str:
    what = "the script" if claim.get("script") else "the job's process"
    if ended.error is not None:
        return f"{what} did not run: {ended.error}"
    how = f"exited with status {ended.code}" if ended.signal is None else f"was killed by {ended.signal}"
    if ended.oom:
        how += " for want of memory"
    said = follow.tail(job / "stderr").decode(errors="replace").strip()
    return f"{what} {how}" + (f"; it said last:\n{said}" if said else "")


def without_credentials(environ: Mapping[str, str]) -> dict[str, str]:
    """The daemon's environment as its children may have it."""
    env = {name: value for name, value in environ.items() if name == "PYTHONPATH" or not name.startswith(_STRIPPED)}
    env.setdefault("PATH", os.defpath)
    return env


def environment(run: Run, workdir: Workdir, environ: Mapping[str, str], owner: Account | None) -> dict[str, str]:
    """Of a job on this host."""
    env = without_credentials(environ)
    if owner is not None:
        env |= {"HOME": owner.home, "USER": owner.name, "LOGNAME": owner.name}
    env["PYTHONUNBUFFERED"] = "1"
    return {
        **env,
        **pairs(run.run_config.get("env"), "run_config.env"),
        **job_variables(run, str(workdir.path)),
        **run.env,
    }


def job_variables(run: Run, directory: str) -> dict[str, str]:
    """What a body finds in its environment; `directory` is the working directory as it sees it."""
    named = {
        "DREAMLAKE_INVOCATION_ID": run.invocation_id,
        "DREAMLAKE_WORKDIR": directory,
        "DREAMLAKE_PARENT_INVOCATION_ID": run.parent_id,
        "DREAMLAKE_ROOT_INVOCATION_ID": run.root_id,
        "DREAMLAKE_CLAIM": run.claim or None,
        "DREAMLAKE_FRAMES": FRAMES if run.claim and run.script is None else None,
        "DREAMLAKE_FIRST_SEQ": run.first_seq or None,
        "DREAMLAKE_ATTEMPT": run.attempt if run.attempt != 1 else None,
    }
    return {name: str(value) for name, value in named.items() if value is not None}


def entry_path(python: str, env: Mapping[str, str], root: Path, owner: Account | None) -> dict[str, str]:
    """PYTHONPATH with our packages, where this user can read them."""
    path = import_path(python, env.get("PYTHONPATH", ""))
    if path is None:
        return {}
    return {"PYTHONPATH": path if owner is None else readable_by(owner, path, root)}


def as_owner(owner: Account | None, argv: list[str], env: Mapping[str, str]) -> list[str]:
    """The same as another user: `runuser` for root, else `sudo -n`, which is told what of the environment stays."""
    if owner is None:
        return argv
    if os.geteuid() == 0:
        return ["runuser", "-u", owner.name, "--", *argv]
    if owner.uid == os.geteuid():
        return argv
    if shutil.which("sudo", path=env["PATH"]) is None:
        raise WorkdirError(f"as_user: the daemon is not root, and this host has no sudo to become {owner.name}")
    return ["sudo", "-n", "-u", owner.name, f"--preserve-env={','.join(env)}", "--", *argv]
