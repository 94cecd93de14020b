"""How long to leave a server alone that did not answer.

A wait is backoff + rand · min(backoff, 5); then backoff = min(2 · backoff, retry_max). Success, and the command
`reset_backoff`, set it to retry_min (nymph/protocol, "Long-poll mechanics"). While claims are held a `ceiling` keeps
the wait below what their leases allow (K-11).
"""

from __future__ import annotations

from typing import Final

JITTER_MAX_S: Final = 5.0


class Backoff:
    """One server's. Pure: the chance is the caller's."""

    def __init__(self, retry_min_s: float, retry_max_s: float) -> None:
        self.min_s = retry_min_s
        self.max_s = max(retry_min_s, retry_max_s)
        self.next_s = retry_min_s
        self.waiting_s = 0.0
        """The wait that a failure brought; 0.0 since the last success."""

    def failed(self, rand: float, ceiling: float | None = None) -> float:
        """Seconds to wait after a failure."""
        base = self.next_s if ceiling is None else min(self.next_s, ceiling)
        self.next_s = min(self.next_s * 2, self.max_s)
        self.waiting_s = base + rand * min(base, JITTER_MAX_S)
        return self.waiting_s

    def reset(self) -> None:
        """The server answers, or a person knows that it will."""
        self.next_s = self.min_s
        self.waiting_s = 0.0
