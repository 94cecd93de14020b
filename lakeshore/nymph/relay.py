"""What a running job says, on its way to the server: its yields, and what it prints.

    followed = await relay.follow(job, tell)     # until the job's end, and until the last of it is taken
    ending = followed.ending(outcome.ending)     # what its ack carries

Rules. Frames leave in runs that their own round trips clock, each with claim and seq; a 409 `gap` is answered from
where the server expects them, after a 409 `stale` nothing more is sent: the claim is somebody else's. What is printed
leaves `PACE_S` apart, with its offsets; who falls far behind skips, but for the beginning. Nothing is kept in memory:
both are read from the job's files, so a server that is away costs disk only, and a new daemon goes on where the files
stand. What cannot be told of a log never fails its job; frames that are refused do.

A job of a server that names no claim (claim 0) is only looked at for `tell`.
Reference: nymph/protocol; api/function-protocol.md; CONTRACT K-11, K-23, K-24.
"""

from __future__ import annotations

import json
import logging
import os
import random
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from pathlib import Path
from typing import Any, Final, Protocol

import trio

from lakeshore.net.backoff import full_jitter
from lakeshore.wire.values import value

from . import follow as following
from .frames import FrameReader, NoFrames, Run
from .keeping.client import KeeperClient, KeeperLost, Kept
from .keeping.protocol import STDERR, STDOUT
from .told import count
from .watching import Bell, Watcher
from .workdir import FRAMES

LOG_CHUNK: Final = "/v1/daemon/log-chunk"
RESULT_CHUNK: Final = "/v1/daemon/result-chunk"
PACE_S: Final = 0.05
BATCH_BYTES: Final = 128 << 10
HEAD_BYTES: Final = 256 << 10
BEHIND_BYTES: Final = 4 << 20
"""Who is so far behind goes on `RECENT_BYTES` before the end."""
RECENT_BYTES: Final = 1 << 20
TAIL_PACE_S: Final = 0.5
AWAY_S: Final = 30.0
"""For how long after a job's end a server that is away is asked again."""
TIMEOUT_S: Final = 30.0
NOTED: Final = "relayed.json"
_NOTE_BYTES: Final = 1 << 20
SHORT_S: Final = 0.08
"""So long a job runs unheard."""
_SOONEST_S, _HINTED_S, _LATEST_S = 0.02, 0.25, 1.0
"""Between two looks, at first; where the system tells of changes; at last."""
_PASSING: Final = frozenset({None, 0, 401, 403, 408, 425, 429, 500, 502, 503, 504, 507})
"""A key that was revoked is the daemon's affair: it leaves."""
_OUTPUTS: Final = (STDOUT, STDERR)
_log = logging.getLogger(__name__)


class Line(Protocol):
    """The way to the server. An error has `status` (None when there was no answer), and `body` where there was one."""

    async def post(self, path: str, body: Mapping[str, Any], *, timeout_s: float) -> Mapping[str, Any]: ...


@value
class Followed:
    """`last_seq` is of the last frame that the job wrote, first_seq - 1 of a stream without any, None when it is no
    stream. `refused` says why the server took no more of them.
    """

    last_seq: int | None = None
    refused: str | None = None

    def ending(self, told: Mapping[str, Any]) -> dict[str, Any]:
        """The ending of a job as the core is told of it: a success needs every frame (K-24)."""
        ending = dict(told)
        if ending.get("state") != "succeeded" or self.last_seq is None:
            return ending
        if self.refused is None:
            return {**ending, "last_seq": self.last_seq}
        error = {"type": "DispatchError", "message": f"what it yielded was not taken: {self.refused}"}
        return {**{name: ending[name] for name in ("exit_code",) if name in ending}, "state": "failed", "error": error}


class Relay:
    """For one daemon: `root` is where the working directories are."""

    def __init__(self, line: Line, keeper: KeeperClient, root: Path) -> None:
        self._line, self._keeper, self._root = line, keeper, root
        self._watcher = Watcher()

    async def follow(self, job: Kept, tell: Callable[[bytes], None] = lambda _tail: None) -> Followed:
        """Send what it says until it has ended and everything is taken, or nobody has taken it for `AWAY_S`. `tell` is
        called with the end of what it prints, now and then. Cancel it where nobody wants the rest.
        """
        one = _One(self._line, job, self._root / str(job.claim["invocation_id"]), tell)
        with trio.move_on_after(SHORT_S):  # a short job is over before there is anything to be heard of it
            await self._ended(one)
            if one.said_nothing():
                return one.followed
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._ended, one)
            nursery.start_soon(one.send_logs, self._watcher)
            nursery.start_soon(one.send_frames, self._watcher)
        return one.followed

    async def resend(self, job: Kept, expected: int) -> bool:
        """The ack was a gap: send the frames again from `expected` on, once. Whether they are all there, and taken."""
        one = _One(self._line, job, self._root / str(job.claim["invocation_id"]), lambda _tail: None)
        one.end()
        if not one.frames.back_to(expected):
            _log.error("%s: frame %d is not here any more", job.id, expected)
            return False
        await one.send_frames(self._watcher)
        return one.followed.refused is None

    async def _ended(self, one: _One) -> None:
        with suppress(KeeperLost, KeyError):
            await self._keeper.wait(one.job.id)
        one.end()


