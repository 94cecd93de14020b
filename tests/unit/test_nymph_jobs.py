"""A job's life: its ack, its lease, who takes it away, and that a newer claim waits for the older body."""

from __future__ import annotations

from typing import Any

import pytest
from nymph_world import World, command, run

from lakeshore.nymph.core import events
from lakeshore.nymph.core.held import Held
from lakeshore.nymph.core.instructions import Poll, ReleaseJob, SendAcks, SendFrames, StartJob, StopJob
from lakeshore.nymph.core.outbox import Outbox
from lakeshore.nymph.core.story import Story
from lakeshore.wire.messages import ACK_STATES
from lakeshore.wire.states import IllegalTransition


def ack_of(ending: dict[str, Any]) -> dict[str, Any]:
    world = World().up(run("a", 7))
    world.tell(events.JobEnded(invocation_id="a", claim=7, ending=ending))
    (item,) = world.one(SendAcks).items
    return dict(item)


@pytest.mark.inventory("N-184", "N-185", "N-188")
@pytest.mark.inventory("S-440")
def test_a_run_is_handed_to_its_runner_as_it_came() -> None:
    more = {
        "function": {"module": "m", "qualname": "f", "version": "v1"},
        "run_config": {"runner": "docker", "unheard": 1},
        "parent_invocation_id": "p",
        "root_invocation_id": "r",
        "prefix": "x/",
        "script": "echo",
        "as_user": "ann",
        "of_a_later_server": True,
    }
    sent = run("a", 7, **more)
    world = World().up(sent)
    assert world.one(StartJob) == StartJob(invocation_id="a", claim=7, body=sent["body"])


@pytest.mark.inventory("N-192")
def test_an_ending_is_told_at_once_while_a_poll_is_held_open() -> None:
    world = World().up(run("a"))
    assert world.these(Poll)
    world.ended("a")
    assert [item["invocation_id"] for item in world.one(SendAcks).items] == ["a"]
    assert not world.these(Poll)


@pytest.mark.inventory("N-193", "N-194", "K-5")
def test_an_ack_echoes_the_claim_and_carries_a_result_only_of_a_success() -> None:
    item = ack_of({"state": "succeeded", "result_blob": b"42", "last_seq": 3})
    assert item == {
        "invocation_id": "a",
        "claim": 7,
        "worker_id": "w1",
        "state": "succeeded",
        "result_blob": b"42",
        "error": None,
        "last_seq": 3,
    }
    assert ack_of({"state": "succeeded"})["result_blob"] == b""
    for state in set(ACK_STATES) - {"succeeded"}:
        item = ack_of({"state": state, "result_blob": b"half", "error": {"type": "E", "message": "m"}})
        assert (item["state"], item["result_blob"]) == (state, b"")


@pytest.mark.inventory("K-20")
def test_a_large_result_is_acked_by_reference() -> None:
    item = ack_of({"state": "succeeded", "result_ref": {"key": "k", "size": 9, "sha256": "0" * 64}})
    assert item["result_ref"]["key"] == "k" and "result_blob" not in item


@pytest.mark.inventory("N-195", "N-197", "N-199")
@pytest.mark.parametrize(
    ("error", "told"),
    [
        ("it broke", {"type": "DaemonError", "message": "it broke"}),
        ({"type": "ImageRequired", "message": "no image"}, {"type": "ImageRequired", "message": "no image"}),
        ({"message": "m"}, {"type": "DaemonError", "message": "m"}),
        (
            {"type": "E", "message": "m", "traceback": "at line 1"},
            {"type": "E", "message": "m", "traceback": "at line 1"},
        ),
        (None, {"type": "DaemonError", "message": "the job ended: failed"}),
    ],
)
def test_an_error_is_a_type_and_a_message_never_a_string(error: Any, told: dict[str, str]) -> None:
    assert ack_of({"state": "failed", "error": error})["error"] == told


@pytest.mark.inventory("K-7")
def test_a_failure_says_whether_to_run_it_again() -> None:
    item = ack_of({"state": "failed", "error": "no", "retry": True, "retries": 2})
    assert (item["retry"], item["retries"]) == (True, 2)


@pytest.mark.inventory("K-35")
def test_a_timeout_is_its_own_state() -> None:
    item = ack_of({"state": "timeout", "error": {"type": "Timeout", "message": "after 5 s"}})
    assert (item["state"], item["error"]["type"]) == ("timeout", "Timeout")


# ---- acks


