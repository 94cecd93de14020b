"""Commands from their submit to their end (K-34): handed to their worker at most once, ended once.

What has not ended is also kept in memory, each worker's in the order in which it came. A pending one is handed out in
an answer to a poll, and that is noted on disk before the answer leaves; while a poll is parked with free slots, what is
submitted is that session's from its first commit on. It is sent again, with the same id, only to the
session that it was handed to, until that has read an answer with it; a daemon takes an id once. A newer session never
gets it: what an older one took and did not report has failed.
"""

from __future__ import annotations

import functools
import secrets
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import trio

from ...plane.contract import PlaneError
from ..bells import Bells
from ..http import HttpError
from ..orders import Order
from . import store
from .job import CANCELLED, FAILED, KILLED, RESTARTED, Delivery, ExecRow, NewExec, Open, Result
from .output import Output
from .store import Store

MOST_OPEN: Final = 10_000
"""So many of one worker may wait or run."""
ANSWER_BYTES: Final = 16 * 1024 * 1024
"""Bodies in one answer to a poll, about; one goes always."""

SMALL: Final = 64 * 1024
"""A body up to this is kept in memory until it is sent."""

Of = tuple[str, str]
"""Namespace, worker."""


class Seat:
    """A poll that waits, or is about to: so many commands it can still bring."""

    __slots__ = ("session", "slots")

    def __init__(self, session: str, slots: int) -> None:
        self.session, self.slots = session, slots


