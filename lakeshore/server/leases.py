"""Who still holds what, on the server's monotonic clock alone (K-11, K-13). Pure: `now` is always given, in seconds.

A lease lives in memory. At start, and whenever the clock shows that the server itself was away, every live lease and
cancel deadline gets a full lease more before any may expire: a lid closed for an hour re-runs nothing.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

PAUSE_S = 5.0

Holder = tuple[str, str, str]
"""Namespace, worker, session."""


@dataclass(slots=True)
class Lease:
    """One held claim. `started`: the row says so. `cancel_at` is when a requested cancel is enforced."""

    ns: str
    id: str
    claim: int
    worker: str
    session: str
    until: float
    started: bool = False
    cancel_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """What a sweep found: claims whose holder fell silent, and cancels whose grace is over."""

    expired: tuple[Lease, ...]
    overdue: tuple[Lease, ...]


class Leases:
    """Every live claim by invocation id."""

    def __init__(self, lease_s: float) -> None:
        self.lease_s = lease_s
        self._pause_s = min(PAUSE_S, lease_s / 2)  # a short lease may end within a short absence
        self._by_id: dict[str, Lease] = {}
        self._by_session: dict[Holder, set[tuple[str, int]]] = {}
        self._last: tuple[float, float] | None = None

    def __len__(self) -> int:
        return len(self._by_id)

    def all(self) -> Collection[Lease]:
        """Every live claim."""
        return self._by_id.values()

    def begin(self, now: float, wall: float) -> None:
        """From here on an absence of the server is seen, also one before the first sweep."""
        self._last = (now, wall)

    def grant(self, id_: str, claim: int, holder: Holder, now: float) -> None:
        """A claim was handed out."""
        self.end(id_)
        ns, worker, session = holder
        self._enter(Lease(ns, id_, claim, worker, session, now + self.lease_s))

    def _enter(self, lease: Lease) -> None:
        self._by_id[lease.id] = lease
        holder, pair = (lease.ns, lease.worker, lease.session), (lease.id, lease.claim)
        held = self._by_session.get(holder)
        if held is None:
            self._by_session[holder] = {pair}
        else:
            held.add(pair)

    def renew(self, ns: str, id_: str, claim: int, now: float, *, started: bool = False) -> bool:
        """A worker of `ns` lists this pair (and its row says `started`). False when there is something to tell it."""
        lease = self._by_id.get(id_)
        if lease is None or lease.claim != claim or lease.ns != ns:
            return False
        lease.until = now + self.lease_s
        lease.started = lease.started or started
        return lease.cancel_at is None

    def holds(self, ns: str, id_: str) -> bool:
        """Whether somebody holds this invocation: its row says `running`."""
        lease = self._by_id.get(id_)
        return lease is not None and lease.ns == ns

    def begun(self, ns: str, id_: str, claim: int) -> bool:
        """Whether the start of this claim is in its row already."""
        lease = self._by_id.get(id_)
        return lease is not None and lease.claim == claim and lease.ns == ns and lease.started

    def none_but(self, session: Holder, pairs: Collection[tuple[str, int | None]]) -> bool:
        """Whether a session holds nothing besides these (id, claim)."""
        held = self._by_session.get(session)
        return held is None or held.issubset(pairs)

    def rehome(self, id_: str, claim: int, session: str, now: float) -> None:
        """An adopted pair moves to the worker's new session, which speaks for it now: what was asked of it stays."""
        lease = self._by_id.get(id_)
        if lease is not None and lease.claim == claim:
            self.end(id_)
            lease.session, lease.until = session, now + self.lease_s
            self._enter(lease)

    def cancel(self, id_: str, claim: int, at: float) -> None:
        """The holder was asked to stop; the first deadline stays."""
        lease = self._by_id.get(id_)
        if lease is not None and lease.claim == claim and lease.cancel_at is None:
            lease.cancel_at = at

    def end(self, id_: str, claim: int | None = None) -> None:
        """The claim is over."""
        lease = self._by_id.get(id_)
        if lease is None or (claim is not None and lease.claim != claim):
            return
        del self._by_id[id_]
        key = (lease.ns, lease.worker, lease.session)
        held = self._by_session[key]
        held.discard((id_, lease.claim))
        if not held:
            del self._by_session[key]

    def held_by(self, ns: str, worker: str, session: str) -> list[Lease]:
        """Live claims of one session."""
        return [self._by_id[id_] for id_, _claim in self._by_session.get((ns, worker, session), ())]

    def count_of(self, ns: str, worker: str) -> int:
        """How many live claims a worker has, of all its sessions."""
        return sum(len(held) for (of, who, _), held in self._by_session.items() if (of, who) == (ns, worker))

    def holder(self, id_: str) -> Lease | None:
        """The live claim of an invocation."""
        return self._by_id.get(id_)

    def sweep(self, now: float, wall: float) -> Due:
        """What is due. Both clocks are looked at: either one jumping means that the server was away."""
        last, self._last = self._last, (now, wall)
        if last is not None:
            paused, jumped = now - last[0], abs((wall - last[1]) - (now - last[0]))
            if paused > self._pause_s or jumped > self._pause_s:
                self.extend(now)
                return Due(expired=(), overdue=())
        leases = self._by_id.values()
        return Due(
            expired=tuple(lease for lease in leases if lease.until < now),
            overdue=tuple(
                lease for lease in leases if lease.cancel_at is not None and lease.cancel_at < now <= lease.until
            ),
        )

    def extend(self, now: float) -> None:
        """Give every live lease and cancel deadline a full lease from now."""
        for lease in self._by_id.values():
            lease.until = now + self.lease_s
            if lease.cancel_at is not None:
                lease.cancel_at = max(lease.cancel_at, now + self.lease_s)