@pytest.mark.inventory("N-389", "N-200", "K-8")
def test_an_ack_is_told_until_it_is_answered_and_its_pair_is_listed_until_then() -> None:
    world = World().up(run("a"))
    world.ended("a")
    for wait in (1.0, 2.0, 4.0):
        batch = world.last(SendAcks).batch
        world.tell(events.AcksFailed(batch=batch, rand=0.0, reason="reset"))
        assert not world.these(ReleaseJob)
        before = world.now
        world.wait()
        assert world.now == before + wait
        assert world.one(SendAcks).items[0]["invocation_id"] == "a"
    world.answer()
    assert world.poll["held"] == [["a", 1, True]]
    world.acked()
    assert world.one(ReleaseJob) == ReleaseJob(invocation_id="a", claim=1, keep=False)
    world.answer(after=15.0)
    assert world.poll["held"] == []


def test_endings_gather_while_a_batch_of_acks_is_out() -> None:
    world = World().up(*(run(f"j{k}") for k in range(5)))
    world.ended("j0")
    assert len(world.one(SendAcks).items) == 1
    for k in (1, 2, 3):
        world.ended(f"j{k}")
        assert not world.these(SendAcks)
    world.acked()
    assert [item["invocation_id"] for item in world.one(SendAcks).items] == ["j1", "j2", "j3"]


@pytest.mark.inventory("N-204")
@pytest.mark.parametrize(("state", "kept"), [("succeeded", False), ("failed", True), ("timeout", True)])
def test_what_failed_keeps_its_directory_and_only_once_it_was_told(state: str, kept: bool) -> None:
    world = World().up(run("a"))
    world.ended("a", state=state)
    assert not world.these(ReleaseJob)
    world.acked()
    assert world.one(ReleaseJob).keep is kept


@pytest.mark.inventory("K-8")
@pytest.mark.parametrize("how", ["refused", "unheard-of"])
def test_a_refused_ack_stays_listed_and_is_sent_again(how: str) -> None:
    world = World().up(run("a"))
    world.ended("a")
    world.acked(how, error="disk full")
    assert "disk full" in world.said and not world.these(ReleaseJob)
    world.wait()
    assert world.one(SendAcks).items[0]["invocation_id"] == "a"


@pytest.mark.inventory("K-24")
def test_an_ack_that_is_a_gap_asks_for_the_missing_frames_and_is_sent_again() -> None:
    world = World().up(run("a"))
    world.ended("a", last_seq=9)
    world.acked("gap", expected=4)
    assert world.one(SendFrames) == SendFrames(invocation_id="a", claim=1, expected=4)
    world.wait()
    world.one(SendAcks)


@pytest.mark.inventory("K-24")
def test_a_success_whose_frames_are_not_there_any_more_is_a_failure() -> None:
    world = World().up(run("a"))
    world.ended("a", last_seq=9)
    world.acked("gap", expected=4)
    world.tell(events.FramesLost(invocation_id="a", claim=1, expected=4))
    assert "frame 4 is expected" in world.said
    world.wait()
    item = world.one(SendAcks).items[0]
    assert (item["state"], item["error"]["type"], "last_seq" in item) == ("failed", "DispatchError", False)
    world.acked("ok")
    assert world.one(ReleaseJob).keep
    world.tell(events.FramesLost(invocation_id="a", claim=1, expected=4))  # it comes late


@pytest.mark.inventory("K-2")
@pytest.mark.parametrize("result", ["ok", "duplicate", "stale"])
def test_each_final_answer_ends_the_telling(result: str) -> None:
    world = World().up(run("a"))
    world.ended("a")
    world.acked(result)
    world.one(ReleaseJob)
    world.answer(after=15.0)
    assert world.poll["acks"] == [] and world.poll["held"] == []


def test_an_ack_that_rode_on_a_failed_poll_is_sent_by_itself() -> None:
    world = World(max_invocations=1).up(run("a"))
    world.ended("a")
    assert world.poll["acks"]
    world.fail()
    assert world.one(SendAcks).items[0]["invocation_id"] == "a"


def test_a_job_that_could_not_begin_is_acked_like_any_other() -> None:
    world = World().up(run("a"))
    world.ended("a", state="failed", error="unknown runner kind: podman")
    assert world.one(SendAcks).items[0]["error"]["message"] == "unknown runner kind: podman"


# ---- leases


