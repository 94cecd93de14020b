"""Round trip: `add.remote(i, i)`, one after the other."""

from __future__ import annotations

from harness.given import Given
from harness.stats import latencies_ms, must_be, percentile

from .bodies import add
from .planes import finish, plane_of, warm_up

__all__ = ["finish", "measure", "prepare"]
prepare = warm_up


def measure(given: Given) -> dict[str, float]:
    """`rtt_p50_ms`, `rtt_p99_ms`."""
    plane = plane_of(given)
    took = latencies_ms(lambda i: must_be(add.remote(i, i, _dispatch=plane), 2 * i), given.count)
    return {"rtt_p50_ms": percentile(took, 0.5), "rtt_p99_ms": percentile(took, 0.99)}
