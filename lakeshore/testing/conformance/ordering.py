"""Which job is next (K-3). Orderings are sorts and samples over the rows; there is no index beside them."""

from __future__ import annotations

import math
import random
from typing import Any

from ...sdk.errors import DispatchError
from .base import Harness, case, must_claim, refused


def _drain(h: Harness, kind: str) -> list[str]:
    dp, order = h.plane(), list[str]()
    while (job := dp.claim("q", "w1", kind=kind)) is not None:
        order.append(job.id)
    return order


def _fill(h: Harness) -> None:
    dp = h.plane()
    for inv_id, priority in (("z", 0), ("y", 5), ("a", 0), ("x", 5), ("m", -1), ("n", -1), ("half", 0.5)):
        dp.submit("q", b"", id=inv_id, priority=priority)


@case("P-456", "K-3", "P-212")
def fifo_is_priority_first_then_oldest(h: Harness) -> None:
    _fill(h)
    assert _drain(h, "fifo") == ["y", "x", "half", "z", "a", "m", "n"]


@case("P-457", "K-3", "P-213")
def filo_is_priority_first_then_newest(h: Harness) -> None:
    _fill(h)
    assert _drain(h, "filo") == ["x", "y", "half", "a", "z", "n", "m"]


@case("K-3")
def a_job_that_comes_back_keeps_its_place(h: Harness) -> None:
    dp = h.plane()
    for inv_id in ("a", "b", "c"):
        dp.submit("q", b"", id=inv_id)
    first = must_claim(dp)
    dp.nack("a", "w1", error="no", claim=first.claim)
    assert _drain(h, "fifo") == ["a", "b", "c"]


@case("P-459", "K-3")
def every_ordering_reads_the_same_rows(h: Harness) -> None:
    """One queue, claimed in turn with each kind: no job twice, none left."""
    dp = h.plane()
    for n in range(12):
        dp.submit("q", b"", id=f"j{n}", priority=n % 3)
    kinds = ("fifo", "filo", "boltzmann")
    order = [must_claim(dp, kind=kinds[n % 3]).id for n in range(12)]
    assert len(set(order)) == 12
    assert dp.claim("q", "w1", kind="filo") is None


@case("P-458", "K-3", "P-214")
def boltzmann_draws_levels_by_count_and_priority(h: Harness) -> None:
    """χ² with two degrees of freedom over many draws from one population."""
    levels, temperature = {0.0: 4, 1.0: 2, 2.0: 1}, 1.5
    dp = h.plane()
    for priority, n in levels.items():
        for k in range(n):
            dp.submit("q", b"", id=f"p{int(priority * 10)}-{k}", priority=priority, run_config={"max_attempts": 10_000})
    draws = 400 if h.seeded else 120  # a plane that draws for itself may be a server that restarts at every step
    rng, seen = random.Random(20240229), dict.fromkeys(levels, 0)  # noqa: S311  # not for secrets
    for _ in range(draws):
        how: dict[str, Any] = {"draw": rng.random()} if h.seeded else {}
        job = must_claim(dp, kind="boltzmann", temperature=temperature, **how)
        seen[int(job.id[1:].split("-")[0]) / 10] += 1
        assert job.id.endswith("-0"), "within a level the oldest is first"
        dp.nack(job.id, "w1", error="again", claim=job.claim)
    weights = {p: n * math.exp(p / temperature) for p, n in levels.items()}
    expected = {p: draws * w / sum(weights.values()) for p, w in weights.items()}
    chi2 = sum((seen[p] - expected[p]) ** 2 / expected[p] for p in levels)
    # 13.8 is one in a thousand, the draws are fixed; an unseeded plane may be wrong once in a million runs.
    assert chi2 < (13.8 if h.seeded else 27.6), f"χ² {chi2:.1f}: seen {seen}, expected {expected}"


@case("P-458", "K-3")
def boltzmann_at_temperature_zero_takes_the_top(h: Harness) -> None:
    dp = h.plane()
    for n in range(5):
        dp.submit("q", b"", id=f"j{n}", priority=n)
    order = [must_claim(dp, kind="boltzmann", temperature=0.0).id for _ in range(5)]
    assert order == ["j4", "j3", "j2", "j1", "j0"]


@case("P-215", "K-3")
def an_unknown_kind_is_refused_by_name(h: Harness) -> None:
    with refused(DispatchError, says="fifo|filo|boltzmann"):
        h.plane().claim("q", "w1", kind="lifo")