@pytest.mark.inventory("K-11")
def test_a_host_that_is_cut_off_stops_its_jobs_before_the_server_gives_them_away() -> None:
    world = World().up(run("a"))
    world.started("a")
    sent = world.now
    stops: list[StopJob] = []
    for _ in range(100):
        if stops or world.now > sent + 60.0:
            break
        if any(isinstance(one, Poll) for one in world.did):
            world.fail(after=1.0)
        else:
            world.wait()
        stops = world.these(StopJob)
    (stop,) = stops
    assert stop.why == "lease"
    assert world.now + stop.grace_s < sent + 60.0, "even what ignores TERM is gone by then"
    assert world.now - sent >= 50.0, "and not long before it must be"


@pytest.mark.inventory("K-11")
def test_an_answered_poll_renews_what_it_listed_from_when_it_was_sent() -> None:
    world = World().up(run("a"))
    world.answer(after=15.0)
    world.answer(after=15.0)
    world.fail(after=15.0)
    world.wait(23.9)
    assert not world.these(StopJob), "sent at 115, so until 169"
    world.wait(0.2)
    assert world.now == pytest.approx(169.1)
    world.one(StopJob)


@pytest.mark.inventory("K-11")
def test_the_lease_is_as_long_as_the_server_says() -> None:
    world = World().up()
    world.answer(run("a"), after=1.0, lease_s=10.0)
    assert world.poll["timeout_s"] == 2.5, "well below a lease"
    world.wait(7.9)
    assert not world.these(StopJob)
    world.wait(0.2)
    assert world.one(StopJob).grace_s == 0.5


def test_what_lapses_stays_listed_until_its_body_has_ended_and_is_then_given_back() -> None:
    world = World().up(run("a"))
    world.started("a")
    world.fail(after=54.0)
    world.wait()
    assert world.poll["held"] == [["a", 1, True]]
    world.ended("a", state="failed")
    assert world.one(ReleaseJob).invocation_id == "a"
    assert not world.these(SendAcks)
    world.answer(after=1.0)
    assert world.poll["held"] == []


def test_a_success_that_came_while_its_lease_lapsed_is_told_for_the_claim_is_the_fence() -> None:
    world = World().up(run("a"))
    world.fail(after=54.0)
    world.one(StopJob)
    world.ended("a", state="succeeded")
    assert world.one(SendAcks).items[0]["state"] == "succeeded"


@pytest.mark.inventory("K-12")
def test_a_body_may_begin_only_while_its_claim_can_be_counted_on() -> None:
    world = World().up(run("a"))
    assert world.core.may_begin("a", 1, world.now + 53.9)
    assert not world.core.may_begin("a", 1, world.now + 54.0)
    assert not world.core.may_begin("a", 2, world.now)
    world.answer(command("cancel", invocation_id="a", claim=1))
    assert not world.core.may_begin("a", 1, world.now), "nor when somebody has stopped it"


@pytest.mark.inventory("K-13")
def test_after_a_sleep_bodies_go_on_while_the_server_is_asked_whether_they_are_still_ours() -> None:
    world = World().up(run("a"), run("b"))
    world.started("a")
    world.tell(events.ClockJumped(slept_s=3600.0, epoch=1.0), after=3600.0)
    assert [stop.invocation_id for stop in world.these(StopJob)] == ["b"], "it had not begun: it may not begin now"
    assert world.poll["held"] == [["a", 1, True], ["b", 1, True]]
    world.answer(after=2.0)
    world.wait(10.0)
    assert not world.these(StopJob)
    asleep = World().up(run("a"))
    asleep.started("a")
    asleep.tell(events.ClockJumped(slept_s=3600.0, epoch=1.0), after=3600.0)
    asleep.wait(9.9)
    assert not asleep.these(StopJob)
    asleep.wait(0.2)
    asleep.one(StopJob)


def test_an_answer_after_a_sleep_ends_the_patience_with_bodies() -> None:
    world = World(lease_s=4.0).up()
    world.answer(run("a"), after=0.5, lease_s=4.0)
    world.started("a")
    world.tell(events.ClockJumped(slept_s=60.0, epoch=1.0), after=60.0)
    world.answer(after=0.5, lease_s=4.0)
    world.fail(after=1.0)
    world.wait(2.2)
    assert world.one(StopJob).why == "lease"


# ---- taken away


@pytest.mark.inventory("K-11", "K-28")
def test_a_lost_claim_is_stopped_and_not_listed_and_its_end_is_not_told() -> None:
    world = World().up(run("a"), run("b"))
    world.started("a")
    world.answer(lost=[["a", 1]], after=1.0)
    assert world.one(StopJob).invocation_id == "a" and world.one(StopJob).why == "lost"
    assert world.poll["held"] == [["b", 1, True]]
    world.ended("a")
    assert not world.these(SendAcks)
    assert world.one(ReleaseJob) == ReleaseJob(invocation_id="a", claim=1, keep=False)


