"""Submit, claim, ack, nack: the life of one invocation (K-1, K-2, K-6, K-7, K-10)."""

from __future__ import annotations

from ...sdk.errors import DispatchError, InvocationFailed
from .base import Harness, begin, case, column, must_claim, refused, state


@case("P-450", "K-1", "K-2")
def submit_claim_ack_is_a_whole_life(h: Harness) -> None:
    dp = h.plane()
    assert dp.submit("q", b"args", id="a") == "a"
    assert state(dp, "a") == "queued"
    job = must_claim(dp)
    assert (job.id, job.envelope, job.queue, job.attempt) == ("a", b"args", "q", 1)
    assert state(dp, "a") == "running"
    dp.ack("a", "w1", result=b"result")
    assert state(dp, "a") == "succeeded"
    assert dp.result("a", timeout=5) == b"result"
    assert dp.claim("q", "w1") is None


@case("P-450", "K-1")
def an_empty_queue_gives_nothing(h: Harness) -> None:
    dp = h.plane()
    assert dp.claim("nobody-ever-wrote-here", "w1") is None
    assert dp.get("nobody") is None


@case("P-451", "K-7", "S-830")
def a_nacked_job_comes_again(h: Harness) -> None:
    dp = h.plane()
    dp.submit("q", b"args", id="a")
    job = must_claim(dp)
    dp.nack("a", "w1", error="first", claim=job.claim)
    assert state(dp, "a") == "queued"
    again = must_claim(dp, worker="w2")
    assert again.id == "a"
    dp.ack("a", "w2", result=b"second time", claim=again.claim)
    assert dp.result("a", timeout=5) == b"second time"


@case("P-451", "K-7")
def a_nack_without_retry_ends_at_once(h: Harness) -> None:
    dp = h.plane()
    dp.submit("q", b"", id="a")
    must_claim(dp)
    dp.nack("a", "w1", error={"type": "ValueError", "message": "bad input"}, retry=False)
    assert state(dp, "a") == "failed"
    with refused(InvocationFailed, says="ValueError: bad input") as caught:
        dp.result("a", timeout=5)
    assert caught[0].state == "failed"
    assert caught[0].error["type"] == "ValueError"


@case("P-452", "K-5", "K-6")
def attempt_and_claim_rise_with_each_execution(h: Harness) -> None:
    dp = h.plane()
    dp.submit("q", b"", id="a")
    numbers = []
    for expected in (1, 2, 3):
        job = must_claim(dp)
        assert job.attempt == expected
        numbers.append(job.claim)
        dp.nack("a", "w1", error="no", claim=job.claim)
    assert numbers == sorted(set(numbers)), f"claim numbers must rise, got {numbers}"
    assert column(dp, "a", "attempt") == 3


@case("P-451", "K-7")
def the_last_of_max_attempts_ends_with_its_error(h: Harness) -> None:
    dp = h.plane()
    dp.submit("q", b"", id="a", run_config={"max_attempts": 2})
    for n in (1, 2):
        job = must_claim(dp)
        dp.nack("a", "w1", error=f"attempt {n}", claim=job.claim)
    assert dp.claim("q", "w1") is None
    assert state(dp, "a") == "failed"
    with refused(InvocationFailed, says="attempt 2"):
        dp.result("a", timeout=5)


@case("K-7")
def a_worker_may_want_fewer_retries_and_never_more(h: Harness) -> None:
    dp = h.plane()
    dp.submit("q", b"", id="few", run_config={"max_attempts": 3})
    job = must_claim(dp)
    dp.nack("few", "w1", error="no", claim=job.claim, retries=0)
    assert state(dp, "few") == "failed"
    dp.submit("q", b"", id="many", run_config={"max_attempts": 2})
    for _ in range(2):
        job = must_claim(dp)
        dp.nack("many", "w1", error="no", claim=job.claim, retries=50)
    assert state(dp, "many") == "failed"


