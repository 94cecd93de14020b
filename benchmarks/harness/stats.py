"""Percentiles, and the clock of a serial loop."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that so much of all are at or below; `share` in (0, 1]."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * share) - 1)]


def latencies_ms(call: Callable[[int], object], count: int) -> list[float]:
    """`call(i)` one after the other, each timed."""
    took: list[float] = []
    for i in range(count):
        before = time.perf_counter()
        call(i)
        took.append((time.perf_counter() - before) * 1e3)
    return took


@contextmanager
def clock() -> Iterator[Callable[[], float]]:
    """`with clock() as elapsed:` seconds since, garbage of before collected first."""
    gc.collect()
    started = time.perf_counter()
    yield lambda: time.perf_counter() - started


def must_be(found: object, expected: object) -> None:
    """A benchmark that computes the wrong thing measures nothing."""
    if found != expected:
        raise AssertionError(f"expected {expected!r}, got {found!r}")
