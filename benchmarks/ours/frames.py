"""Streams: how many frames a second one generator delivers, and how long a lone frame takes from yield to reader."""

from __future__ import annotations

import time

from harness.given import Given
from harness.stats import clock, must_be, percentile

from lakeshore.sdk.queues import SyncQueue

from .bodies import QUEUE, count_up, tick
from .planes import finish, plane_of, warm_up

__all__ = ["finish", "measure", "prepare"]
LONE, LONE_QUICK, PAUSE_S = 60, 20, 0.01
prepare = warm_up


def measure(given: Given) -> dict[str, float]:
    """`frames_s` from submit to the last value, `frame_ms` (median)."""
    plane = plane_of(given)
    queue = SyncQueue(QUEUE, dispatch=plane)
    with clock() as elapsed:
        seen = sum(1 for _ in queue.stream(count_up.submit(given.count, _dispatch=plane)))
        took = elapsed()
    must_be(seen, given.count)
    few = tick.submit(LONE_QUICK if given.most else LONE, PAUSE_S, _dispatch=plane)
    lone = [(time.monotonic_ns() - sent) / 1e6 for sent in queue.stream(few)]
    return {"frames_s": given.count / took, "frame_ms": percentile(lone, 0.5)}
