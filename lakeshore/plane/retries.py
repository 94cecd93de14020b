"""Retry by hand: an ended row goes back to its queue with the same id, for exactly the claim that was seen (K-17).

Whoever may have to send a retry twice names it with a nonce. The row remembers the nonces of its last retries, by hand
or by a submit, so that a late copy of one changes nothing, whatever has become of the row since.
"""

from __future__ import annotations

from .contract import IllegalTransition, UnknownInvocation
from .runs import Room
from .statements import SQL
from .transaction import Transaction

RETRYABLE = ("failed", "killed", "timeout")
REMEMBERED = 8
"""So many retries of one row are known again."""


def retry(
    tx: Transaction, ns: str, invocation_id: str, now: float, *, claim: int | None = None, nonce: str | None = None
) -> str:
    """Queue a failed, killed or timed-out row again; the queue's name. `now` is unused by design: times are cleared.

    A retry whose `nonce` was applied before is a success that changes nothing. Raises UnknownInvocation;
    IllegalTransition when the row has moved on since `claim` was seen; QueueFull.
    """
    row = tx.one(SQL.row_for_resubmit, {"id": invocation_id})
    if row is None or row[2] != ns:
        raise UnknownInvocation(f"no invocation {invocation_id} in namespace {ns!r}")
    seq, _id, _ns, queue, _key, _hash, state, current, nonces, _due, needs = row
    if knows(nonces, nonce):
        return str(queue)
    if state not in RETRYABLE:
        raise IllegalTransition(
            f"invocation {invocation_id} is {state}; only failed, killed and timed-out ones can be retried"
        )
    if claim is not None and claim != current:
        raise IllegalTransition(
            f"invocation {invocation_id} has moved on (claim {current}, you saw {claim}); "
            "look at it again before retrying"
        )
    Room(tx.all).check(ns, queue, needs)
    retry_row(tx, seq=seq, ns=ns, queue=queue, state=state, claim=current, nonces=nonces, nonce=nonce)
    return str(queue)


def knows(nonces: str | None, nonce: str | None) -> bool:
    """Whether a row that remembers `nonces` was retried, or made, under this one."""
    if nonces is None or nonce is None:
        return False
    return nonces == nonce or _line(nonce) in nonces.split("\n")


def _line(nonce: str) -> str:
    return nonce.replace("\n", " ")


def retry_row(
    tx: Transaction,
    *,
    seq: int,
    ns: str,
    queue: str,
    state: str,
    claim: int,
    nonces: str | None,
    nonce: str | None,
) -> None:
    """The guarded transition itself."""
    if nonce is not None:
        earlier = [] if nonces is None else nonces.split("\n")
        nonces = "\n".join([_line(nonce), *earlier][:REMEMBERED])
    changed = tx.change(SQL.retry_if_ended, {"seq": seq, "claim": claim, "nonces": nonces})
    assert changed == 1, "the row was read in this transaction"
    tx.all(SQL.drop_result, {"seq": seq})
    # The frame that ended the earlier run is true no longer; its seq is not used again, so that `since` stays lossless.
    tx.change(SQL.reopen_frames, {"channel": seq})
    tx.moved(ns, queue, state, "queued", seq)
