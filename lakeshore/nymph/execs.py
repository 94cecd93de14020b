"""Commands of the server on this host: `bash -c`, at most once each (K-34; nymph/protocol, "exec").

A command is a child of the keeper, which notes it on the disk before it begins. Its end and what it printed lie in the
keeper's directory until the result was taken, so a daemon that comes back tells of those that ended without it; those
that still ran are ended and told as `daemon restarted`: nobody waited for them. What the result says is in
`exec_result`; with `log` the output goes into a `sink` while the command runs, and the result has none: both streams
into one, as they come, or each into its own where `log` has a `stderr_url` (an addition).
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

import trio

from .exec_result import (
    LOST,
    OUTPUT_MAX,
    RESTARTED,
    add_error,
    add_output,
    ended_by_itself,
    lasted_ms,
    meaning,
    plain_size,
    read_plain,
    result,
)
from .keeping.client import Exit, KeeperClient, KeeperLost, Kept, NotSpawned, Order
from .keeping.protocol import STDERR, STDOUT, is_id, private_directory
from .runners.given import pairs, seconds
from .runners.process import LONGEST_WORD, without_credentials
from .sink import Posts, Sink
from .workdir import WorkdirError

KIND: Final = "exec"
KILL_AFTER_S: Final = 5.0
STDERR_URL: Final = "stderr_url"
INLINE_MAX: Final = 256 << 10
RESULT: Final = "result"
RESULT_FILE: Final = "LAKESHORE_RESULT_FILE"
"""Names the file that becomes the typed result, when the command writes it."""
PAYLOAD_FILE: Final = "LAKESHORE_PAYLOAD_FILE"
"""Names the payload, which is also stdin when there is no other."""
_READS: Final = ("stdin", "payload_inline", "payload_ref")
"""What a command may be given to read."""


class PayloadError(Exception):
    """It cannot be had, or is not what was submitted; the text is the command's `error`."""


class Payloads(Protocol):
    """Where large payloads are."""

    async def fetch(self, ref: Mapping[str, Any], target: Path) -> None:
        """Download one to a new file. PayloadError."""

    async def store(self, source: Path, job_id: str, kind: str) -> Mapping[str, Any]:
        """Upload a file; its payload_ref. PayloadError."""


@dataclass(slots=True, kw_only=True)
class _Running:
    """One of this daemon's. `stopped` is why, once it was asked to end."""

    began: float
    spawned: bool = False
    stopped: str | None = None
    before: trio.CancelScope = field(default_factory=trio.CancelScope)
    """Around what comes before the spawn."""

    def lasted_ms(self) -> int:
        return int((time.monotonic() - self.began) * 1000)


class _Refused(Exception):
    """It does not begin; the text is its error."""