@pytest.mark.inventory("K-11")
def test_a_newer_claim_of_an_invocation_starts_only_when_the_older_body_has_ended() -> None:
    world = World().up(run("a", 1))
    world.started("a", 1)
    world.answer(run("a", 2), lost=[["a", 1]], after=1.0)
    assert world.one(StopJob).claim == 1
    assert not world.these(StartJob)
    assert world.poll["held"] == [["a", 2, False]]
    world.ended("a", 1, "killed")
    assert world.one(StartJob).claim == 2


@pytest.mark.inventory("K-11")
def test_a_newer_claim_ends_the_older_body_even_when_nobody_named_it_lost() -> None:
    world = World().up(run("a", 1))
    world.answer(run("a", 2), after=1.0)
    assert (world.one(StopJob).claim, world.one(StopJob).why) == (1, "lost")


@pytest.mark.inventory("K-9")
def test_a_body_that_was_told_to_stop_holds_its_slot_until_it_has_ended() -> None:
    world = World(max_invocations=2).up(run("a"), run("b"))
    world.wait()
    world.answer(lost=[["a", 1]])
    world.wait()
    assert world.poll["capacity"] == 0
    world.ended("a")
    world.answer(after=0.1)
    assert world.poll["capacity"] == 1


def test_a_pair_whose_ack_crossed_the_poll_is_not_listed_again() -> None:
    world = World().up(run("a"))
    world.ended("a")
    world.answer(lost=[["a", 1]], after=0.1)
    assert world.poll["held"] == []
    assert not world.these(StopJob)
    world.acked("ok")
    world.one(ReleaseJob)


@pytest.mark.inventory("N-378", "K-27")
def test_a_cancel_ends_the_body_and_its_end_is_killed() -> None:
    world = World().up(run("a"), run("b"))
    world.started("a")
    world.answer(command("cancel", invocation_id="a", claim=1), after=1.0)
    assert world.one(StopJob) == StopJob(invocation_id="a", claim=1, why="cancelled", grace_s=5.0)
    assert world.poll["held"] == [["a", 1, True], ["b", 1, True]], "listed until its ending is answered"
    world.ended("a", state="failed", error="Terminated", retry=True)
    (item,) = world.one(SendAcks).items
    assert (item["state"], item["error"]) == ("killed", {"type": "Cancelled", "message": "cancelled"})
    assert "retry" not in item


@pytest.mark.inventory("K-27")
def test_a_success_that_was_there_first_wins_over_a_cancel() -> None:
    world = World().up(run("a"))
    world.answer(command("cancel", invocation_id="a", claim=1), after=1.0)
    world.ended("a", state="succeeded")
    assert world.one(SendAcks).items[0]["state"] == "succeeded"


@pytest.mark.inventory("K-5")
def test_a_cancel_of_another_claim_touches_nothing() -> None:
    world = World().up(run("a", 2))
    world.answer(command("cancel", invocation_id="a", claim=1), after=1.0)
    assert not world.these(StopJob)


@pytest.mark.inventory("K-9")
def test_a_claim_that_waits_is_dropped_by_a_cancel_without_a_word() -> None:
    world = World().up(run("a", 1))
    world.answer(run("a", 2), lost=[["a", 1]], after=1.0)
    world.answer(command("cancel", invocation_id="a", claim=2), after=1.0)
    assert world.poll["held"] == []
    assert not world.these(StopJob), "it has no body"
    world.ended("a", 1)
    assert not world.these(StartJob) and not world.these(SendAcks)


def test_what_was_cancelled_before_its_lease_lapsed_is_still_told_as_killed() -> None:
    world = World().up(run("a"))
    world.answer(command("cancel", invocation_id="a", claim=1), after=1.0)
    world.fail(after=53.5)
    assert not world.these(StopJob), "it was told to stop before"
    world.ended("a", state="failed")
    assert world.one(SendAcks).items[0]["state"] == "killed"


@pytest.mark.inventory("N-279")
def test_status_counts_jobs_and_commands_and_names_the_last_command() -> None:
    world = World().up(run("a"), command("exec", "c", exec_id="01E", command="true"))
    assert world.core.status()["inflight"] == {"count": 2, "last_exec_id": "01E"}
    world.ended("a")
    assert world.core.status()["inflight"]["count"] == 1


