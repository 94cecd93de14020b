"""A server that does not answer is told of, once an outage: who waits in a terminal sees for what.

Rule: nothing is said before an outage has lasted `SAID_AFTER_S`, so a restart of the server stays silent, and nothing
twice before it has answered. It is a line of the log (on stderr where nobody set logging up), never a warning: where
those are errors a retry must not become one.
Reference: python-sdk/dispatch.md.
"""

from __future__ import annotations

import logging
import time

log = logging.getLogger(__name__)

SAID_AFTER_S = 2.0


class Outage:
    """Of one control plane. Threads and tasks share it: at worst two of them say the same."""

    __slots__ = ("_said", "_since")

    def __init__(self) -> None:
        self._since: float | None = None
        self._said = False

    def over(self) -> None:
        """It answered."""
        if self._since is not None:
            self._since, self._said = None, False

    def goes_on(self, what: str, error: Exception, end: str) -> None:
        """One more try found nobody. `end` says how long it is tried again: `for up to 30 s`."""
        now = time.monotonic()
        if self._since is None:
            self._since = now
        elif not self._said and now - self._since >= SAID_AFTER_S:
            self._said = True
            log.warning("lakeshore: %s: %s; trying again %s", what, error, end)
