"""One poll of a worker's session, in one transaction: marks, reports, returns, claims, `lost`, `cancel` (K-8, K-28).

The list is the truth: a claim of this session that a newer poll does not list goes back to its queue. A claim remembers
the number of the poll that was answered with it, so a late duplicate of that very poll returns nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..wire.values import value
from . import claims, reports
from .contract import Claimed, Held, Loss, Poll, PollAnswer, Superseded
from .frames import Rows
from .statements import SQL
from .transaction import Transaction

UNLISTED = Loss(why="it does not list the claim any more")


def register(tx: Transaction, ns: str, worker: str, session: str, now: float, *, info: bytes | None = None) -> bool:
    """Make `session` the worker's current one. False when a newer session exists: this one is fenced for good (K-15).

    Session ids order by time (ULIDs do), so the greatest is the newest. Repeating is a no-op.
    """
    values = {"ns": ns, "id": worker, "session": session, "now": now, "info": info}
    if tx.change(SQL.register_worker, values):
        return True
    row = tx.one(SQL.worker_of, {"ns": ns, "id": worker})
    return row is not None and row[0] == session


def adopt(
    tx: Transaction, ns: str, worker: str, session: str, pairs: Sequence[tuple[str, int]]
) -> list[tuple[str, int]]:
    """Move current claims of the worker's older sessions to this one; the pairs that are not current any more."""
    lost: list[tuple[str, int]] = []
    for id_, claim in pairs:
        values = {"ns": ns, "worker": worker, "session": session, "id": id_, "claim": claim}
        if not tx.change(SQL.rehome_if_claimed, values):
            lost.append((id_, claim))
    return lost


@value
class Certain:
    """What whoever keeps leases knows of a poll, so that the rows need not be asked.

    `begun` are the listed pairs whose start may not be marked yet; `complete` says that the session holds nothing that
    is not listed. Such a caller also judges the list itself, once the poll is committed.
    """

    begun: Sequence[Held]
    complete: bool


def poll(tx: Transaction, request: Poll, now: float, certain: Certain | None = None) -> PollAnswer:
    """Handle one poll. Raises Superseded when its number is not above the newest seen; then nothing changed."""
    ns, fenced = request.ns, _number(tx, request, now)
    freed: list[str] = []
    for pair in request.held if certain is None else certain.begun:
        if pair.started:
            values = {"id": pair.id, "ns": ns, "claim": pair.claim, "now": now}
            if tx.change(SQL.start_if_claimed, values):
                tx.touched(ns, None, pair.id)
    settled = reports.settle_many(tx, request.reports, now)
    freed += [s.queue for s in settled if s.state == "queued" and s.result == "ok" and s.queue is not None]
    runs: Sequence[Claimed] = ()
    if not fenced:
        if certain is None or not certain.complete:
            _take_back(tx, request, now, freed)
        if request.wish is not None:
            runs = claims.claim(tx, request.wish, now)
    lost, cancel = judge(tx.all, ns, request.held) if certain is None else ([], [])
    return PollAnswer(settled=settled, lost=lost, cancel=cancel, runs=runs, fenced=fenced, freed=freed)


def _number(tx: Transaction, request: Poll, now: float) -> bool:
    """Note the number of this poll; whether its session is fenced. Raises Superseded."""
    ns, worker, session = request.ns, request.worker, request.session
    if tx.change(SQL.number_poll, {"ns": ns, "id": worker, "session": session, "n": request.n}):
        return False
    row = tx.one(SQL.worker_of, {"ns": ns, "id": worker})
    if row is not None and row[0] > session:
        return True
    if row is not None and row[0] == session:
        raise Superseded(f"poll {request.n} of session {session} was overtaken by poll {row[1]}")
    register(tx, ns, worker, session, now)
    if request.n <= 0:
        raise Superseded(f"poll {request.n} of session {session}: numbers begin at 1")
    tx.change(SQL.number_poll, {"ns": ns, "id": worker, "session": session, "n": request.n})
    return False


def judge(read: Rows, ns: str, held: Sequence[Held]) -> tuple[list[tuple[str, int]], list[tuple[str, int]]]:
    """Which listed pairs are not current any more, and which were asked to stop."""
    lost: list[tuple[str, int]] = []
    cancel: list[tuple[str, int]] = []
    for pair in held:
        row = reports.row_of(read, ns, pair.id)
        if row is None or row.state != "running" or row.claim != pair.claim:
            lost.append((pair.id, pair.claim))
        elif row.cancel_requested:
            cancel.append((pair.id, pair.claim))
    return lost, cancel


def _take_back(tx: Transaction, request: Poll, now: float, freed: list[str]) -> None:
    listed = {(pair.id, pair.claim) for pair in request.held} | {(r.id, r.claim) for r in request.reports}
    values = {"ns": request.ns, "worker": request.worker, "session": request.session}
    for id_, claim, claim_n, queue in tx.all(SQL.running_of_session, values):
        unlisted = (id_, claim) not in listed and claim_n < request.n
        if unlisted and reports.release(tx, request.ns, id_, claim, now, loss=request.loss or UNLISTED) == "queued":
            freed.append(queue)
