"""Leaving (nymph/daemons, "Shutdown and drain").

Two tokens. The first: no work is asked for, what runs goes on, claims are renewed. The second, when `grace_s` is over
or at the second signal: everything is stopped. Every outcome is told before the daemon leaves, as far as the server
answers within `FAREWELL_S`; the rest is on disk, for the next daemon. A last poll says goodbye.

An update leaves by the same way, but jobs neither are waited for nor stopped: the new program adopts them.
"""

from __future__ import annotations

from typing import Final

TERM_GRACE_S: Final = 5.0
"""Between TERM and KILL."""
FAREWELL_S: Final = 10.0
"""How long to go on telling when nothing runs any more."""


GOODBYE_S: Final = 5.0
"""How long the last poll may take."""


class Drain:
    """One way out, from its first token on."""

    def __init__(self, why: str, code: int, now: float, grace_s: float, *, restart: str | None = None) -> None:
        self.why = why
        self.code = code
        self.restart = restart
        """The version to become."""
        self.stop_at = now + grace_s
        self.stopped = False
        """The second token has fired."""
        self.ended_at: float | None = None
        """When nothing ran any more."""
        self.goodbye_sent = False
        self.goodbye_answered = False

    def hurry(self, now: float) -> None:
        """Fire the second token."""
        self.stop_at = min(self.stop_at, now)

    def slept(self, seconds: float) -> None:
        """The host was asleep: nobody had that time."""
        self.stop_at += seconds
        if self.ended_at is not None:
            self.ended_at += seconds

    def must_stop(self, now: float) -> bool:
        """Whether the second token is to fire now."""
        return not self.stopped and now >= self.stop_at

    def stuck_at(self) -> float:
        """When what does not die is left behind."""
        return self.stop_at + TERM_GRACE_S + FAREWELL_S

    def told_by(self) -> float:
        """When to stop telling."""
        assert self.ended_at is not None, "asked only once everything has ended"
        return self.ended_at + FAREWELL_S

    def left_by(self) -> float:
        """When to stop waiting for the answer to the goodbye."""
        return self.told_by() + GOODBYE_S

    def next_at(self, now: float) -> float:
        """When something happens by itself."""
        if self.ended_at is not None:
            return self.told_by() if now < self.told_by() else self.left_by()
        return self.stuck_at() if self.stopped else self.stop_at
