"""Which daemon goes first: the dearest, among equals the one that was heard of longest ago. Pure.

What one costs is what it says itself, else what the queue says that it serves, else 10 with a `gpu:` tag and 1 without.
Reference: get-started/scaling-rules, "Scale-down rules"; S-529, S-530, S-761.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, Final

from ...plane.queues import QueueRow
from ...wire.messages import DEFAULT_QUEUE
from ..pollers import serves
from ..records import WorkerRow
from .spec import weight_of

GPU: Final = 10.0
OTHER: Final = 1.0


def cost_of(row: WorkerRow, queues: Sequence[QueueRow]) -> float:
    """What a daemon of these queues costs, compared with others."""
    info: dict[str, Any] = json.loads(row.info)
    said = weight_of((info.get("capabilities") or {}).get("cost_weight"))
    if said is not None:
        return said
    for queue in queues:
        if any(serves(name, queue.name) for name in row.subscriptions or (DEFAULT_QUEUE,)):
            weight = weight_of((queue.elasticity or {}).get("cost_weight"))
            if weight is not None:
                return weight
    tags = info.get("tags") or ()
    return GPU if any(isinstance(tag, str) and tag.startswith("gpu:") for tag in tags) else OTHER


def in_order(rows: Iterable[tuple[WorkerRow, float | None]], queues: Sequence[QueueRow]) -> list[WorkerRow]:
    """Who goes first comes first. Of each also when it was heard of last, in Unix seconds."""
    ranked = [(-cost_of(row, queues), seen or 0.0, row.id, row) for row, seen in rows]
    return [row for *_, row in sorted(ranked, key=lambda one: one[:3])]
