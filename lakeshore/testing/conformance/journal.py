"""Frames of one invocation: in order, once, resumable, and told from a cut (K-23, K-24, K-26)."""

from __future__ import annotations

from itertools import islice

from ...sdk.errors import DispatchError
from ...wire.errors import RemoteFailure
from ...wire.frames import reassemble
from .base import Frame, FrameKind, Harness, begin, case, column, must_claim, read, refused, state, value


@case("P-462", "K-24", "S-021")
def frames_come_in_the_order_they_were_written(h: Harness) -> None:
    dp = h.plane()
    dp.submit("q", b"", id="a")
    job = must_claim(dp)
    for seq in range(300):
        assert dp.journal_append("a", seq, value(seq, seq), claim=job.claim) == seq
    dp.ack("a", "w1", claim=job.claim, last_seq=299)
    frames = read(h.another(), "a")
    assert [frame.body for frame in frames[:-1]] == list(range(300))
    assert (frames[-1].kind, frames[-1].seq) == (FrameKind.END, 300)


@case("P-463", "K-24", "P-290")
def a_reader_that_reconnects_misses_and_repeats_nothing(h: Harness) -> None:
    dp = h.plane()
    dp.submit("q", b"", id="a")
    job = must_claim(dp)
    got: list[int] = []
    for seq in range(6):
        dp.journal_append("a", seq, value(seq, seq), claim=job.claim)
    got += [seq for seq, _ in islice(dp.journal_read("a", timeout=5), 3)]
    dp.journal_append("a", 6, value(6, 6), claim=job.claim)
    got += [seq for seq, _ in islice(h.another().journal_read("a", since=got[-1], timeout=5), 2)]
    dp.ack("a", "w1", claim=job.claim, last_seq=6)
    got += [frame.seq for frame in read(dp, "a", since=got[-1])]
    assert got == list(range(8))
    assert read(dp, "a", since=7) == []


@case("P-290", "K-24", "S-681")
def the_same_frame_again_is_absorbed(h: Harness) -> None:
    dp = h.plane()
    dp.submit("q", b"", id="a")
    job = must_claim(dp)
    for seq in (0, 0, 1, 0, 1, 1, 2):
        assert dp.journal_append("a", seq, value(seq, seq), claim=job.claim) == seq
    dp.ack("a", "w1", claim=job.claim, last_seq=2)
    assert dp.journal_append("a", 1, value(1, 1), claim=job.claim) == 1, "a late resend is absorbed after the end too"
    assert [frame.body for frame in read(dp, "a")[:-1]] == [0, 1, 2]


@case("K-24")
def a_resent_frame_is_absorbed_after_a_trim(h: Harness) -> None:
    dp = h.plane()
    dp.submit("q", b"", id="a")
    job = must_claim(dp)
    for seq in range(3):
        dp.journal_append("a", seq, value(seq, seq), claim=job.claim)
    dp.journal_trim("a")
    assert dp.journal_append("a", 2, value(2, 2), claim=job.claim) == 2
    assert dp.journal_append("a", 3, value(3, 3), claim=job.claim) == 3


@case("K-24")
def a_frame_that_runs_ahead_is_refused(h: Harness) -> None:
    dp = h.plane()
    dp.submit("q", b"", id="a")
    job = must_claim(dp)
    dp.journal_append("a", 0, value(0, 0), claim=job.claim)
    with refused(DispatchError, says="1"):
        dp.journal_append("a", 2, value(2, 2), claim=job.claim)
    assert dp.journal_append("a", 1, value(1, 1), claim=job.claim) == 1


@case("K-24")
def an_ack_waits_for_its_frames(h: Harness) -> None:
    dp = h.plane()
    dp.submit("q", b"", id="a")
    job = must_claim(dp)
    dp.journal_append("a", 0, value(0, 0), claim=job.claim)
    with refused(DispatchError, says="1"):
        dp.ack("a", "w1", claim=job.claim, last_seq=1)
    assert state(dp, "a") == "running"
    dp.journal_append("a", 1, value(1, 1), claim=job.claim)
    dp.ack("a", "w1", claim=job.claim, last_seq=1)
    assert state(dp, "a") == "succeeded"


