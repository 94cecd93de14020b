"""The worker protocol as cases over the poll verb (K-8, K-9, K-11, K-15, K-27, K-28).

The first part is the shortest traces that an explicit-state model of the contract finds when a rule is missing:
each case replays such a trace, and asserts the outcome that the rule brings about. `sending` makes a poll that is on
its way: a trace may deliver it late, twice, or never.
"""

from __future__ import annotations

from ..plane.contract import Held, IllegalTransition, NotHeld, Outcome, Poll, PollAnswer, Report, Superseded, Wish
from .cases import Cases, refused
from .harness import PollHarness

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


# ---- one rule switched off: the shortest trace of what breaks


@case("K-2", "K-5")
def a_report_whose_lease_expired_on_the_way_is_stale(h: PollHarness) -> None:
    """Guard `state = 'running'`: the row is queued again, and the old claim does not settle it."""
    h.submit("0")
    assert runs(h.poll(sending(1))) == [("0", 1)]
    ack = report("0", 1)
    h.lose("0", 1)
    assert h.settle(ack).result == "stale"
    assert state(h)[0] == "queued"


@case("K-5", "K-8")
def a_resent_report_never_settles_the_newer_claim(h: PollHarness) -> None:
    """Echoed claim numbers: the answer with claim 2 was lost, and the report of claim 1 comes again."""
    h.submit("0")
    assert runs(h.poll(sending(1))) == [("0", 1)]
    failed = report("0", 1, "failed")
    answer = h.poll(sending(2, reports=(failed,), capacity=1))
    assert (said(answer), runs(answer)) == (["ok"], [("0", 2)])
    answer = h.poll(sending(3, reports=(failed,), capacity=1))
    assert said(answer) == ["duplicate"]
    assert runs(answer) == [("0", 3)], "claim 2 was not listed: it went back, and comes under a new number"
    assert state(h) == ("running", 3, 1)


@case("K-5", "K-11")
def an_ack_that_is_overtaken_by_a_new_claim_is_stale(h: PollHarness) -> None:
    """Echoed claim numbers: the same worker has been given the job again meanwhile."""
    h.submit("0")
    h.poll(sending(1))
    late = sending(2, unstarted("0", 1), capacity=1)
    ack = report("0", 1)
    h.lose("0", 1)
    answer = h.poll(late)
    assert (list(answer.lost), runs(answer)) == ([("0", 1)], [("0", 2)])
    assert h.settle(ack).result == "stale"
    assert state(h)[:2] == ("running", 2)


@case("K-2", "K-27")
def a_killed_row_absorbs_the_late_success_of_a_dead_worker(h: PollHarness) -> None:
    """Terminal states absorb; the attempt counts the bodies that were begun."""
    h.submit("0")
    h.poll(sending(1))
    h.poll(sending(2, started("0", 1), capacity=1))
    late = sending(3, reports=(report("0", 1),), capacity=1)
    h.lose("0", 1)
    assert h.cancel("0").cancelled
    assert said(h.poll(late)) == ["stale"]
    assert state(h) == ("killed", 1, 1)


@case("K-2", "K-7")
def a_failed_row_absorbs_the_late_success_of_its_last_attempt(h: PollHarness) -> None:
    """Terminal states absorb: after the last loss the row is `WorkerLost`, whatever comes then."""
    h.submit("0", max_attempts=2)
    h.poll(sending(1))
    answer = h.poll(sending(2, reports=(report("0", 1, "failed"),), capacity=1))
    assert runs(answer) == [("0", 2)]
    h.poll(sending(3, started("0", 2), capacity=1))
    late = sending(4, reports=(report("0", 2),), capacity=1)
    h.lose("0", 2)
    assert said(h.poll(late)) == ["stale"]
    assert state(h) == ("failed", 2, 2)
    assert h.row("0")["error"]["type"] == "WorkerLost"


