"""Frames of invocations and topics: accepted in order, once, from the holder of the claim (K-24, K-25)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import repeat
from typing import Any

import msgpack

from ..wire.frames import FrameKind, end_frame
from .contract import Appended, Gap, IllegalTransition, NotHeld, UnknownInvocation
from .journal import Journal
from .statements import SQL, Values
from .transaction import Transaction

PAGE = 2048
PAGE_BYTES = 1024 * 1024
RECENT, LONG_AGO = 128, 65536
LONGEST_NONCE = 2**32 - 1
Rows = Callable[[str, Values], list[tuple[Any, ...]]]


def put(tx: Transaction, channel: int, claim: int, seq: int, data: bytes, *, final: bool) -> None:
    """Store bytes in the journal and their place in the index."""
    where = tx.journal.append(channel, claim, seq, data)
    tx.change(
        SQL.put_frame,
        {
            "channel": channel,
            "seq": seq,
            "claim": claim,
            "segment": where.segment,
            "offset": where.offset,
            "length": where.length,
            "final": int(final),
        },
    )


def append(
    tx: Transaction,
    ns: str,
    invocation_id: str,
    data: bytes,
    now: float,
    *,
    claim: int | None,
    seq: int | None,
    worker: str | None = None,
    final: bool = False,
) -> Appended:
    """Append a frame of the running claim at exactly last + 1; `seq=None` means that very place.

    A final frame is the settling commit's to write (K-24): it is answered and not stored. Without `claim` the report is
    matched by worker. Raises UnknownInvocation, NotHeld, Gap.
    """
    if claim is not None and seq is not None and not final:
        missing = append_run(tx, ns, invocation_id, (data,), now, claim=claim, first=seq)
        return Appended(seq=seq, duplicate=missing == 0)
    taker = _Taker(tx, ns, invocation_id, claim, worker)
    wanted = taker.last + 1 if seq is None else seq
    if taker.missing(wanted, 1) == 0:
        return Appended(seq=wanted, duplicate=True)
    if not final:
        append_run(tx, ns, invocation_id, (data,), now, claim=taker.claim, first=wanted)
    return Appended(seq=wanted)


def append_run(
    tx: Transaction, ns: str, invocation_id: str, run: Sequence[bytes], now: float, *, claim: int, first: int
) -> int:
    """Append consecutive frames, the first of them at `first`; how many of them, counted from the end, are new.

    All or none: raises what `append` raises for the first that is refused.
    """
    missing = len(run)
    last = first + missing - 1
    step = {"ns": ns, "id": invocation_id, "claim": claim, "first": first, "last": last, "now": now}
    row = tx.one(SQL.append_if_next, step)
    if row is None:  # something of it is stored, or it is refused
        missing = _Taker(tx, ns, invocation_id, claim, None).missing(first, missing)
        if missing == 0:
            return 0
        first = last - missing + 1
        row = tx.one(SQL.append_if_next, {**step, "first": first})
        assert row is not None, "the row was read in this transaction"
    channel, fresh = row[0], run[len(run) - missing :]
    segment, offsets = tx.journal.append_run(channel, claim, first, fresh)
    tx.change_many(
        SQL.put_frames,
        zip(repeat(channel), range(first, last + 1), repeat(claim), repeat(segment), offsets, map(len, fresh)),
    )
    return missing


class _Taker:
    """One invocation as an append finds it."""

    __slots__ = ("_channel", "_claim", "_holder", "_id", "_state", "_tx", "_worker", "claim", "last")

    def __init__(self, tx: Transaction, ns: str, invocation_id: str, claim: int | None, worker: str | None) -> None:
        row = tx.one(SQL.row_for_report, {"id": invocation_id})
        if row is None or row[1] != ns:
            raise UnknownInvocation(f"no invocation {invocation_id} in namespace {ns!r}")
        self._tx, self._id = tx, invocation_id
        self._channel, self._state, self._claim, self.last, self._holder = row[0], row[3], row[4], row[10], row[13]
        self._worker = worker if claim is None else None
        self.claim = self._claim if claim is None else claim

    def missing(self, first: int, count: int) -> int:
        """How many of `count` frames from `first` on are to be stored: the rest is. Raises NotHeld, Gap."""
        last = self.last
        if first <= last and self._has(first) and (count == 1 or self._has(min(last, first + count - 1))):
            # A claim's frames are consecutive: what lies between is of the same claim.
            if first + count - 1 <= last:
                return 0
            count -= last + 1 - first
            first = last + 1
        if (
            self._state != "running"
            or self.claim != self._claim
            or (self._worker is not None and self._worker != self._holder)
        ):
            raise NotHeld(
                f"invocation {self._id} is {self._state} under claim {self._claim}; this claim may not append to it"
            )
        if first != last + 1:
            raise Gap(self._id, last + 1, first)
        return count

    def _has(self, seq: int) -> bool:
        stored = self._tx.one(SQL.frame_claim, {"channel": self._channel, "seq": seq})
        if stored is None:  # trimmed since it was stored
            return bool(self._state == "running" and self.claim == self._claim)
        return bool(stored[0] == self.claim)


def read(
    rows: Rows, journal: Journal, channel: int, since: int, *, limit: int = PAGE
) -> tuple[list[tuple[int, bytes, bool]], int]:
    """Frames after `since` as (seq, bytes, final), and the last seq looked at: up to `limit`, or to `PAGE_BYTES`.

    A damaged record is skipped: the journal has named it, and its neighbours are served.
    """
    index = rows(SQL.frames_since, {"channel": channel, "since": since, "limit": limit})
    size = 0
    for count, row in enumerate(index, 1):
        size += row[4]
        if size >= PAGE_BYTES:
            index = index[:count]
            break
    frames = [
        (seq, data, bool(row[5]))
        for row, (seq, data) in zip(index, journal.read_run(channel, index), strict=True)
        if isinstance(data, bytes)
    ]
    return frames, index[-1][0] if index else since


def trim(tx: Transaction, ns: str, invocation_id: str, *, keep_last: int = 0) -> int:
    """Forget all but the last frames of an invocation; how many were forgotten. The row keeps its result."""
    row = tx.one(SQL.row_for_report, {"id": invocation_id})
    if row is None or row[1] != ns:
        raise UnknownInvocation(f"no invocation {invocation_id} in namespace {ns!r}")
    return tx.change(SQL.trim_frames, {"channel": row[0], "upto": row[10] - keep_last})


def post(
    tx: Transaction,
    ns: str,
    queue: str,
    name: str,
    body: bytes,
    now: float,
    *,
    final: bool = False,
    nonce: int = 0,
    again: bool = False,
) -> int:
    """Append one packed value to a topic (with `final`: its END, and no value); the plane assigns the seq.

    Whoever may have to send a post twice names it with a nonce, which the frame keeps in place of a claim: a post that
    is there already is answered with the seq that it has. It is looked for among the last `RECENT` frames, and with
    `again` (the sender knows that this is a copy) among the last `LONG_AGO`. Raises IllegalTransition after its END.
    """
    if nonce:
        seq = _posted(tx, ns, queue, name, body, final, nonce, LONG_AGO if again else RECENT)
        if seq is not None:
            return seq
    row = tx.one(SQL.post_if_open, {"ns": ns, "queue": queue, "name": name, "now": now, "final": int(final)})
    if row is None:
        raise IllegalTransition(f"topic {name!r} of queue {queue!r} has ended; post to another one")
    channel, seq = -int(row[0]), int(row[1])
    put(tx, channel, nonce, seq, end_frame(seq) if final else value_frame(seq, body), final=final)
    return seq


def _posted(
    tx: Transaction, ns: str, queue: str, name: str, body: bytes, final: bool, nonce: int, among: int
) -> int | None:
    """The seq of a post that is stored already. Nonces are short: the bytes must be the same, too."""
    topic = tx.one(SQL.topic_of, {"ns": ns, "queue": queue, "name": name})
    if topic is None:
        return None
    channel, last = -int(topic[0]), int(topic[1])
    found = tx.all(SQL.posted_as, {"channel": channel, "after": last - among, "nonce": nonce})
    if not found:
        return None
    ((seq, stored),) = tx.journal.read_run(channel, found)
    if stored != (end_frame(seq) if final else value_frame(seq, body)):
        return None
    return int(seq)


def value_frame(seq: int, body: bytes) -> bytes:
    """The bytes of a VALUE frame around a value that is packed already; the plane never decodes it."""
    head: bytes = b"\x94" + msgpack.packb(int(FrameKind.VALUE)) + msgpack.packb(seq)
    return head + body + b"\xc0"
