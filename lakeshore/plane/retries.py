"""Retry by hand: an ended row goes back to its queue with the same id, for exactly the claim that was seen (K-17)."""

from __future__ import annotations

from .contract import IllegalTransition, UnknownInvocation
from .statements import SQL
from .transaction import Transaction

RETRYABLE = ("failed", "killed", "timeout")


def retry(tx: Transaction, ns: str, invocation_id: str, now: float, *, claim: int | None = None) -> str:
    """Queue a failed, killed or timed-out row again; the queue's name. `now` is unused by design: times are cleared.

    Raises UnknownInvocation; IllegalTransition when the row has moved on since `claim` was seen.
    """
    row = tx.one(SQL.row_for_resubmit, {"id": invocation_id})
    if row is None or row[2] != ns:
        raise UnknownInvocation(f"no invocation {invocation_id} in namespace {ns!r}")
    seq, _id, _ns, queue, _key, _hash, state, current, _nonce = row
    if state not in RETRYABLE:
        raise IllegalTransition(
            f"invocation {invocation_id} is {state}; only failed, killed and timed-out ones can be retried"
        )
    if claim is not None and claim != current:
        raise IllegalTransition(
            f"invocation {invocation_id} has moved on (claim {current}, you saw {claim}); "
            "look at it again before retrying"
        )
    retry_row(tx, seq=seq, ns=ns, queue=queue, state=state, claim=current, nonce=None)
    return str(queue)


def retry_row(tx: Transaction, *, seq: int, ns: str, queue: str, state: str, claim: int, nonce: str | None) -> None:
    """The guarded transition itself."""
    changed = tx.change(SQL.retry_if_ended, {"seq": seq, "claim": claim, "nonce": nonce})
    assert changed == 1, "the row was read in this transaction"
    tx.all(SQL.drop_result, {"seq": seq})
    # The frame that ended the earlier run is true no longer; its seq is not used again, so that `since` stays lossless.
    tx.change(SQL.reopen_frames, {"channel": seq})
    tx.moved(ns, queue, state, "queued")
