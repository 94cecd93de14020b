"""What is looked at as one: a queue by itself, or all active queues of a pool. Pure.

A pool goes by its first queue, by name: its bounds, its provider, its template. Whether others disagree is told.
Reference: get-started/scaling-rules, "Shared pools"; S-510, S-525…S-527, S-532, S-823.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...plane.queues import QueueRow
from ...wire.messages import DEFAULT_QUEUE
from ...wire.values import value
from ..records.elasticity import POOL
from .spec import BadSpec, Spec, pool_of, read


@value
class Unit:
    """`name` is what its events stand under. `spec` None: `problem` says why nothing is decided."""

    ns: str
    name: str
    queues: tuple[QueueRow, ...]
    spec: Spec | None
    problem: str = ""
    note: str = ""

    @property
    def first(self) -> QueueRow:
        """The queue that decides."""
        return self.queues[0]

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name."""
        return self.ns, self.name

    @property
    def is_elastic(self) -> bool:
        """Whether anything can come of it."""
        return self.spec is None or self.spec.kind != "fixed"

    @property
    def provider(self) -> str | None:
        """Where its daemons are launched."""
        said = (self.first.template or {}).get("provider")
        return self.first.provider or (said if isinstance(said, str) and said else None)

    @property
    def joins(self) -> tuple[str, ...]:
        """The queues of a daemon that is launched for it; none is the default queue."""
        return tuple(row.name for row in self.queues if row.name != DEFAULT_QUEUE)

    def serves(self, queue: str) -> bool:
        """Whether this queue is one of its own."""
        return any(row.name == queue for row in self.queues)


def units_of(rows: Iterable[QueueRow]) -> list[Unit]:
    """A namespace's active queues, those by themselves first, then the pools, each by name."""
    alone: list[Unit] = []
    pools: dict[str, list[QueueRow]] = {}
    for row in sorted(rows, key=lambda row: row.name):
        if row.state != "active":
            continue
        pool = pool_of(row.elasticity)
        if pool is None:
            alone.append(_unit(row.name, [row]))
        else:
            pools.setdefault(pool, []).append(row)
    return [*alone, *(_unit(f"{POOL}{name}", pools[name]) for name in sorted(pools))]


def _unit(name: str, rows: list[QueueRow]) -> Unit:
    first, note = rows[0], ""
    if any(_decides(row) != _decides(first) for row in rows[1:]):
        note = f"members disagree: {first.name} decides"
    try:
        spec, problem = read(first.elasticity), ""
    except BadSpec as error:
        spec, problem = None, str(error)
    return Unit(ns=first.ns, name=name, queues=tuple(rows), spec=spec, problem=problem, note=note)


def _decides(row: QueueRow) -> object:
    """What members of a pool should say alike."""
    try:
        return read(row.elasticity)
    except BadSpec as error:
        return str(error)
