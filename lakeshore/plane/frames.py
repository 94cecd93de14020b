"""Frames of invocations and topics: accepted in order, once, from the holder of the claim (K-24, K-25)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgpack

from ..wire.frames import FrameKind, end_frame
from .contract import Appended, Gap, IllegalTransition, NotHeld, UnknownInvocation
from .journal import FrameDamaged, Journal, Location
from .statements import SQL
from .transaction import Transaction

PAGE = 256
Rows = Callable[[str, dict[str, Any]], list[tuple[Any, ...]]]


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
    row = tx.one(SQL.row_for_report, {"id": invocation_id})
    if row is None or row[1] != ns:
        raise UnknownInvocation(f"no invocation {invocation_id} in namespace {ns!r}")
    channel, state, current, last, holder = row[0], row[3], row[4], row[10], row[13]
    number = current if claim is None else claim
    if seq is not None and seq <= last:
        stored = tx.one(SQL.frame_claim, {"channel": channel, "seq": seq})
        forgotten = stored is None and state == "running" and number == current  # trimmed since it was stored
        if forgotten or (stored is not None and stored[0] == number):
            return Appended(seq=seq, duplicate=True)
    if state != "running" or number != current or (claim is None and worker is not None and worker != holder):
        raise NotHeld(f"invocation {invocation_id} is {state} under claim {current}; this claim may not append to it")
    wanted = last + 1 if seq is None else seq
    if wanted != last + 1:
        raise Gap(invocation_id, last + 1, wanted)
    if final:
        return Appended(seq=wanted)
    changed = tx.change(SQL.append_if_next, {"channel": channel, "claim": number, "seq": wanted, "now": now})
    assert changed == 1, "the row was read in this transaction"
    put(tx, channel, number, wanted, data, final=False)
    return Appended(seq=wanted)


def read(
    rows: Rows, journal: Journal, channel: int, since: int, *, limit: int = PAGE
) -> tuple[list[tuple[int, bytes, bool]], int]:
    """Up to `limit` frames after `since` as (seq, bytes, final), and the last seq looked at.

    A damaged record is skipped: the journal has named it, and its neighbours are served.
    """
    frames: list[tuple[int, bytes, bool]] = []
    for seq, claim, segment, offset, length, final in rows(
        SQL.frames_since, {"channel": channel, "since": since, "limit": limit}
    ):
        since = seq
        try:
            data = journal.read(channel, claim, seq, Location(segment=segment, offset=offset, length=length))
        except FrameDamaged:
            continue
        frames.append((seq, data, bool(final)))
    return frames, since


def trim(tx: Transaction, ns: str, invocation_id: str, *, keep_last: int = 0) -> int:
    """Forget all but the last frames of an invocation; how many were forgotten. The row keeps its result."""
    row = tx.one(SQL.row_for_report, {"id": invocation_id})
    if row is None or row[1] != ns:
        raise UnknownInvocation(f"no invocation {invocation_id} in namespace {ns!r}")
    return tx.change(SQL.trim_frames, {"channel": row[0], "upto": row[10] - keep_last})


def post(tx: Transaction, ns: str, queue: str, name: str, body: bytes, now: float, *, final: bool = False) -> int:
    """Append one packed value to a topic (with `final`: its END, and no value); the plane assigns the seq.

    Raises IllegalTransition after its END.
    """
    row = tx.one(SQL.post_if_open, {"ns": ns, "queue": queue, "name": name, "now": now, "final": int(final)})
    if row is None:
        raise IllegalTransition(f"topic {name!r} of queue {queue!r} has ended; post to another one")
    channel, seq = -int(row[0]), int(row[1])
    put(tx, channel, 0, seq, end_frame(seq) if final else value_frame(seq, body), final=final)
    return seq


def value_frame(seq: int, body: bytes) -> bytes:
    """The bytes of a VALUE frame around a value that is packed already; the plane never decodes it."""
    head: bytes = b"\x94" + msgpack.packb(int(FrameKind.VALUE)) + msgpack.packb(seq)
    return head + body + b"\xc0"
