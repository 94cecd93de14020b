"""Retry by hand: the same id runs again, from a clean slate, for exactly the claim that was seen (K-17)."""

from __future__ import annotations

from ...sdk.errors import DispatchError
from .base import FrameKind, Harness, begin, case, ended, must_claim, read, refused, state, value


@case("K-17")
def a_retry_clears_the_slate_and_keeps_the_frames(h: Harness) -> None:
    dp = h.plane()
    dp.submit("q", b"args", id="a", run_config={"max_attempts": 2})
    job = must_claim(dp)
    dp.journal_append("a", 0, value(0, "old"), claim=job.claim)
    dp.nack("a", "w1", error="1", claim=job.claim)
    ended(dp, "a")
    before = dp.get("a")
    assert before is not None
    assert (before["state"], before["attempt"]) == ("failed", 2)
    dp.retry("a")
    row = dp.get("a")
    assert row is not None
    assert row["state"] == "queued"
    assert row["attempt"] == 0
    assert row["claim"] > before["claim"]
    assert row["seq"] == before["seq"], "it keeps its place in line"
    assert not row["cancel_requested"]
    cleared = ("error", "claimed_at", "started_at", "finished_at", "worker")
    assert [row[name] for name in cleared] == [None] * len(cleared)
    job = must_claim(dp, worker="w2")
    assert (job.attempt, job.envelope) == (1, b"args")
    assert job.first_seq > 0, "the public seq goes on"
    dp.ack("a", "w2", result=b"this time", claim=job.claim)
    assert dp.result("a", timeout=5) == b"this time"


@case("K-17", "K-24")
def a_retried_stream_is_open_again(h: Harness) -> None:
    """The ERROR that ended the earlier run does not end the reader of the next one."""
    dp = h.plane()
    dp.submit("q", b"", id="a")
    job = must_claim(dp)
    dp.journal_append("a", 0, value(0, "first run"), claim=job.claim)
    dp.nack("a", "w1", error="over", retry=False, claim=job.claim)
    assert read(dp, "a")[-1].kind is FrameKind.ERROR
    dp.retry("a")
    job = must_claim(dp)
    dp.journal_append("a", job.first_seq, value(job.first_seq, "second run"), claim=job.claim)
    dp.ack("a", "w1", claim=job.claim, last_seq=job.first_seq)
    frames = read(dp, "a")
    assert [frame.body for frame in frames] == ["first run", "second run", None]
    assert frames[-1].kind is FrameKind.END
    seqs = [frame.seq for frame in frames]
    assert seqs == sorted(set(seqs)), "a reader that resumes after the ERROR misses nothing"
    assert seqs[1] > 1


@case("K-17")
def failed_killed_and_timed_out_rows_can_be_retried(h: Harness) -> None:
    dp = h.plane()
    for outcome in ("failed", "timeout", "killed"):
        dp.submit("q", b"", id=outcome)
        job = must_claim(dp)
        dp.nack(outcome, "w1", error="no", retry=False, outcome=outcome, claim=job.claim)
        assert state(dp, outcome) == outcome
        dp.retry(outcome)
        assert state(dp, outcome) == "queued"
        job = must_claim(dp)
        dp.ack(outcome, "w1", claim=job.claim)


@case("K-17")
def nothing_else_can_be_retried(h: Harness) -> None:
    dp = h.plane()
    dp.submit("q", b"", id="a")
    with refused(DispatchError, says="queued"):
        dp.retry("a")
    job = must_claim(dp)
    with refused(DispatchError, says="running"):
        dp.retry("a")
    dp.ack("a", "w1", result=b"r", claim=job.claim)
    with refused(DispatchError, says="succeeded"):
        dp.retry("a")
    assert dp.result("a", timeout=5) == b"r"


@case("K-17")
def a_retry_applies_only_to_the_claim_it_saw(h: Harness) -> None:
    dp = h.plane()
    dp.submit("q", b"", id="a")
    dp.cancel("a")
    row = dp.get("a")
    assert row is not None
    seen = row["claim"]
    dp.retry("a", claim=seen)
    dp.cancel("a")
    with refused(DispatchError, says="moved on"):
        dp.retry("a", claim=seen)
    assert state(dp, "a") == "killed", "a retry from before the last cancel revives nothing"


@case("K-17", "K-5")
def a_report_from_before_the_retry_is_stale(h: Harness) -> None:
    dp = h.plane()
    dp.submit("q", b"", id="a", run_config={"max_attempts": 1})
    old = must_claim(dp)
    begin(dp, old)
    h.lose("a", old.claim)
    dp.retry("a")
    with refused(DispatchError):
        dp.ack("a", "w1", result=b"old", claim=old.claim)
    assert state(dp, "a") == "queued"
    new = must_claim(dp)
    with refused(DispatchError):
        dp.ack("a", "w1", result=b"old", claim=old.claim)
    dp.ack("a", "w1", result=b"new", claim=new.claim)
    assert dp.result("a", timeout=5) == b"new"


@case("K-17", "K-27")
def a_cancel_from_before_the_retry_is_forgotten(h: Harness) -> None:
    dp = h.plane()
    dp.submit("q", b"", id="a")
    job = must_claim(dp)
    begin(dp, job)
    dp.cancel("a")
    dp.nack("a", "w1", error="stopped", claim=job.claim)
    assert state(dp, "a") == "killed"
    dp.retry("a")
    job = must_claim(dp)
    begin(dp, job)
    dp.nack("a", "w1", error="again", claim=job.claim)
    assert state(dp, "a") == "queued", "it is retried, not killed: the request was for the earlier run"
