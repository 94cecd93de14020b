"""Arguments and results of any size arrive as they were sent (K-20)."""

from __future__ import annotations

import hashlib

from .base import Frame, Harness, case, must_claim, read, value

KIB = 1024
SIZES = (0, 1, 64 * KIB - 1, 64 * KIB, 64 * KIB + 1, KIB * KIB, 5 * KIB * KIB)


def _bytes(size: int, seed: str) -> bytes:
    return hashlib.shake_128(seed.encode()).digest(size)


@case("K-20")
def arguments_and_results_of_any_size_arrive(h: Harness) -> None:
    dp, other = h.plane(), h.another()
    for size in SIZES:
        inv_id, args, result = f"s{size}", _bytes(size, "args"), _bytes(size, "result")
        dp.submit("q", args, id=inv_id)
        job = must_claim(other)
        assert job.id == inv_id
        assert job.envelope == args, f"{size} bytes of arguments came as {len(job.envelope)} others"
        other.ack(inv_id, "w1", result=result, claim=job.claim)
        assert dp.result(inv_id, timeout=10) == result


@case("K-16", "K-20")
def large_arguments_count_by_their_content(h: Harness) -> None:
    dp = h.plane()
    args = _bytes(KIB * KIB, "a")
    dp.submit("q", args, id="a")
    assert dp.submit("q", args, id="a") == "a"
    assert dp.count("q") == 1


@case("K-20")
def a_retried_job_gets_its_large_arguments_again(h: Harness) -> None:
    dp = h.plane()
    args = _bytes(300 * KIB, "a")
    dp.submit("q", args, id="a")
    job = must_claim(dp)
    dp.nack("a", "w1", error="no", claim=job.claim)
    assert must_claim(dp).envelope == args


@case("K-20", "K-26")
def large_frames_arrive(h: Harness) -> None:
    dp = h.plane()
    dp.submit("q", b"", id="a")
    job = must_claim(dp)
    bodies = [_bytes(size, "frame") for size in (0, 64 * KIB, KIB * KIB)]
    for seq, body in enumerate(bodies):
        dp.journal_append("a", seq, value(seq, body), claim=job.claim)
    dp.ack("a", "w1", claim=job.claim, last_seq=2)
    frames: list[Frame] = read(dp, "a")
    assert [frame.body for frame in frames[:3]] == bodies


@case("K-20")
def any_id_serves_any_size(h: Harness) -> None:
    dp = h.plane()
    args = _bytes(65 * KIB, "a")
    for inv_id in ("01J0000000000000000000000A", "job-1", "_leading", "-dash", "x" * 64):
        dp.submit("q", args, id=inv_id)
        job = must_claim(dp)
        assert (job.id, job.envelope) == (inv_id, args)
        dp.ack(inv_id, "w1", result=args, claim=job.claim)
        assert dp.result(inv_id, timeout=5) == args
