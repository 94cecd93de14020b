"""A page of rows, newest first, that costs the same however many rows there are.

Every state (and every priority of a queue) has an arm: a walk down an index that has its rows by `seq`. SQLite merges
the arms and stops when the page is full. `before` (the `seq` of the last row seen) starts the walk anywhere at the same
price; `offset` walks.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterable
from typing import Any

from .contract import DELAYED, STATES, TERMINAL
from .frames import Rows
from .runs import runs_of
from .statements import SQL

_ANY_SEQ = 2**63 - 1
_MOST_LEVELS = 32
"""Of priority, over all queues of one page, and so many queues with delayed rows. With more of them the queued rows are
sorted instead."""


def page(
    rows: Rows,
    ns: str,
    *,
    states: Iterable[str] = (),
    queue: str | None = None,
    worker: str | None = None,
    limit: int = 50,
    offset: int = 0,
    before: int | None = None,
) -> list[tuple[Any, ...]]:
    """The columns of `SQL.listed`, row by row."""
    asked = set(states) or set(STATES)
    wanted = tuple(sorted(asked | {DELAYED} if "queued" in asked else asked))
    levels: list[_Level] | None = []
    if "queued" in wanted and worker is None:  # a queued row has no worker
        levels = _levels(rows, ns, queue)
    waiting = _waiting(rows, ns, queue) if DELAYED in wanted and worker is None else []
    text = statement(
        wanted,
        by_queue=queue is not None,
        by_worker=worker is not None,
        levels=-1 if levels is None else len(levels),
        waiting=-1 if waiting is None else len(waiting),
    )
    if text is None:
        return []
    values: dict[str, Any] = {
        "ns": ns,
        "queue": queue,
        "worker": worker,
        "states": f",{','.join(wanted)},",
        "limit": limit,
        "offset": offset,
        "before": _ANY_SEQ if before is None else before,
        **{f"state_{state}": state for state in wanted},
    }
    for k, level in enumerate(levels or ()):
        values |= dict(zip((f"queue_{k}", f"needs_{k}", f"priority_{k}"), level, strict=True))
    values |= {f"waiting_{k}": name for k, name in enumerate(waiting or ())}
    return rows(text, values)


_Level = tuple[str, str | None, float]


def _levels(rows: Rows, ns: str, queue: str | None) -> list[_Level] | None:
    """Every (queue, run, priority) with queued rows, a seek for each; None when there are too many."""
    queues = [queue] if queue is not None else [q for (q,) in rows(SQL.queues_in_state, {"ns": ns, "state": "queued"})]
    found: list[_Level] = []
    for name, run in ((q, run) for q in queues for run in runs_of(rows, ns, q)):
        below = math.inf
        while True:
            ((priority,),) = rows(SQL.next_priority, {"ns": ns, "queue": name, "needs": run, "below": below})
            if priority is None:
                break
            if len(found) == _MOST_LEVELS:
                return None
            found.append((name, run, priority))
            below = priority
    return found


def _waiting(rows: Rows, ns: str, queue: str | None) -> list[str] | None:
    """Every queue with delayed rows; None when there are too many."""
    found = [name for (name,) in rows(SQL.queues_in_state, {"ns": ns, "state": DELAYED}) if queue in (None, name)]
    return found if len(found) <= _MOST_LEVELS else None


@functools.lru_cache(maxsize=1024)
def statement(states: tuple[str, ...], *, by_queue: bool, by_worker: bool, levels: int, waiting: int = 0) -> str | None:
    """The statement of one combination of filters; None when no row can match. `levels=-1`: sort what is queued;
    `waiting=-1`: sort what is delayed.
    """
    arms: list[str] = []
    if levels < 0:
        arms.append(SQL.list_queued_of_queue if by_queue else SQL.list_queued)
    arms += [re.sub(r":(queue|needs|priority)", rf":\g<1>_{k}", SQL.list_queued_at) for k in range(levels)]
    if waiting < 0:
        arms.append(SQL.list_delayed)
    arms += [SQL.list_delayed_of_queue.replace(":queue", f":waiting_{k}") for k in range(waiting)]
    if "running" in states:
        arms.append(SQL.list_running)
    ended = [state for state in states if state in TERMINAL]
    if ended and by_worker:
        arms.append(SQL.list_ended_of_worker)
    elif ended:
        arm = SQL.list_ended_of_queue if by_queue else SQL.list_ended
        arms += [arm.replace(":state", f":state_{state}") for state in ended]
    if not arms:
        return None
    merged = "\nUNION ALL ".join(arms)
    return f"{SQL.listed}\nWHERE seq IN ({merged}\nORDER BY seq DESC LIMIT :limit OFFSET :offset) ORDER BY seq DESC"
