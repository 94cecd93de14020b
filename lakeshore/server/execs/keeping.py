"""How long commands are kept: a week after their end, and less when they take too much disk. Called by the janitor."""

from __future__ import annotations

import logging
from typing import Final

import trio

from .book import Execs
from .store import SQL

log = logging.getLogger(__name__)

KEEP_S: Final = 7 * 24 * 3600.0
KEEP_BYTES: Final = 1024**3
"""What ended commands and their output may take."""
YOUNG_S: Final = 3600.0
"""Nothing younger is forgotten to save bytes."""
NO_NAMESPACE: Final = "its namespace was deleted"
_AT_ONCE: Final = 200
_PAGES_AT_ONCE: Final = 256
_PAUSE_S: Final = 0.005


async def sweep(execs: Execs, now: float, *, keep_bytes: int = KEEP_BYTES) -> int:
    """End what nobody took in a week, forget what ended a week ago, and the oldest of the rest while it is too much.

    How many were forgotten.
    """
    await execs.expire(now - KEEP_S, "no daemon took it for 7 days")
    gone = await _forget(execs, now - KEEP_S, most=None)
    while await _bytes(execs) > keep_bytes:
        some = await _forget(execs, now - YOUNG_S, most=_AT_ONCE)
        if not some:
            log.warning("commands of the last hour take more than the %d MiB to keep", keep_bytes // 2**20)
            break
        gone += some
    if gone:
        log.info("forgot %d commands", gone)
        await execs.vacuum(_PAGES_AT_ONCE)
    await _drop_orphans(execs)
    return gone


async def forget_namespace(execs: Execs, ns: str) -> int:
    """Forget every command of a namespace that is gone; how many."""
    await execs.fail_all(ns, NO_NAMESPACE)
    gone = 0
    while seqs := [seq for (seq,) in execs.store.rows(SQL.some_of, {"ns": ns, "limit": _AT_ONCE})]:
        gone += await execs.forget(seqs)
    return gone


async def _forget(execs: Execs, before: float, *, most: int | None) -> int:
    gone = 0
    while most is None or gone < most:
        seqs = [seq for (seq,) in execs.store.rows(SQL.ended_before, {"before": before, "limit": _AT_ONCE})]
        if not seqs:
            break
        gone += await execs.forget(seqs)
        await trio.sleep(_PAUSE_S)
    return gone


async def _bytes(execs: Execs) -> int:
    """What they take: used pages, and what was printed."""
    ((used,),) = execs.store.rows(SQL.used_bytes)
    return int(used) + await trio.to_thread.run_sync(execs.output.bytes)


async def _drop_orphans(execs: Execs) -> None:
    """Delete the output of those that are gone: a server that was killed had no time to."""
    shards = await trio.to_thread.run_sync(execs.output.shards)
    for seqs in shards.values():
        if seqs:
            between = {"first": min(seqs), "last": max(seqs)}
            kept = {seq for (seq,) in execs.store.rows(SQL.between, between)}
            execs.output.forget(sorted(seqs - kept))
