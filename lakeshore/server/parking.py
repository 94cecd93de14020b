"""Parked polls: a FIFO per queue or prefix; one job wakes one poller (K-9).

A poll waits here until there is work for it, until one of the pairs it listed is lost or asked to stop, or until a
newer poll of its session displaces it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ..plane.contract import Poll, PollAnswer, Settled, Wish
from .waiters import Parker

Session = tuple[str, str, str]
News = Callable[[], bool]


def no_news() -> bool:
    """Nobody but the dispatcher has anything for a poll."""
    return False


class Parked:
    """One waiting poll."""

    __slots__ = ("answer", "held", "parker", "session", "settled", "wish")

    def __init__(self, poll: Poll, wish: Wish | None, parker: Parker) -> None:
        self.held = poll.held
        self.wish = wish
        self.parker = parker
        self.session: Session = (poll.ns, poll.worker, poll.session)
        self.answer: PollAnswer | None = None
        self.settled: Sequence[Settled] = ()
        """Answers to the reports that came with this poll, told with whatever it is answered."""

    def deliver(self, answer: PollAnswer) -> None:
        """Answer it, once."""
        if self.answer is None:
            self.answer = answer
            self.parker.wake()


class Parking:
    """Every parked poll."""

    def __init__(self) -> None:
        self._by_queue: dict[tuple[str, str], dict[Parked, None]] = {}
        self._patterns: set[tuple[str, str]] = set()
        self._by_session: dict[Session, Parked] = {}
        self._by_id: dict[str, Parked] = {}
        self._by_worker: dict[tuple[str, str], dict[Parked, None]] = {}

    def __len__(self) -> int:
        return len(self._by_session)

    def park(self, parked: Parked) -> None:
        """Add it at the end of its queues. An older poll of the same session must have been displaced."""
        self._by_session[parked.session] = parked
        self._by_worker.setdefault(parked.session[:2], {})[parked] = None
        if parked.wish is not None:
            for queue in parked.wish.queues:
                self._by_queue.setdefault((parked.wish.ns, queue), {})[parked] = None
                if queue.endswith("*"):
                    self._patterns.add((parked.wish.ns, queue))
        for pair in parked.held:
            self._by_id[pair.id] = parked

    def leave(self, parked: Parked) -> None:
        """Take it out; it may be out already."""
        if self._by_session.get(parked.session) is parked:
            del self._by_session[parked.session]
        of_worker = self._by_worker.get(parked.session[:2])
        if of_worker is not None:
            of_worker.pop(parked, None)
            if not of_worker:
                del self._by_worker[parked.session[:2]]
        if parked.wish is not None:
            for queue in parked.wish.queues:
                waiting = self._by_queue.get((parked.wish.ns, queue))
                if waiting is not None:
                    waiting.pop(parked, None)
                    if not waiting:
                        del self._by_queue[parked.wish.ns, queue]
                        self._patterns.discard((parked.wish.ns, queue))
        for pair in parked.held:
            if self._by_id.get(pair.id) is parked:
                del self._by_id[pair.id]

    def snapshot(self) -> Parking:
        """A copy of who waits for what, for a commit in another thread."""
        copy = Parking()
        copy._by_queue = {key: dict(waiting) for key, waiting in self._by_queue.items()}
        copy._patterns = set(self._patterns)
        return copy

    def of_session(self, session: Session) -> Parked | None:
        """The parked poll of a session."""
        return self._by_session.get(session)

    def rouse(self, ns: str, worker: str) -> None:
        """Answer what a worker has parked: there is something for it."""
        self.end(self._by_worker.get((ns, worker), ()))

    def holding(self, id_: str) -> Parked | None:
        """The parked poll that listed this invocation."""
        return self._by_id.get(id_)

    def waiting_for(self, ns: str, queue: str) -> list[Parked]:
        """Those that a job of this queue is for, the longest waiting first."""
        direct = self._by_queue.get((ns, queue))
        found = list(direct) if direct else []
        for owner, pattern in self._patterns:
            if owner == ns and queue.startswith(pattern[:-1]):
                found += [parked for parked in self._by_queue[owner, pattern] if parked not in found]
        return found

    def others_wait(self, wish: Wish, session: Session) -> bool:
        """Whether another session waits on one of these queues."""
        return any(
            parked.session != session for queue in wish.queues for parked in self._by_queue.get((wish.ns, queue), ())
        )

    def end(self, polls: Iterable[Parked]) -> None:
        """Answer these with nothing."""
        for parked in list(polls):
            self.leave(parked)
            parked.deliver(PollAnswer(settled=parked.settled))

    def all(self) -> Iterable[Parked]:
        return list(self._by_session.values())