@case("K-8", "K-15")
def a_second_process_takes_nothing_from_the_first(h: PollHarness) -> None:
    """A list speaks for its session alone: what an older session runs stays its own."""
    h.submit("0")
    h.poll(sending(1))
    h.poll(sending(2, started("0", 1), capacity=1))
    assert h.register("w", "s2")
    assert runs(h.poll(sending(1, session="s2"))) == []
    assert state(h) == ("running", 1, 1)


@case("K-8", "K-15")
def a_second_process_takes_no_prefetched_job_either(h: PollHarness) -> None:
    """A list speaks for its session alone, also for what has not begun."""
    h.submit("0")
    h.submit("1")
    assert runs(h.poll(sending(1))) == [("0", 1), ("1", 1)]
    h.poll(sending(2, started("0", 1), unstarted("1", 1), capacity=0))
    assert h.register("w", "s2")
    assert runs(h.poll(sending(1, session="s2"))) == []
    assert [state(h, i)[:2] for i in "01"] == [("running", 1)] * 2


@case("K-8")
def a_late_duplicate_of_a_poll_returns_nothing(h: PollHarness) -> None:
    """Polls are numbered: the duplicate of poll 1 comes after poll 2, and its empty list says nothing any more."""
    h.submit("0")
    first = sending(1)
    assert runs(h.poll(first)) == [("0", 1)]
    h.poll(sending(2, started("0", 1), capacity=1))
    superseded(h, first)
    assert state(h) == ("running", 1, 1)


@case("K-8")
def a_late_duplicate_returns_no_prefetched_job_either(h: PollHarness) -> None:
    """Polls are numbered: with a full worker, one body running and one waiting."""
    h.submit("0")
    h.submit("1")
    first = sending(1)
    h.poll(first)
    h.poll(sending(2, started("0", 1), unstarted("1", 1), capacity=0))
    superseded(h, first)
    assert [state(h, i)[:2] for i in "01"] == [("running", 1)] * 2


@case("K-8")
def an_immediate_duplicate_returns_nothing(h: PollHarness) -> None:
    """Polls are numbered: the very poll that was answered with a claim comes again at once."""
    h.submit("0")
    first = sending(1)
    assert runs(h.poll(first)) == [("0", 1)]
    superseded(h, first)
    assert state(h)[:2] == ("running", 1)


@case("K-15")
def a_restarted_server_knows_its_sessions(h: PollHarness) -> None:
    """Sessions are stored: a worker goes on after a restart as if nothing had happened, its old polls stay old."""
    h.register("w", "s1")
    h.poll(sending(1))
    h.submit("0")
    h.restart()
    superseded(h, sending(1))
    assert runs(h.poll(sending(2))) == [("0", 1)]
    h.restart()
    answer = h.poll(sending(3, started("0", 1), reports=(), capacity=1))
    assert (list(answer.lost), answer.fenced) == ([], False)
    assert h.settle(report("0", 1)).result == "ok"


@case("K-15")
def a_restarted_server_knows_who_is_fenced(h: PollHarness) -> None:
    """Sessions are stored: the older process of a worker gets no work after a restart either."""
    h.submit("0")
    h.register("w", "s1")
    h.register("w", "s2")
    h.restart()
    answer = h.poll(sending(1, session="s1"))
    assert (answer.fenced, runs(answer)) == (True, [])
    assert runs(h.poll(sending(1, session="s2"))) == [("0", 1)]


@case("K-15")
def a_hello_that_comes_twice_is_one_hello(h: PollHarness) -> None:
    """The worker chooses its session: a doubled hello fences nobody."""
    h.submit("0")
    assert h.register("w", "s2")
    assert h.register("w", "s2")
    answer = h.poll(sending(1, session="s2"))
    assert (answer.fenced, runs(answer)) == (False, [("0", 1)])
    assert h.register("w", "s2"), "and none that comes late, after the first poll"
    superseded(h, sending(1, session="s2"))


