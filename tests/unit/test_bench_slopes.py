"""The judge of the long run: what grows is found, what wanders, levels off, stands still or is the machine's is not."""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

from harness.slopes import slope_of  # the script's directory first

SECONDS = 600
TIMES = [float(second) for second in range(SECONDS)]


def wandering(rng: random.Random, keeps: float, size: float) -> Iterator[float]:
    """Noise in which each sample remembers the one before."""
    value = 0.0
    while True:
        value = keeps * value + rng.gauss(0, size)
        yield value


def test_a_leak_below_the_noise_of_one_sample_is_nearly_always_found() -> None:
    found = []
    for seed in range(40):
        noise = wandering(random.Random(seed), 0.8, 0.5)
        found.append(slope_of(TIMES, [30 + 0.005 * t + next(noise) for t in TIMES]))
    assert sum(slope.significant for slope in found) >= 34
    assert sum(slope.slope for slope in found) / len(found) == pytest.approx(0.005 * 3600, rel=0.1)


def test_what_only_wanders_is_seldom_taken_for_growth() -> None:
    wrong = 0
    for seed in range(300):
        noise = wandering(random.Random(seed), 0.9, 1.0)
        wrong += slope_of(TIMES, [100 + next(noise) for _ in TIMES]).significant
    assert wrong <= 6, f"{wrong} of 300 walks that go nowhere were called growth"


def test_a_cache_that_fills_and_then_stands_still_is_no_growth() -> None:
    noise = wandering(random.Random(2), 0.5, 0.05)
    assert not slope_of(TIMES, [30 + 20 * (1 - math.exp(-t / 40)) + next(noise) for t in TIMES]).significant
    assert not slope_of(TIMES, [30 + min(t, 250) * 0.02 + next(noise) for t in TIMES]).significant


def test_a_series_that_stands_still_has_no_slope() -> None:
    found = slope_of(TIMES, [12.0] * SECONDS)
    assert (found.slope, found.t, found.significant) == (0.0, 0.0, False)


def test_a_growth_without_any_noise_is_certain() -> None:
    assert slope_of(TIMES, [float(int(t)) for t in TIMES]).significant


def test_a_latency_that_follows_the_machine_is_the_machine_s() -> None:
    rng = random.Random(3)
    machine = [1 + 0.002 * t + rng.gauss(0, 0.3) for t in TIMES]
    values = [5 * slow + rng.gauss(0, 0.5) for slow in machine]
    assert slope_of(TIMES, values).significant
    assert not slope_of(TIMES, values, machine).significant
    growing = [value + 0.01 * t for value, t in zip(values, TIMES, strict=True)]
    machine = [1 + rng.gauss(0, 0.3) for _ in TIMES]
    assert slope_of(TIMES, growing, machine).significant


def test_what_shrinks_does_not_grow() -> None:
    assert not slope_of(TIMES, [100 - 0.1 * t for t in TIMES]).significant


def test_too_few_samples_are_refused() -> None:
    with pytest.raises(ValueError, match="too few"):
        slope_of(TIMES[:5], [1.0] * 5)
