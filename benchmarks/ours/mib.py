"""Round trip with an argument of 1 MiB."""

from __future__ import annotations

import os

from harness.given import Given
from harness.stats import latencies_ms, must_be, percentile

from .bodies import size
from .planes import finish, plane_of, warm_up

__all__ = ["finish", "measure", "prepare"]
prepare = warm_up


def measure(given: Given) -> dict[str, float]:
    """`mib_p50_ms`."""
    plane = plane_of(given)
    data = os.urandom(2**20)
    took = latencies_ms(lambda _i: must_be(size.remote(data, _dispatch=plane), len(data)), given.count)
    return {"mib_p50_ms": percentile(took, 0.5)}
