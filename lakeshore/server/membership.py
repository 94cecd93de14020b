"""Who pulls from which queue of a namespace: daemons by their rows, other workers by what they poll.

One look at the rows serves all queues of a namespace.
Reference: get-started/queues, "Membership"; S-297, S-514, S-515.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import trio

from ..wire.messages import DEFAULT_QUEUE
from .dispatcher import Dispatcher
from .pollers import serves
from .records import Records, WorkerRow
from .workers import capabilities_in


class Membership:
    """As it is now."""

    def __init__(self, records: Records, dispatcher: Dispatcher, ns: str) -> None:
        self._exact: dict[str, dict[str, Iterable[str]]] = {}
        self._prefixes: list[tuple[str, str, Iterable[str]]] = []
        self.rows = {row.id: row for row in records.workers.of(ns)}
        """The daemons of the namespace, by id."""
        self.running = Counter(lease.worker for lease in dispatcher.leases.all() if lease.ns == ns)
        """How many claims each worker holds."""
        for row in self.rows.values():
            self._note(row.id, row.subscriptions or (DEFAULT_QUEUE,))
        for id_, names in dispatcher.pollers.all(ns, trio.current_time()):
            if id_ not in self.rows and not records.workers.is_removed(ns, id_):  # it is told to leave
                self._note(id_, names)

    def _note(self, id_: str, names: Iterable[str]) -> None:
        for name in names:
            if name.endswith("*"):
                self._prefixes.append((name, id_, names))
            else:
                self._exact.setdefault(name, {})[id_] = names

    def of(self, queue: str) -> dict[str, Iterable[str]]:
        """By id: what each asks for."""
        found = dict(self._exact.get(queue, {}))
        found |= {id_: names for prefix, id_, names in self._prefixes if serves(prefix, queue)}
        return found

    def of_all(self, queues: Iterable[str]) -> list[str]:
        """The ids of who pulls from any of these, each once."""
        return list(dict.fromkeys(id_ for queue in queues for id_ in self.of(queue)))

    def utilization(self, ids: Iterable[str]) -> float:
        """How much of what these take at once they have, from 0 to 1; 0 of nobody."""
        busy, slots = 0, 0
        for id_ in ids:
            row = self.rows.get(id_)
            most = None if row is None else capabilities_in(row.info).get("max_invocations")
            slots += most if type(most) is int and most > 0 else 1
            busy += self.busy(id_)
        return 0.0 if not slots else 1.0 if busy >= slots else busy / slots

    def busy(self, id_: str) -> int:
        """How much a worker does: what it holds, or what it says if that is more."""
        row = self.rows.get(id_)
        return max(self.running[id_], 0 if row is None else says_it_runs(row))


def says_it_runs(row: WorkerRow) -> int:
    """`capabilities.current_invocations`; 0 of one that does not report it."""
    said = capabilities_in(row.info).get("current_invocations")
    return said if type(said) is int and said > 0 else 0
