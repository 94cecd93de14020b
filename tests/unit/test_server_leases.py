"""Leases, by a clock that the test holds (K-11, K-13)."""

from __future__ import annotations

import pytest

from lakeshore.server.leases import Leases

LEASE_S = 60.0
HOLDER = ("default", "w", "s1")


@pytest.fixture
def leases() -> Leases:
    leases = Leases(LEASE_S)
    leases.begin(0.0, 1000.0)
    leases.grant("a", 1, HOLDER, 0.0)
    return leases


def expired(leases: Leases, now: float) -> list[str]:
    return [lease.id for lease in leases.sweep(now, 1000.0 + now).expired]


@pytest.mark.inventory("K-11")
def test_a_lease_that_nobody_renews_ends(leases: Leases) -> None:
    assert next(now for now in range(1, 70) if expired(leases, float(now))) == 61


@pytest.mark.inventory("K-13")
@pytest.mark.parametrize("away_s", [61.0, 3600.0])
def test_an_absence_before_the_first_sweep_is_seen(leases: Leases, away_s: float) -> None:
    assert expired(leases, away_s) == []
    assert next(s for s in range(1, 70) if expired(leases, away_s + s)) == 61


@pytest.mark.inventory("K-13")
@pytest.mark.parametrize("jump_s", [-3600.0, 3600.0])
def test_a_wall_clock_that_jumps_gives_everybody_a_lease_more(leases: Leases, jump_s: float) -> None:
    for now in range(1, 60):
        assert expired(leases, float(now)) == []
    assert leases.sweep(60.5, 1060.5 + jump_s).expired == ()
    assert next(s for s in range(1, 70) if leases.sweep(60.5 + s, 1060.5 + jump_s + s).expired) == 61


@pytest.mark.inventory("K-15", "K-27")
def test_an_adopted_claim_is_heard_of_now_and_keeps_what_was_asked_of_it(leases: Leases) -> None:
    assert leases.renew("default", "a", 1, 1.0, started=True)
    leases.cancel("a", 1, 30.0)
    leases.rehome("a", 1, "s2", 20.0)
    held = leases.holder("a")
    assert held is not None
    assert (held.session, held.until, held.cancel_at, held.started) == ("s2", 80.0, 30.0, True)
    assert leases.held_by(*HOLDER) == []
    assert leases.held_by("default", "w", "s2") == [held]
    assert not leases.renew("default", "a", 1, 21.0), "it is told again that it is to stop"
    leases.rehome("a", 2, "s3", 22.0)
    assert held.session == "s2", "of another claim"
