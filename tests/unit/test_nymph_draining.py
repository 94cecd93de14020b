"""Leaving: two tokens, everything told before the end, a goodbye; and what makes a daemon leave."""

from __future__ import annotations

import pytest
from nymph_world import World, command, exec_, run

from lakeshore.nymph.core import events
from lakeshore.nymph.core.drain import Drain
from lakeshore.nymph.core.instructions import (
    Exit,
    GiveUpPoll,
    Poll,
    RunExec,
    RunSetup,
    SendAcks,
    SendResult,
    StartJob,
    StopExec,
    StopJob,
    StopSetup,
)
from lakeshore.wire.states import IllegalTransition


@pytest.mark.inventory("N-241", "N-246")
@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_the_first_signal_ends_the_asking_for_work_and_what_runs_goes_on(name: str) -> None:
    world = World().up(run("a"), exec_("e"))
    world.tell(events.Signalled(name=name))
    assert world.one(GiveUpPoll).n == 2
    assert (world.poll["capacity"], world.poll["draining"]) == (0, True)
    assert not world.these(StopJob) and not world.these(StopExec)
    assert world.core.status()["run_state"] == "draining"


@pytest.mark.inventory("N-242", "N-245", "N-427")
def test_it_leaves_when_everything_has_ended_and_was_told_with_a_goodbye() -> None:
    world = World(grace_s=60).up(run("a"))
    world.signal()
    world.answer()
    world.ended("a", after=5.0)
    world.one(SendAcks)
    assert not world.these(Exit)
    world.acked()
    goodbye = world.poll
    assert goodbye["draining"] is True and goodbye["held"] == [] and goodbye["capacity"] == 0
    assert not world.these(Exit)
    world.answer()
    assert world.one(Exit) == Exit(code=0, why="SIGTERM")


@pytest.mark.inventory("N-427", "N-373")
@pytest.mark.parametrize("heard", ["nobody", "an older server"])
def test_a_goodbye_that_nobody_hears_holds_nobody_up(heard: str) -> None:
    world = World().up()
    world.signal()
    if heard == "nobody":
        world.fail(after=5.0)
    else:
        world.answer(run("more"))
        assert not world.these(StartJob)
    assert world.one(Exit).code == 0


@pytest.mark.inventory("K-11")
def test_claims_are_renewed_while_it_drains() -> None:
    world = World(grace_s=600).up(run("a"))
    world.started("a")
    world.signal()
    for _ in range(20):
        world.answer()
        assert not world.these(Poll)
        world.wait()
        assert world.poll["held"] == [["a", 1, True]]
    assert world.now >= 100.0 + 20 * 15
    assert not any(isinstance(one, StopJob) for one in world.all)


@pytest.mark.inventory("N-051", "N-243", "N-244")
def test_when_the_grace_is_over_everything_is_stopped() -> None:
    world = World(grace_s=45).up(run("a"), exec_("e"), command("setup", "s", script="sleep 1000"))
    world.signal()
    world.answer()
    world.wait(44.9)
    assert not world.these(StopJob)
    world.wait(0.2)
    world.one(StopJob)
    world.one(StopExec)
    world.one(StopSetup)
    assert World().core.handle(events.Booted(), 0.0)


@pytest.mark.inventory("N-198", "N-244", "N-245")
def test_what_was_stopped_is_acked_as_killed_before_it_leaves() -> None:
    world = World(grace_s=10).up(run("a"))
    world.signal()
    world.answer()
    world.wait(10.0)
    world.ended("a", state="failed", error="signal 15")
    (item,) = world.one(SendAcks).items
    assert item["state"] == "killed"
    assert item["error"] == {"type": "Cancelled", "message": "daemon shutdown grace expired"}
    world.acked()
    world.answer()
    world.one(Exit)


def test_the_second_signal_stops_at_once_and_a_third_changes_nothing() -> None:
    world = World(grace_s=3600).up(run("a"), exec_("e"))
    world.signal()
    world.signal(after=1.0)
    world.one(StopJob)
    world.one(StopExec)
    world.signal(after=1.0)
    assert not world.these(StopJob) and not world.these(StopExec)


@pytest.mark.inventory("K-9", "K-34")
def test_nothing_starts_once_it_drains_and_what_waited_is_told_or_goes_back() -> None:
    world = World(max_invocations=2).up(exec_("e1"), exec_("e2"), exec_("e3"), command("setup", "s1", script="1"))
    world.wait()
    world.answer(command("setup", "s2", script="2"))
    world.signal()
    assert {(one.kind, one.id) for one in world.these(SendResult)} == {("exec", "e3"), ("setup", "s2")}
    assert all(one.body["exit_code"] == -1 for one in world.these(SendResult))
    assert all("shutting down" in one.body["error"] for one in world.these(SendResult))
    world.exec_ended("e1")
    assert not any(isinstance(one, (RunExec, RunSetup)) for one in world.did)


@pytest.mark.inventory("K-34")
def test_commands_that_come_with_a_renewal_are_not_run_and_told_so() -> None:
    world = World().up(run("a"))
    world.signal()
    world.answer(
        exec_("late"), run("late"), command("setup", "s", script="true"), command("hibernate", until_epoch_s=9e9)
    )
    assert {one.id for one in world.these(SendResult)} == {"late", "s"}
    assert not any(isinstance(one, (StartJob, RunExec, RunSetup)) for one in world.did)
    assert world.core.status()["run_state"] == "draining"


