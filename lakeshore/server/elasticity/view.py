"""What there is of a namespace at one look: its units, who serves them, and which daemons could go.

    serves     active daemons, and workers without a row that poll; a silent one counts until it is gone
    in flight  daemons whose row is pending, joining or setting up, launches that have no row yet, and ours that never
               said hello, for half an hour: a bootstrap script may take longer than a daemon may be silent
    leaving    those that drain or hibernate, that are about to be ended, and ours that are gone
    lost       of ours those that never came, are gone for five minutes (one that restarts is back by then), or whose
               machine has ended

A daemon may go that holds no claim and no command, and does not say that it runs anything; where it serves queues
besides, each of those must be able to do without it.
Reference: get-started/scaling-rules, "Signal gathering", "Scale-down rules"; S-514…S-516, S-529, S-821.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from ...plane import queues
from ...plane.rows import claimable
from ...wire.messages import DEFAULT_QUEUE
from ..dispatcher import Dispatcher
from ..execs import Execs
from ..hosts import BOOT_S
from ..membership import Membership
from ..pollers import serves
from ..records import Records, WorkerRow
from .policy import Signals, can_spare
from .tracker import Key, LaunchTracker
from .units import Unit, units_of
from .wanted import is_ours

_COMING: Final = frozenset({"pending", "joining", "setting_up"})
_LEAVING: Final = frozenset({"draining", "hibernating"})
AWAY_S: Final = 300.0


class View:
    """One namespace. `ending`: (namespace, id) of daemons that are about to be ended; `now` in Unix seconds."""

    def __init__(
        self,
        records: Records,
        dispatcher: Dispatcher,
        execs: Execs,
        tracker: LaunchTracker,
        ending: Collection[Key],
        ns: str,
        now: float,
    ) -> None:
        self._records, self._dispatcher, self._execs = records, dispatcher, execs
        self._tracker, self._ending = tracker, ending
        self.ns, self._now = ns, now
        self._queues = queues.page(dispatcher.rows, ns)
        self.units = units_of(self._queues)
        self._membership = Membership(records, dispatcher, ns)

    def signals(self, unit: Unit) -> Signals:
        """What a unit has."""
        serving: list[str] = []
        in_flight = leaving = 0
        labels: list[str] = []
        for id_ in self._membership.of_all(row.name for row in unit.queues):
            row = self._membership.rows.get(id_)
            if row is None:
                serving.append(id_)
                continue
            labels.append(row.label)
            if (self.ns, id_) in self._ending or row.state in _LEAVING:
                leaving += 1
            elif self._is_coming(row):
                in_flight += 1
            elif row.state == "gone":
                leaving += is_ours(row)
            else:
                serving.append(id_)
        return Signals(
            daemon_count=len(serving),
            utilization=self._membership.utilization(serving),
            pending=sum(claimable(self._dispatcher.rows, self.ns, row.name) for row in unit.queues),
            in_flight=in_flight + self._tracker.in_flight(unit.key, labels),
            leaving=leaving,
        )

    def daemons(self, unit: Unit) -> Iterator[WorkerRow]:
        """Those of a unit that nobody is about to end."""
        for id_ in self._membership.of_all(row.name for row in unit.queues):
            row = self._membership.rows.get(id_)
            if row is not None and (self.ns, id_) not in self._ending:
                yield row

    def coming(self, unit: Unit) -> list[WorkerRow]:
        """Daemons of ours that are on their way."""
        return [row for row in self.daemons(unit) if self._is_coming(row) and is_ours(row)]

    def serving(self, unit: Unit) -> list[WorkerRow]:
        """Daemons that serve."""
        return [row for row in self.daemons(unit) if row.state == "active"]

    def lost(self, unit: Unit) -> list[WorkerRow]:
        """Daemons of ours that are of no use any more."""
        return [row for row in self.daemons(unit) if is_ours(row) and self._is_lost(row)]

    def came(self, row: WorkerRow) -> bool:
        """Whether it ever said hello."""
        return self._records.workers.seen_at(row) is not None

    def _is_coming(self, row: WorkerRow) -> bool:
        if row.state == "gone":
            return is_ours(row) and not self.came(row) and not self._is_lost(row)
        return row.state in _COMING

    def _is_lost(self, row: WorkerRow) -> bool:
        machine = self._records.machines.get(row.ns, row.id)
        if machine is not None and machine.state == "ended":
            return not self.is_busy(row.id)
        if row.state != "gone":
            return False
        seen = self._records.workers.seen_at(row)
        return self._now - row.created_at > BOOT_S if seen is None else self._now - seen > AWAY_S

    def eligible(self, unit: Unit) -> tuple[list[tuple[WorkerRow, float | None]], str]:
        """Who may go, each with when it was heard of last; where nobody may, why."""
        idle = [row for row in self.serving(unit) if not self.is_busy(row.id)]
        if not idle:
            return [], "no daemon is idle"
        spared, why = [], ""
        for row in idle:
            kept = self._kept_for(unit, row)
            if kept:
                why = why or f"{row.label or row.id} also serves {kept}"
            else:
                spared.append((row, self._records.workers.seen_at(row)))
        return spared, why

    def is_busy(self, id_: str) -> bool:
        """Whether a daemon does something, or is about to."""
        return self._membership.busy(id_) > 0 or self._execs.open_of(self.ns, id_) > 0

    def _kept_for(self, unit: Unit, row: WorkerRow) -> str:
        """Which other queue needs this daemon, and why; empty where none does."""
        for queue in self._queues:
            names = row.subscriptions or (DEFAULT_QUEUE,)
            if unit.serves(queue.name) or not any(serves(name, queue.name) for name in names):
                continue
            if queue.state != "active":
                return f"queue {queue.name}, which is {queue.state}"
            other = next(one for one in self.units if one.serves(queue.name))
            if other.spec is None or other.spec.kind == "fixed":
                return f"queue {queue.name}, which is fixed"
            if not can_spare(other.spec, self.signals(other)):
                return f"queue {queue.name}, which needs it"
        return ""
