"""A queue's rate: so many calls a second, hardly any at once, and no clock that holds it up."""

from __future__ import annotations

import pytest

from lakeshore.plane import rates

BEGUN = 1.8e9


def handed_out(rate: float, seconds: float, at: float | None = None, now: float = BEGUN) -> int:
    """What somebody gets who always takes what there is, as soon as it may be had."""
    count, until = 0, now + seconds
    while now < until:
        n = rates.allowed(rate, at, now)
        if n:
            at, count = rates.after(rate, at, now, n), count + n
        assert rates.allowed(rate, at, now) == 0
        now = max(rates.opens_at(rate, at, now), now + 1e-6)
    return count


@pytest.mark.parametrize("rate", [0.5, 1, 4, 10, 33.3, 1000])
def test_so_many_begin_in_ten_seconds(rate: float) -> None:
    most_at_once = max(1, rate * 0.1)
    assert rate * 10 - 1 <= handed_out(rate, 10) <= rate * 10 + most_at_once + 1


@pytest.mark.parametrize("rate", [0.5, 4, 1000])
def test_an_hour_of_silence_saves_nothing_up(rate: float) -> None:
    after_an_hour = rates.allowed(rate, BEGUN - 3600, BEGUN)
    assert after_an_hour == max(1, int(rate * 0.1))


def test_it_opens_when_it_says_so() -> None:
    at = rates.after(4, None, BEGUN, 1)
    opens = rates.opens_at(4, at, BEGUN)
    assert opens == pytest.approx(BEGUN + 0.25)
    assert (rates.allowed(4, at, opens - 0.01), rates.allowed(4, at, opens)) == (0, 1)


@pytest.mark.parametrize("ahead_s", [1.0, 3600.0, 1e7])
def test_a_clock_that_was_put_back_and_a_slower_rate_of_before_hold_nothing_up(ahead_s: float) -> None:
    assert handed_out(4, 5, at=BEGUN + ahead_s) >= 20


@pytest.mark.parametrize("rate", [4, 1000])
def test_calls_that_were_handed_out_count_against_those_that_follow(rate: float) -> None:
    most = rates.allowed(rate, None, BEGUN)
    at = rates.after(rate, None, BEGUN, most)
    assert rates.allowed(rate, at, BEGUN) == 0
    assert rates.after(rate, at, BEGUN, 1) == pytest.approx(at + 1 / rate), "from its turn, not from now"
