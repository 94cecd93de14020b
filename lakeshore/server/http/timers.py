"""Every deadline of every connection, kept by one task.

A connection writes down what it waits for and until when; the sweeper looks at all of them a few times a second.
That costs a request two assignments and no timer of its own. `now` is the sweeper's last look at the monotonic clock,
at most one tick old, so a deadline is met within [t, t + 2 ticks] and never before t. The same look asks the kernel
which parked clients have gone. Where nothing was written down for a tick the task rests: until the first deadline, or
somebody writes one down, or a client goes. With no connection open it sleeps.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Protocol

import trio

from lakeshore.server.http.presence import Presence


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Seconds. What happens at the end of each: 408 for a head or a body, a closed connection for the others."""

    head: float = 10.0
    """From a request's first byte to the end of its head."""
    idle: float = 75.0
    """Between requests, and before the first."""
    body: float = 30.0
    """Without one byte of a body that is being read."""
    write: float = 30.0
    """Without one byte of an answer being taken."""
    handshake: float = 10.0
    """TLS, from accept to established."""
    linger: float = 3.0
    """Reading on after our last answer, so that a peer still sending gets to see it."""
    tick: float = 0.5
    """How often the sweeper looks; also how late a gone parked client is noticed."""


class Timed(Protocol):
    """What the sweeper looks at."""

    deadline: float

    def expire(self) -> None:
        """Called once per look while the deadline has passed."""
        ...


class Sweeper:
    """The clock of one server: `now`, the open connections, the watched clients."""

    __slots__ = ("_awake", "_rest", "_stirred", "connections", "now", "presence", "times")

    def __init__(self, times: Times) -> None:
        self.times = times
        self.now = -inf
        self.connections: set[Timed] = set()
        self.presence = Presence()
        self._awake = trio.Event()
        self._rest: trio.CancelScope | None = None
        self._stirred = False

    def add(self, connection: Timed) -> None:
        """Look after a connection from now on."""
        if not self.connections:
            self.now = trio.current_time()
            self._awake.set()
        self.connections.add(connection)

    def discard(self, connection: Timed) -> None:
        """It is closed."""
        self.connections.discard(connection)

    def look_again(self) -> None:
        """Look once more a tick from now, instead of resting."""
        self._stirred = True

    def after(self, seconds: float) -> float:
        """A deadline `seconds` from now."""
        self._stirred = True
        if self._rest is not None:
            self._rest.cancel()
            self._rest = None
            self.now = trio.current_time()
        return self.now + seconds + self.times.tick  # now may be one tick old: rather late than early

    async def run(self) -> None:
        """Sweep until cancelled."""
        while True:
            if not self.connections:
                self._awake = trio.Event()
                await self._awake.wait()
            if self._stirred:
                self._stirred = False
                await trio.sleep(self.times.tick)
            else:
                await self._rest_until(min(connection.deadline for connection in self.connections))
            self.now = now = trio.current_time()
            self.presence.sweep()
            for connection in tuple(self.connections):
                if connection.deadline <= now:
                    connection.expire()

    async def _rest_until(self, deadline: float) -> None:
        with trio.CancelScope(deadline=deadline) as self._rest:
            await self.presence.wait(self.times.tick)
        self._rest = None