@case("P-289", "P-290", "K-24")
def without_a_seq_the_next_one_is_taken(h: Harness) -> None:
    dp = h.plane()
    dp.submit("q", b"", id="a")
    must_claim(dp)
    assert [dp.journal_append("a", None, value(n, n)) for n in range(3)] == [0, 1, 2]


@case("P-464", "K-24")
def an_end_is_told_from_a_cut(h: Harness) -> None:
    """A reader that was cut has no terminal frame; one whose producer finished has END, however the frames came."""
    dp = h.plane()
    dp.submit("q", b"", id="a")
    job = must_claim(dp)
    dp.journal_append("a", 0, value(0, 0), claim=job.claim)
    cut: list[Frame] = []
    with refused(TimeoutError):
        for _seq, data in dp.journal_read("a", timeout=1.0):
            cut.append(Frame.from_bytes(data))
    assert [frame.kind.terminal for frame in cut] == [False]
    dp.ack("a", "w1", result=b"r", claim=job.claim)
    whole = read(dp, "a")
    assert [frame.kind for frame in whole] == [FrameKind.VALUE, FrameKind.END]


@case("P-464", "K-24")
def an_empty_stream_ends_with_end(h: Harness) -> None:
    dp = h.plane()
    dp.submit("q", b"", id="a")
    job = must_claim(dp)
    dp.ack("a", "w1", claim=job.claim, last_seq=-1)
    assert [(frame.kind, frame.seq) for frame in read(dp, "a")] == [(FrameKind.END, 0)]


@case("K-24")
def a_final_frame_ends_nothing_by_itself(h: Harness) -> None:
    """END belongs to the commit that settles; until then the invocation runs."""
    dp = h.plane()
    dp.submit("q", b"", id="a")
    job = must_claim(dp)
    dp.journal_append("a", 0, value(0, 0), claim=job.claim)
    end = Frame(FrameKind.END, 1).to_bytes()
    assert dp.journal_append("a", 1, end, final=True, claim=job.claim) == 1
    assert state(dp, "a") == "running"
    assert [seq for seq, _ in islice(dp.journal_read("a", timeout=5), 1)] == [0]
    dp.ack("a", "w1", claim=job.claim)
    assert [frame.kind for frame in read(dp, "a")] == [FrameKind.VALUE, FrameKind.END]


@case("P-465", "K-24", "P-229")
def an_error_reconstructs_the_exception(h: Harness) -> None:
    dp = h.plane()
    dp.submit("q", b"", id="a")
    job = must_claim(dp)
    dp.journal_append("a", 0, value(0, "before"), claim=job.claim)
    dp.nack("a", "w1", error={"type": "ValueError", "message": "bad frame 7"}, retry=False, claim=job.claim)
    frames = read(dp, "a")
    assert (frames[-1].kind, frames[-1].seq) == (FrameKind.ERROR, 1)
    with refused(RemoteFailure, says="ValueError: bad frame 7") as caught:
        list(reassemble(frames))
    assert (caught[0].type, caught[0].message) == ("ValueError", "bad frame 7")


@case("K-24", "K-7")
def a_failed_attempt_that_is_retried_ends_no_stream(h: Harness) -> None:
    dp = h.plane()
    dp.submit("q", b"", id="a")
    job = must_claim(dp)
    dp.journal_append("a", 0, value(0, "first"), claim=job.claim)
    dp.nack("a", "w1", error="once more", claim=job.claim)
    with refused(TimeoutError):
        read(dp, "a", timeout=0.05)
    job = must_claim(dp)
    assert job.first_seq == 1
    dp.journal_append("a", 1, value(1, "second"), claim=job.claim)
    dp.ack("a", "w1", claim=job.claim, last_seq=1)
    frames = read(dp, "a")
    assert [frame.seq for frame in frames] == [0, 1, 2]
    assert frames[-1].kind is FrameKind.END


