"""How long a call that is waited for may take in all, its submit included.

Rule: the retries of a submit end with the wait that it is a part of; a call then ends in Timeout, which says that the
server was not reached, or that what became of the submit is not known. `until` is an instant of `time.monotonic()`.
Reference: python-sdk/udf.md, `_timeout`.
"""

from __future__ import annotations

import time
from typing import Final

from lakeshore.net.errors import NetError

NEVER: Final = float("inf")
GRACE_S: Final = 1.0
"""So much later than asked a server may answer a request that it held for as long as there was time."""
LAST_LOOK_S: Final = 2.0
"""So long after its end a wait may still ask what has become of its call."""


class OutOfTime(Exception):  # no error of its own: the verb that had the limit says what it ended in
    """The limit was over before the server had answered. `error` is what the last try met, `sent` whether the server
    may have seen one of them.
    """

    def __init__(self, error: NetError | None, *, sent: bool) -> None:
        super().__init__(str(error or "no answer came"))
        self.error = error
        self.sent = sent


def after(timeout: float | None) -> float:
    """The instant so many seconds from now; None: never."""
    return NEVER if timeout is None else time.monotonic() + timeout


def left_of(until: float) -> float | None:
    """Seconds until then, not below 0; None: no end of them."""
    return None if until == NEVER else max(0.0, until - time.monotonic())


def of_submit(deadline: float, delay_s: float) -> float:
    """Until when a call is submitted that is waited for until `deadline`: its delay is not for that. A server that is
    there has a moment for it, however short the wait is.
    """
    return NEVER if deadline == NEVER else max(deadline - delay_s, time.monotonic() + GRACE_S)


def allowed(seconds: float, until: float) -> float:
    """How long a request may take that may take so many seconds, and not go on after `until`."""
    return seconds if until == NEVER else min(seconds, max(until - time.monotonic(), 0.01))
