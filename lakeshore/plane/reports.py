"""What ends a claim: a report of its worker, its loss, its return, a cancel. The claim number is the only fence.

Every ending is one guarded update. Terminal states absorb; a report that comes twice is a `duplicate`, one whose claim
is not the row's any more is `stale` and changes nothing (K-2, K-5, K-6, K-7, K-27).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgpack

from ..wire.frames import end_frame, error_frame
from .contract import DELAYED, FREE_LOSSES, TERMINAL, Cancelled, Loss, Report, Settled, UnknownInvocation
from .frames import Rows, put
from .statements import SQL, among, in_order
from .transaction import PUT_RESULT, Transaction, grouped, payload_row

_WORTH_A_BATCH = 3
_UNKNOWN = Loss()
CANCELLED = msgpack.packb({"type": "Cancelled", "message": "cancelled on request"})


@dataclass(frozen=True, slots=True)
class Row:
    """The columns that decide an ending, in the order of `row_for_report`."""

    seq: int
    ns: str
    queue: str
    state: str
    claim: int
    started: int
    attempt: int
    max_attempts: int
    free_losses: int
    cancel_requested: int
    last_frame: int
    settled_claim: int | None
    settled_as: str | None
    worker: str | None
    session: str | None
    claim_n: int
    started_at: float | None


def read_row(tx: Transaction, ns: str, invocation_id: str) -> Row | None:
    """The row of this namespace, or None."""
    return row_of(tx.all, ns, invocation_id)


def row_of(read: Rows, ns: str, invocation_id: str) -> Row | None:
    """The same for who only reads."""
    found = read(SQL.row_for_report, {"id": invocation_id})
    return Row(*found[0]) if found and found[0][1] == ns else None


_SUCCEED_AT = in_order(SQL.succeed_at_if_claimed, "now now claim seq claim")


def settle_many(tx: Transaction, reports: Sequence[Report], now: float) -> list[Settled]:
    """What `settle` answers for each, in order. Those that succeeded under a current claim end together."""
    plain = {r.id: r for r in reports if r.outcome == "succeeded" and r.claim is not None and r.last_seq is None}
    if len(plain) < _WORTH_A_BATCH or len({report.id for report in reports}) < len(reports):
        return [settle(tx, report, now) for report in reports]
    ended: dict[str, Settled] = {}
    ends: list[tuple[Any, ...]] = []
    results: list[tuple[Any, ...]] = []
    moved: list[tuple[str, str, int]] = []
    for id_, claim, seq, ns, queue, attempt in tx.all(*among(SQL.claimed_without_frames, list(plain))):
        report = plain[id_]
        if report.claim == claim and report.ns == ns:
            ends.append((now, now, claim, seq, claim))
            results.append(payload_row(seq, report.result))
            moved.append((ns, queue, seq))
            ended[id_] = _succeeded(report, queue, attempt)
    if ends:
        changed = tx.change_many(_SUCCEED_AT, ends)
        assert changed == len(ends), "their rows were read in this transaction"
        tx.change_many(PUT_RESULT, results)
        for place, seqs in grouped(moved).items():
            tx.moved(*place, "running", "succeeded", *seqs)
    return [ended.get(report.id) or settle(tx, report, now) for report in reports]


def settle(tx: Transaction, report: Report, now: float) -> Settled:
    """Apply a worker's report: the row ends, or goes back to its queue for another attempt."""
    if report.outcome == "succeeded" and report.claim is not None and report.last_seq is None:
        # Nearly every report is of a current claim that wrote no frame: one statement finds that out and ends it.
        values = {"id": report.id, "ns": report.ns, "claim": report.claim, "now": now}
        ended = tx.one(SQL.succeed_if_claimed, values)
        if ended is not None:
            seq, queue, attempt = ended
            tx.change(PUT_RESULT, payload_row(seq, report.result))
            tx.moved(report.ns, queue, "running", "succeeded", seq)
            return _succeeded(report, queue, attempt)
    row = read_row(tx, report.ns, report.id)
    if row is None:
        return Settled(id=report.id, claim=report.claim, result="stale")
    claim = row.claim if report.claim is None else report.claim
    if row.state != "running" or claim != row.claim or (report.claim is None and report.worker != row.worker):
        said = row.settled_claim == claim and row.settled_as == report.outcome
        mine = report.claim is not None or report.worker == row.worker
        return Settled(
            id=report.id,
            claim=claim,
            result="duplicate" if said and mine else "stale",
            state=row.state,
            queue=row.queue,
        )
    if report.last_seq is not None and report.last_seq > row.last_frame:
        return Settled(
            id=report.id, claim=claim, result="gap", state=row.state, queue=row.queue, expected=row.last_frame + 1
        )
    attempt = row.attempt + (not row.started)
    if report.outcome == "succeeded":
        # Whoever wrote frames was a stream, whether or not its ack says so.
        streamed = report.last_seq is not None or row.last_frame >= 0
        final = end_frame(row.last_frame + 1) if streamed else None
        _end(tx, row, "succeeded", attempt, None, final, now, settled_as="succeeded")
        tx.change(PUT_RESULT, payload_row(row.seq, report.result))
        return Settled(id=report.id, claim=claim, result="ok", state="succeeded", queue=row.queue)
    if row.cancel_requested or report.outcome == "killed":
        _end(tx, row, "killed", attempt, report.error or CANCELLED, None, now, settled_as=report.outcome)
        return Settled(id=report.id, claim=claim, result="ok", state="killed", queue=row.queue)
    limit = row.max_attempts if report.retries is None else min(report.retries + 1, row.max_attempts)
    if report.retry and attempt < limit:
        _requeue(tx, row, attempt, row.free_losses, report.error, settled_as=report.outcome)
        return Settled(id=report.id, claim=claim, result="ok", state="queued", queue=row.queue)
    _end(tx, row, report.outcome, attempt, report.error, None, now, settled_as=report.outcome)
    return Settled(id=report.id, claim=claim, result="ok", state=report.outcome, queue=row.queue)