@case("K-2", "K-7")
def a_timeout_is_a_state_of_its_own(h: Harness) -> None:
    dp = h.plane()
    dp.submit("q", b"", id="a")
    must_claim(dp)
    dp.nack("a", "w1", error={"type": "Timeout", "message": "after 1 s"}, retry=False, outcome="timeout")
    assert state(dp, "a") == "timeout"
    with refused(InvocationFailed, says="timed out") as caught:
        dp.result("a", timeout=5)
    assert caught[0].state == "timeout"


@case("K-2", "S-814")
def an_ended_row_absorbs_every_later_report(h: Harness) -> None:
    dp = h.plane()
    dp.submit("q", b"", id="a")
    job = must_claim(dp)
    dp.ack("a", "w1", result=b"first", claim=job.claim)
    with refused(DispatchError):
        dp.nack("a", "w1", error="late", claim=job.claim)
    with refused(DispatchError):
        dp.nack("a", "w1", error="late", claim=job.claim, retry=False)
    with refused(DispatchError):
        dp.ack("a", "w1", result=b"late", claim=job.claim + 1)
    assert not dp.cancel("a")
    assert state(dp, "a") == "succeeded"
    assert dp.result("a", timeout=5) == b"first"


@case("K-2", "K-5")
def the_same_report_again_is_absorbed(h: Harness) -> None:
    """A worker that never heard the answer says it again, and hears that all is well."""
    dp = h.plane()
    dp.submit("q", b"", id="a")
    job = must_claim(dp)
    dp.ack("a", "w1", result=b"first", claim=job.claim)
    dp.ack("a", "w1", result=b"first", claim=job.claim)
    assert dp.result("a", timeout=5) == b"first"
    dp.submit("q", b"", id="b")
    job = must_claim(dp)
    dp.nack("b", "w1", error="once", claim=job.claim)
    dp.nack("b", "w1", error="once", claim=job.claim)
    assert state(dp, "b") == "queued"
    assert column(dp, "b", "attempt") == 1


@case("K-22")
def unknown_pending_and_failed_are_different_answers(h: Harness) -> None:
    dp = h.plane()
    with refused(DispatchError, says="unknown"):
        dp.result("never-submitted", timeout=5)
    dp.submit("q", b"", id="a")
    with refused(TimeoutError, says="a"):
        dp.result("a", timeout=0.05)
    assert state(dp, "a") == "queued", "a wait that times out changes nothing"
    job = must_claim(dp)
    begin(dp, job)
    with refused(TimeoutError):
        dp.result("a", timeout=0.05)
    dp.ack("a", "w1", result=b"in the end", claim=job.claim)
    assert dp.result("a", timeout=5) == b"in the end"


@case("K-10")
def a_bare_ack_needs_exactly_one_claim_handed_out_here(h: Harness) -> None:
    dp, other = h.plane(), h.another()
    dp.submit("q", b"", id="a")
    job = must_claim(dp)
    with refused(DispatchError):
        other.ack("a", "w1", result=b"not mine")
    with refused(DispatchError):
        dp.ack("a", "somebody-else", result=b"not mine")
    assert state(dp, "a") == "running"
    other.ack("a", "w1", result=b"with its number", claim=job.claim)
    assert dp.result("a", timeout=5) == b"with its number"


@case("K-1", "K-4")
def the_row_tells_its_times_in_order(h: Harness) -> None:
    dp = h.plane()
    dp.submit("q", b"", id="a")
    job = must_claim(dp)
    begin(dp, job)
    dp.ack("a", "w1", claim=job.claim)
    row = dp.get("a")
    assert row is not None
    times = [row["submitted_at"], row["claimed_at"], row["started_at"], row["finished_at"]]
    assert None not in times
    assert times == sorted(times)


@case("K-16", "P-287")
def parent_and_root_are_kept(h: Harness) -> None:
    dp = h.plane()
    dp.submit("q", b"", id="root")
    dp.submit("q", b"", id="child", parent="root")
    dp.submit("q", b"", id="grandchild", parent="child")
    assert [column(dp, i, "parent") for i in ("root", "child", "grandchild")] == [None, "root", "child"]
    assert [column(dp, i, "root") for i in ("root", "child", "grandchild")] == ["root"] * 3
