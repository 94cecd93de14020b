"""The polls of this session: their numbers, what the next one says, and the one that is in flight (K-8, K-11, K-12).

One poll is in flight at a time; the answer of one that was given up, or that comes too late, is never read. `seen` is
the number of the last poll whose answer was read: commands of a later one were not, and may be sent again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from lakeshore.wire.messages import Pair
from lakeshore.wire.states import IllegalTransition

from .drain import GOODBYE_S
from .held import Held, Job, listing, status, usable_until
from .instructions import Poll
from .outbox import Outbox
from .settings import Settings

RENEW_S: Final = 15.0
"""A daemon that asks for no work still polls so often, to renew what it lists (K-11)."""
PATIENCE_S: Final = 10.0
"""So much longer than the server holds a poll may it take."""
STRIDE: Final = 1 << 20
"""How far the number jumps when the server has seen a greater one."""


@dataclass(slots=True, kw_only=True)
class Flight:
    """The poll that is out, and what it said."""

    n: int
    sent_at: float
    hold_s: float
    pairs: tuple[Pair, ...]
    acks: tuple[Pair, ...]
    tails: tuple[tuple[Job, int], ...]
    over: int
    capabilities: Mapping[str, Any] | None
    goodbye: bool


class Polls:
    """Composes polls, and keeps the books of the one in flight."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.worker_id = settings.worker_id
        self.lease_s = settings.lease_s
        self.n = 0
        self.seen = 0
        self.flight: Flight | None = None
        self._given_up: deque[int] = deque(maxlen=64)
        self.not_before = 0.0
        self.last_sent_at: float | None = None
        self.capabilities: Mapping[str, Any] | None = None
        """A snapshot that the server has not been told of."""
        self.over: list[dict[str, Any]] = []
        """Last words about jobs whose ack was answered."""

    def renew_s(self) -> float:
        """The pace of renewals, well below a lease."""
        return min(RENEW_S, self.lease_s / 4)

    def usable_until(self, sent_at: float) -> float:
        """How long an answered poll vouches for what it listed and brought."""
        return usable_until(sent_at, self.lease_s)

    def compose(
        self, now: float, held: Held, acks: Outbox[Pair], *, capacity: int, draining: bool, goodbye: bool = False
    ) -> Poll:
        """The next poll; it is in flight from now on. Acks that are due ride on it."""
        self.n += 1
        self.last_sent_at = now
        listed = held.listed()
        hold_s = min(self._settings.wait_max_s, self.lease_s / 2) if capacity > 0 else 0.0  # a later answer is not read
        if listed:
            hold_s = min(hold_s, self.renew_s())
        carried = acks.take_due(now)
        begun = [job for job in listed if job.state not in ("waiting", "ended")]
        self.flight = Flight(
            n=self.n,
            sent_at=now,
            hold_s=hold_s,
            pairs=tuple(job.pair for job in listed),
            acks=tuple(carried),
            tails=tuple((job, job.printed) for job in begun),
            over=len(self.over),
            capabilities=self.capabilities,
            goodbye=goodbye,
        )
        body: dict[str, Any] = {
            "worker_id": self.worker_id,
            "queue": self._settings.queue,
            "timeout_s": hold_s,
            "cursor": None,
            "invocations": [*(status(job) for job in begun), *self.over],
            "session": self._settings.session,
            "n": self.n,
            "seen": self.seen,
            "held": [listing(job) for job in listed],
            "acks": [{**acks.get(pair), "worker_id": self.worker_id} for pair in carried],
            "capacity": capacity,
        }
        if self.capabilities is not None:
            body["updated_capabilities"] = self.capabilities
        if draining:
            body["draining"] = True
        return Poll(n=self.n, body=body, patience_s=GOODBYE_S if goodbye else hold_s + PATIENCE_S)

    def land(self, n: int, event: str) -> Flight | None:
        """The poll in flight has come back; None for one that was given up. Raises IllegalTransition for any other."""
        flight = self.flight
        if flight is not None and flight.n == n:
            self.flight = None
            return flight
        if n in self._given_up:
            self._given_up.remove(n)
            return None
        out = f"poll {flight.n} is out" if flight else "no poll is out"
        story = [f"{self.seen} was the last whose answer was read", out]
        raise IllegalTransition("poll", str(n), "nowhere", "anything", event=event, history=story)

    def give_up(self) -> Flight | None:
        """Read the answer of the poll in flight never."""
        flight, self.flight = self.flight, None
        if flight is not None:
            self._given_up.append(flight.n)
        return flight

    def read(self, flight: Flight) -> None:
        """Its answer was read: what it told need not be told again."""
        self.seen = flight.n
        del self.over[: flight.over]
        if self.capabilities is flight.capabilities:
            self.capabilities = None
        for job, printed in flight.tails:
            job.told = printed
