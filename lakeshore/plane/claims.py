"""Claims: which queued row is next, and the one guarded update that hands it out (K-3, K-5).

One queue in the order of age and priority, the usual wish, is one statement for all the rows it gives. The other
orders, queues with a rate, and queues of which a row asks something of its worker, choose first and take row by row.

Rows that ask the same lie together in the index of what is queued: a claim seeks each of these runs, and reads those
that its worker is fit for.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

from ..wire.run_configs import Offer, meets
from . import rates
from .contract import KINDS, Claimed, Wish
from .delays import queues as queues_of
from .frames import Rows
from .runs import runs_of
from .statements import SQL
from .transaction import Transaction, payload_of

_BY_AGE = ("fifo", "priority")


def claim(tx: Transaction, wish: Wish, now: float) -> list[Claimed]:
    """Up to `capacity` rows of the wished queues, now `running` under this worker and session."""
    if wish.capacity < 1:
        return []
    if len(wish.queues) == 1 and not wish.queues[0].endswith("*"):
        if tx.has_none_queued(wish.ns, wish.queues[0]):
            return []
        if wish.kind in _BY_AGE:
            taken = _take_oldest(tx, wish, now)
            if taken or (_is_by_age(tx, wish) and not _is_asked(tx, wish)):
                return taken
    candidates: list[tuple[float, int]] = []
    paced: dict[str, tuple[float, float | None]] = {}
    for queue in _names(tx, wish):
        candidates += _next_of(tx, wish, queue, now, paced)
    if len(wish.queues) > 1 or wish.queues[0].endswith("*"):
        candidates.sort(key=lambda c: (-c[0], -c[1] if wish.kind == "filo" else c[1]))
    taken = [_take(tx, wish, seq, now) for _priority, seq in candidates[: wish.capacity]]
    for queue, (rate, at) in paced.items():
        n = sum(one.queue == queue for one in taken)
        if n:
            tx.change(SQL.spend_rate, {"ns": wish.ns, "name": queue, "at": rates.after(rate, at, now, n)})
    return taken


def has_for(rows: Rows, ns: str, queue: str, offer: Offer | None) -> bool:
    """Whether a queue has a row that who offers this may have."""
    where = {"ns": ns, "queue": queue, "limit": 1}
    return any(rows(SQL.next_oldest, {**where, "needs": run}) for run in _fit(rows, ns, queue, offer))


def _fit(rows: Rows, ns: str, queue: str, offer: Offer | None) -> list[str | None]:
    """What rows of a queue ask, as far as a worker has it; None is nothing."""
    return [run for run in runs_of(rows, ns, queue) if run is None or offer is None or meets(offer, run)]


def _take_oldest(tx: Transaction, wish: Wish, now: float) -> list[Claimed]:
    values = {**_values(wish, now), "ns": wish.ns, "queue": wish.queues[0], "kind": wish.kind, "limit": wish.capacity}
    rows = tx.all(SQL.claim_oldest, values)
    if len(rows) > 1:
        rows.sort(key=lambda row: (-row[0], row[1]))
    if rows:
        tx.moved(wish.ns, wish.queues[0], "queued", "running", *[row[1] for row in rows])
    return [_claimed(tx, row[1:14], row[14]) for row in rows]


def _is_by_age(tx: Transaction, wish: Wish) -> bool:
    """Whether the queue's own row names no order but the age's, and no rate."""
    row = tx.one(SQL.queue_of, {"ns": wish.ns, "name": wish.queues[0]})
    return row is None or (row[3] is None and (row[0] is None or row[0] in _BY_AGE))


def _is_asked(tx: Transaction, wish: Wish) -> bool:
    """Whether a row of the one queue asks something of its worker."""
    return len(list(itertools.islice(runs_of(tx.all, wish.ns, wish.queues[0]), 2))) > 1


def _names(tx: Transaction, wish: Wish) -> list[str]:
    names: dict[str, None] = {}
    for queue in wish.queues:
        names |= dict.fromkeys(queues_of(tx.all, wish.ns, queue))
    return list(names)


def _next_of(
    tx: Transaction, wish: Wish, queue: str, now: float, paced: dict[str, tuple[float, float | None]]
) -> list[tuple[float, int]]:
    """(priority, seq) of the next rows of one queue, in the order that its kind decides. `paced`: those with a rate."""
    row = tx.one(SQL.queue_of, {"ns": wish.ns, "name": queue})
    if row is None or row[2] in ("paused", "archived"):
        return []
    kind = row[0] or wish.kind
    limit = wish.capacity
    if row[3] is not None:
        paced[queue] = row[3], row[4]
        limit = min(limit, rates.allowed(row[3], row[4], now))
        if limit == 0:
            return []
    where: dict[str, Any] = {"ns": wish.ns, "queue": queue, "limit": limit}
    runs = _fit(tx.all, wish.ns, queue, wish.offer)
    if kind == "filo":
        found = [one for run in runs for one in _newest_first(tx, where, run)]
        return found if len(runs) == 1 else sorted(found, key=lambda one: (-one[0], -one[1]))[:limit]
    if kind == "boltzmann":
        return _sampled(tx, where, runs, wish, float(row[1] or wish.temperature))
    assert kind in KINDS, f"queue kinds are checked at the edge, got {kind!r}"
    return _merged(tx, SQL.next_oldest, where, runs)


def _merged(tx: Transaction, statement: str, where: dict[str, Any], runs: list[str | None]) -> list[tuple[float, int]]:
    """The first rows of these runs together, the most urgent and then the oldest first."""
    found = [(p, s) for run in runs for s, p in tx.all(statement, {**where, "needs": run})]
    if len(runs) > 1:
        found.sort(key=lambda one: (-one[0], one[1]))
    return found[: where["limit"]]


def _newest_first(tx: Transaction, where: dict[str, Any], run: str | None) -> list[tuple[float, int]]:
    found: list[tuple[float, int]] = []
    below = math.inf
    where = {**where, "needs": run}
    while len(found) < where["limit"]:
        top = tx.one(SQL.next_priority, {**where, "below": below})
        if top is None or top[0] is None:
            break
        below = top[0]
        left = {**where, "priority": below, "limit": where["limit"] - len(found)}
        found += [(p, s) for s, p in tx.all(SQL.newest_at, left)]
    return found


def _sampled(
    tx: Transaction, where: dict[str, Any], runs: list[str | None], wish: Wish, temperature: float
) -> list[tuple[float, int]]:
    """Levels drawn with probability in proportion to count x exp(priority / T); within a level the oldest first."""
    counts: dict[float, int] = {}
    for run in runs:
        for priority, n in tx.all(SQL.priority_levels, {**where, "needs": run}):
            counts[priority] = counts.get(priority, 0) + n
    levels = [[priority, counts[priority]] for priority in sorted(counts, reverse=True)]
    taken: dict[float, int] = {}
    draw = wish.draw
    for _ in range(min(where["limit"], sum(n for _p, n in levels))):
        priority, draw = _draw_level(levels, temperature, draw)
        taken[priority] = taken.get(priority, 0) + 1
        for level in levels:
            if level[0] == priority:
                level[1] -= 1
        levels = [level for level in levels if level[1]]
    found: list[tuple[float, int]] = []
    for priority, n in taken.items():
        found += _merged(tx, SQL.oldest_at, {**where, "priority": priority, "limit": n}, runs)
    return found


def _draw_level(levels: list[list[Any]], temperature: float, draw: float) -> tuple[float, float]:
    """The drawn priority, and what is left of the draw: a uniform number for the next one."""
    top = levels[0][0]
    if temperature <= 0:
        return top, draw
    weights = [n * math.exp((p - top) / temperature) for p, n in levels]
    point = draw * sum(weights)
    for (priority, _n), weight in zip(levels, weights, strict=True):
        if point < weight:
            return priority, point / weight
        point -= weight
    return levels[-1][0], draw


def _take(tx: Transaction, wish: Wish, seq: int, now: float) -> Claimed:
    row = tx.one(SQL.claim_if_queued, {**_values(wish, now), "seq": seq})
    assert row is not None, "the candidate was read in this transaction"
    tx.moved(row[2], row[3], "queued", "running", seq)
    return _claimed(tx, row, None)


def _values(wish: Wish, now: float) -> dict[str, Any]:
    return {
        "worker": wish.worker,
        "session": wish.session,
        "n": wish.n,
        "now": now,
        "start": int(wish.start),
    }


def _claimed(tx: Transaction, row: tuple[Any, ...], data: bytes | None) -> Claimed:
    """What is handed out. `data` are the arguments, when they have been read and are inline."""
    seq, id_, ns, queue, number, attempt, started, last, function, run_config, prefix, parent, root = row
    return Claimed(
        id=id_,
        ns=ns,
        queue=queue,
        claim=number,
        attempt=attempt + (not started),
        first_seq=last + 1,
        args=payload_of(tx.one(SQL.args, {"seq": seq})) if data is None else data,
        function=function,
        run_config=run_config,
        prefix=prefix,
        parent=parent,
        root=root,
    )
