"""Forgetting in slices of a few milliseconds, so that nobody else waits for the writer longer than that."""

from __future__ import annotations

import functools
import itertools
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

import trio

from ..plane import retention
from ..plane.locks import files_lock
from ..plane.plane import Plane
from ..plane.statements import SQL
from ..plane.transaction import Transaction
from .app import PageReader
from .dispatcher import Dispatcher
from .writer import Writer

T = TypeVar("T")

SLICE_S: Final = 0.005
PAUSE_S: Final = 0.005
GRACE_S: Final = 24 * 3600.0
"""A file that was written or touched since is never taken for garbage."""
FROM_THE_OLDEST: Final = (-1.0, 0)
_ROWS_AT_ONCE: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruned:
    """How many rows went (or would go), and the place to go on at; None when that was all."""

    count: int
    place: tuple[float, int] | None


async def in_slice(writer: Writer[Transaction], verb: Callable[[Transaction], T]) -> T:
    """One slice; then as long a pause."""
    before = trio.current_time()
    done = await writer.write(verb)
    await trio.sleep(max(PAUSE_S, trio.current_time() - before))
    return done


def collect(plane: Plane, done: retention.Purge, now: float) -> None:
    """Delete the files of rows that are gone. A young payload, and all of them while somebody copies the plane, wait
    until the janitor looks for orphans; a log goes at once.
    """
    blobs, keys = plane.blobs, done.blobs
    assert blobs.root is not None
    if plane.logs is not None:
        plane.logs.forget(done.seqs)
    if keys:
        with files_lock(blobs.root.parent) as mine:
            for key in keys if mine else ():
                blobs.collect(blobs.path(key), now - GRACE_S)


async def prune(
    dispatcher: Dispatcher,
    reader: PageReader,
    wanted: retention.Filter,
    place: tuple[float, int],
    *,
    dry_run: bool,
    for_s: float,
) -> Pruned:
    """Forget (or count) the wanted rows from `place` on, for about `for_s` seconds."""
    until = trio.current_time() + for_s
    count = 0
    following: tuple[float, int] | None = place
    while following is not None and trio.current_time() < until:
        found, following = await reader.run(functools.partial(retention.ended_rows, wanted=wanted, after=following))
        if dry_run:
            count += len(found)
            continue
        left = iter(found)
        while some := list(itertools.islice(left, _ROWS_AT_ONCE)):
            count += await _forget(dispatcher, some, wanted.before)
    return Pruned(count=count, place=following)


async def forget_namespace(dispatcher: Dispatcher, reader: PageReader, ns: str, *, for_s: float) -> Pruned:
    """Forget what ended in a namespace, its topics and its queues, for about `for_s` seconds."""
    wanted = retention.Filter(ns=ns, before=math.inf)
    done = await prune(dispatcher, reader, wanted, FROM_THE_OLDEST, dry_run=False, for_s=for_s)
    if done.place is None:
        for (channel,) in dispatcher.rows(SQL.topics_of, {"ns": ns}):
            topic = functools.partial(retention.purge_topic, channel=channel, before=math.inf, budget_s=SLICE_S)
            while not await in_slice(dispatcher.writer, topic):
                pass
        await in_slice(dispatcher.writer, functools.partial(retention.purge_queues, ns=ns))
        dispatcher.queues.load(dispatcher.rows)
    return done


async def _forget(dispatcher: Dispatcher, seqs: list[int], before: float) -> int:
    gone = 0
    while True:
        now = time.time()
        verb = functools.partial(retention.purge_rows, seqs=seqs, before=before, now=now, budget_s=SLICE_S)
        done = await in_slice(dispatcher.writer, verb)
        collect(dispatcher.plane, done, now)
        gone += done.rows
        if not done.more:
            return gone
