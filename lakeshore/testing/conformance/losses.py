"""A worker that is gone: what it costs, and what the row says in the end (K-6, K-7)."""

from __future__ import annotations

from ...sdk.errors import InvocationFailed
from .base import Harness, begin, case, must_claim, refused, state


@case("K-7", "P-461", "S-813")
def losses_of_begun_bodies_end_as_worker_lost(h: Harness) -> None:
    dp = h.plane()
    dp.submit("q", b"", id="a", run_config={"max_attempts": 2})
    for attempt in (1, 2):
        job = must_claim(dp)
        assert job.attempt == attempt
        begin(dp, job)
        h.lose("a", job.claim)
    assert state(dp, "a") == "failed"
    with refused(InvocationFailed, says="WorkerLost") as caught:
        dp.result("a", timeout=5)
    error = caught[0].error
    assert error["type"] == "WorkerLost"
    assert error["worker"] == "w1"
    assert error["attempts"] == 2
    assert dp.claim("q", "w2") is None


@case("K-6", "K-7")
def a_body_that_kills_its_worker_every_time_still_ends(h: Harness) -> None:
    """Also when no worker ever lives long enough to say that it began."""
    dp = h.plane()
    dp.submit("q", b"", id="a", run_config={"max_attempts": 2})
    claims = 0
    while (job := dp.claim("q", "w1")) is not None:
        claims += 1
        assert claims < 9, "an endless loop of free losses"
        h.lose("a", job.claim)
    assert state(dp, "a") == "failed"
    with refused(InvocationFailed, says="WorkerLost"):
        dp.result("a", timeout=5)


@case("K-7", "S-728")
def a_loss_and_a_failure_share_the_attempts(h: Harness) -> None:
    dp = h.plane()
    dp.submit("q", b"", id="a", run_config={"max_attempts": 2})
    job = must_claim(dp)
    begin(dp, job)
    h.lose("a", job.claim)
    job = must_claim(dp)
    assert job.attempt == 2
    dp.nack("a", "w1", error={"type": "ValueError", "message": "its own"}, claim=job.claim)
    with refused(InvocationFailed, says="ValueError: its own"):
        dp.result("a", timeout=5)


@case("K-2")
def losing_a_claim_that_is_over_changes_nothing(h: Harness) -> None:
    dp = h.plane()
    dp.submit("q", b"", id="a")
    old = must_claim(dp)
    dp.nack("a", "w1", error="no", claim=old.claim)
    h.lose("a", old.claim)
    assert state(dp, "a") == "queued"
    new = must_claim(dp)
    assert new.attempt == 2
    h.lose("a", old.claim)
    assert state(dp, "a") == "running"
    dp.ack("a", "w1", result=b"r", claim=new.claim)
    h.lose("a", new.claim)
    assert dp.result("a", timeout=5) == b"r"
