"""Submits: one row per invocation, the same submit twice is one submit, a purged id never runs again (K-16, K-17)."""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgpack

from ..wire.run_configs import BadAsk, needs_of, over
from . import queues
from .contract import (
    DELAYED,
    BlobRef,
    Conflict,
    Payload,
    Purged,
    Refused,
    Submission,
    Submitted,
)
from .retries import RETRYABLE, knows, retry_row
from .runs import Room
from .statements import SQL, in_order
from .transaction import PUT_ARGS, Transaction, grouped, payload_row

_WORTH_A_BATCH = 4


def fingerprint_frame(queue: str, function: bytes, run_config: bytes) -> tuple[bytes, bytes]:
    """What a fingerprint has before and behind its arguments: the same for many calls."""
    name = queue.encode()
    return struct.pack(">QQQ", len(name), len(function), len(run_config)), name + function + run_config


def fingerprint_within(frame: tuple[bytes, bytes], args: Payload) -> bytes:
    """sha256 of what makes two submits the same one. Arguments count by content, however they travelled."""
    args_sha = bytes.fromhex(args.sha256) if isinstance(args, BlobRef) else hashlib.sha256(args).digest()
    return hashlib.sha256(b"".join((frame[0], args_sha, frame[1]))).digest()


def submit(tx: Transaction, item: Submission, now: float) -> Submitted:
    """Insert one row, or find the row that this submit already is.

    Raises Conflict, Purged, QueueNotActive, QueueFull, QueueBehind.
    """
    return _submit(tx, item, now, Room(tx.all))


def _submit(tx: Transaction, item: Submission, now: float, room: Room) -> Submitted:
    values = _values(item, now)
    if (item.due is not None and item.due > now) or not room.has(item.ns, item.queue, item.needs):
        return _submit_with_care(tx, item, now, room)
    # Nearly every submit is a new id on a known, unlimited queue: one statement finds that out and inserts.
    inserted = tx.one(SQL.submit_if_plain, values)
    if inserted is None:
        return _submit_with_care(tx, item, now, room)
    return _stored(tx, item, inserted[0])


def submit_many(tx: Transaction, items: Sequence[Submission], now: float) -> list[Submitted | Refused]:
    """A batch: what `submit` answers or raises for each, in order. One refused never touches the rest (K-18)."""
    room = Room(tx.all)
    if len(items) < _WORTH_A_BATCH or not _are_plain(tx, items, now, room):
        return [_submitted_or_refused(tx, item, now, room) for item in items]
    found = tx.one(SQL.last_seq, {})
    last = 0 if found is None else int(found[0])
    # They go in together, at places that are given here. What is missing then is looked at one by one: nothing that
    # went in could have had its place, for ids differ, and who has a key first has it in either order.
    inserted = tx.change_many(_SUBMIT_AT, [_row(item, seq, now) for seq, item in enumerate(items, last + 1)])
    if inserted == len(items):
        _stored_together(tx, list(enumerate(items, last + 1)))
        return [Submitted(id=item.id, queue=item.queue, needs=item.needs) for item in items]
    there = {seq for (seq,) in tx.all(SQL.submitted_after, {"seq": last})}
    return [
        _stored(tx, item, seq) if seq in there else _submitted_or_refused(tx, item, now, room)
        for seq, item in enumerate(items, last + 1)
    ]


def put_in(tx: Transaction, items: Sequence[tuple[Submission, float]]) -> None:
    """Rows for submits that were acknowledged before, each with its time: whatever has become of their queue since.

    What is there already, or was and is purged, stays as it is.
    """
    ids = [item.id for item, _at in items]
    if ids and tx.one(SQL.tombstone_between, {"first": min(ids), "last": max(ids)}) is not None:
        items = [(item, at) for item, at in items if tx.one(SQL.tombstone, {"id": item.id}) is None]
    for ns, queue in {(item.ns, item.queue) for item, _at in items}:
        tx.change(SQL.ensure_queue, {"ns": ns, "name": queue, "now": items[0][1]})
    found = tx.one(SQL.last_seq, {})
    places = list(enumerate(items, 1 if found is None else int(found[0]) + 1))
    if tx.change_many(_SUBMIT_AT, [_row(item, seq, at) for seq, (item, at) in places]) < len(items):
        there = {seq for (seq,) in tx.all(SQL.submitted_after, {"seq": places[0][0] - 1})}
        places = [(seq, one) for seq, one in places if seq in there]
    _stored_together(tx, [(seq, item) for seq, (item, _at) in places])


def _stored_together(tx: Transaction, places: Sequence[tuple[int, Submission]]) -> None:
    """Rows that were just inserted there: their arguments, and what their queues have."""
    tx.change_many(PUT_ARGS, [payload_row(seq, item.args) for seq, item in places])
    for place, seqs in grouped((item.ns, item.queue, seq) for seq, item in places).items():
        tx.moved(*place, None, "queued", *seqs)


def _are_plain(tx: Transaction, items: Sequence[Submission], now: float, room: Room) -> bool:
    """Whether these are what nearly all are: ids that differ and were never purged, for now, on unlimited queues."""
    ids = {item.id for item in items}
    if (
        len(ids) < len(items)
        or any(item.due is not None for item in items)
        or not all(room.has(item.ns, item.queue, item.needs) for item in items)
        or tx.one(SQL.tombstone_between, {"first": min(ids), "last": max(ids)}) is not None
    ):
        return False
    for ns, queue in {(item.ns, item.queue) for item in items}:
        tx.change(SQL.ensure_queue, {"ns": ns, "name": queue, "now": now})
        if tx.one(SQL.plain_queue, {"ns": ns, "queue": queue}) is None:
            return False
    return True


