"""What a `Dispatch` has handed out, and how it ended: the verbs of a worker's loop, which producers have no use for.

A claim begins with the commit that takes it, or, of several at once, when its worker notes that on its slate. Which
claims are this process's is remembered, so that an ending need not name its claim (K-8).
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Collection, Sequence

import msgpack

from ..plane import claims, delays, reports, rows
from ..plane.contract import Claimed as Taken
from ..plane.contract import Report, Settled, Wish
from ..plane.runs import has_queued
from ..plane.transaction import Transaction
from . import local_losses, outcomes
from .claimed import Claimed, check_kind
from .errors import DispatchError
from .local_slate import LocalSlates, Name
from .open_plane import OpenPlane
from .sources import Ending, Work

log = logging.getLogger(__name__)

Handed = dict[tuple[str, str], set[int]]
"""Of each (invocation, worker) the claims that it got here and that have not ended."""


class LocalClaims:
    """Of the plane that `state` has open, in one namespace."""

    def __init__(self, ns: str, state: Callable[[], OpenPlane], handed: Handed) -> None:
        self._ns = ns
        self._state = state
        self._handed = handed

    def turn(
        self,
        ended: Sequence[Report],
        queue: str,
        worker_id: str,
        *,
        capacity: int = 1,
        kind: str = "fifo",
        temperature: float = 1.0,
        draw: float | None = None,
        passes_on: bool = False,
    ) -> list[Claimed]:
        """Settle how jobs ended and take the next ones, in one commit. One alone counts as begun; of several none
        does. `passes_on`: whoever was woken for one job wakes the next for what else there is.

        Raises DispatchError when nothing was written; an ending that is not wanted any more is only logged.
        """
        check_kind(kind)
        state = self._state()
        if ended:
            if state.time_to_bury():
                local_losses.bury_the_dead(state)
        elif not self._has_work(queue):
            return []
        promotes = state.time_to_promote()
        wish = Wish(
            ns=self._ns,
            queues=(queue,),
            worker=worker_id,
            session=state.holder_id,
            capacity=capacity,
            kind=kind,
            temperature=temperature,
            draw=int.from_bytes(os.urandom(6), "big") / 2**48 if draw is None else draw,
            start=capacity == 1,
        )

        many = queue.endswith("*")

        def verb(tx: Transaction) -> tuple[list[Settled], Sequence[Taken], Collection[tuple[str, str]], bool]:
            now = time.time()
            settled = reports.settle_many(tx, ended, now)
            promoted = delays.promote(tx, now, ns=self._ns, queue=queue) if promotes else ()
            taken = claims.claim(tx, wish, now) if many or not ended or has_queued(tx.all, self._ns, queue) else ()
            return settled, taken, promoted, bool(passes_on and taken and has_queued(tx.all, self._ns, queue))

        settled, taken, promoted, more = self._state().write(verb)
        self._told(ended, settled)
        if taken and passes_on and (more or state.has_mail()):
            state.ring_work(self._ns, queue)
        for _ns, name in promoted:
            self._state().ring_work(self._ns, name)
        found, unread = list[Claimed](), list[Report]()
        for claim in taken:
            self._handed.setdefault((claim.id, worker_id), set()).add(claim.claim)
            try:
                found.append(self._claimed(claim))
            except DispatchError as exc:  # its arguments cannot be had: that is this job's failure, not the worker's
                unread.append(self.failure(claim.id, worker_id, exc, retry=False, claim=claim.claim))
        if unread:
            self.leave(unread, ())
            return found or self.turn(
                (), queue, worker_id, capacity=capacity, kind=kind, temperature=temperature, draw=draw
            )
        return found

    def leave(self, ended: Sequence[Report], unbegun: Sequence[Name]) -> None:
        """Settle how jobs ended and give back claims that have not begun, in one commit; as in `turn`."""

        def verb(tx: Transaction) -> tuple[list[Settled], set[tuple[str, str]]]:
            now = time.time()
            settled = reports.settle_many(tx, ended, now)
            return settled, local_losses.give_back(tx, unbegun, now)

        settled, freed = self._state().write(verb)
        self._told(ended, settled)
        local_losses.ring_given_back(self._state(), freed)

    def settle(self, report: Report) -> None:
        """Settle a claim of this plane. Raises DispatchError when it is not its worker's any more."""
        settled = self._state().write(lambda tx: reports.settle(tx, report, time.time()))
        self._state().bells.ring("done", *self._heard(report, settled))

    def report_of(self, work: Work, worker_id: str, ending: Ending, *, retries: int) -> Report:
        """How a job of this plane ended, ready to be settled; a large result is in its file then."""
        if ending.outcome == "succeeded":
            return self.success(work.id, worker_id, ending.result, claim=work.claim, last_seq=ending.last_seq)
        return self.failure(
            work.id,
            worker_id,
            ending.error,
            retry=ending.retry,
            claim=work.claim,
            retries=retries,
            outcome=ending.outcome,
        )

    def success(self, inv_id: str, worker_id: str, result: bytes, *, claim: int | None, last_seq: int | None) -> Report:
        return Report(
            ns=self._ns,
            id=inv_id,
            outcome="succeeded",
            claim=self._claim_of(inv_id, worker_id, claim),
            worker=worker_id,
            result=self._state().keep(inv_id, "result", result),
            last_seq=last_seq,
        )

    def failure(
        self,
        inv_id: str,
        worker_id: str,
        error: object,
        *,
        retry: bool,
        claim: int | None,
        retries: int | None = None,
        outcome: str = "failed",
    ) -> Report:
        return Report(
            ns=self._ns,
            id=inv_id,
            outcome=outcome,  # type: ignore[arg-type]  # the worker passes failed, killed or timeout
            claim=self._claim_of(inv_id, worker_id, claim),
            worker=worker_id,
            error=msgpack.packb(outcomes.as_error(error)),
            retry=retry,
            retries=retries,
        )

    def any_claim_of(self, inv_id: str) -> int:
        handed = [c for (id_, _worker), numbers in self._handed.items() if id_ == inv_id for c in numbers]
        if len(handed) != 1:
            raise DispatchError(
                f"invocation {inv_id} is not held here; claim it first"
                if not handed
                else f"invocation {inv_id} was handed out more than once; pass claim= to say which"
            )
        return handed[0]

    def pass_on(self, queue: str) -> None:
        """Whoever was woken for one job wakes the next for what else there is."""
        if self._state().has_mail() or rows.count(self._state().rows, self._ns, queue, "queued"):
            self._state().ring_work(self._ns, queue)

    def prefetched(self) -> LocalSlates | None:
        """Where worker loops note what they have prefetched; None where they cannot."""
        return self._state().slates

    def awaited(self, ended: Sequence[Report]) -> bool:
        """Whether somebody may be waiting for one of these endings."""
        return self._state().bells.awaited("done", *(f"frames/{report.id}" for report in ended))

    def _claimed(self, taken: Taken) -> Claimed:
        config = msgpack.unpackb(taken.run_config, strict_map_key=False)
        return Claimed(
            id=taken.id,
            envelope=self._state().fetch(taken.args, f"the arguments of {taken.id}"),
            attempt=taken.attempt,
            queue=taken.queue,
            claim=taken.claim,
            first_seq=taken.first_seq,
            timeout_s=config.get("timeout_s"),
        )

    def _claim_of(self, inv_id: str, worker_id: str, claim: int | None) -> int:
        if claim is not None:
            return claim
        handed = self._handed.get((inv_id, worker_id), set())
        if len(handed) != 1:
            raise DispatchError(
                f"worker {worker_id!r} does not hold invocation {inv_id} here"
                if not handed
                else f"worker {worker_id!r} was handed invocation {inv_id} more than once; pass claim= to say which"
            )
        return next(iter(handed))

    def _told(self, ended: Sequence[Report], settled: Sequence[Settled]) -> None:
        bells: list[str] = []
        for report, outcome in zip(ended, settled, strict=True):
            try:
                bells += self._heard(report, outcome)
            except DispatchError as exc:
                log.warning("the ending of %s was not taken: %s", report.id, exc)
        if bells:
            self._state().bells.ring("done", *bells)

    def _heard(self, report: Report, settled: Settled) -> tuple[str, ...]:
        """What became of a report; the bells to ring. Raises DispatchError when it was not taken."""
        if settled.result == "gap":
            raise DispatchError(f"invocation {report.id} cannot be settled before frame {settled.expected} is stored")
        numbers = self._handed.get((report.id, str(report.worker)))
        if numbers is not None and report.claim in numbers:
            numbers.discard(report.claim)
            if not numbers:
                del self._handed[report.id, str(report.worker)]
        if settled.result == "stale":
            raise DispatchError(
                f"worker {report.worker!r} does not hold invocation {report.id} any more"
                + (f" (it is {settled.state})" if settled.state else " (it is unknown here)")
            )
        again = settled.state == "queued" and settled.queue is not None
        return (f"frames/{report.id}", *((f"work/{self._ns}/{settled.queue}", f"work/{self._ns}/*") if again else ()))

    def _has_work(self, queue: str) -> bool:
        """Whether a claim is worth a commit. Before saying no, what dead processes held goes back."""
        state = self._state()
        if queue.endswith("*"):
            local_losses.bury_the_dead(state)
            state.due_in_s(self._ns, queue)
            return True
        if not state.time_to_bury() and (state.has_mail() or has_queued(state.rows, self._ns, queue)):
            return True
        local_losses.bury_the_dead(state)
        return has_queued(state.rows, self._ns, queue) or state.due_in_s(self._ns, queue) <= 0
