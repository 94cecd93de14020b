"""When things happen: parked polls, batches, leases, waiters. What happens is the plane's affair.

A verb runs in the writer's next batch. The last thing in each batch hands new work to parked polls, in the same commit,
and everything that others are told happens after COMMIT has returned.
"""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import trio

from ..plane import claims, frames, polls, reports, retries, submits
from ..plane.contract import (
    TERMINAL,
    Appended,
    Cancelled,
    Claimed,
    Ended,
    Loss,
    PlaneError,
    Poll,
    PollAnswer,
    Report,
    Settled,
    Submission,
    Submitted,
    Superseded,
    Wish,
)
from ..plane.plane import Plane
from ..plane.statements import SQL, Values
from ..plane.transaction import Transaction
from ..wire.values import value
from .committed import Committed
from .feeds import Feeds
from .leases import Lease, Leases
from .matching import MAX_PREFETCH, Matcher
from .parking import News, Parked, Parking, no_news
from .pollers import Pollers
from .promoter import Promoter
from .queue_book import QueueBook
from .results import Results
from .sessions import SessionBook
from .space import DiskReserve
from .waiters import Parker, Waiters
from .writer import Verb, Writer

log = logging.getLogger(__name__)

CANCEL_GRACE_S = 30.0
CANCELS_AT_ONCE = 200
SWEEP_S = 1.0


@value
class Chunk:
    """One frame on its way to the journal."""

    ns: str
    id: str
    data: bytes
    seq: int | None
    claim: int | None = None
    worker: str | None = None
    final: bool = False