class _One:
    """One job that is followed."""

    def __init__(self, line: Line, job: Kept, workdir: Path, tell: Callable[[bytes], None]) -> None:
        self.job, self.followed = job, Followed()
        self._line, self._workdir, self._tell = line, workdir, tell
        claim = job.claim
        self._who = {"invocation_id": claim["invocation_id"], "claim": int(claim.get("claim") or 0)}
        self._attempt = int(claim.get("attempt") or 1)
        self._first_seq = int(claim.get("first_seq") or 0)
        self.frames = FrameReader(workdir / FRAMES, self._first_seq)
        self._directory = Path(job.directory)
        self._over = trio.Event()
        self._bells: list[Bell] = []
        self._offsets = dict.fromkeys(_OUTPUTS, 0)
        self._noted = 0

    def end(self) -> None:
        """It has ended: what it has written by now is all."""
        self._over.set()
        for bell in self._bells:
            bell.ring()

    def said_nothing(self) -> bool:
        """Of one that has ended: whether it has printed nothing, and is no stream."""
        directory = self.job.directory
        for name in _OUTPUTS:
            with suppress(FileNotFoundError):
                if os.lstat(f"{directory}/{name}").st_size:
                    return False
        return not os.path.lexists(f"{self._workdir}/{FRAMES}")

    # -- what it yields

    async def send_frames(self, watcher: Watcher) -> None:
        """Until its end."""
        if not self._who["claim"] or self.job.claim.get("script"):
            return
        try:
            await self._pump(watcher)
        except _Stale as error:
            _log.info("%s: %s", self.job.id, error)
            self._refuse(str(error))
        except (_Refused, NoFrames, OSError) as error:
            _log.warning("%s: what it yields is not taken: %s", self.job.id, error)
            self._refuse(str(error))
        except _Away as error:
            _log.warning("%s: the last of what it yielded was not taken yet: %s", self.job.id, error)
            self._count()
        last = self.frames.next_seq - 1 if self.frames.is_stream() else None
        self.followed = Followed(last_seq=last, refused=self.followed.refused)

    def _refuse(self, why: str) -> None:
        self.followed = Followed(refused=why)

    def _count(self) -> None:
        """Where the frames end that are here."""
        with suppress(NoFrames, OSError):
            while self.frames.read() is not None:
                continue

    async def _pump(self, watcher: Watcher) -> None:
        bell = self._bell()
        with ExitStack() as watched:
            soonest_s = _HINTED_S if watched.enter_context(self._watching(watcher, self._workdir, bell)) else _SOONEST_S
            hinted = False
            wait_s = soonest_s
            while True:
                over = self._over.is_set()
                if not hinted and not over and self.frames.is_stream():
                    hinted = watched.enter_context(self._watching(watcher, self._workdir / FRAMES, bell))
                run = self.frames.read()
                if run is not None:
                    wait_s = soonest_s
                    await self._send_run(run)
                    self.frames.remove_taken()
                elif over:
                    return
                else:
                    wait_s = soonest_s if await bell.wait(wait_s) else min(wait_s * 1.5, _LATEST_S)

    async def _send_run(self, run: Run) -> None:
        body = {**self._who, "seq": run.seq, "frames": run.frames}
        try:
            await self._post(RESULT_CHUNK, body)
        except _Gap as gap:
            if gap.expected > run.seq + run.count:
                raise _Refused(f"frame {gap.expected} is expected, {run.seq} was next") from None
            if not self.frames.back_to(gap.expected):
                raise _Refused(f"frame {gap.expected} is expected, and is not here any more") from None

    # -- what it prints

    async def send_logs(self, watcher: Watcher) -> None:
        """Until its end."""
        bell = self._bell()
        wanted = bool(self._who["claim"])
        told_at, told = -TAIL_PACE_S, b""
        self._offsets.update(self._read_note())
        with self._watching(watcher, self._directory, bell) as hinted:
            wait_s = soonest_s = _HINTED_S if hinted else _SOONEST_S
            while True:
                over = self._over.is_set()
                sent = False
                if wanted:
                    try:
                        sent = await self._send_batch()
                    except _Away as error:
                        _log.warning("%s: the last of what it printed was not taken: %s", self.job.id, error)
                        wanted = False
                    except (_Stale, _Refused, _Gap) as error:
                        _log.info("%s: what it prints is not kept: %s", self.job.id, error)
                        wanted = False
                if over or trio.current_time() >= told_at + TAIL_PACE_S:
                    tail = self._tail()
                    if tail != told:
                        told_at, told = trio.current_time(), tail
                        self._tell(tail)
                if over and not sent:
                    return
                if not sent:
                    wait_s = soonest_s if await bell.wait(wait_s) else min(wait_s * 1.5, _LATEST_S)
                elif not over:
                    wait_s = soonest_s
                    with trio.move_on_after(PACE_S):
                        await self._over.wait()  # the last of it does not wait for its turn

    async def _send_batch(self) -> bool:
        """Send what is new; whether there was anything."""
        parts: list[tuple[str, int, bytes]] = []
        reached = dict(self._offsets)
        room = BATCH_BYTES
        for name in _OUTPUTS:
            start = self._start(name)
            chunk = following.read_on(self._directory / name, start, most=room)
            if chunk.data:
                parts.append((name, chunk.offset, chunk.data))
                reached[name] = chunk.next
                room -= len(chunk.data)
            if not room:
                break
        if not parts:
            return False
        try:
            await self._post(LOG_CHUNK, {**self._who, "attempt": self._attempt, "parts": parts})
        except _Full as error:
            _log.warning("%s: some of what it prints is not kept: %s", self.job.id, error)
        self._offsets = reached
        self._note()
        return True

    def _start(self, name: str) -> int:
        """Where to go on: the beginning is told whole, the rest as far as one keeps up."""
        offset = self._offsets[name]
        with suppress(OSError):
            size = os.lstat(self._directory / name).st_size
            if offset >= HEAD_BYTES and size - offset > BEHIND_BYTES:
                return size - RECENT_BYTES
        return offset

    def _tail(self) -> bytes:
        return following.tail(self._directory / STDOUT) or following.tail(self._directory / STDERR)

    def _note(self) -> None:
        """So that a new daemon does not send again what is there; it is no harm if it does."""
        total = sum(self._offsets.values())
        if total - self._noted < _NOTE_BYTES:
            return
        self._noted = total
        with suppress(OSError):
            (self._directory / f".{NOTED}").write_text(json.dumps(self._offsets))
            os.replace(self._directory / f".{NOTED}", self._directory / NOTED)

    def _read_note(self) -> dict[str, int]:
        try:
            found = json.loads((self._directory / NOTED).read_text())
            return {name: int(found[name]) for name in _OUTPUTS}
        except (OSError, ValueError, KeyError, TypeError):
            return {}

    # -- both

    def _watching(self, watcher: Watcher, directory: Path, bell: Bell) -> AbstractContextManager[bool]:
        """Of what has ended nothing more is to come."""
        return nullcontext(False) if self._over.is_set() else watcher.watching(directory, bell)

    def _bell(self) -> Bell:
        bell = Bell()
        self._bells.append(bell)
        return bell

    async def _post(self, path: str, body: Mapping[str, Any]) -> None:
        """Until it is taken or refused; after the job's end for `AWAY_S` at most."""
        waits = full_jitter(random.random, base=0.05, cap=2.0)
        until: float | None = None
        while True:
            try:
                await self._line.post(path, body, timeout_s=TIMEOUT_S)
            except Exception as error:
                found = _refusal(path, error)
                if found is None:
                    raise
                if not isinstance(found, _Away):
                    raise found from error
                now = trio.current_time()
                until = now + AWAY_S if until is None and self._over.is_set() else until
                if until is not None and now >= until:
                    raise found from error
                await trio.sleep(next(waits))
            else:
                return


class _NotTaken(Exception):
    """The server did not take something."""


class _Away(_NotTaken):
    """It may later."""


class _Refused(_NotTaken):
    """It never will."""


class _Full(_NotTaken):
    """It has no room for this."""


class _Stale(_NotTaken):
    """The claim is somebody else's."""


class _Gap(_NotTaken):
    def __init__(self, expected: int) -> None:
        super().__init__(f"frame {expected} is expected")
        self.expected = expected


def _refusal(path: str, error: Exception) -> _NotTaken | None:
    """What an error of the line means; None for one that is none of a line's."""
    if not hasattr(error, "status"):
        return None
    status = error.status
    body = getattr(error, "body", None)
    said = body if isinstance(body, Mapping) else {}
    if status == 409 and said.get("error") == "gap":
        return _Gap(count(said.get("expected")))
    if status == 409:
        return _Stale(str(said.get("hint") or error))
    if status == 507 and path == LOG_CHUNK:
        return _Full(str(error))
    return (_Away if status in _PASSING else _Refused)(str(error))
