"""Jobs: from `run` to the outcome, through a runner and the keeper; those of an earlier daemon are adopted.

Rules: a body is spawned only if the core says, right before, that its claim can be counted on. Its end is told when
nothing of it runs and its last output has been taken. Whatever goes wrong here ends the job, never the daemon. A lost
attempt is never acked.
Reference: nymph/daemons, "Runners"; CONTRACT K-11, K-12; DESIGN §5.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import trio

from lakeshore.wire.messages import Pair

from ..clocks import now
from ..code import Code
from ..core import endings, events, instructions
from ..core.events import Event
from ..execs import PayloadError
from ..keeping.client import KeeperError, KeeperLost, Kept
from ..leftovers import Leftovers
from ..payloads import Payloads
from ..relay import Followed
from ..runners.process import JobCode, Outcome, Refused, Run, failed
from ..runners.registry import Runners
from ..workdir import made_root
from .line import Line
from .pending import Pending

Map = Mapping[str, Any]
KEEPERS_PART: Final = 0.95
"""Of a lease: the core ends a body before that."""
TIDY_S: Final = 0.03
"""What is over is cleared away so much later, together."""
VOUCH_S: Final = 0.25
"""Between two words to the keeper about leases."""
_REASONS: Final = {endings.GRACE_EXPIRED: "shutdown", endings.CANCELLED: "cancel"}
"""Why the core stops something -> as the keeper records it."""
_NOT_OURS: Final = ("lost", "lease")
log = logging.getLogger("nymph.jobs")


@dataclass(slots=True, kw_only=True)
class _Job:
    """One claim here. `kept` is None until it is spawned, and of one that never was."""

    pair: Pair
    body: Map
    kept: Kept | None = None
    stop: tuple[str, float] | None = None
    before: trio.CancelScope = field(default_factory=trio.CancelScope)
    """Around what comes before the spawn."""
    relay: trio.CancelScope = field(default_factory=trio.CancelScope)
    """Around what is told of it while it runs."""


class Jobs:
    """All of them. `root` is where their directories are."""

    def __init__(
        self,
        tell: Callable[[Event], None],
        nursery: trio.Nursery,
        line: Line,
        pending: Pending,
        *,
        root: Path,
        payloads: Payloads,
        code: Code,
        leftovers: Leftovers,
        may_begin: Callable[[str, int], bool],
        flags: tuple[str, ...] = (),
    ) -> None:
        self._tell, self._nursery, self._line = tell, nursery, line
        self._pending, self._may_begin, self._flags = pending, may_begin, flags
        self._root, self._payloads, self._code, self._leftovers = root, payloads, code, leftovers
        self._one_at_a_time = trio.Lock()
        self._jobs: dict[Pair, _Job] = {}
        self._vouched_until = -math.inf
        self._lease_s = 0.0
        self._vouching = False
        self._over: list[tuple[_Job, bool]] = []
        """To be cleared away."""

    @property
    def _runners(self) -> Runners:
        return self._line.parts.runners

    def start(self, one: instructions.StartJob) -> None:
        job = self._jobs[one.invocation_id, one.claim] = _Job(pair=(one.invocation_id, one.claim), body=one.body)
        self._nursery.start_soon(self._guarded, self._live, job)

    def stop(self, one: instructions.StopJob) -> None:
        job = self._jobs.get((one.invocation_id, one.claim))
        if job is None:
            return
        job.stop = (_REASONS.get(one.why, one.why), one.grace_s)
        job.before.cancel()
        if one.why in _NOT_OURS:
            job.relay.cancel()
        if job.kept is not None:
            self._nursery.start_soon(self._stop, job)

    def release(self, one: instructions.ReleaseJob) -> None:
        job = self._jobs.pop((one.invocation_id, one.claim), None)
        if job is not None and job.kept is not None:
            self._over.append((job, one.keep))
            if len(self._over) == 1:
                self._pending.start(self._clear_away)

    def vouched(self, lease_s: float, took_s: float) -> None:
        """A poll was answered: the keeper ends what runs by itself when no other one is, were this daemon to freeze."""
        self._vouched_until = now() + max(0.0, lease_s * KEEPERS_PART - took_s)
        self._lease_s = lease_s
        if not self._vouching:
            self._vouching = True
            self._nursery.start_soon(self._vouch)

    def send_frames(self, one: instructions.SendFrames) -> None:
        job = self._jobs.get((one.invocation_id, one.claim))
        if job is not None and job.kept is not None:
            self._nursery.start_soon(self._resend, job, one.expected)

    # ---- adoption

    async def found(self, kept: Sequence[Kept]) -> list[Map]:
        """The jobs of an earlier daemon, as `Booted` tells of them. What was lost meanwhile is cleared away."""
        adopted: list[Map] = []
        for one in kept:
            claim = one.claim if isinstance(one.claim, Mapping) else {}
            if claim.get("kind") != "run" or not claim.get("claim"):
                continue
            job = _Job(pair=(claim["invocation_id"], claim["claim"]), body=claim, kept=one)
            told: dict[str, Any] = {"invocation_id": job.pair[0], "claim": job.pair[1]}
            if one.exit is not None:
                runner = self._runners.of_job(one)
                outcome = await runner.ended(one)
                if outcome.state == "lost":
                    log.warning("%s.%s was lost while no daemon ran: %s", *job.pair, outcome.said)
                    await runner.release(one, keep=False)
                    continue
                told["ending"] = outcome.ending
            self._jobs[job.pair] = job
            adopted.append(told)
        return adopted

    def adopt(self) -> None:
        """Follow those of `found` that run; after `Booted` was told."""
        for job in self._jobs.values():
            if job.kept is not None and job.kept.exit is None:
                log.info("adopting %s.%s", *job.pair)
                self._nursery.start_soon(self._guarded, self._follow, job)

    # ---- the life of one

    async def _guarded(self, step: Callable[[_Job], Any], job: _Job) -> None:
        """Whatever goes wrong is the job's end."""
        try:
            ending = await step(job)
        except KeeperLost as error:
            ending = Outcome(state="lost", error={"type": "WorkerLost", "message": str(error)}).ending
        except Refused as refused:
            ending = refused.outcome.ending
        except Exception as error:
            log.exception("%s.%s", *job.pair)
            ending = failed("DaemonError", f"the daemon could not run it: {type(error).__name__}: {error}").ending
        self._tell(events.JobEnded(invocation_id=job.pair[0], claim=job.pair[1], ending=ending))

    async def _live(self, job: _Job) -> Map:
        with job.before:
            async with self._arguments(job) as args:
                code = None if job.body.get("script") is not None else await self._code.of(args)
                run = run_of(job.body, args=args, flags=self._flags, code=code)
                await self._line.ready()
                runner = self._runners.of(run)
                async with runner.turns or nullcontext():
                    if not self._may_begin(*job.pair):
                        self._tell(events.TimerFired())  # its lease is over: let the core see that first
                        return _unbegun().ending
                    job.before.shield = True  # from here on it is stopped through the keeper
                    with trio.CancelScope(shield=True):
                        job.kept = await runner.start(run)
        if job.kept is None:
            return _unbegun().ending
        self._tell(events.JobStarted(invocation_id=job.pair[0], claim=job.pair[1], epoch=time.time()))
        if job.stop is not None:
            await self._stop(job)
        return await self._follow(job)

    @asynccontextmanager
    async def _arguments(self, job: _Job) -> AsyncIterator[bytes | Path]:
        """As they came, or in a file that was fetched: it is moved, or gone afterwards."""
        ref = job.body.get("payload_ref")
        if not isinstance(ref, Mapping):
            await trio.lowlevel.checkpoint()
            yield job.body.get("args_blob") or b""
            return
        path = self._root / f".args-{job.pair[0]}.{job.pair[1]}"
        try:
            await trio.to_thread.run_sync(made_root, self._root)
            path.unlink(missing_ok=True)  # of a daemon that was killed
            await self._payloads.fetch(ref, path)
            yield path
        except PayloadError as error:
            raise Refused(failed("PayloadError", str(error))) from error
        finally:
            path.unlink(missing_ok=True)

    async def _follow(self, job: _Job) -> Map:
        kept = job.kept
        assert kept is not None, "it was spawned"
        parts = self._line.parts
        followed = Followed()

        def printed(tail: bytes) -> None:
            self._tell(events.JobOutput(invocation_id=job.pair[0], claim=job.pair[1], tail=tail))

        with job.relay:
            followed = await parts.relay.follow(kept, printed)
        outcome = await parts.runners.of_job(kept).ended(kept)
        ending = followed.ending(outcome.ending)
        if job.stop is None or job.stop[0] not in _NOT_OURS:
            job.relay = trio.CancelScope()
            with job.relay:
                return await self._payloads.beside(ending, job.pair[0])
        return ending

    async def _vouch(self) -> None:
        """At once, and then not again for a while: polls of a busy daemon are many."""
        told = -math.inf
        while self._vouched_until > told:
            told = self._vouched_until
            await self._renew(told)
            await trio.sleep(VOUCH_S)
        self._vouching = False

    async def _renew(self, until: float) -> None:
        running = [job.kept.id for job in self._jobs.values() if job.kept is not None and job.kept.exit is None]
        try:
            await self._line.lease(self._lease_s)
            if running:
                await self._line.keeper.renew(max(0.0, until - now()), running)
        except KeeperError as error:
            log.debug("leases at the keeper: %s", error)

    async def _resend(self, job: _Job, expected: int) -> None:
        assert job.kept is not None, "it was spawned"
        try:
            there = await self._line.parts.relay.resend(job.kept, expected)
        except Exception as error:
            log.warning("%s: frames from %d on were not taken: %s", job.kept.id, expected, error, exc_info=True)
            return
        if not there:
            self._tell(events.FramesLost(invocation_id=job.pair[0], claim=job.pair[1], expected=expected))

    async def _stop(self, job: _Job) -> None:
        assert job.kept is not None and job.stop is not None, "asked after the spawn"
        why, grace_s = job.stop
        try:
            await self._line.keeper.stop(job.kept.id, why=why, grace_s=grace_s)
        except KeeperError as error:
            log.warning("%s.%s is not stopped: %s", *job.pair, error)

    async def _clear_away(self) -> None:
        """All that end within a moment: the keeper is told of them at once."""
        await trio.sleep(TIDY_S)
        over, self._over = self._over, []
        async with trio.open_nursery() as nursery:
            for job, keep in over:
                nursery.start_soon(self._release, job, keep)

    async def _release(self, job: _Job, keep: bool) -> None:
        assert job.kept is not None, "it was spawned"
        try:
            await self._runners.of_job(job.kept).release(job.kept, keep=keep)
            if keep:
                async with self._one_at_a_time:
                    await trio.to_thread.run_sync(self._leftovers.add, job.pair[0])
        except (KeeperError, OSError) as error:
            log.warning("%s.%s is not cleared away: %s", *job.pair, error)
        except Exception:
            log.exception("%s.%s is not cleared away", *job.pair)


def run_of(body: Map, *, args: bytes | Path, flags: tuple[str, ...] = (), code: JobCode | None = None) -> Run:
    """What a runner is told, of the `run` command's body; `flags` are the daemon's own."""
    script = body.get("script")
    as_user = body.get("as_user")
    return Run(
        invocation_id=str(body["invocation_id"]),
        args=None if script is not None else args,
        run_config=body.get("run_config") or {},
        script=None if script is None else str(script),
        as_user=None if as_user is None else str(as_user),
        parent_id=body.get("parent_invocation_id"),
        root_id=body.get("root_invocation_id"),
        claim=int(body["claim"]),
        attempt=int(body.get("attempt") or 1),
        first_seq=int(body.get("first_seq") or 0),
        flags=flags,
        code=code,
    )


def _unbegun() -> Outcome:
    return failed("DaemonError", "it was stopped before it began")