class Execs:
    """All commands of one server; a source of orders. Run `run()`, and set `rouse` and `body`.

    `rouse(ns, worker)` has the worker's parked poll answered; `body(raw)` makes a command's body of what is stored.
    """

    def __init__(self, kept: Store, output: Output, *, clock: Callable[[], float] = time.time) -> None:
        self.store = kept
        self.output = output
        self.waiters: Bells[[]] = Bells()
        self.rouse: Callable[[str, str], None] = lambda _ns, _worker: None
        self.body: Callable[[dict[str, Any]], dict[str, Any]] = lambda raw: raw
        self.told: Callable[[str, str | None], None] | None = None
        """Hears (namespace, id) of each that changed; None: of any of its namespace."""
        self._writer = kept.writer
        self._clock = clock
        self._open: dict[str, Open] = {}
        self._pending: dict[Of, dict[str, Open]] = {}
        self._running: dict[Of, dict[str, Open]] = {}
        self._unread: dict[Of, dict[str, Open]] = {}
        """Running ones that their session may not have heard of, or not of their cancel."""
        self._seats: dict[Of, Seat] = {}
        """Of the polls that wait now, each worker's newest."""
        self._turns: Counter[Of] = Counter()
        """How often a worker has had another session, or none any more."""
        self._newest: dict[Of, str] = {}
        """The session that said hello last, of each worker."""
        self._sessions: dict[Of, str] = {}
        """The newest session that polled, of each worker that has something open."""
        for job in kept.unended():
            self._keep(job)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Commit until cancelled."""
        task_status.started()
        await self._writer.run()

    # -- producers

    async def submit(self, new: NewExec) -> str:
        """Add one; its id, once it is on disk. HttpError 429."""
        of = (new.ns, new.worker)
        if self.open_of(*of) >= MOST_OPEN:
            raise HttpError(
                429,
                f"{MOST_OPEN} commands wait for worker {new.worker} or run on it",
                hint="wait until some of them have ended, or cancel some",
                headers=(("retry-after", "1"),),
                retry_after_s=1.0,
            )
        id_, now = secrets.token_hex(16), self._clock()
        size = len(new.command) + sum(map(len, new.env.values())) + len(new.stdin) + len(new.payload_inline or b"")
        session, turn = self._seat(of, size), self._turns[of]
        job = Open(seq=0, id=id_, ns=new.ns, worker=new.worker, state="pending", created_at=now, size=size)
        if session is not None:
            job.state, job.session, job.body = "running", session, store.body_of(id_, new)

        def added(seq: int) -> None:
            job.seq = seq
            if session is not None:
                self._sessions[of] = max(session, self._sessions.get(of, ""))
            self._keep(job)
            self._tell((job,))
            self.rouse(*of)

        await self._writer.write(functools.partial(store.add, new=new, id_=id_, now=now, session=session), added)
        if turn != self._turns[of] and job.is_unsent:
            await self._take_back((job,))
            self.rouse(*of)
        return id_

    def _seat(self, of: Of, size: int) -> str | None:
        """The session whose poll brings one more; None: it waits like others."""
        seat = self._seats.get(of)
        if seat is None or seat.slots < 1 or of in self._pending or size > SMALL:
            return None
        seat.slots -= 1
        return seat.session

    def sit(self, ns: str, worker: str, seat: Seat) -> None:
        """A poll is about to wait: until `leave`, what is submitted may go with it."""
        if seat.slots > 0 and seat.session >= self._newest.get((ns, worker), ""):
            self._seats[ns, worker] = seat

    def _end_turn(self, of: Of, session: str) -> None:
        """Of any other session: what it was given and was not sent is taken back."""
        self._turns[of] += 1
        self._newest[of] = session
        self._seats.pop(of, None)

    def leave(self, ns: str, worker: str, seat: Seat) -> None:
        """It waits no more."""
        if self._seats.get((ns, worker)) is seat:
            del self._seats[ns, worker]

    async def cancel(self, job: Open) -> None:
        """End a pending one, have the daemon of a running one stop it."""
        if job.state == "pending" or job.is_unsent:
            await self._fail((job,), CANCELLED)
        elif job.cancelled_at is None:
            now = self._clock()

            def asked(_done: bool) -> None:
                job.cancelled_at = now
                self._tell((job,))
                if job.id in self._open:
                    self._unread.setdefault(job.of, {})[job.id] = job
                    self.rouse(*job.of)

            await self._writer.write(functools.partial(store.cancel, seq=job.seq, now=now), asked)

    def get(self, ns: str, id_: str) -> Open | None:
        """One that has not ended."""
        job = self._open.get(id_)
        return job if job is not None and job.ns == ns else None

    def show(self, ns: str, id_: str) -> ExecRow | None:
        """One, with its output."""
        return self.store.show(ns, id_)

    def open_of(self, ns: str, worker: str) -> int:
        """How many of a worker have not ended."""
        return self.pending_of(ns, worker) + self.running_of(ns, worker)

    def running_of(self, ns: str, worker: str) -> int:
        """How many a worker was handed and has not told the end of."""
        return len(self._running.get((ns, worker), ()))

    def pending_of(self, ns: str, worker: str) -> int:
        """How many wait for a worker."""
        return len(self._pending.get((ns, worker), ()))

    def unsent_of(self, ns: str, worker: str) -> int:
        """How many are to go with the next answer to a worker's poll, or a later one."""
        unread = self._unread.get((ns, worker), {})
        return self.pending_of(ns, worker) + sum(job.is_unsent for job in unread.values())

    def open_in(self, ns: str) -> int:
        """How many of a namespace have not ended."""
        return sum(job.ns == ns for job in self._open.values())

    # -- a source of orders

    def waiting(self, ns: str, worker: str, capacity: int) -> bool:
        """Whether `take` with this capacity would give anything."""
        of = (ns, worker)
        if capacity > 0 and of in self._pending:
            return True
        unread = self._unread.get(of)
        if unread is None:
            return False
        session = self._sessions.get(of)
        return any(
            job.session == session and (job.wants_cancel or (capacity > 0 and not job.delivery.read))
            for job in unread.values()
        )

    async def take(self, ns: str, worker: str, n: int, session: str, capacity: int) -> Sequence[Order]:
        """What goes with this poll: cancels, what may not have arrived, and what waits. Noted on disk."""
        of = (ns, worker)
        unread = [job for job in self._unread.get(of, {}).values() if job.session == session]
        given = [
            Order(id=f"{job.id}.cancel", kind="cancel", body={"exec_id": job.id})
            for job in unread
            if job.wants_cancel and job.cancel.send(n)
        ]
        again = [job for job in unread if not job.delivery.read][:capacity]
        left = ANSWER_BYTES - sum(job.size for job in again)
        fresh: list[Open] = []
        for job in self._pending.get(of, {}).values():
            if len(again) + len(fresh) >= capacity or (left < job.size and (again or fresh)):
                break
            left -= job.size
            fresh.append(job)
        if again or fresh:
            bodies = await self._bodies(again, fresh, session, n)
            given += [Order(id=body["exec_id"], kind="exec", body=self.body(body)) for body in bodies]
        return given

    async def _bodies(self, again: list[Open], fresh: list[Open], session: str, n: int) -> list[dict[str, Any]]:
        known: list[dict[str, Any]] = []
        unknown: list[Open] = []
        for job in again:
            if job.body is None:
                unknown.append(job)
            else:
                known.append(job.body)
                job.body = None
                job.delivery.send(n)
        return known + (await self._hand_out(unknown, fresh, session, n) if unknown or fresh else [])

    async def _hand_out(self, again: list[Open], fresh: list[Open], session: str, n: int) -> list[dict[str, Any]]:
        for job in fresh:  # at once: no other poll takes it while this one commits
            self._move(job, session)
        for job in (*again, *fresh):
            job.delivery.send(n)
        numbers, seqs = [job.seq for job in again], [job.seq for job in fresh]
        note = functools.partial(store.hand_out, seqs=seqs, session=session, n=n, now=self._clock())
        try:
            bodies = await self._writer.write(lambda conn: store.bodies_of(conn, numbers) + note(conn))
        except PlaneError:
            for job in fresh:
                self._put_back(job)
            raise
        self._tell(fresh)
        return bodies

    async def acknowledge(self, ns: str, worker: str, session: str, seen: int | None) -> None:
        """The session has read the answer to its poll `seen`; None: all answers before."""
        of = (ns, worker)
        if (of in self._pending or of in self._running) and session >= self._sessions.get(of, ""):
            self._sessions[of] = session  # an older one that still polls changes nothing
        unread = self._unread.get(of)
        if unread is None:
            return
        for job in list(unread.values()):
            if job.session == session:
                job.delivery.hear(seen)
                job.cancel.hear(seen)
                self._note_read(job)

    async def superseded(self, ns: str, worker: str, session: str) -> None:
        """A session begins: what an older one took and did not report has failed."""
        self._end_turn((ns, worker), session)
        old = [job for job in self._running.get((ns, worker), {}).values() if job.session != session]
        await self._take_back([job for job in old if job.is_unsent])
        await self._fail([job for job in old if job.state == "running"], RESTARTED)

    async def abandoned(self, ns: str, worker: str, why: str) -> None:
        """The worker is gone: what it runs has failed, and if it was killed, what waits for it, too."""
        of = (ns, worker)
        self._end_turn(of, "")
        if why != KILLED:
            await self._take_back([job for job in self._running.get(of, {}).values() if job.is_unsent])
        waiting = self._pending.get(of, {}) if why == KILLED else {}
        await self._fail([*self._running.get(of, {}).values(), *waiting.values()], why)

    # -- ends

    async def finish(self, job: Open, result: Result) -> bool:
        """How it ended. False when it has ended otherwise meanwhile."""
        (done,) = await self.finish_many(((job, result),))
        return done

    async def finish_many(self, ends: Sequence[tuple[Open, Result]]) -> list[bool]:
        """How each ended, in one commit. False for one that has ended otherwise meanwhile."""
        now = self._clock()

        def verb(conn: sqlite3.Connection) -> list[bool]:
            return [store.finish(conn, job.seq, result, now) for job, result in ends]

        def ended(done: list[bool]) -> None:
            for (job, _result), was_open in zip(ends, done, strict=True):
                if was_open:
                    self._drop(job)
                    self._tell((job,))
                    self.waiters.ring(job.id)
                    self.output.ring(job.seq)

        return await self._writer.write(verb, ended)

    async def publish(self, row: ExecRow, result: Result) -> bool:
        """What one gave back, whether it has ended or not. False when that is known."""

        def told(done: bool) -> None:
            if done:
                self.waiters.ring(row.id)
                if self.told is not None:
                    self.told(row.ns, row.id)

        return await self._writer.write(functools.partial(store.publish, seq=row.seq, result=result), told)

    async def fail_all(self, ns: str, why: str) -> None:
        """What is open in a namespace has failed."""
        await self._fail([job for job in self._open.values() if job.ns == ns], why)

    async def expire(self, before: float, why: str) -> int:
        """Those that have waited since before then have failed; how many."""
        old = [job for job in self._open.values() if job.state == "pending" and job.created_at < before]
        await self._fail(old, why)
        return len(old)

    async def forget(self, seqs: Sequence[int]) -> int:
        """Delete ended ones with what they printed; how many."""
        gone = await self._writer.write(functools.partial(store.forget, seqs=seqs))
        self.output.forget(seqs)
        return gone

    async def vacuum(self, pages: int) -> None:
        """Give free pages of the file back to the disk."""
        await self._writer.write(lambda conn: conn.execute(f"PRAGMA incremental_vacuum({pages})").fetchall())

    async def _take_back(self, jobs: Sequence[Open]) -> None:
        """These were not sent to whom they were handed out: they wait again."""
        if jobs:
            for job in reversed(jobs):
                self._put_back(job)
            await self._writer.write(functools.partial(store.put_back, seqs=[job.seq for job in jobs]))
            self._tell(jobs)

    def _tell(self, jobs: Iterable[Open]) -> None:
        if self.told is not None:
            for job in jobs:
                self.told(job.ns, job.id)

    async def _fail(self, jobs: Iterable[Open], why: str) -> None:
        ends = [(job, Result(exit_code=FAILED, error=why)) for job in jobs]
        if ends:
            await self.finish_many(ends)

    # -- what is in memory

    def _keep(self, job: Open) -> None:
        self._open[job.id] = job
        where = self._pending if job.state == "pending" else self._running
        where.setdefault(job.of, {})[job.id] = job
        if job.is_unread:
            self._unread.setdefault(job.of, {})[job.id] = job

    def _drop(self, job: Open) -> None:
        self._open.pop(job.id, None)
        for where in (self._pending, self._running, self._unread):
            _take_out(where, job)
        if job.of not in self._pending and job.of not in self._running:
            self._sessions.pop(job.of, None)

    def _note_read(self, job: Open) -> None:
        if not job.is_unread:
            _take_out(self._unread, job)

    def _move(self, job: Open, session: str) -> None:
        self._drop(job)
        job.state, job.session = "running", session
        self._sessions[job.of] = session
        self._keep(job)

    def _put_back(self, job: Open) -> None:
        if job.id not in self._open:
            return
        self._drop(job)
        job.state, job.session, job.delivery, job.body = "pending", None, Delivery(), None
        self._open[job.id] = job
        self._pending[job.of] = {job.id: job, **self._pending.get(job.of, {})}


def _take_out(where: dict[Of, dict[str, Open]], job: Open) -> None:
    jobs = where.get(job.of)
    if jobs is not None:
        jobs.pop(job.id, None)
        if not jobs:
            del where[job.of]