def _succeeded(report: Report, queue: str, attempt: int) -> Settled:
    return Settled(id=report.id, claim=report.claim, result="ok", state="succeeded", queue=queue, attempt=attempt)


def release(
    tx: Transaction, ns: str, invocation_id: str, claim: int, now: float, *, loss: Loss = _UNKNOWN
) -> str | None:
    """Take back a claim whose worker does not list it: free when unstarted, a loss when started (K-8).

    The row's new state, or None when the claim was not current.
    """
    row = read_row(tx, ns, invocation_id)
    if row is None or row.state != "running" or row.claim != claim:
        return None
    if row.started:
        return lose(tx, ns, invocation_id, claim, now, loss=loss)
    if row.cancel_requested:
        _end(tx, row, "killed", row.attempt, CANCELLED, None, now, settled_as=None)
        return "killed"
    _requeue(tx, row, row.attempt, row.free_losses, None, settled_as=None)
    return "queued"


def lose(tx: Transaction, ns: str, invocation_id: str, claim: int, now: float, *, loss: Loss = _UNKNOWN) -> str | None:
    """The worker of this claim is gone. The row's new state, or None when the claim was not current.

    A loss before the body began costs no attempt, up to FREE_LOSSES times (K-6).
    """
    row = read_row(tx, ns, invocation_id)
    if row is None or row.state != "running" or row.claim != claim:
        return None
    attempt, free = row.attempt, row.free_losses
    if not row.started:
        free += 1
        attempt += free > FREE_LOSSES
    if row.cancel_requested:
        _end(tx, row, "killed", attempt, CANCELLED, None, now, settled_as=None, free=free)
        return "killed"
    if attempt < row.max_attempts:
        _requeue(tx, row, attempt, free, None, settled_as=None)
        return "queued"
    error = {
        "type": "WorkerLost",
        "message": f"worker {row.worker} was lost: {loss}; {attempt} of {row.max_attempts} attempts used",
        "worker": row.worker,
        "last_seen": row.started_at,
        "attempts": attempt,
        "code": loss.code,
        "signal": loss.signal,
        "oom": loss.oom,
    }
    _end(tx, row, "failed", attempt, msgpack.packb(error), None, now, settled_as=None, free=free)
    return "failed"


def cancel(tx: Transaction, ns: str, invocation_id: str, now: float, *, grace_s: float | None = None) -> Cancelled:
    """Kill what has not begun; ask the holder of what has, until `grace_s` from now (K-27).

    Raises UnknownInvocation.
    """
    row = read_row(tx, ns, invocation_id)
    if row is None:
        raise UnknownInvocation(f"no invocation {invocation_id} in namespace {ns!r}")
    if row.state in ("queued", DELAYED):
        _kill_queued(tx, row, now)
        return Cancelled(id=invocation_id, state="killed", queue=row.queue, cancelled=True)
    if row.state in TERMINAL:
        return Cancelled(id=invocation_id, state=row.state, queue=row.queue, cancelled=False)
    if not row.started:
        _end(tx, row, "killed", row.attempt, CANCELLED, None, now, settled_as=None)
        return Cancelled(
            id=invocation_id, state="killed", queue=row.queue, cancelled=True, worker=row.worker, claim=row.claim
        )
    deadline = None if grace_s is None else now + grace_s
    tx.change(SQL.request_cancel_if_running, {"seq": row.seq, "claim": row.claim, "deadline": deadline})
    tx.touched(ns, None, row.seq)
    return Cancelled(
        id=invocation_id,
        state="running",
        queue=row.queue,
        cancelled=False,
        cancelling=True,
        worker=row.worker,
        claim=row.claim,
    )