class Execs:
    """`directory` is the daemon's own, for what commands read; `environ` is the daemon's environment."""

    def __init__(
        self,
        keeper: KeeperClient,
        transport: Posts,
        directory: Path,
        environ: Mapping[str, str],
        *,
        payloads: Payloads | None = None,
    ) -> None:
        self._keeper, self._posts, self._directory, self._payloads = keeper, transport, directory, payloads
        self._environ, self._cwd = without_credentials(environ), os.getcwd()
        self._running: dict[str, _Running] = {}
        self._bare: set[str] = set()
        """Those that have no inputs; until `release`."""
        self._early: dict[str, str] = {}
        """Why those are not to begin that were stopped before `run` was called; until `release`."""
        private_directory(str(directory))

    async def run(self, exec_id: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """The callback's body, when nothing of the command runs any more and its output is sent."""
        running = self._running[exec_id] = _Running(began=time.monotonic())
        try:
            if exec_id in self._early:
                return result(-1, 0, self._early[exec_id])
            return await self._run(exec_id, body, running)
        except (_Refused, NotSpawned, PayloadError, WorkdirError, OSError) as refused:
            return result(-1, running.lasted_ms(), str(refused))
        except KeeperLost:
            return result(-1, running.lasted_ms(), LOST)
        finally:
            del self._running[exec_id]

    async def stop(self, exec_id: str, why: str, grace_s: float) -> None:
        """Ask it to end, also before it has begun; `run` returns when nothing of it is there any more."""
        running = self._running.get(exec_id)
        if running is None:
            self._early.setdefault(exec_id, why)
            return
        running.stopped = running.stopped or why
        running.before.cancel()
        if running.spawned:
            await self._keeper.stop(_job_id(exec_id), why=why, grace_s=grace_s)

    async def release(self, *exec_ids: str) -> None:
        """Their results were taken: nothing of them stays. One that is just being ended is waited for."""
        jobs: list[str] = []
        for exec_id in exec_ids:
            self._early.pop(exec_id, None)
            with contextlib.suppress(KeyError, KeeperLost):  # it never began; or the next keeper tells `recovered`
                await self._keeper.wait(_job_id(exec_id))
                jobs.append(_job_id(exec_id))
        with contextlib.suppress(KeeperLost):
            await self._keeper.forget(*jobs)
        for exec_id in exec_ids:
            if exec_id in self._bare:
                self._bare.discard(exec_id)
                continue
            for path in self._inputs(exec_id):
                path.unlink(missing_ok=True)

    async def recovered(self) -> dict[str, dict[str, Any]]:
        """The results of those that an earlier daemon began and did not get rid of; what still runs of them is being
        ended. To be called once, before the first `run`.
        """
        found: dict[str, dict[str, Any]] = {}
        kept: set[Path] = set()
        for job in self._keeper.found:
            if not isinstance(job.claim, Mapping) or job.claim.get("kind") != KIND:
                continue
            exec_id = str(job.claim["exec_id"])
            kept.update(self._inputs(exec_id))
            if job.exit is None:
                await self._keeper.stop(job.id, why=RESTARTED)
            if job.exit is not None and ended_by_itself(job.exit):
                found[exec_id] = await self._told(exec_id, job, job.exit, None, lasted_ms(job))
            else:
                found[exec_id] = result(-1, lasted_ms(job), RESTARTED)
        for path in set(self._directory.iterdir()) - kept:
            path.unlink()
        return found

    # --- the way of one command

    async def _run(self, exec_id: str, body: Mapping[str, Any], running: _Running) -> dict[str, Any]:
        order: Order | None = None
        with running.before:
            order = await self._order(exec_id, body)
        if order is None or running.before.cancel_called:
            raise _Refused(running.stopped or "cancelled")
        job = await self._keeper.spawn(order)
        running.spawned = True
        if order.stdin is not None and PAYLOAD_FILE not in order.env:
            os.unlink(order.stdin)
        if running.stopped is not None:  # while it was spawned
            await self._keeper.stop(job.id, why=running.stopped)
        ended = await (self._streamed(job, body["log"]) if job.claim["streamed"] else self._keeper.wait(job.id))
        return await self._told(exec_id, job, ended, running.stopped, running.lasted_ms())

    async def _order(self, exec_id: str, body: Mapping[str, Any]) -> Order:
        if not is_id(_job_id(exec_id)):
            raise _Refused(f"exec_id {exec_id!r} cannot name a command: letters, digits, '-', '_' and '.'")
        command = body.get("command")
        if not isinstance(command, str):
            raise _Refused("there is no command")
        streamed = isinstance(body.get("log"), Mapping)
        env = self._environ | {RESULT_FILE: f"{self._keeper.job_directory(_job_id(exec_id))}/{RESULT}"}
        if streamed:
            env["PYTHONUNBUFFERED"] = "1"  # or there is nothing to see before the end
        long = len(command) > LONGEST_WORD // 4 and len(command.encode(errors="surrogateescape")) > LONGEST_WORD
        argv, reads = ["bash", "-c", command], None
        if long or any(body.get(name) is not None for name in _READS):
            stdin, script, payload = self._inputs(exec_id)
            if await self._payload(body, payload):
                env[PAYLOAD_FILE] = str(payload)
                reads = payload
            if body.get("stdin"):
                reads = _written(stdin, body["stdin"])
            if long:
                argv = ["bash", str(_written(script, command))]
        else:
            self._bare.add(exec_id)
        return Order(
            id=_job_id(exec_id),
            argv=argv,
            env=env | pairs(body.get("env"), "env"),
            cwd=str(body.get("workdir") or self._cwd),
            stdin=None if reads is None else str(reads),
            merge=streamed and not body["log"].get(STDERR_URL),
            claim={"kind": KIND, "exec_id": exec_id, "streamed": streamed},
            timeout_s=seconds(body.get("timeout_s"), "timeout_s"),
            grace_s=KILL_AFTER_S,
            output_keep=0 if streamed else OUTPUT_MAX,
        )

    async def _payload(self, body: Mapping[str, Any], target: Path) -> bool:
        """Whether there is one; then it is in `target`."""
        if body.get("payload_inline") is not None:
            _written(target, body["payload_inline"])
            return True
        if body.get("payload_ref") is None:
            return False
        if self._payloads is None:
            raise _Refused("this daemon cannot fetch payloads")
        await self._payloads.fetch(body["payload_ref"], target)
        return True

    async def _streamed(self, job: Kept, log: Mapping[str, Any]) -> Exit:
        over = trio.Event()
        sinks = [Sink(self._posts, log, f"{job.directory}/{STDOUT}")]
        if log.get(STDERR_URL):
            sinks.append(Sink(self._posts, log, f"{job.directory}/{STDERR}", url=str(log[STDERR_URL])))
        async with trio.open_nursery() as nursery:
            for sink in sinks:
                nursery.start_soon(sink.follow, over)
            try:
                return await self._keeper.wait(job.id)
            finally:
                over.set()

    async def _told(self, exec_id: str, job: Kept, ended: Exit, stopped: str | None, lasted_ms: int) -> dict[str, Any]:
        code, error = meaning(ended, stopped)
        told = result(code, lasted_ms, error)
        if not job.claim["streamed"]:
            for name in (STDOUT, STDERR):
                add_output(told, name, f"{job.directory}/{name}")
        if code >= 0:
            await self._typed(exec_id, told, f"{job.directory}/{RESULT}")
        return told

    async def _typed(self, exec_id: str, told: dict[str, Any], path: str) -> None:
        """What it wrote into the file that RESULT_FILE names."""
        size = plain_size(path)
        if size is None:
            return
        try:
            if size <= INLINE_MAX:
                told["result_inline"] = read_plain(path, INLINE_MAX)
            elif self._payloads is None:
                add_error(told, f"{RESULT_FILE}: this daemon cannot store {size} bytes")
            else:
                told["result_ref"] = dict(await self._payloads.store(Path(path), exec_id, "result"))
        except (PayloadError, OSError) as failure:
            add_error(told, f"{RESULT_FILE}: {failure}")

    def _inputs(self, exec_id: str) -> tuple[Path, Path, Path]:
        """What a command may read: its stdin, itself when it is long, its payload."""
        name = exec_id if is_id(exec_id) else "_"
        return self._directory / f"{name}.stdin", self._directory / f"{name}.sh", self._directory / f"{name}.payload"


def _job_id(exec_id: str) -> str:
    return f"{KIND}-{exec_id}"


def _written(path: Path, data: Any) -> Path:
    raw = data.encode(errors="surrogateescape") if isinstance(data, str) else bytes(data)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with open(fd, "wb") as file:
        file.write(raw)
    return path
