"""Submits: one row per invocation, the same submit twice is one submit, a purged id never runs again (K-16, K-17)."""

from __future__ import annotations

import hashlib
import struct
from typing import Any

from .contract import BlobRef, Conflict, Payload, Purged, QueueFull, QueueNotActive, Submission, Submitted
from .retries import retry_row
from .statements import SQL
from .transaction import Transaction, payload_values


def fingerprint(queue: str, function: bytes, args: Payload, run_config: bytes) -> bytes:
    """sha256 of what makes two submits the same one. Arguments count by content, however they travelled."""
    name = queue.encode()
    args_sha = bytes.fromhex(args.sha256) if isinstance(args, BlobRef) else hashlib.sha256(args).digest()
    sizes = struct.pack(">QQQ", len(name), len(function), len(run_config))
    return hashlib.sha256(b"".join((sizes, args_sha, name, function, run_config))).digest()


def submit(tx: Transaction, item: Submission, now: float) -> Submitted:
    """Insert one row, or find the row that this submit already is.

    Raises Conflict, Purged, QueueNotActive, QueueFull.
    """
    values = {
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
    }
    # Nearly every submit is a new id on a known, unlimited queue: one statement finds that out and inserts.
    inserted = tx.one(SQL.submit_if_plain, values)
    if inserted is None:
        known = _known(tx, item, now)
        if known is not None:
            return known
        _admit(tx, item, now)
        inserted = tx.one(SQL.submit, values)
        assert inserted is not None, "no other row had the id or the key in this transaction"
    tx.change(SQL.put_args, payload_values(inserted[0], item.args))
    tx.moved(item.ns, item.queue, None, "queued")
    return Submitted(id=item.id, queue=item.queue)


def _known(tx: Transaction, item: Submission, now: float) -> Submitted | None:
    """The row that already stands for this submit. Raises Conflict, Purged."""
    row = tx.one(SQL.row_for_resubmit, {"id": item.id})
    if row is not None:
        return _again(tx, item, row, now, by_key=False)
    if item.key is not None:
        row = tx.one(SQL.row_by_key, {"ns": item.ns, "queue": item.queue, "key": item.key})
        if row is not None:
            return _again(tx, item, row, now, by_key=True)
    grave = tx.one(SQL.tombstone, {"id": item.id})
    if grave is None:
        return None
    if grave[0] != item.ns:
        raise Conflict(f"invocation id {item.id} is taken; submit with a fresh id")
    raise Purged(f"invocation {item.id} was settled and purged; submit with a fresh id to run it again")


def _again(tx: Transaction, item: Submission, row: tuple[Any, ...], now: float, *, by_key: bool) -> Submitted:
    seq, id_, ns, queue, _key, hash_, state, claim, nonce = row
    if not by_key and (ns != item.ns or hash_ != item.hash):
        raise Conflict(f"invocation id {item.id} is taken by another submit; submit with a fresh id")
    retried = False
    if item.retry_nonce is not None and nonce != item.retry_nonce and state in ("failed", "killed", "timeout"):
        retry_row(tx, seq=seq, ns=ns, queue=queue, state=state, claim=claim, nonce=item.retry_nonce)
        retried = True
    return Submitted(id=id_, queue=queue, existing=by_key or id_ != item.id, retried=retried)


def _admit(tx: Transaction, item: Submission, now: float) -> None:
    queue = tx.one(SQL.queue_of, {"ns": item.ns, "name": item.queue})
    if queue is None:
        tx.change(SQL.ensure_queue, {"ns": item.ns, "name": item.queue, "now": now})
        return
    _kind, _temperature, state, max_depth = queue
    if state in ("draining", "archived"):
        raise QueueNotActive(item.queue, state)
    if max_depth is not None and tx.counted(item.ns, item.queue, "queued") >= max_depth:
        raise QueueFull(item.queue, max_depth)
