"""Submits for later: nobody gets them before their instant, and they are queued in every other way."""

from __future__ import annotations

import threading
import time

from ...sdk.errors import DispatchError
from .base import Harness, Job, Verbs, case, column, must_claim, refused, state

LONG_S = 300.0
SHORT_S = 0.4
PATIENCE_S = 20.0


def wait_to_claim(plane: Verbs, queue: str = "q", worker: str = "w1") -> Job:
    """Ask until there is a job."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        job = plane.claim(queue, worker)
        if job is not None:
            return job
        time.sleep(0.01)
    raise AssertionError(f"queue {queue!r} had nothing to claim for {PATIENCE_S} s")


@case("K-3")
def nobody_claims_a_delayed_job_before_its_instant(h: Harness) -> None:
    dp = h.plane()
    dp.submit("q", b"", id="much-later", due=time.time() + LONG_S, priority=9)
    dp.submit("q", b"now", id="now")
    assert must_claim(dp).id == "now", "what waits is in nobody's way"
    assert dp.claim("q", "w1") is None
    due = time.time() + SHORT_S
    dp.submit("q", b"later", id="later", due=due)
    job = wait_to_claim(dp)
    assert (job.id, job.envelope, job.attempt) == ("later", b"later", 1)
    assert time.time() >= due, "it was handed out before its instant"
    dp.ack("later", "w1", result=b"r")
    assert dp.result("later", timeout=5) == b"r"


@case("K-3")
def a_delay_counts_from_the_submit(h: Harness) -> None:
    dp = h.plane()
    before = time.time()
    dp.submit("q", b"", id="a", delay=SHORT_S)
    due = column(dp, "a", "due")
    assert isinstance(due, float)
    assert before + SHORT_S <= due <= time.time() + SHORT_S
    wait_to_claim(dp)
    assert time.time() >= due


@case("K-3")
def an_instant_that_has_passed_delays_nothing(h: Harness) -> None:
    dp = h.plane()
    dp.submit("q", b"", id="past", due=time.time() - 1000)
    dp.submit("q", b"", id="zero", delay=0)
    assert [must_claim(dp).id, must_claim(dp).id] == ["past", "zero"]


@case("K-2")
def a_delayed_job_is_queued_and_says_until_when(h: Harness) -> None:
    dp = h.plane()
    due = time.time() + LONG_S
    dp.submit("q", b"", id="a", due=due)
    dp.submit("q", b"", id="b")
    assert state(dp, "a") == "queued"
    assert column(dp, "a", "due") == due
    assert (column(dp, "a", "delayed"), column(dp, "b", "delayed")) == (True, False)
    assert (dp.count("q"), dp.count("q", "delayed")) == (2, 1)
    must_claim(dp)
    assert dp.claim("q", "w1") is None
    assert (dp.count("q"), dp.count("q", "delayed"), dp.count("q", "running")) == (1, 1, 1)


@case("K-2", "K-27")
def a_delayed_job_is_cancelled_at_once(h: Harness) -> None:
    dp = h.plane()
    dp.submit("q", b"", id="a", delay=SHORT_S)
    assert dp.cancel("a")
    assert state(dp, "a") == "killed"
    assert (dp.count("q"), dp.count("q", "delayed"), dp.count("q", "killed")) == (0, 0, 1)
    time.sleep(SHORT_S)
    assert dp.claim("q", "w1") is None, "its instant means nothing any more"
    dp.retry("a")
    assert must_claim(dp).id == "a", "a retry by hand is for now"


@case("K-16", "K-17")
def the_first_submit_of_an_id_or_a_key_says_when(h: Harness) -> None:
    dp = h.plane()
    dp.submit("q", b"", id="a", key="k", delay=LONG_S)
    assert dp.submit("q", b"", id="b", key="k") == "a"
    assert dp.submit("q", b"", id="a", key="k") == "a"
    assert dp.claim("q", "w1") is None, "a later submit does not hurry it"
    dp.submit("q", b"", id="c", key="now")
    assert dp.submit("q", b"", id="d", key="now", delay=LONG_S) == "c"
    assert must_claim(dp).id == "c", "nor does one delay what is there"
    with refused(DispatchError, says="taken"):
        dp.submit("q", b"other", id="a", key="k", delay=LONG_S)


@case("K-3")
def among_what_is_due_priority_and_age_decide(h: Harness) -> None:
    dp = h.plane()
    due = time.time() + SHORT_S
    dp.submit("q", b"", id="first", due=due)
    dp.submit("q", b"", id="second", due=due - SHORT_S / 2)
    dp.submit("q", b"", id="urgent", due=due, priority=5)
    dp.submit("other", b"", id="elsewhere", due=due)
    while time.time() < due + 0.1:
        time.sleep(0.01)
    taken = [wait_to_claim(dp).id for _ in range(3)]
    assert taken == ["urgent", "first", "second"]
    assert wait_to_claim(dp, "other").id == "elsewhere"


@case("K-3", "K-9")
def a_failed_attempt_of_a_delayed_job_runs_again_at_once(h: Harness) -> None:
    dp = h.plane()
    dp.submit("q", b"", id="a", delay=SHORT_S)
    job = wait_to_claim(dp)
    dp.nack("a", "w1", error="no", claim=job.claim)
    assert must_claim(dp).attempt == 2


@case("K-3")
def many_jobs_of_one_instant_are_each_handed_out_once(h: Harness) -> None:
    dp = h.plane()
    due = time.time() + SHORT_S
    wanted = {f"j{k:02}" for k in range(8)}
    h.between()
    for inv_id in sorted(wanted):
        h.another().submit("q", b"", id=inv_id, due=due)
    taken: list[str] = []

    def work(name: str) -> None:
        while len(taken) < len(wanted):
            job = h.another().claim("q", name)
            if job is None:
                time.sleep(0.01)
            else:
                taken.append(job.id)

    workers = [threading.Thread(target=work, args=(f"w{k}",), daemon=True) for k in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(PATIENCE_S)
    assert sorted(taken) == sorted(wanted)
    assert dp.count("q", "delayed") == 0