@case("K-15")
def the_newest_hello_wins_however_often_it_comes(h: PollHarness) -> None:
    """Fenced once is fenced for good: the older hello comes after the newer one and is refused."""
    h.submit("0")
    assert h.register("w", "s2")
    for _ in range(2):
        assert h.register("w", "s4")
    assert not h.register("w", "s2")
    assert h.poll(sending(1, session="s2")).fenced
    answer = h.poll(sending(1, session="s4"))
    assert (answer.fenced, runs(answer)) == (False, [("0", 1)])


@case("K-15", "K-11")
def a_fenced_session_finishes_what_it_runs(h: PollHarness) -> None:
    """A fenced poll still marks, renews and settles: the body that runs is not taken away."""
    h.submit("0")
    h.submit("1")
    assert runs(h.poll(sending(1, capacity=1))) == [("0", 1)]
    h.register("w", "s2")
    answer = h.poll(sending(2, started("0", 1)))
    assert answer.fenced
    assert (list(answer.lost), runs(answer)) == ([], [])
    assert state(h) == ("running", 1, 1)
    answer = h.poll(sending(3, reports=(report("0", 1),)))
    assert (said(answer), runs(answer), answer.fenced) == (["ok"], [], True)
    assert state(h) == ("succeeded", 1, 1)


@case("K-15", "K-11")
def a_fenced_session_keeps_what_waits_in_it(h: PollHarness) -> None:
    """A fenced poll's list is honoured for prefetched jobs too; they may begin."""
    h.submit("0")
    h.submit("1")
    h.poll(sending(1))
    h.register("w", "s2")
    answer = h.poll(sending(2, started("0", 1), unstarted("1", 1), capacity=0))
    assert (list(answer.lost), answer.fenced) == ([], True)
    answer = h.poll(sending(3, started("1", 1), reports=(report("0", 1),), capacity=1))
    assert (said(answer), list(answer.lost)) == (["ok"], [])
    assert state(h, "1") == ("running", 1, 1)


@case("K-11")
def a_worker_is_told_that_its_claim_went_to_another(h: PollHarness) -> None:
    """`lost` names a pair that is not current: a partitioned worker learns that its body runs for nobody."""
    h.submit("0")
    h.poll(sending(1, worker="w"))
    elsewhere = sending(1, session="s2", worker="v")
    h.lose("0", 1)
    assert runs(h.poll(elsewhere)) == [("0", 2)]
    answer = h.poll(sending(2, started("0", 1), worker="w"))
    assert list(answer.lost) == [("0", 1)]
    assert state(h)[:2] == ("running", 2)
    assert h.settle(report("0", 1)).result == "stale"
    with refused(NotHeld):
        h.append("0", 1, 0)


@case("K-11", "K-12")
def a_frozen_worker_that_thaws_is_told(h: PollHarness) -> None:
    """`lost`, after a freeze: the first poll after the thaw names what is gone, and gives nothing back to it."""
    h.submit("0")
    h.poll(sending(1))
    frozen = sending(2, unstarted("0", 1), capacity=1)
    elsewhere = sending(1, session="s2", worker="v")
    h.lose("0", 1)
    assert runs(h.poll(elsewhere)) == [("0", 2)]
    answer = h.poll(frozen)
    assert (list(answer.lost), runs(answer)) == ([("0", 1)], [])
    assert state(h)[:2] == ("running", 2)


@case("K-27", "K-11")
def a_body_that_ran_unreported_when_it_was_cancelled_is_named_lost(h: PollHarness) -> None:
    """A cancel of an unstarted row kills it at once; the worker that had begun it is told, and its success is stale."""
    h.submit("0")
    h.poll(sending(1))
    done = h.cancel("0")
    assert (done.cancelled, done.worker, done.claim) == (True, "w", 1)
    answer = h.poll(sending(2, started("0", 1), capacity=1))
    assert list(answer.lost) == [("0", 1)]
    assert h.settle(report("0", 1)).result == "stale"
    assert state(h)[0] == "killed"


