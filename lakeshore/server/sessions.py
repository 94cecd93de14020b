"""Which session of a worker is the newest, and how far its polls have come (K-8, K-15). Pure: `now` is given.

A copy of what the plane stores, so that an idle poll needs no SQL. It may forget: the plane does not.
"""

from __future__ import annotations

from dataclasses import dataclass

FORGET_S = 3600.0


@dataclass(slots=True)
class _Known:
    session: str
    n: int
    seen_at: float


class SessionBook:
    """The newest session of each worker."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], _Known] = {}

    def overtaken(self, ns: str, worker: str, session: str, n: int, now: float) -> bool:
        """Note the arrival of poll `n`; whether a poll with this number or a later one came before."""
        known = self._known.get((ns, worker))
        if known is None or known.session != session:
            return False
        known.seen_at = now
        if n <= known.n:
            return True
        known.n = n
        return False

    def is_newest(self, ns: str, worker: str, session: str) -> bool:
        """Whether this session is known to be the worker's newest."""
        known = self._known.get((ns, worker))
        return known is not None and known.session == session

    def is_older(self, ns: str, worker: str, session: str) -> bool:
        """Whether a newer session of the worker is known."""
        known = self._known.get((ns, worker))
        return known is not None and known.session > session

    def registered(self, ns: str, worker: str, session: str, n: int, now: float) -> str | None:
        """The plane took this session as the worker's newest; the session that it replaced, if that was known."""
        known = self._known.get((ns, worker))
        if known is None:
            self._known[ns, worker] = _Known(session, n, now)
            return None
        if known.session >= session:
            return None
        replaced, known.session, known.n, known.seen_at = known.session, session, n, now
        return replaced

    def forget(self, ns: str, worker: str) -> None:
        """Leave it to the plane."""
        self._known.pop((ns, worker), None)

    def forget_idle(self, now: float) -> None:
        """Drop what has not been heard of for an hour."""
        self._known = {key: known for key, known in self._known.items() if now - known.seen_at < FORGET_S}
