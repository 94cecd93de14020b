"""How long to wait before the next try: full-jitter exponential back-off, pure.

Each wait is uniform in [0, min(cap, base * factor**n)]: callers that failed together do not come back together.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

_BITS = 53


def chance() -> float:
    """A float in [0, 1). `random` costs a command a tenth of its start: it loads every hash there is."""
    return (int.from_bytes(os.urandom(7), "big") >> 3) / (1 << _BITS)


def full_jitter(
    random: Callable[[], float], *, base: float = 0.1, cap: float = 30.0, factor: float = 2.0
) -> Iterator[float]:
    """Endless waits in seconds. `random` returns floats in [0, 1), e.g. `random.random`."""
    if base <= 0 or cap < base or factor < 1:
        raise ValueError("back-off needs 0 < base <= cap and factor >= 1")
    ceiling = base
    while True:
        yield random() * ceiling
        ceiling = min(cap, ceiling * factor)
