"""How deep each queue was and how fast it was worked off in the last two minutes, and a line that draws it.

Rules: a queue's numbers are kept at most once a second, whoever read them; what was never read is a gap, not a zero.
Pure. Reference: docs/guides/dashboard.md, "One row".
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

SPAN_S: Final = 120.0
_LEAST_S: Final = 1.0
_BLOCKS: Final = "▁▂▃▄▅▆▇█"
Point = tuple[float, float | None, float | None, float | None]
"""When (monotonic seconds), how many were queued and running, how many ended a second."""


class History:
    """`put` a queue's numbers as they come; `series` are `cells` of one of them, the oldest first."""

    def __init__(self) -> None:
        self._of: dict[str, deque[Point]] = {}

    def put(self, queue: str, numbers: Mapping[str, Any], at: float) -> None:
        """Its row, or its stats: those have `throughput_per_s`, too."""
        points = self._of.setdefault(queue, deque())
        queued, running, rate = (_number(numbers.get(name)) for name in ("queued", "running", "throughput_per_s"))
        if points and at - points[-1][0] < _LEAST_S:
            at, _, _, before = points.pop()
            rate = before if rate is None else rate
        points.append((at, queued, running, rate))
        while at - points[0][0] > SPAN_S:
            points.popleft()

    def keep(self, queues: Iterable[str]) -> None:
        """Forget all others."""
        for gone in self._of.keys() - set(queues):
            del self._of[gone]

    def series(self, queue: str, which: int, cells: int, now: float) -> list[float | None]:
        """Number `which` of a `Point`: the highest of a cell's time, else what it was before; None before any."""
        made: list[float | None] = [None] * cells
        for point in self._of.get(queue, ()):
            cell = cells - 1 - int((now - point[0]) / SPAN_S * cells)
            value = point[which]
            if value is not None and 0 <= cell < cells:
                made[cell] = max(made[cell] or 0.0, value)
        last = None
        for cell, value in enumerate(made):
            last = made[cell] = last if value is None else value
        return made


def drawn(values: Sequence[float | None]) -> str:
    """A block for each, as high as it is beside the highest; a space for None."""
    top = max((value for value in values if value is not None), default=0.0)
    steps = len(_BLOCKS) - 1
    return "".join(
        " " if value is None else _BLOCKS[0] if not top or value <= 0 else _BLOCKS[max(round(value / top * steps), 1)]
        for value in values
    )


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) else None
