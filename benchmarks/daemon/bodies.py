"""The function that the daemon's rows call."""

from __future__ import annotations

import dreamlake.lakeshore as dls

QUEUE = "bench-nymph"


@dls.udf(queue=QUEUE)
def add(a: int, b: int) -> int:
    """The no-op of functions."""
    return a + b