@pytest.mark.inventory("N-273", "N-274", "N-277")
def test_status_tells_the_worker_the_queue_and_the_last_poll_that_succeeded() -> None:
    world = World(queue="gpu").boot()
    told = world.core.status()
    assert (told["worker_id"], told["queue"], told["last_poll_ok_ts"]) == (None, "gpu", None)
    world.tell(events.HelloAnswered(answer={"worker_id": "w1"}))
    world.tell(events.PollAnswered(n=1, answer={}, epoch=1750000000.5))
    world.wait()
    world.fail(after=20.0)
    assert world.core.status()["last_poll_ok_ts"] == 1750000000.5


@pytest.mark.parametrize("stopped", [False, True], ids=["it ran", "it was to stop"])
@pytest.mark.inventory("K-7", "K-8")
def test_an_attempt_that_was_lost_is_not_acked_and_not_listed_any_more(stopped: bool) -> None:
    world = World().up(run("a"))
    world.started("a")
    if stopped:
        world.answer(command("cancel", invocation_id="a", claim=1))
    did = world.ended("a", state="lost")
    assert not [one for one in did if isinstance(one, SendAcks)]
    assert ReleaseJob(invocation_id="a", claim=1, keep=False) in world.all
    world.wait(0.2)
    assert world.last(Poll).body["held"] == []


# ---- what is to be told


def test_what_was_told_and_comes_again_is_told_again_at_once() -> None:
    box: Outbox[str] = Outbox()
    box.put("a", {"n": 1})
    assert box.take_due(0.0) == ["a"]
    assert box.take_due(0.0) == [], "it is in flight"
    assert box.answered("a") == {"n": 1}
    assert (box.answered("a"), len(box), box.due_at()) == (None, 0, None)
    box.put("a", {"n": 2})
    assert (box.due_at(), box.take_due(0.0)) == (0.0, ["a"])
    box.unanswered(["a", "b"], 60.0)
    assert (box.due_at(), box.take_due(59.0)) == (60.0, [])
    assert box.answered("a") == {"n": 2}, "an earlier sending was answered late"
    box.put("a", {"n": 3})
    assert (box.due_at(), box.take_due(0.0)) == (0.0, ["a"]), "its back-off was of the other one"


def test_one_sending_takes_as_much_as_a_body_may_hold_and_always_something() -> None:
    box: Outbox[int] = Outbox()
    for key in range(300):
        box.put(key, {})
    assert box.take_due(0.0) == list(range(256))
    assert box.take_due(0.0) == list(range(256, 300))
    large: Outbox[int] = Outbox()
    for key, size in enumerate((5 << 20, 3 << 20, 1 << 20, 1)):
        large.put(key, {"result_blob": bytes(size)})
    assert [large.take_due(0.0) for _ in range(3)] == [[0], [1, 2], [3]]


# ---- jobs of an older daemon


@pytest.mark.inventory("K-15")
def test_a_job_that_was_found_is_listed_as_it_was_until_its_lease_is_over() -> None:
    held = Held(Story())
    found = {"invocation_id": "a", "claim": "3", "body": {"queue": "q"}, "usable_until": 50.0, "started_at": 5.0}
    job = held.adopt(found, 40.0, 10.0)
    assert (job.id, job.claim, job.body, job.state) == ("a", 3, {"queue": "q"}, "running")
    assert (job.usable_until, job.started_at, job.ending) == (50.0, 5.0, {})
    assert held.get("a", 3) is job and held.listed() == held.alive() == [job] and held.taken() == 1
    over = held.adopt({"invocation_id": "b", "claim": 1, "ending": {"state": "failed"}}, 40.0, 10.0)
    assert (over.body, over.state, over.usable_until, over.started_at) == ({}, "ended", 40.0, None)
    assert over.ending == {"state": "failed"}
    assert held.taken() == 1, "what is over takes no slot"
    for claim in (2, 3):
        assert held.receive({"invocation_id": "a", "claim": claim}, 60.0, 11.0) is None, "it was delivered before"
    assert [one.id for one in held.lapsed(49.9)] == [] and [one.id for one in held.lapsed(50.0)] == ["a"]


def test_news_of_a_job_that_is_not_there_is_a_fault_that_names_it() -> None:
    held = Held(Story())
    with pytest.raises(IllegalTransition, match=r"^job a\.3 cannot go from nowhere to anything by end$"):
        held.known("a", 3, "end")
