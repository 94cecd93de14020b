"""The list that the cases join, and the few words they share."""

from __future__ import annotations

from typing import Any

from ...wire.frames import Frame, FrameKind
from ...wire.states import row_state
from ..cases import Cases, refused
from ..harness import Harness, Job, Verbs

__all__ = ["CASES", "Frame", "FrameKind", "Harness", "Job", "Verbs", "begin", "case", "ended", "must_claim", "refused"]

CASES: Cases[Harness] = Cases()
case = CASES.case

STATES = ("queued", "running", "succeeded", "failed", "killed", "timeout")


def must_claim(plane: Verbs, queue: str = "q", worker: str = "w1", **how: Any) -> Job:
    """The next job, which has to be there. `how` are claim options of the plane at hand."""
    job = plane.claim(queue, worker, **how)
    assert job is not None, f"queue {queue!r} has nothing to claim"
    return job


def begin(plane: Verbs, job: Job) -> None:
    """Let the body of a claim begin, on any plane: its first frame says so (K-6)."""
    plane.journal_append(job.id, None, value(job.first_seq, "begun"), claim=job.claim)


def value(seq: int, body: object) -> bytes:
    """A VALUE frame."""
    return Frame(FrameKind.VALUE, seq, body).to_bytes()


def state(plane: Verbs, inv_id: str) -> str:
    """The row's state, in the row's own words."""
    row = plane.get(inv_id)
    assert row is not None, f"{inv_id} has no row"
    return row_state(row["state"])


def column(plane: Verbs, inv_id: str, name: str) -> object:
    """One column of the row."""
    row = plane.get(inv_id)
    assert row is not None, f"{inv_id} has no row"
    return row[name]


def read(plane: Verbs, inv_id: str, since: int = -1, timeout: float = 10.0) -> list[Frame]:
    """Every frame after `since` of a stream that ends; each is where its seq says."""
    frames = []
    for seq, data in plane.journal_read(inv_id, since=since, timeout=timeout):
        frame = Frame.from_bytes(data)
        assert frame.seq == seq, f"the frame at {seq} says that it is {frame.seq}"
        frames.append(frame)
    return frames


def ended(plane: Verbs, inv_id: str, attempts: int = 9, *, worker: str = "w1", queue: str = "q") -> None:
    """Fail an invocation until it is over."""
    for _ in range(attempts):
        job = must_claim(plane, queue, worker)
        assert job.id == inv_id
        plane.nack(job.id, worker, error="no", claim=job.claim)
        if state(plane, inv_id) != "queued":
            return
    raise AssertionError(f"{inv_id} does not end")
