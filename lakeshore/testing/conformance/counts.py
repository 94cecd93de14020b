"""Counts are the contents, after every transition (K-1)."""

from __future__ import annotations

from collections import Counter

from .base import STATES, Harness, Verbs, begin, case, must_claim, state


def _same(plane: Verbs, ids: list[str], queue: str = "q") -> None:
    rows = Counter(state(plane, inv_id) for inv_id in ids)
    counted = {name: plane.count(queue, name) for name in STATES}
    assert counted == {name: rows[name] for name in STATES}, f"counts {counted} are not the rows {dict(rows)}"


@case("P-460", "K-1", "P-285")
def counts_are_the_contents_after_every_transition(h: Harness) -> None:
    dp, other = h.plane(), h.another()
    ids: list[str] = []
    for n in range(6):
        ids.append(f"j{n}")
        dp.submit("q", b"", id=ids[-1], run_config={"max_attempts": 2})
        _same(other, ids)
    job = must_claim(dp)
    _same(other, ids)
    dp.nack(job.id, "w1", error="again", claim=job.claim)
    _same(other, ids)
    job = must_claim(dp)
    dp.nack(job.id, "w1", error="over", claim=job.claim)
    _same(other, ids)
    job = must_claim(other, worker="w2")
    other.ack(job.id, "w2", claim=job.claim)
    _same(dp, ids)
    job = must_claim(dp)
    dp.nack(job.id, "w1", error="late", retry=False, outcome="timeout", claim=job.claim)
    _same(dp, ids)
    dp.cancel("j3")
    _same(dp, ids)
    dp.retry("j3")
    _same(dp, ids)
    job = must_claim(dp)
    begin(dp, job)
    dp.cancel(job.id)
    _same(dp, ids)
    dp.nack(job.id, "w1", error="stopped", claim=job.claim)
    _same(dp, ids)
    dp.submit("q", b"", id="j4", run_config={"max_attempts": 2})
    _same(dp, ids)
    if h.purges:
        h.purge()
        _same(dp, [inv_id for inv_id in ids if dp.get(inv_id)])


@case("P-461", "K-1")
def counts_are_the_contents_after_a_crash_in_mid_claim(h: Harness) -> None:
    dp, other = h.plane(), h.another()
    ids = [f"j{n}" for n in range(3)]
    for inv_id in ids:
        dp.submit("q", b"", id=inv_id, run_config={"max_attempts": 1})
    unreported, begun = must_claim(dp, worker="w1"), must_claim(dp, worker="w1")
    begin(dp, begun)
    h.lose(unreported.id, unreported.claim)
    _same(other, ids)
    h.lose(begun.id, begun.claim)
    _same(other, ids)
    assert state(other, begun.id) == "failed"
    h.lose(begun.id, begun.claim)
    _same(other, ids)
    for _ in range(9):
        if (job := other.claim("q", "w2")) is None:
            break
        other.ack(job.id, "w2", claim=job.claim)
    _same(dp, ids)


@case("P-460", "K-1")
def refused_transitions_move_no_count(h: Harness) -> None:
    dp = h.plane()
    dp.submit("q", b"", id="a", key="k")
    for again in range(3):
        dp.submit("q", b"", id=f"b{again}", key="k")
    job = must_claim(dp)
    dp.ack("a", "w1", claim=job.claim)
    dp.ack("a", "w1", claim=job.claim)
    dp.cancel("a")
    _same(dp, ["a"])


@case("P-460", "K-1")
def each_queue_counts_its_own(h: Harness) -> None:
    dp = h.plane()
    dp.submit("q1", b"", id="a")
    dp.submit("q2", b"", id="b")
    must_claim(dp, "q1")
    _same(dp, ["a"], "q1")
    _same(dp, ["b"], "q2")
    assert dp.count("q3") == 0