@case("K-11", "K-2")
def a_stale_answer_tells_a_worker_to_stop(h: PollHarness) -> None:
    """Not only `lost`: a report and a frame of a claim that is gone are refused in so many words."""
    h.submit("0")
    h.poll(sending(1))
    answer = h.poll(sending(2, reports=(report("0", 1, "failed"),), capacity=1))
    assert runs(answer) == [("0", 2)]
    h.poll(sending(3, started("0", 2), capacity=1))
    h.lose("0", 2)
    with refused(NotHeld):
        h.append("0", 2, 0)
    assert h.settle(report("0", 2, "failed")).result == "stale"
    assert list(h.poll(sending(4, started("0", 2), capacity=0)).lost) == [("0", 2)]


@case("K-6", "K-7")
def a_body_that_kills_its_worker_before_it_is_reported_ends(h: PollHarness) -> None:
    """Free losses are bounded: the late polls of the dead sessions claim it too, and still it ends as WorkerLost."""
    h.submit("0", max_attempts=3)
    claims = 0
    for life in range(1, 20):
        session = f"s{life:02}"
        h.register("w", session)
        got = runs(h.poll(sending(1, session=session)))
        if not got:
            break
        claims += 1
        late = sending(2, unstarted(*got[0]), session=session, capacity=1)
        h.lose(*got[0])
        answer = h.poll(late)
        if runs(answer):
            claims += 1
            h.lose(*runs(answer)[0])
    else:
        raise AssertionError("an endless loop of free losses")
    assert claims <= 6, f"{claims} claims of one poisonous row"
    assert state(h)[0] == "failed"
    assert h.row("0")["error"]["type"] == "WorkerLost"


@case("K-17", "K-8")
def a_retried_row_counts_its_attempts_from_zero(h: PollHarness) -> None:
    """A retry resets: attempts of the earlier run do not count, and its reports are stale."""
    h.submit("0", max_attempts=2)
    h.poll(sending(1))
    assert runs(h.poll(sending(2, reports=(report("0", 1, "failed"),), capacity=1))) == [("0", 2)]
    last = sending(3, reports=(report("0", 2, "failed"),), capacity=1)
    assert said(h.poll(last)) == ["ok"]
    assert state(h) == ("failed", 2, 2)
    h.retry("0", 2)
    superseded(h, last)
    assert state(h) == ("queued", 3, 0)
    answer = h.poll(sending(4, reports=(report("0", 2, "failed"),), capacity=1))
    assert (said(answer), runs(answer)) == (["stale"], [("0", 4)])
    h.poll(sending(5, started("0", 4), capacity=1))
    assert state(h) == ("running", 4, 1)


@case("K-17", "K-27")
def a_retried_row_outlives_the_deadline_of_the_earlier_cancel(h: PollHarness) -> None:
    """A retry clears cancel request and deadline."""
    h.submit("0")
    h.poll(sending(1))
    h.poll(sending(2, started("0", 1), capacity=1))
    assert h.cancel("0").cancelling
    h.deadline("0", 1)
    assert state(h)[0] == "killed"
    h.retry("0", 1)
    h.deadline("0", 1)
    h.deadline("0", 2)
    assert state(h)[0] == "queued"
    assert runs(h.poll(sending(3, capacity=1))) == [("0", 3)]
    h.deadline("0", 3)
    assert state(h)[0] == "running"


@case("K-17", "K-27")
def a_give_back_after_a_retry_is_no_answer_to_the_old_cancel(h: PollHarness) -> None:
    """A retry clears the request: the next claim is not told to stop, and giving it back queues it."""
    h.submit("0")
    h.poll(sending(1))
    again = sending(2, started("0", 1), capacity=1)
    h.poll(again)
    h.cancel("0")
    h.deadline("0", 1)
    h.retry("0", 1)
    superseded(h, again)
    answer = h.poll(sending(3, started("0", 1), capacity=1))
    assert (list(answer.lost), runs(answer)) == ([("0", 1)], [("0", 3)])
    answer = h.poll(sending(4, unstarted("0", 3), capacity=0))
    assert (list(answer.cancel), list(answer.lost)) == ([], [])
    h.poll(sending(5, capacity=0))
    assert state(h) == ("queued", 3, 0)


