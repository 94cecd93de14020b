"""The rules of the poll verb that need no fault to show (K-8, K-11, K-15, K-24, K-27, K-28)."""

from __future__ import annotations

from ...plane.contract import Report
from ..harness import PollHarness
from .base import NS, case, report, runs, said, sending, started, state, unstarted


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
