"""Whether a series grows: its slope, how sure that is, and whether it matters.

Samples of one process are not independent: one second looks like the one before. So

- the first part of a run is dropped (caches fill, pools open),
- what is left is averaged over blocks, much longer than what one sample knows of the next,
- a line is fitted to the blocks; what correlation is left between neighbouring residuals widens its standard error,
- what another series explains (how slow the machine itself was) is taken out first, of the series and of time.

A growth is **significant** when t > 3, and in the later half alone the line rises at least a quarter as steeply (what
levels off is no growth). It **matters** when an hour of it exceeds the stated limit. Only both together fail a run.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

BLOCKS = 16
CERTAIN, STILL = 3.0, 0.25
WARM_UP = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Slope:
    """Per hour: `slope` and its standard error, in the series' unit; `later`: the slope of the later half alone."""

    mean: float
    slope: float
    error: float
    t: float
    later: float
    blocks: int

    @property
    def significant(self) -> bool:
        """Whether it is there."""
        return self.t > CERTAIN and self.later > STILL * self.slope


def slope_of(
    times: Sequence[float], values: Sequence[float], machine: Sequence[float] = (), *, warm_up: float = WARM_UP
) -> Slope:
    """Fit one series, sampled at `times` (seconds). `machine`: the series that says how slow the machine was."""
    skipped = int(len(times) * warm_up)
    kept = [list(series[skipped:]) for series in (times, values, machine)]
    t, y, m = (_blocks(series) for series in kept)
    if len(t) < 6:
        raise ValueError(f"{len(times)} samples are too few for a slope: take at least {math.ceil(6 / (1 - warm_up))}")
    hours = [at / 3600 for at in t]
    slope, error = _line(hours, y, m)
    half = len(t) // 2
    later, _ = _line(hours[half:], y[half:], m[half:])
    return Slope(
        mean=sum(kept[1]) / len(kept[1]),
        slope=slope,
        error=error,
        t=_ratio(slope, error),
        later=later,
        blocks=len(t),
    )


def _blocks(values: Sequence[float]) -> list[float]:
    n = min(BLOCKS, len(values))
    edges = [round(len(values) * i / n) for i in range(n + 1)] if n else [0]
    return [sum(values[a:b]) / (b - a) for a, b in itertools.pairwise(edges)]


def _line(x: Sequence[float], y: Sequence[float], machine: Sequence[float]) -> tuple[float, float]:
    """(slope, standard error)."""
    x, y = _centred(x), _centred(y)
    spread = sum(a * a for a in x)
    taken = 2
    if machine and any(other := _centred(machine)):
        x, y, taken = _without(x, other), _without(y, other), 3
    squares = sum(a * a for a in x)
    if squares <= 1e-6 * spread or len(x) <= taken:
        return 0.0, math.inf  # the machine explains time itself, or there is too little: nothing can be said
    slope = sum(a * b for a, b in zip(x, y, strict=True)) / squares
    left = [b - slope * a for a, b in zip(x, y, strict=True)]
    variance = sum(a * a for a in left)
    if variance == 0:
        return slope, 0.0
    lag = sum(a * b for a, b in itertools.pairwise(left)) / variance
    # A fitted line takes correlation away from the residuals of a short series: about (1 + 4 r) / n of it.
    lag = max(0.0, min(0.8, lag + (1 + 4 * max(lag, 0.0)) / len(left)))
    return slope, math.sqrt(variance / (len(x) - taken) / squares * (1 + lag) / (1 - lag))


def _centred(values: Sequence[float]) -> list[float]:
    mean = sum(values) / len(values)
    return [value - mean for value in values]


def _without(values: Sequence[float], other: Sequence[float]) -> list[float]:
    part = sum(a * b for a, b in zip(values, other, strict=True)) / sum(b * b for b in other)
    return [a - part * b for a, b in zip(values, other, strict=True)]


def _ratio(slope: float, error: float) -> float:
    if error == 0:
        return math.copysign(math.inf, slope) if abs(slope) > 1e-9 else 0.0
    return slope / error