@case("K-23")
def a_retried_generator_goes_on_with_the_public_seq(h: Harness) -> None:
    dp = h.plane()
    dp.submit("q", b"", id="a")
    seq = 0
    for attempt in (1, 2, 3):
        job = must_claim(dp)
        assert (job.first_seq, job.attempt) == (seq, attempt)
        for _ in range(2):
            data = Frame(FrameKind.VALUE, seq, attempt, {"attempt": attempt}).to_bytes()
            dp.journal_append("a", seq, data, claim=job.claim)
            seq += 1
        if attempt < 3:
            h.lose("a", job.claim)
    dp.ack("a", "w1", claim=job.claim, last_seq=seq - 1)
    frames = read(dp, "a")
    assert [frame.seq for frame in frames] == list(range(7))
    assert [(frame.meta or {}).get("attempt") for frame in frames[:-1]] == [1, 1, 2, 2, 3, 3]


@case("K-24", "K-7")
def a_stream_whose_worker_is_lost_for_good_ends_in_error(h: Harness) -> None:
    dp = h.plane()
    dp.submit("q", b"", id="a", run_config={"max_attempts": 1})
    job = must_claim(dp)
    begin(dp, job)
    h.lose("a", job.claim)
    last = read(dp, "a")[-1]
    assert last.kind is FrameKind.ERROR
    assert (last.meta or {})["type"] == "WorkerLost"


@case("K-24", "K-27")
def a_stream_that_is_cancelled_ends_in_error(h: Harness) -> None:
    """Wherever the row was: asked to stop while it ran, or killed while it waited for its next attempt."""
    dp = h.plane()
    for inv_id in ("running", "waiting"):
        dp.submit(inv_id, b"", id=inv_id)
        job = must_claim(dp, inv_id)
        dp.journal_append(inv_id, 0, value(0, "begun"), claim=job.claim)
        if inv_id == "waiting":
            dp.nack(inv_id, "w1", error="once more", claim=job.claim)
            assert dp.cancel(inv_id)
        else:
            dp.cancel(inv_id)
            dp.nack(inv_id, "w1", error="stopped", claim=job.claim)
        frames = read(dp, inv_id)
        assert [frame.kind for frame in frames] == [FrameKind.VALUE, FrameKind.ERROR], inv_id
        assert column(dp, inv_id, "last_frame") == 1


@case("P-467", "P-286", "K-24")
def a_trimmed_stream_degrades_to_the_result(h: Harness) -> None:
    dp = h.plane()
    dp.submit("q", b"", id="a")
    job = must_claim(dp)
    for seq in range(5):
        dp.journal_append("a", seq, value(seq, seq), claim=job.claim)
    assert dp.journal_trim("a", keep_last=2) == 3
    assert [seq for seq, _ in islice(dp.journal_read("a", timeout=5), 2)] == [3, 4]
    dp.journal_append("a", 5, value(5, 5), claim=job.claim)
    dp.ack("a", "w1", result=b"everything", claim=job.claim, last_seq=5)
    assert dp.journal_trim("a") == 4
    assert read(dp, "a") == []
    assert state(dp, "a") == "succeeded"
    assert dp.result("a", timeout=5) == b"everything"


@case("K-24", "K-22")
def the_frames_of_an_unknown_invocation_are_refused(h: Harness) -> None:
    dp = h.plane()
    with refused(DispatchError, says="unknown"):
        list(dp.journal_read("nobody", timeout=1))


@case("K-24")
def a_stream_without_frames_ends_with_its_row(h: Harness) -> None:
    dp = h.plane()
    dp.submit("q", b"", id="a")
    dp.cancel("a")
    assert read(dp, "a") == []