_SUBMIT_AT = in_order(
    SQL.submit_at,
    "seq id ns queue priority key hash function run_config code prefix parent "
    "parent ns parent id "  # of its root
    "max_attempts retry_nonce now needs",
)


def _row(item: Submission, seq: int, now: float) -> tuple[Any, ...]:
    return (
        seq,
        item.id,
        item.ns,
        item.queue,
        item.priority,
        item.key,
        item.hash,
        item.function,
        item.run_config,
        item.code,
        item.prefix,
        item.parent,
        item.parent,
        item.ns,
        item.parent,
        item.id,
        item.max_attempts,
        item.retry_nonce,
        now,
        item.needs,
    )


def _values(item: Submission, now: float) -> dict[str, Any]:
    return {
        "id": item.id,
        "ns": item.ns,
        "queue": item.queue,
        "priority": item.priority,
        "key": item.key,
        "hash": item.hash,
        "function": item.function,
        "run_config": item.run_config,
        "code": item.code,
        "prefix": item.prefix,
        "parent": item.parent,
        "max_attempts": item.max_attempts,
        "retry_nonce": item.retry_nonce,
        "now": now,
        "needs": item.needs,
    }


def _stored(tx: Transaction, item: Submission, seq: int, state: str = "queued") -> Submitted:
    tx.change(PUT_ARGS, payload_row(seq, item.args))
    tx.moved(item.ns, item.queue, None, state, seq)
    due = item.due if state == DELAYED else None
    return Submitted(id=item.id, queue=item.queue, due=due, needs=item.needs)


def _submitted_or_refused(tx: Transaction, item: Submission, now: float, room: Room) -> Submitted | Refused:
    try:
        return _submit(tx, item, now, room)
    except Refused as refused:
        return refused


def _submit_with_care(tx: Transaction, item: Submission, now: float, room: Room) -> Submitted:
    known = _known(tx, item, room)
    if known is not None:
        return known
    item = _admitted(tx, item, now)
    room.check(item.ns, item.queue, item.needs)
    values = _values(item, now)
    state = DELAYED if item.due is not None and item.due > now else "queued"
    inserted = tx.one(SQL.submit, {**values, "state": state, "due": item.due})
    assert inserted is not None, "no other row had the id or the key in this transaction"
    return _stored(tx, item, inserted[0], state)


def _known(tx: Transaction, item: Submission, room: Room) -> Submitted | None:
    """The row that already stands for this submit. Raises Conflict, Purged, QueueFull."""
    row = tx.one(SQL.row_for_resubmit, {"id": item.id})
    if row is not None:
        return _again(tx, item, row, room, by_key=False)
    if item.key is not None:
        row = tx.one(SQL.row_by_key, {"ns": item.ns, "queue": item.queue, "key": item.key})
        if row is not None:
            return _again(tx, item, row, room, by_key=True)
    grave = tx.one(SQL.tombstone, {"id": item.id})
    if grave is None:
        return None
    if grave[0] != item.ns:
        raise Conflict(f"invocation id {item.id} is taken; submit with a fresh id")
    raise Purged(f"invocation {item.id} was settled and purged; submit with a fresh id to run it again")


def _again(tx: Transaction, item: Submission, row: tuple[Any, ...], room: Room, *, by_key: bool) -> Submitted:
    seq, id_, ns, queue, _key, hash_, state, claim, nonces, due, needs = row
    if not by_key and (ns != item.ns or hash_ != item.hash):
        raise Conflict(f"invocation id {item.id} is taken by another submit; submit with a fresh id")
    retried = False
    nonce = item.retry_nonce
    if nonce is not None and state in RETRYABLE and not knows(nonces, nonce):
        room.check(ns, queue, needs)
        retry_row(tx, seq=seq, ns=ns, queue=queue, state=state, claim=claim, nonces=nonces, nonce=nonce)
        retried = True
    waits = due if state == DELAYED else None
    return Submitted(id=id_, queue=queue, existing=by_key or id_ != item.id, again=True, retried=retried, due=waits)


def _admitted(tx: Transaction, item: Submission, now: float) -> Submission:
    """The call with what its queue adds to it. The hash stays that of what was asked for."""
    defaults = queues.admit(tx.all, tx.counted, item.ns, item.queue, now)
    if defaults is None:
        queues.ensure(tx, item.ns, item.queue, now)
        return item
    asked = msgpack.unpackb(item.run_config, strict_map_key=False)
    config = over(defaults.run_config, {name: said for name, said in asked.items() if said is not None})
    priority, attempts = item.priority, item.max_attempts
    if not priority:  # 0 is what callers send who name none
        priority = _number(defaults.run_config.get("priority"), 0.0)
    if defaults.priority_field is not None:
        priority = _number(config.get(defaults.priority_field), priority)
    config["priority"] = priority
    if asked.get("max_attempts") is None:
        attempts = int(defaults.run_config.get("max_attempts") or attempts)
    try:
        needs = needs_of(config)
    except BadAsk:  # of a queue that an older version wrote
        needs = item.needs
    packed = msgpack.packb(config)
    return replace(item, run_config=packed, priority=priority, max_attempts=attempts, needs=needs)


def _number(said: Any, otherwise: float) -> float:
    usable = type(said) in (int, float) and math.isfinite(said)
    return float(said) if usable else otherwise