def kill(tx: Transaction, ns: str, invocation_id: str, claim: int, now: float) -> bool:
    """The deadline of a requested cancel has passed: the row is killed under its holder."""
    row = read_row(tx, ns, invocation_id)
    if row is None or row.state != "running" or row.claim != claim or not row.cancel_requested:
        return False
    _end(tx, row, "killed", row.attempt, CANCELLED, None, now, settled_as=None)
    return True


def cancel_queued(
    tx: Transaction, ns: str, queue: str | None, now: float, *, until: int, limit: int
) -> list[tuple[str, str]]:
    """Kill up to `limit` rows of a queue (or of the namespace) that were queued when `until` was the newest `seq`.

    (id, queue) of each; fewer than `limit`: that was all.
    """
    killed: list[tuple[str, str]] = []
    values = {"ns": ns, "queue": queue, "until": until, "limit": limit}
    found = tx.all(SQL.queued_until if queue is None else SQL.queued_of_queue_until, values)
    if len(found) < limit:
        some = SQL.delayed_until if queue is None else SQL.delayed_of_queue_until
        found += tx.all(some, {**values, "limit": limit - len(found)})
    for seq, id_, name, last, state in found:
        if last >= 0:
            row = read_row(tx, ns, id_)
            assert row is not None, "the row was read in this transaction"
            _kill_queued(tx, row, now)
        else:
            tx.change(SQL.kill_if_queued, {"seq": seq, "now": now, "error": CANCELLED, "last_frame": last})
            tx.moved(ns, name, state, "killed", seq)
        killed.append((id_, name))
    return killed


def _kill_queued(tx: Transaction, row: Row, now: float) -> None:
    last = row.last_frame
    if last >= 0:  # an earlier attempt wrote frames: their reader hears the end
        last += 1
        put(tx, row.seq, row.claim, last, error_frame(last, "Cancelled", "cancelled on request"), final=True)
    tx.change(SQL.kill_if_queued, {"seq": row.seq, "now": now, "error": CANCELLED, "last_frame": last})
    tx.moved(row.ns, row.queue, row.state, "killed", row.seq)


def _end(
    tx: Transaction,
    row: Row,
    state: str,
    attempt: int,
    error: bytes | None,
    final: bytes | None,
    now: float,
    *,
    settled_as: str | None,
    free: int | None = None,
) -> None:
    """The row's last transition; END or ERROR is written here and nowhere else (K-24)."""
    if final is None and state != "succeeded" and (state != "killed" or row.last_frame >= 0):
        what: dict[str, Any] = msgpack.unpackb(error) if error else {}
        final = error_frame(row.last_frame + 1, str(what.get("type", "Error")), str(what.get("message", "")))
    last = row.last_frame
    if final is not None:
        last += 1
        put(tx, row.seq, row.claim, last, final, final=True)
    values = {"seq": row.seq, "claim": row.claim, "state": state, "attempt": attempt, "error": error, "now": now}
    if settled_as is None:
        free_losses = row.free_losses if free is None else free
        changed = tx.change(SQL.end_if_claimed, {**values, "last_frame": last, "free_losses": free_losses})
    else:
        changed = tx.change(SQL.settle_if_claimed, {**values, "last_frame": last, "settled_as": settled_as})
    assert changed == 1, "the row was read in this transaction"
    tx.moved(row.ns, row.queue, "running", state, row.seq)


def _requeue(
    tx: Transaction, row: Row, attempt: int, free: int, error: bytes | None, *, settled_as: str | None
) -> None:
    changed = tx.change(
        SQL.requeue_if_claimed,
        {
            "seq": row.seq,
            "claim": row.claim,
            "attempt": attempt,
            "free_losses": free,
            "error": error,
            "settled_claim": None if settled_as is None else row.claim,
            "settled_as": settled_as,
        },
    )
    assert changed == 1, "the row was read in this transaction"
    tx.moved(row.ns, row.queue, "running", "queued", row.seq)