@case("K-17")
def a_retry_that_comes_twice_does_not_undo_a_later_cancel(h: PollHarness) -> None:
    """A retry names the claim that it saw."""
    h.submit("0")
    h.cancel("0")
    h.retry("0", 0)
    h.cancel("0")
    with refused(IllegalTransition):
        h.retry("0", 0)
    assert state(h)[0] == "killed"


@case("K-27")
def a_cancel_request_survives_the_server(h: PollHarness) -> None:
    """The request and its deadline are on the row."""
    h.submit("0")
    h.poll(sending(1))
    h.poll(sending(2, started("0", 1), capacity=1))
    assert h.cancel("0").cancelling
    h.restart()
    assert list(h.poll(sending(3, started("0", 1), capacity=1)).cancel) == [("0", 1)]
    h.restart()
    h.deadline("0", 1)
    assert state(h)[0] == "killed"


@case("K-8")
def a_poll_that_was_given_up_cannot_take_back_a_later_start(h: PollHarness) -> None:
    """One poll at a time: poll 2, sent with an empty list and given up, arrives after poll 3."""
    h.submit("0")
    h.poll(sending(1))
    given_up = sending(2)
    h.poll(sending(3, started("0", 1), capacity=1))
    superseded(h, given_up)
    assert state(h) == ("running", 1, 1)


@case("K-8")
def a_poll_that_was_given_up_cannot_take_back_a_full_worker(h: PollHarness) -> None:
    """One poll at a time, with a body running and a job waiting."""
    h.submit("0")
    h.submit("1")
    h.poll(sending(1))
    given_up = sending(2)
    h.poll(sending(3, started("0", 1), unstarted("1", 1), capacity=0))
    superseded(h, given_up)
    assert [state(h, i)[:2] for i in "01"] == [("running", 1)] * 2


@case("K-8", "K-5")
def of_two_answers_only_the_newer_one_counts(h: PollHarness) -> None:
    """One poll at a time: the answer to poll 1 is given up. Poll 2 gets the job under a new number, 1 is dead."""
    h.submit("0")
    assert runs(h.poll(sending(1))) == [("0", 1)]
    assert runs(h.poll(sending(2))) == [("0", 2)]
    answer = h.poll(sending(3, started("0", 1), started("0", 2)))
    assert list(answer.lost) == [("0", 1)]
    assert h.settle(report("0", 1)).result == "stale"
    assert h.settle(report("0", 2)).result == "ok"
    assert state(h) == ("succeeded", 2, 1)


@case("K-8", "K-11")
def a_claim_is_kept_while_its_ack_is_on_the_way(h: PollHarness) -> None:
    """A claim stays listed until its ack is answered, by whatever route the ack travels."""
    h.submit("0")
    h.poll(sending(1))
    ack = report("0", 1)
    answer = h.poll(sending(2, started("0", 1), capacity=0))
    assert list(answer.lost) == []
    assert h.settle(ack).result == "ok"
    answer = h.poll(sending(3, started("0", 1), reports=(ack,), capacity=1))
    assert said(answer) == ["duplicate"]
    assert state(h) == ("succeeded", 1, 1)


# ---- the rest of the rules


@case("K-8")
def what_is_not_listed_goes_back_and_costs_nothing_unstarted(h: PollHarness) -> None:
    h.submit("0")
    for n in range(1, 8):
        assert runs(h.poll(sending(n))) == [("0", n)]
    assert state(h) == ("running", 7, 0)


@case("K-8", "K-6")
def what_is_not_listed_is_a_loss_once_it_started(h: PollHarness) -> None:
    h.submit("0", max_attempts=1)
    h.poll(sending(1))
    h.poll(sending(2, started("0", 1), capacity=0))
    answer = h.poll(sending(3))
    assert runs(answer) == []
    assert state(h) == ("failed", 1, 1)
    assert h.row("0")["error"]["type"] == "WorkerLost"


