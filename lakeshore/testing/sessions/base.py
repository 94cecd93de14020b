"""What the cases over the poll verb are written in. `sending` makes a poll that is on its way."""

from __future__ import annotations

from ...plane.contract import Held, Outcome, Poll, PollAnswer, Report, Superseded, Wish
from ..cases import Cases, refused
from ..harness import PollHarness

SESSIONS: Cases[PollHarness] = Cases()
case = SESSIONS.case

NS = "default"


def unstarted(inv_id: str, claim: int) -> Held:
    return Held(id=inv_id, claim=claim, started=False)


def started(inv_id: str, claim: int) -> Held:
    return Held(id=inv_id, claim=claim, started=True)


def report(
    inv_id: str, claim: int | None, outcome: Outcome = "succeeded", *, retry: bool = True, last_seq: int | None = None
) -> Report:
    failed = outcome != "succeeded"
    return Report(
        ns=NS,
        id=inv_id,
        outcome=outcome,
        claim=claim,
        worker="w",
        error=b"\x81\xa4type\xaaValueError" if failed else None,
        retry=failed and retry,
        last_seq=last_seq,
    )


def sending(
    n: int,
    *held: Held,
    session: str = "s1",
    worker: str = "w",
    reports: tuple[Report, ...] = (),
    capacity: int = 2,
    queue: str = "default",
) -> Poll:
    """A poll of a worker's session."""
    wish = Wish(ns=NS, queues=(queue,), worker=worker, session=session, n=n, capacity=capacity)
    return Poll(ns=NS, worker=worker, session=session, n=n, held=held, reports=reports, wish=wish)


def runs(answer: PollAnswer) -> list[tuple[str, int]]:
    return [(run.id, run.claim) for run in answer.runs]


def said(answer: PollAnswer) -> list[str]:
    return [settled.result for settled in answer.settled]


def state(h: PollHarness, inv_id: str = "0") -> tuple[str, int, int]:
    """(state, claim, attempt) of a row."""
    row = h.row(inv_id)
    return row["state"], row["claim"], row["attempt"]


def superseded(h: PollHarness, late: Poll) -> None:
    """The poll is refused, and no row has moved."""
    before = [h.row(inv_id) for inv_id in ("0", "1") if _known(h, inv_id)]
    with refused(Superseded):
        h.poll(late)
    assert before == [h.row(inv_id) for inv_id in ("0", "1") if _known(h, inv_id)]


def _known(h: PollHarness, inv_id: str) -> bool:
    return bool(h.row(inv_id))
