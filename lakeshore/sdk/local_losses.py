"""Claims of the local plane that their worker will not run: it died, or they were taken away before they began.

What a dead process had begun counts as an attempt, what it had only prefetched does not; which is which its slates
tell (K-6, K-9, K-14, K-27).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from ..plane import locks, reports
from ..plane.contract import Loss
from ..plane.statements import SQL
from ..plane.transaction import Transaction
from .local_slate import Name
from .open_plane import OpenPlane

_GONE = Loss(why="its process is gone; how it ended is known to whoever started it")


def bury_the_dead(state: OpenPlane) -> None:
    """What dead processes held goes back to its queues, or has failed."""
    if state.workers is None or state.slates is None:
        return
    for (holder,) in state.rows(SQL.holders, {}):
        if holder and holder != state.holder_id and locks.is_dead(state.workers, holder):
            begun = state.slates.begun_by(holder)
            for ns, id_, claim in state.rows(SQL.running_of_holder, {"session": holder}):
                lose(state, (ns, id_, claim), begun=(ns, id_, claim) in begun)
            state.slates.remove_of(holder)


def lose(state: OpenPlane, name: Name, *, begun: bool = False) -> None:
    """The process that held this claim is gone; `begun` where its row does not say so."""
    ns, id_, claim = name

    def verb(tx: Transaction) -> str | None:
        now = time.time()
        if begun:
            tx.change(SQL.start_if_claimed, {"ns": ns, "id": id_, "claim": claim, "now": now})
        row = reports.read_row(tx, ns, id_)
        after = reports.lose(tx, ns, id_, claim, now, loss=_GONE)
        return row.queue if row is not None and after == "queued" else None

    queue = state.write(verb)
    if queue is not None:
        state.ring_work(ns, queue)
    state.bells.ring("done", f"frames/{id_}")


def settle_whether_begun(state: OpenPlane, ns: str, invocation_id: str) -> None:
    """A prefetched job either begins no more, or its row says that it has begun: then it can be cancelled."""
    if state.slates is None:
        return
    row = reports.row_of(state.rows, ns, invocation_id)
    if row is None or row.state != "running" or row.started or not row.session:
        return
    name = (ns, invocation_id, row.claim)
    waited = state.slates.revoke(row.session, name)
    if waited:
        others = [other for other in waited if other != name]
        ring_given_back(state, state.write(lambda tx: give_back(tx, others, time.time())))
    elif name in state.slates.begun_by(row.session):
        values = {"ns": ns, "id": invocation_id, "claim": row.claim, "now": time.time()}
        state.write(lambda tx: tx.change(SQL.start_if_claimed, values))


def give_back(tx: Transaction, names: Sequence[Name], now: float) -> set[tuple[str, str]]:
    """These have not begun and go back to their queues; (namespace, queue) of those that have more now."""
    freed: set[tuple[str, str]] = set()
    for ns, id_, claim in names:
        row = reports.read_row(tx, ns, id_)
        if reports.release(tx, ns, id_, claim, now) == "queued" and row is not None:
            freed.add((ns, row.queue))
    return freed


def ring_given_back(state: OpenPlane, freed: Iterable[tuple[str, str]]) -> None:
    """Wake all who may take what was given back."""
    state.bells.ring(*(f"work/{ns}/{name}" for ns, queue in freed for name in (queue, "*")))
