"""The shortest traces that an explicit-state model of the contract finds when a rule is missing.

Each case replays such a trace, and asserts the outcome that the rule brings about: polls may arrive late, twice or not
at all.
"""

from __future__ import annotations

from ...plane.contract import IllegalTransition, NotHeld
from ..cases import refused
from ..harness import PollHarness
from .base import case, report, runs, said, sending, started, state, superseded, unstarted


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