class Dispatcher:
    """Policy over one open plane on disk. Run `run()` in the server's nursery."""

    def __init__(
        self,
        plane: Plane,
        *,
        lease_s: float = 60.0,
        reserve_bytes: int = 1024**3,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.plane = plane
        self.lease_s = lease_s
        self.leases = Leases(lease_s)
        self.parking = Parking()
        self.waiters = Waiters()
        self.feeds = Feeds()
        self.queues = QueueBook()
        self.pollers = Pollers()
        self.matcher = Matcher(self)
        self.writer = Writer(plane, self.matcher.closing)
        self.refused_stale = 0
        self.clock = clock
        self._committed = Committed(plane.path, plane.conn, self.writer)
        self.reserve = DiskReserve(plane.path, reserve_bytes)
        self.results = Results(self.rows, self.waiters, runs=self.leases.holds, hurry=self.writer.hurry)
        self.sessions = SessionBook()
        self._freshen = self.matcher.freshen
        self.promoter = Promoter(self.writer, clock, self._freshen, self.matcher.pace)

    # -- reads

    def rows(self, statement: str, values: Values) -> list[tuple[Any, ...]]:
        """Read what is committed."""
        return self._committed.rows(statement, values)

    # -- submits

    async def submit(self, item: Submission, *, watch: str | None = None) -> Submitted:
        """Insert one invocation; it may be claimed by a parked poll in the same commit. Raises Refused, PlaneFull."""
        self.reserve.check(trio.current_time())
        return await self.writer.write(
            functools.partial(self._submit, item), functools.partial(self._watch_submitted, item.ns, watch)
        )

    async def submit_many(
        self, items: Sequence[Submission], *, watch: str | None = None
    ) -> list[Submitted | Exception]:
        """A batch: one answer per item, in order; never atomic (K-18)."""
        self.reserve.check(trio.current_time())

        def verb(tx: Transaction) -> list[Submitted | Exception]:
            answers: list[Submitted | Exception] = list(submits.submit_many(tx, items, self.clock()))
            for item, done in zip(items, answers, strict=True):
                if isinstance(done, Submitted) and (not done.again or done.retried) and done.due is None:
                    self._freshen(item.ns, done.queue)
            return answers

        def committed(answers: list[Submitted | Exception]) -> None:
            stored = [done for done in answers if isinstance(done, Submitted)]
            if stored:
                self._watch_submitted(items[0].ns, watch, *stored)

        return await self.writer.write(verb, committed)

    def _submit(self, item: Submission, tx: Transaction) -> Submitted:
        done = submits.submit(tx, item, self.clock())
        if done.due is None and (not done.again or done.retried):
            self._freshen(item.ns, done.queue)
        return done

    def _watch_submitted(self, ns: str, watch: str | None, *stored: Submitted) -> None:
        for done in stored:
            if done.due is not None:
                self.promoter.expect(done.due)
        if watch is not None:
            self.results.submitted(ns, watch, stored)

    # -- polls

    async def poll(self, request: Poll, *, timeout_s: float, parker: Parker, news: News = no_news) -> PollAnswer:
        """Handle one poll of a session; park it while there is nothing to say. Raises Superseded.

        `news()` says whether others have something for this worker: then it is not parked.
        """
        key = (request.ns, request.worker, request.session)
        if self.sessions.overtaken(*key, request.n, trio.current_time()):
            raise Superseded(f"poll {request.n} of session {request.session} was overtaken")
        older = self.parking.of_session(key)
        if older is not None:
            self.parking.leave(older)
            older.deliver(PollAnswer())
        request = self._moderate(request, key)
        parked = Parked(request, request.wish, parker)
        may_park = timeout_s > 0 and getattr(parker, "draining", False) is not True
        if self._nothing_to_do(request, key):
            if not may_park or news():
                return PollAnswer()
            self._park(parked)
        else:
            answer = await self.writer.write(
                functools.partial(self._poll, request, key),
                functools.partial(self._polled, request, parked, may_park, news),
                patient=may_park and self._can_wait(request, key) and not news(),
            )
            if parked.answer is not None or self.parking.of_session(key) is not parked:
                return parked.answer or answer
        return await self._wait(parked, timeout_s)

    def _park(self, parked: Parked) -> None:
        self.parking.park(parked)
        if self.queues.paced and parked.wish is not None:
            self.matcher.await_turn(parked.wish)

    async def _wait(self, parked: Parked, timeout_s: float) -> PollAnswer:
        try:
            if parked.answer is None:
                await parked.parker.park(timeout_s)
        finally:
            self.parking.leave(parked)
        return parked.answer or PollAnswer(settled=parked.settled)

    def _moderate(self, request: Poll, key: tuple[str, str, str]) -> Poll:
        """The poll with as much of its wish as others leave it."""
        wish = request.wish
        if wish is None:
            return request
        capacity = 1 if self.parking.others_wait(wish, key) else min(wish.capacity, MAX_PREFETCH)
        if capacity == wish.capacity > 0:
            return request
        return replace(request, wish=wish.limited(capacity) if wish.capacity > 0 else None)

    def _nothing_to_do(self, request: Poll, key: tuple[str, str, str]) -> bool:
        """An idle poll touches no SQL: a known session that holds nothing, and queues without a queued row."""
        if request.held or request.reports or not self.leases.none_but(key, ()) or not self.sessions.is_newest(*key):
            return False
        wish = request.wish
        if wish is None:
            return True
        return self._has_nothing_for(wish)

    def _has_nothing_for(self, wish: Wish) -> bool:
        """Whether it is known without a look that there is nothing to claim."""
        return not any(q.endswith("*") or self._queued(wish.ns, q) for q in wish.queues)

    def _can_wait(self, request: Poll, key: tuple[str, str, str]) -> bool:
        """Whether nobody waits for what a poll says, and there is nothing to give it."""
        wish = request.wish
        if wish is None or request.held or request.loss is not None or not self.sessions.is_newest(*key):
            return False
        for report in request.reports:
            if report.outcome != "succeeded" or report.last_seq is not None or self.waiters.awaited(report.id):
                return False
        return self._has_nothing_for(wish)

    def _poll(self, request: Poll, key: tuple[str, str, str], tx: Transaction) -> PollAnswer:
        leases = self.leases
        certain = polls.Certain(
            begun=[pair for pair in request.held if pair.started and not leases.begun(request.ns, pair.id, pair.claim)],
            complete=leases.none_but(
                key, [(p.id, p.claim) for p in request.held] + [(r.id, r.claim) for r in request.reports]
            ),
        )
        answer = polls.poll(tx, request, self.clock(), certain)
        for queue in answer.freed:
            self._freshen(request.ns, queue)
        return answer

    def _polled(self, request: Poll, parked: Parked, may_park: bool, news: News, answer: PollAnswer) -> None:
        """Right after the commit of a poll: keep the books, then park it if there is nothing to say."""
        now = trio.current_time()
        if not answer.fenced:
            self._registered(request.ns, request.worker, request.session, request.n)
        if request.loss is not None and not request.held:
            log.warning("worker %s is gone: %s; what it held goes back", request.worker, request.loss)
        for report, settled in zip(request.reports, answer.settled, strict=True):
            self._note_settled(report, settled)
        renew = self.leases.renew
        doubtful = [p for p in request.held if not renew(request.ns, p.id, p.claim, now, started=p.started)]
        lost, cancel = polls.judge(self.rows, request.ns, doubtful) if doubtful else ((), ())
        listed = {(pair.id, pair.claim) for pair in request.held}
        stranded = False
        if not answer.fenced and not self.leases.none_but(parked.session, listed):
            for lease in self.leases.held_by(*parked.session):
                if (lease.id, lease.claim) not in listed:
                    # Still current: an older poll of the session got it in this commit. The next one gives it back.
                    stranded |= self._recheck(lease.ns, lease.id, lease.claim)
        self.give(parked, answer.runs, now)
        refused = any(s.result not in ("ok", "duplicate") for s in answer.settled)
        if answer.runs or lost or cancel or answer.fenced or refused or stranded or not may_park or news():
            parked.answer = PollAnswer(
                settled=answer.settled, lost=lost, cancel=cancel, runs=answer.runs, fenced=answer.fenced
            )
            return
        parked.settled = answer.settled
        self._park(parked)

    async def poll_foreign(
        self, wish: Wish, *, listed: Sequence[str], timeout_s: float, parker: Parker, news: News = no_news
    ) -> PollAnswer:
        """A poll of a peer that knows no sessions: any renews what it lists, and gets one job, or none with `news`."""
        now = trio.current_time()
        for lease in self.leases.held_by(wish.ns, wish.worker, ""):
            if not listed or lease.id in listed:
                self.leases.renew(wish.ns, lease.id, lease.claim, now)
        if news():
            return PollAnswer()
        request = Poll(ns=wish.ns, worker=wish.worker, session="", n=0, wish=wish)
        parked = Parked(request, wish if wish.capacity > 0 else None, parker)
        parked.session = (wish.ns, wish.worker, f"foreign-{id(parked)}")

        def committed(runs: list[Claimed]) -> None:
            self.note_claims(runs, (wish.ns, wish.worker, ""), now)
            if runs or timeout_s <= 0 or news():
                parked.answer = PollAnswer(runs=runs)
            else:
                self._park(parked)

        await self.writer.write(lambda tx: claims.claim(tx, wish, self.clock()), committed)
        return parked.answer or await self._wait(parked, timeout_s)

    async def hello(
        self, ns: str, worker: str, session: str, adopted: Sequence[tuple[str, int]], info: bytes | None
    ) -> list[tuple[str, int]]:
        """Register a session and take over what it adopts; the pairs that are not current. Raises Superseded."""

        def verb(tx: Transaction) -> list[tuple[str, int]]:
            if not polls.register(tx, ns, worker, session, self.clock(), info=info):
                raise Superseded(f"session {session} of worker {worker} is older than its newest one; start a new one")
            return polls.adopt(tx, ns, worker, session, adopted)

        def committed(lost: list[tuple[str, int]]) -> None:
            self._registered(ns, worker, session, 0)
            self.sessions.forget(ns, worker)  # its first poll is for the plane to number
            now = trio.current_time()
            for id_, claim in adopted:
                if (id_, claim) not in lost:
                    self.leases.rehome(id_, claim, session, now)

        return await self.writer.write(verb, committed)

    # -- reports and frames

    async def report_many(self, items: Sequence[Report]) -> list[Settled]:
        """Settle claims, each with its own answer."""

        def verb(tx: Transaction) -> list[Settled]:
            answers = reports.settle_many(tx, items, self.clock())
            for report, settled in zip(items, answers, strict=True):
                if settled.state == "queued" and settled.result == "ok" and settled.queue is not None:
                    self._freshen(report.ns, settled.queue)
            return answers

        def committed(answers: list[Settled]) -> None:
            for report, answer in zip(items, answers, strict=True):
                self._note_settled(report, answer)

        return await self.writer.write(verb, committed)

    async def append_many(self, chunks: Sequence[Chunk]) -> list[Appended | Exception]:
        """Store frames in order, each with its own answer (Gap and NotHeld among them)."""

        def one(chunk: Chunk, tx: Transaction) -> Appended:
            return frames.append(
                tx,
                chunk.ns,
                chunk.id,
                chunk.data,
                self.clock(),
                claim=chunk.claim,
                seq=chunk.seq,
                worker=chunk.worker,
                final=chunk.final,
            )

        def note(answers: list[Any]) -> None:
            for chunk, answer in zip(chunks, answers, strict=True):
                if isinstance(answer, Appended) and not (answer.duplicate or chunk.final):
                    self.feeds.tell(f"frames/{chunk.id}", answer.seq, answer.seq, chunk.data)

        return await self._each([functools.partial(one, chunk) for chunk in chunks], note)

    async def append_run(self, ns: str, id_: str, claim: int, first: int, run: Sequence[bytes]) -> int:
        """Store consecutive frames of one invocation, all or none; how many were new. Raises Gap and NotHeld."""

        def verb(tx: Transaction) -> int:
            return frames.append_run(tx, ns, id_, run, self.clock(), claim=claim, first=first)

        def committed(missing: int) -> None:
            if missing:
                fresh, last = run[len(run) - missing :], first + len(run) - 1
                self.feeds.tell(f"frames/{id_}", last - missing + 1, last, b"".join(fresh))

        return await self.writer.write(verb, committed)

    async def trim(self, ns: str, id_: str, keep_last: int) -> int:
        """Forget frames; how many."""
        return await self.writer.write(lambda tx: frames.trim(tx, ns, id_, keep_last=keep_last))

    async def topic_post(
        self, ns: str, queue: str, name: str, body: bytes, final: bool, *, nonce: int = 0, again: bool = False
    ) -> int:
        """Append to a topic; the seq it got. A post that is there already has the seq that it got then."""

        def verb(tx: Transaction) -> int:
            return frames.post(tx, ns, queue, name, body, self.clock(), final=final, nonce=nonce, again=again)

        def committed(_seq: int) -> None:
            self.feeds.ring(f"topic/{ns}/{queue}/{name}")

        return await self.writer.write(verb, committed)

    # -- operators

    async def cancel(self, ns: str, id_: str) -> Cancelled:
        """Kill what has not begun, ask the holder of what has. Raises UnknownInvocation."""

        def committed(done: Cancelled) -> None:
            if done.cancelling:
                self.leases.cancel(id_, done.claim, trio.current_time() + CANCEL_GRACE_S)
                self._tell_holder(id_)
            elif done.cancelled:
                self.leases.end(id_)
                self._tell_holder(id_)
                self._ended(ns, id_)

        return await self.writer.write(
            lambda tx: reports.cancel(tx, ns, id_, self.clock(), grace_s=CANCEL_GRACE_S), committed
        )

    async def cancel_queued(self, ns: str, queue: str | None) -> int:
        """Kill every row that is queued now, some in a batch so that others are not kept waiting; how many."""
        until = self.rows(SQL.newest_seq, {})[0][0] or 0
        count = 0

        def committed(killed: list[tuple[str, str]]) -> None:
            for id_, _queue in killed:
                self._ended(ns, id_)

        def verb(tx: Transaction) -> list[tuple[str, str]]:
            return reports.cancel_queued(tx, ns, queue, self.clock(), until=until, limit=CANCELS_AT_ONCE)

        while True:
            killed = await self.writer.write(verb, committed)
            count += len(killed)
            if len(killed) < CANCELS_AT_ONCE:
                return count

    async def retry(self, ns: str, id_: str, claim: int | None = None, nonce: str | None = None) -> str:
        """Queue an ended invocation again; its queue. Raises UnknownInvocation, IllegalTransition."""

        def verb(tx: Transaction) -> str:
            queue = retries.retry(tx, ns, id_, self.clock(), claim=claim, nonce=nonce)
            self._freshen(ns, queue)
            return queue

        return await self.writer.write(verb, lambda _queue: self._tell_holder(id_))

    # -- life

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Take over what the last server left, then write and sweep until cancelled."""
        now = trio.current_time()
        self.leases.begin(now, self.clock())
        for id_, ns, claim, worker, session, cancel, deadline in self.plane.rows(SQL.running, {}):
            self.leases.grant(id_, claim, (ns, worker or "", session or ""), now)
            if cancel:
                left = CANCEL_GRACE_S if deadline is None else max(0.0, deadline - self.clock())
                self.leases.cancel(id_, claim, now + max(left, self.lease_s))
        self.queues.load(self.rows)
        self.promoter.begin(self.rows)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.writer.run)
            nursery.start_soon(self._sweep)
            nursery.start_soon(self.promoter.run)
            task_status.started()

    async def _sweep(self) -> None:
        while True:
            await trio.sleep(min(SWEEP_S, self.lease_s / 4))
            now = trio.current_time()
            due = self.leases.sweep(now, self.clock())
            for lease in due.expired:
                await self._lose(lease, now)
            for lease in due.overdue:
                await self.writer.write(functools.partial(self._kill, lease.ns, lease.id, lease.claim))
                self.leases.end(lease.id, lease.claim)
                self._tell_holder(lease.id)
                self._ended(lease.ns, lease.id)
            self.waiters.forget_idle(trio.current_time())
            self.pollers.sweep(trio.current_time(), self.plane.take_ended())
            self.sessions.forget_idle(trio.current_time())

    async def _lose(self, lease: Lease, now: float) -> None:
        """Take back a claim that was silent at `now`, unless its holder spoke while others were taken back."""
        ns, id_, claim = lease.ns, lease.id, lease.claim
        loss = Loss(why=f"it was silent for {self.lease_s:g} s, a whole lease")

        def verb(tx: Transaction) -> tuple[bool, str | None]:
            held = self.leases.holder(id_)
            if held is None or held.claim != claim or held.until >= now:
                return False, None
            state = reports.lose(tx, ns, id_, claim, self.clock(), loss=loss)
            if state == "queued":
                row = reports.read_row(tx, ns, id_)
                assert row is not None
                self._freshen(ns, row.queue)
            return True, state

        def committed(lost: tuple[bool, str | None]) -> None:
            silent, state = lost
            if not silent:
                return
            log.warning("lease of %s expired: worker %s is silent", id_, lease.worker)
            self.leases.end(id_, claim)
            self._tell_holder(id_)
            if state in TERMINAL:
                self._ended(ns, id_)

        await self.writer.write(verb, committed)

    def _kill(self, ns: str, id_: str, claim: int, tx: Transaction) -> bool:
        return reports.kill(tx, ns, id_, claim, self.clock())

    def close(self) -> None:
        """Close the reading connection; the plane is its owner's to close."""
        self._committed.close()

    def stats(self) -> dict[str, float]:
        """Numbers for /metrics."""
        return {
            "parked_polls": len(self.parking),
            "waiters": len(self.waiters) + len(self.feeds),
            "leases": len(self.leases),
            "commits_total": self.writer.commits,
            "committed_items_total": self.writer.items,
            "commit_seconds_average": self.writer.commit_average_s,
            "stale_reports_total": self.refused_stale,
            "damaged_frames_total": self.plane.journal.damaged,
        }

    # -- inside

    async def _each(self, verbs: Sequence[Verb[Transaction]], note: Callable[[list[Any]], None]) -> list[Any]:
        """Several verbs of one request, together in a batch; each has its own answer."""
        answers: list[Any] = [None] * len(verbs)

        def all_of_them(tx: Transaction) -> list[Any]:
            for k, verb in enumerate(verbs):
                answers[k] = _refusal_or_answer(verb, tx)
            return answers

        await self.writer.write(all_of_them, note)
        return answers

    def _queued(self, ns: str, queue: str) -> bool:
        """Whether a queue has something that it hands out."""
        return self.matcher.queued(ns, queue) > 0 and not self.queues.is_shut(ns, queue)

    def _registered(self, ns: str, worker: str, session: str, n: int) -> None:
        """A session is the worker's newest: a poll that an older one has parked learns that it is fenced."""
        replaced = self.sessions.registered(ns, worker, session, n, trio.current_time())
        parked = None if replaced is None else self.parking.of_session((ns, worker, replaced))
        if parked is not None:
            self.parking.leave(parked)
            parked.deliver(PollAnswer(fenced=True, settled=parked.settled))

    def end_polls(self, ns: str) -> None:
        """Answer every parked poll of a namespace with nothing: it comes again, and is asked again who it is."""
        self.parking.end(parked for parked in self.parking.all() if parked.session[0] == ns)

    def give(self, parked: Parked, runs: Sequence[Claimed], now: float) -> None:
        """A poll was given these. If a newer one of its session waits by now, nobody reads the older one's answer: the
        newer one comes again, and so gives them back (K-8).
        """
        self.note_claims(runs, parked.session, now)
        newest = self.parking.of_session(parked.session) if runs else None
        if newest is not None and newest is not parked:
            self.parking.end((newest,))

    def note_claims(self, runs: Sequence[Claimed], session: tuple[str, str, str], now: float) -> None:
        for run in runs:
            self.leases.grant(run.id, run.claim, session, now)

    def _note_settled(self, report: Report, settled: Settled) -> None:
        if settled.result == "ok":
            self.leases.end(settled.id, settled.claim)
            if settled.attempt is not None:
                told = Ended(id=settled.id, state="succeeded", result=report.result, attempt=settled.attempt)
                self._ended(report.ns, settled.id, told)
            elif settled.state in TERMINAL:
                self._ended(report.ns, settled.id)
        elif settled.result == "stale":
            self.refused_stale += 1
            log.warning("stale report of %s (claim %s): the row is %s", settled.id, settled.claim, settled.state)

    def _recheck(self, ns: str, id_: str, claim: int) -> bool:
        """A pair that its session does not list any more: look whether it was taken back, or is still current."""
        row = reports.row_of(self.rows, ns, id_)
        if row is not None and row.state == "running" and row.claim == claim:
            return True
        self.leases.end(id_, claim)
        if row is not None and row.state in TERMINAL:
            self._ended(ns, id_)
        return False

    def _ended(self, ns: str, id_: str, ended: Ended | None = None) -> None:
        self.waiters.settled(id_, ended)
        self.feeds.ring(f"frames/{id_}")

    def _tell_holder(self, id_: str) -> None:
        """Wake the parked poll that lists this invocation, with what it must know."""
        parked = self.parking.holding(id_)
        if parked is None:
            return
        self.parking.leave(parked)
        lost, cancel = polls.judge(self.rows, parked.session[0], parked.held)
        parked.deliver(PollAnswer(lost=lost, cancel=cancel, settled=parked.settled))


def _refusal_or_answer(verb: Verb[Transaction], tx: Transaction) -> Any:
    try:
        return verb(tx)
    except PlaneError as exc:
        return exc