@case("K-8")
def a_job_that_is_given_back_goes_to_the_next_in_the_same_poll(h: PollHarness) -> None:
    h.submit("0")
    h.poll(sending(1))
    h.poll(sending(2, unstarted("0", 1), capacity=0))
    assert runs(h.poll(sending(1, session="s2", worker="v"))) == []
    h.poll(sending(3, capacity=0))
    assert runs(h.poll(sending(2, session="s2", worker="v"))) == [("0", 2)]


@case("K-9", "K-11")
def capacity_is_the_most_that_is_given(h: PollHarness) -> None:
    for n in range(5):
        h.submit(str(n))
    assert runs(h.poll(sending(1, capacity=0))) == []
    got = runs(h.poll(sending(2, capacity=3)))
    assert got == [("0", 1), ("1", 1), ("2", 1)]
    held = [unstarted(*pair) for pair in got]
    assert runs(h.poll(sending(3, *held, capacity=1))) == [("3", 1)]


@case("K-9", "K-3")
def a_prefix_serves_its_queues_in_one_order(h: PollHarness) -> None:
    for inv_id, queue in (("0", "gpu-b"), ("1", "gpu-a"), ("2", "cpu"), ("3", "gpu-b")):
        h.submit(inv_id, queue=queue)
    got = h.poll(sending(1, capacity=9, queue="gpu-*"))
    assert runs(got) == [("0", 1), ("1", 1), ("3", 1)]
    assert [run.queue for run in got.runs] == ["gpu-b", "gpu-a", "gpu-b"]


@case("K-28", "K-6")
def started_is_recorded_once_however_often_it_is_listed(h: PollHarness) -> None:
    h.submit("0")
    answer = h.poll(sending(1))
    assert answer.runs[0].attempt == 1
    assert state(h)[2] == 0
    for n in range(2, 5):
        h.poll(sending(n, started("0", 1), capacity=0))
        assert state(h)[2] == 1
    h.poll(sending(5, unstarted("0", 1), capacity=0))
    assert h.row("0")["started"]


@case("K-6", "K-28")
def an_ack_implies_that_the_body_began(h: PollHarness) -> None:
    h.submit("0")
    h.poll(sending(1))
    answer = h.poll(sending(2, reports=(report("0", 1),), capacity=0))
    assert said(answer) == ["ok"]
    assert state(h) == ("succeeded", 1, 1)


@case("K-28", "K-24")
def one_refused_report_does_not_touch_the_rest(h: PollHarness) -> None:
    for inv_id in "012":
        h.submit(inv_id)
    h.poll(sending(1, capacity=3))
    reports = (report("0", 1), report("1", 1, last_seq=4), report("2", 7), report("nobody", 1))
    answer = h.poll(sending(2, unstarted("2", 1), reports=reports, capacity=0))
    assert said(answer) == ["ok", "gap", "stale", "stale"]
    assert answer.settled[1].expected == 0
    assert [state(h, i)[0] for i in "012"] == ["succeeded", "running", "running"]
    assert h.append("1", 1, 0).seq == 0
    answer = h.poll(sending(3, unstarted("2", 1), reports=(report("1", 1, last_seq=0),), capacity=0))
    assert said(answer) == ["ok"]
    assert h.row("1")["last_frame"] == 1


@case("K-28", "K-7")
def a_job_that_failed_may_come_back_in_the_same_answer(h: PollHarness) -> None:
    h.submit("0")
    h.poll(sending(1))
    answer = h.poll(sending(2, reports=(report("0", 1, "failed"),)))
    assert (said(answer), runs(answer)) == (["ok"], [("0", 2)])
    assert answer.runs[0].attempt == 2
    assert list(answer.lost) == [], "lost is about the list, which did not name it"


@case("K-27", "K-28")
def a_listed_pair_is_told_to_stop_until_it_ends(h: PollHarness) -> None:
    h.submit("0")
    h.poll(sending(1))
    h.poll(sending(2, started("0", 1), capacity=0))
    h.cancel("0")
    for n in (3, 4):
        answer = h.poll(sending(n, started("0", 1), capacity=0))
        assert (list(answer.cancel), list(answer.lost)) == ([("0", 1)], [])
    answer = h.poll(sending(5, reports=(report("0", 1, "killed"),)))
    assert (said(answer), runs(answer)) == (["ok"], [])
    assert state(h) == ("killed", 1, 1)


