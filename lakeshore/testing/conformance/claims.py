"""Who gets a job: one winner among many, and the claim number as the only fence (K-2, K-5)."""

from __future__ import annotations

import threading
from collections.abc import Callable

from ...sdk.errors import DispatchError
from .base import Harness, Job, begin, case, column, must_claim, refused, state, value


def _together(works: list[Callable[[], None]]) -> None:
    gate, failures = threading.Barrier(len(works)), list[BaseException]()

    def run(work: Callable[[], None]) -> None:
        gate.wait(30)
        try:
            work()
        except BaseException as exc:  # noqa: BLE001  # raised again in the case's own thread
            failures.append(exc)

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads), "a claimer hangs"
    if failures:
        raise failures[0]


@case("P-453", "K-2", "S-500")
def of_many_claimers_one_wins(h: Harness) -> None:
    handles = [h.plane(), h.another()]
    for turn in range(3):
        handles[0].submit("q", b"", id=f"a{turn}")
        won: list[Job] = []

        def claim(k: int, won: list[Job] = won) -> None:
            job = handles[k % 2].claim("q", f"w{k}")
            if job is not None:
                won.append(job)

        _together([lambda k=k, claim=claim: claim(k) for k in range(12)])  # type: ignore[misc]  # bound per worker
        assert [job.id for job in won] == [f"a{turn}"]


@case("P-453", "K-2", "P-282")
def many_jobs_go_to_many_claimers_once_each(h: Harness) -> None:
    handles = [h.plane(), h.another()]
    ids = {f"job-{n}" for n in range(40)}
    for inv_id in sorted(ids):
        handles[0].submit("q", b"", id=inv_id)
    won: list[str] = []

    def drain(k: int) -> None:
        while (job := handles[k % 2].claim("q", f"w{k}")) is not None:
            won.append(job.id)
            handles[k % 2].ack(job.id, f"w{k}", claim=job.claim)

    _together([lambda k=k: drain(k) for k in range(6)])  # type: ignore[misc]  # bound per worker
    assert len(won) == len(ids)
    assert set(won) == ids
    assert handles[1].count("q", "succeeded") == len(ids)


@case("P-454", "K-5", "P-283")
def a_worker_that_was_lost_cannot_settle(h: Harness) -> None:
    dp, other = h.plane(), h.another()
    dp.submit("q", b"", id="a")
    old = must_claim(dp, worker="w1")
    begin(dp, old)
    h.lose("a", old.claim)
    new = must_claim(other, worker="w2")
    assert new.claim > old.claim
    with refused(DispatchError):
        dp.ack("a", "w1", result=b"from the grave", claim=old.claim)
    with refused(DispatchError):
        dp.nack("a", "w1", error="from the grave", claim=old.claim)
    assert state(dp, "a") == "running"
    other.ack("a", "w2", result=b"alive", claim=new.claim)
    assert dp.result("a", timeout=5) == b"alive"


@case("P-454", "K-5")
def the_same_worker_name_does_not_help_a_stale_claim(h: Harness) -> None:
    """Worker ids fence nothing: the number does."""
    dp = h.plane()
    dp.submit("q", b"", id="a")
    old = must_claim(dp, worker="w1")
    begin(dp, old)
    h.lose("a", old.claim)
    new = must_claim(dp, worker="w1")
    with refused(DispatchError):
        dp.ack("a", "w1", result=b"old", claim=old.claim)
    dp.ack("a", "w1", result=b"new", claim=new.claim)
    assert dp.result("a", timeout=5) == b"new"


@case("K-5", "K-24")
def a_stale_claim_cannot_write_frames(h: Harness) -> None:
    dp = h.plane()
    dp.submit("q", b"", id="a")
    old = must_claim(dp)
    dp.journal_append("a", 0, value(0, "old"), claim=old.claim)
    h.lose("a", old.claim)
    with refused(DispatchError):
        dp.journal_append("a", 1, value(1, "old"), claim=old.claim)
    new = must_claim(dp, worker="w2")
    with refused(DispatchError):
        dp.journal_append("a", 1, value(1, "old"), claim=old.claim)
    assert new.first_seq == 1
    dp.journal_append("a", 1, value(1, "new"), claim=new.claim)
    dp.ack("a", "w2", claim=new.claim, last_seq=1)
    assert column(dp, "a", "last_frame") == 2


@case("K-2", "K-5")
def a_report_for_an_unknown_invocation_is_refused(h: Harness) -> None:
    dp = h.plane()
    with refused(DispatchError):
        dp.ack("nobody", "w1", claim=1)
    with refused(DispatchError):
        dp.journal_append("nobody", 0, value(0, None), claim=1)
    with refused(DispatchError):
        dp.cancel("nobody")
    with refused(DispatchError):
        dp.retry("nobody")
