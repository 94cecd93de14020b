"""A streaming function as its consumer sees it: live, in chunks, as concatenated manifests, failing (P-466…P-470)."""

from __future__ import annotations

import hashlib
import threading

from ...wire.errors import RemoteFailure
from ...wire.frames import FrameWriter, reassemble
from .base import Frame, FrameKind, Harness, Job, Verbs, case, must_claim, read, refused


def _write(plane: Verbs, job: Job, *frames: bytes) -> None:
    for data in frames:
        plane.journal_append(job.id, Frame.from_bytes(data).seq, data, claim=job.claim)


@case("P-466", "K-24")
def runs_of_chunks_reassemble(h: Harness) -> None:
    dp = h.plane()
    dp.submit("q", b"", id="a")
    job = must_claim(dp)
    big = hashlib.shake_128(b"big").digest(700_000)
    writer = FrameWriter(job.first_seq, attempt=job.attempt)
    _write(dp, job, writer.value("before"), *writer.chunks(big, 256 * 1024), *writer.chunks(b""), writer.value("after"))
    dp.ack("a", "w1", claim=job.claim, last_seq=writer.next_seq - 1)
    assert list(reassemble(read(h.another(), "a"))) == ["before", big, b"", "after"]


@case("P-466", "K-23")
def a_run_that_a_lost_worker_left_open_is_replaced(h: Harness) -> None:
    dp = h.plane()
    dp.submit("q", b"", id="a")
    job = must_claim(dp)
    writer = FrameWriter(job.first_seq, attempt=job.attempt)
    _write(dp, job, *list(writer.chunks(b"x" * 100, 10))[:4])
    h.lose("a", job.claim)
    job = must_claim(dp)
    writer = FrameWriter(job.first_seq, attempt=job.attempt)
    _write(dp, job, *writer.chunks(b"y" * 100, 10))
    dp.ack("a", "w1", claim=job.claim, last_seq=writer.next_seq - 1)
    assert list(reassemble(read(dp, "a"))) == [b"y" * 100]


@case("P-468", "K-24")
def a_consumer_iterates_while_the_producer_yields(h: Harness) -> None:
    """Each value is read before the next one is written: nothing is held back until the end."""
    dp, reader = h.plane(), h.another()
    dp.submit("q", b"", id="a")
    job = must_claim(dp)
    got: list[object] = []
    news = threading.Semaphore(0)
    failure: list[BaseException] = []

    def consume() -> None:
        try:
            for _seq, data in reader.journal_read("a", timeout=20):
                got.append(Frame.from_bytes(data))
                news.release()
        except BaseException as exc:  # noqa: BLE001  # the case looks at it
            failure.append(exc)
            news.release()

    thread = threading.Thread(target=consume)
    thread.start()
    writer = FrameWriter(job.first_seq, attempt=job.attempt)
    for n in range(5):
        _write(dp, job, writer.value(n))
        assert news.acquire(timeout=20), "a value did not reach the consumer while the producer runs"
        assert not failure, failure
        assert len(got) == n + 1
    dp.ack("a", "w1", claim=job.claim, last_seq=writer.next_seq - 1)
    thread.join(20)
    assert not failure, failure
    assert [frame.body for frame in got[:-1]] == list(range(5))  # type: ignore[attr-defined]  # they are frames
    assert got[-1].kind is FrameKind.END  # type: ignore[attr-defined]


@case("P-469", "K-24")
def partial_key_lists_concatenate(h: Harness) -> None:
    dp = h.plane()
    dp.submit("q", b"", id="a")
    job = must_claim(dp)
    writer = FrameWriter(job.first_seq, attempt=job.attempt)
    parts = [["outputs/0000/"], ["outputs/0001/", "outputs/0002/"], []]
    _write(dp, job, *(writer.value(part) for part in parts))
    dp.ack("a", "w1", claim=job.claim, last_seq=writer.next_seq - 1)
    manifest = [key for part in reassemble(read(dp, "a")) for key in part]
    assert manifest == ["outputs/0000/", "outputs/0001/", "outputs/0002/"]


@case("P-470", "P-229")
def a_violation_after_some_values_surfaces_to_the_consumer(h: Harness) -> None:
    dp = h.plane()
    dp.submit("q", b"", id="a")
    job = must_claim(dp)
    writer = FrameWriter(job.first_seq, attempt=job.attempt)
    _write(dp, job, writer.value(["outputs/0000/"]))
    error = {"type": "KeyError_", "message": "wrote 'b' and did not return it"}
    dp.nack("a", "w1", error=error, retry=False, claim=job.claim)
    got: list[object] = []
    with refused(RemoteFailure, says="KeyError_: wrote 'b'"):
        for part in reassemble(read(dp, "a")):
            got.append(part)  # noqa: PERF402  # the values before the error count
    assert got == [["outputs/0000/"]]