@case("K-27")
def a_success_in_the_poll_that_follows_the_request_wins(h: PollHarness) -> None:
    h.submit("0")
    h.poll(sending(1))
    h.poll(sending(2, started("0", 1), capacity=0))
    h.cancel("0")
    assert said(h.poll(sending(3, reports=(report("0", 1),)))) == ["ok"]
    h.deadline("0", 1)
    assert state(h)[0] == "succeeded"


@case("K-27", "K-8")
def a_requested_cancel_kills_what_is_given_back(h: PollHarness) -> None:
    h.submit("0")
    h.poll(sending(1))
    h.poll(sending(2, started("0", 1), capacity=0))
    h.cancel("0")
    assert runs(h.poll(sending(3))) == []
    assert state(h)[0] == "killed"


@case("K-15", "K-8")
def an_adopted_claim_moves_and_a_dead_one_is_named_lost(h: PollHarness) -> None:
    h.submit("0")
    h.submit("1")
    h.poll(sending(1))
    h.poll(sending(2, started("0", 1), started("1", 1), capacity=0))
    h.lose("1", 1)
    h.register("w", "s2")
    assert list(h.adopt("w", "s2", [("0", 1), ("1", 1), ("0", 9), ("nobody", 1)])) == [
        ("1", 1),
        ("0", 9),
        ("nobody", 1),
    ]
    answer = h.poll(sending(1, started("0", 1), session="s2", capacity=0))
    assert (list(answer.lost), answer.fenced) == ([], False)
    assert said(h.poll(sending(2, session="s2", reports=(report("0", 1),), capacity=0))) == ["ok"]


@case("K-15", "K-8")
def an_adopted_claim_that_is_not_listed_goes_back(h: PollHarness) -> None:
    h.submit("0")
    h.poll(sending(1))
    h.register("w", "s2")
    assert h.adopt("w", "s2", [("0", 1)]) == []
    assert runs(h.poll(sending(1, session="s2"))) == [("0", 2)]


@case("K-15")
def another_worker_adopts_nothing(h: PollHarness) -> None:
    h.submit("0")
    h.poll(sending(1))
    h.register("v", "s2")
    assert h.adopt("v", "s2", [("0", 1)]) == [("0", 1)]
    assert runs(h.poll(sending(1, session="s2", worker="v"))) == []
    assert h.settle(report("0", 1)).result == "ok"


@case("K-24", "K-6")
def a_frame_says_that_the_body_began(h: PollHarness) -> None:
    h.submit("0")
    h.poll(sending(1))
    assert not h.append("0", 1, 0).duplicate
    assert h.append("0", 1, 0).duplicate
    assert state(h) == ("running", 1, 1)
    assert h.cancel("0").cancelling, "what has begun is asked, not killed"


@case("K-23", "K-11")
def the_next_claim_is_told_where_the_frames_go_on(h: PollHarness) -> None:
    h.submit("0")
    assert h.poll(sending(1)).runs[0].first_seq == 0
    for seq in range(3):
        h.append("0", 1, seq)
    h.lose("0", 1)
    run = h.poll(sending(2)).runs[0]
    assert (run.claim, run.first_seq, run.attempt) == (2, 3, 2)


@case("K-5")
def a_peer_that_echoes_no_claim_is_matched_by_its_name(h: PollHarness) -> None:
    h.submit("0")
    h.poll(sending(1))
    stranger = Report(ns=NS, id="0", outcome="succeeded", worker="somebody")
    assert h.settle(stranger).result == "stale"
    mine = Report(ns=NS, id="0", outcome="succeeded", worker="w")
    assert h.settle(mine).result == "ok"
    assert h.settle(mine).result == "duplicate"
    assert h.settle(stranger).result == "stale"
