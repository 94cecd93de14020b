"""Cancel: what has not begun dies at once, what runs is asked, and a success that comes first wins (K-27)."""

from __future__ import annotations

from ...sdk.errors import DispatchError, InvocationFailed
from .base import Harness, begin, case, column, must_claim, refused, state


@case("K-27", "P-275")
def a_queued_job_is_killed_at_once(h: Harness) -> None:
    dp = h.plane()
    dp.submit("q", b"", id="a")
    assert dp.cancel("a") is True
    assert state(dp, "a") == "killed"
    assert dp.claim("q", "w1") is None
    assert dp.cancel("a") is False
    with refused(InvocationFailed, says="cancelled") as caught:
        dp.result("a", timeout=5)
    assert caught[0].state == "killed"


@case("K-27")
def a_success_that_is_acked_first_wins(h: Harness) -> None:
    dp = h.plane()
    dp.submit("q", b"", id="a")
    job = must_claim(dp)
    begin(dp, job)
    dp.cancel("a")
    assert state(dp, "a") == "running"
    assert column(dp, "a", "cancel_requested")
    dp.ack("a", "w1", result=b"just in time", claim=job.claim)
    assert dp.result("a", timeout=5) == b"just in time"
    assert dp.cancel("a") is False


@case("K-27")
def after_the_request_every_other_report_ends_in_killed(h: Harness) -> None:
    dp = h.plane()
    for n, outcome in enumerate(("failed", "timeout", "killed")):
        for retry in (True, False):
            inv_id = f"a{n}{retry}"
            dp.submit("q", b"", id=inv_id)
            job = must_claim(dp)
            begin(dp, job)
            dp.cancel(inv_id)
            dp.nack(inv_id, "w1", error="stopped", retry=retry, outcome=outcome, claim=job.claim)
            assert state(dp, inv_id) == "killed", f"{outcome}, retry={retry}"


@case("K-27")
def after_the_request_a_lost_worker_leaves_it_killed(h: Harness) -> None:
    dp = h.plane()
    dp.submit("q", b"", id="a")
    job = must_claim(dp)
    begin(dp, job)
    dp.cancel("a")
    h.lose("a", job.claim)
    assert state(dp, "a") == "killed"
    with refused(DispatchError):
        dp.ack("a", "w1", result=b"late", claim=job.claim)
    assert state(dp, "a") == "killed"


@case("K-27")
def asking_twice_is_asking_once(h: Harness) -> None:
    dp = h.plane()
    dp.submit("q", b"", id="a")
    job = must_claim(dp)
    begin(dp, job)
    for _ in range(3):
        dp.cancel("a")
    dp.nack("a", "w1", error="stopped", claim=job.claim)
    assert state(dp, "a") == "killed"


@case("K-27", "K-7")
def a_job_between_two_attempts_is_killed_at_once(h: Harness) -> None:
    dp = h.plane()
    dp.submit("q", b"", id="a")
    job = must_claim(dp)
    dp.nack("a", "w1", error="again", claim=job.claim)
    assert dp.cancel("a") is True
    assert state(dp, "a") == "killed"
    dp.nack("a", "w1", error="again", claim=job.claim)
    assert state(dp, "a") == "killed", "a resent report changes nothing"


@case("K-27", "K-22")
def a_waiter_hears_of_the_cancel(h: Harness) -> None:
    dp, other = h.plane(), h.another()
    dp.submit("q", b"", id="a")
    other.cancel("a")
    with refused(InvocationFailed, says="cancelled"):
        dp.result("a", timeout=10)