@pytest.mark.inventory("K-27")
def test_a_cancel_is_followed_on_the_way_out() -> None:
    world = World().up(run("a"))
    world.signal()
    world.answer(command("cancel", invocation_id="a", claim=1))
    assert world.one(StopJob).why == "cancelled"


def test_a_claim_that_waits_for_its_older_body_goes_back() -> None:
    world = World().up(run("a", 1))
    world.answer(run("a", 2), lost=[["a", 1]], after=1.0)
    world.signal()
    assert world.core.status()["run_state"] == "draining"
    world.ended("a", 1)
    assert world.poll["held"] == []
    assert not any(isinstance(one, StartJob) and one.claim == 2 for one in world.all)


@pytest.mark.inventory("N-389")
def test_what_nobody_takes_does_not_keep_it_for_ever() -> None:
    world = World(grace_s=5).up(run("a"))
    world.signal()
    world.fail()
    world.ended("a")
    for _ in range(100):
        if world.these(Exit):
            break
        if world.these(SendAcks):
            world.tell(events.AcksFailed(batch=world.last(SendAcks).batch, rand=0.5, reason="refused"), after=0.1)
        elif world.these(Poll):
            world.fail(after=0.1)
        else:
            world.wait()
    assert world.one(Exit).code == 0
    assert 110.0 <= world.now <= 120.0
    assert "error: leaving" in world.said


def test_what_does_not_die_does_not_keep_it_for_ever() -> None:
    world = World(grace_s=5).up(run("a"))
    world.signal()
    world.answer()
    for _ in range(20):
        if world.these(Exit):
            break
        world.wait()
        if world.these(Poll):
            world.answer()
    assert "leaving 1 behind" in world.said
    assert world.now <= 100 + 5 + 20


def test_the_time_that_the_host_sleeps_is_nobodys_grace() -> None:
    world = World(grace_s=60).up(run("a"))
    world.started("a")
    world.signal()
    world.answer()
    world.tell(events.ClockJumped(slept_s=3600.0, epoch=1.0), after=3600.0)
    assert not world.these(StopJob)
    world.answer(after=1.0)
    world.ended("a", after=30.0)
    assert world.these(SendAcks) or world.poll["acks"]


def test_a_signal_before_hello_is_answered_ends_it_at_once() -> None:
    world = World().boot()
    world.signal()
    assert world.one(Exit).code == 0
    assert not world.these(Poll)


def test_nothing_happens_after_the_end() -> None:
    world = World().boot()
    world.signal()
    with pytest.raises(IllegalTransition, match=r"draining by drain.*gone by leave"):
        world.tell(events.TimerFired())


# ---- why else


@pytest.mark.inventory("N-391", "S-312")
@pytest.mark.inventory("C-1462")
def test_a_daemon_whose_row_was_killed_drains_and_leaves() -> None:
    world = World().up(run("a"))
    world.fail(status=410)
    assert world.core.status()["run_state"] == "draining"
    assert not world.these(Poll), "there is nobody to renew it with"
    world.ended("a")
    world.acked("stale")
    assert world.one(Exit) == Exit(code=0, why="the server has removed this worker")


@pytest.mark.inventory("K-15")
def test_a_fenced_session_drains_and_still_tells_and_renews() -> None:
    world = World().up(run("a"))
    world.answer(status=410, after=1.0)
    assert (world.poll["held"], world.poll["capacity"]) == ([["a", 1, True]], 0)
    world.answer(status=410)
    world.ended("a")
    world.one(SendAcks)
    world.acked()
    world.answer(status=410)
    assert world.one(Exit) == Exit(code=0, why="the server has given this worker to a newer session")


def test_a_daemon_that_must_leave_for_another_reason_says_which() -> None:
    world = World().up()
    world.answer(status=410, reason="this worker was removed")
    assert world.core.status()["run_state"] == "draining"
    world.answer()
    assert world.one(Exit) == Exit(code=0, why="the server says: this worker was removed")


@pytest.mark.inventory("N-421")
def test_a_daemon_whose_key_was_revoked_drains_and_leaves_with_an_error() -> None:
    world = World().up(run("a"))
    world.fail(status=403, revoked=True)
    world.ended("a")
    world.acked()
    assert world.one(Exit).code == 1


def test_any_other_refusal_is_a_failed_poll() -> None:
    world = World().up()
    for status in (401, 403, 404, 429, 503):
        world.fail(status=status)
        assert world.core.status()["run_state"] == "backoff"
        world.wait()


@pytest.mark.inventory("N-389")
def test_every_patience_of_the_way_out_is_of_its_documented_length_and_a_sleep_prolongs_it() -> None:
    way_out = Drain("SIGTERM", 0, 100.0, 60.0)
    assert (way_out.stop_at, way_out.stuck_at()) == (160.0, 175.0), "TERM, KILL 5 s later, and 10 s to tell"
    assert way_out.next_at(100.0) == 160.0
    way_out.stopped = True
    assert way_out.next_at(160.0) == 175.0
    way_out.ended_at = 110.0
    assert (way_out.told_by(), way_out.left_by()) == (120.0, 125.0)
    assert [way_out.next_at(now) for now in (110.0, 119.9, 120.0)] == [120.0, 120.0, 125.0]
    way_out.slept(1000.0)
    assert (way_out.stop_at, way_out.stuck_at()) == (1160.0, 1175.0)
    assert (way_out.told_by(), way_out.left_by()) == (1120.0, 1125.0)
