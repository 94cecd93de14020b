"""When a daemon without work leaves (nymph/daemons, "Idle policy").

The clock starts when a poll brought no command and nothing is in flight; whatever comes or completes stops it, so that
it starts afresh. `keep_alive_s`: -1 never leaves, 0 leaves when the clock starts, N after N seconds of it.
"""

from __future__ import annotations


class Idle:
    """The idle clock."""

    def __init__(self, keep_alive_s: float) -> None:
        self._keep_alive_s = keep_alive_s
        self._since: float | None = None

    def nothing_to_do(self, now: float) -> None:
        """An empty answer while nothing is in flight."""
        if self._since is None:
            self._since = now

    def stop(self) -> None:
        """Something came, or completed."""
        self._since = None

    def leaves_at(self) -> float | None:
        """When to leave; None: not as things are."""
        if self._since is None or self._keep_alive_s < 0:
            return None
        return self._since + self._keep_alive_s
