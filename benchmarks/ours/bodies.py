"""The functions that workers run. Both ends import them by name."""

from __future__ import annotations

import time
from collections.abc import Iterator

import dreamlake.lakeshore as dls

QUEUE = "bench"


@dls.udf(queue=QUEUE)
def add(a: int, b: int) -> int:
    """The smallest task."""
    return a + b


@dls.udf(queue=QUEUE)
async def add_async(a: int, b: int) -> int:
    """The same with an async body, whose `remote` is awaited."""
    return a + b


@dls.udf(queue=QUEUE)
def size(data: bytes) -> int:
    """A large argument, a small answer."""
    return len(data)


@dls.udf(queue=QUEUE)
def count_up(n: int) -> Iterator[int]:
    """n small frames, as fast as they go."""
    yield from range(n)


@dls.udf(queue=QUEUE)
def tick(n: int, pause_s: float) -> Iterator[int]:
    """n lone frames, each the moment it was yielded: nanoseconds of the machine's monotonic clock."""
    for _ in range(n):
        time.sleep(pause_s)
        yield time.monotonic_ns()
