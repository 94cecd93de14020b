"""Polls: one in flight, its number, what it lists, when the next one leaves, and what of an answer is read."""

from __future__ import annotations

import pytest
from nymph_world import EPOCH, World, command, exec_, run, settings

from lakeshore.nymph.core import events
from lakeshore.nymph.core.core import Core
from lakeshore.nymph.core.held import Held
from lakeshore.nymph.core.instructions import GiveUpPoll, Poll, RunExec, RunSetup, SendAcks, StartJob, StopJob
from lakeshore.nymph.core.outbox import Outbox
from lakeshore.nymph.core.polls import Polls
from lakeshore.nymph.core.story import Story
from lakeshore.wire.messages import PollRequest
from lakeshore.wire.states import IllegalTransition


@pytest.mark.inventory("N-107", "N-108", "N-109")
def test_an_idle_poll_names_its_queue_waits_as_configured_and_has_no_cursor() -> None:
    world = World(queue="gpu-*", wait_max_s=7.5).up()
    said = world.poll
    assert (said["queue"], said["timeout_s"], said["cursor"]) == ("gpu-*", 7.5, None)
    assert "updated_capabilities" not in said and "draining" not in said
    assert World().up().poll["timeout_s"] == 20.0
    assert World().up().poll["queue"] == "default"
    assert world.one(Poll).patience_s > 7.5, "the request takes longer than the server holds it"


@pytest.mark.inventory("K-12")
def test_where_leases_are_short_an_idle_poll_is_over_while_its_answer_may_still_be_read() -> None:
    world = World().up()
    world.answer(after=20.0, lease_s=3.0)
    assert world.poll["timeout_s"] == 1.5
    world.answer(run("a"), after=1.6)
    assert world.one(StartJob).invocation_id == "a"


def test_a_poll_says_nothing_that_the_wire_does_not_know() -> None:
    world = World(max_invocations=1).up(run("a"))
    world.ended("a")
    assert set(world.poll) <= set(PollRequest.__slots__)


@pytest.mark.inventory("K-8")
def test_one_poll_is_in_flight_and_numbers_rise() -> None:
    world = World().up()
    assert world.poll["n"] == 1
    world.tell(events.TimerFired())
    assert not world.these(Poll)
    world.answer(after=20.0)
    assert world.poll["n"] == 2


@pytest.mark.inventory("K-8")
def test_the_answer_of_a_poll_that_was_given_up_is_never_read() -> None:
    world = World().up()
    world.tell(events.ClockJumped(slept_s=60.0, epoch=EPOCH + 200), after=1.0)
    assert world.one(GiveUpPoll).n == 1
    assert world.poll["n"] == 2
    assert world.answer(run("a"), n=1) == []
    world.answer(after=20.0)
    assert world.poll["held"] == [], "so the claim goes back"


@pytest.mark.inventory("K-12")
def test_an_answer_that_comes_too_late_is_not_read() -> None:
    world = World().up()
    world.answer(run("a"), after=54.0)
    assert not world.these(StartJob)
    assert world.poll["held"] == []
    assert world.poll["seen"] == 0
    world.answer(run("b"), after=53.9)
    assert world.one(StartJob).invocation_id == "b"


def test_a_poll_tells_which_answer_was_read_last() -> None:
    world = World().up()
    world.answer(after=20.0)
    assert world.poll["seen"] == 1
    world.fail(after=20.0)
    world.wait()
    assert (world.poll["n"], world.poll["seen"]) == (3, 1)


@pytest.mark.inventory("K-8")
def test_after_superseded_the_number_jumps_above_what_the_server_has_seen() -> None:
    world = World().up()
    world.fail(status=409)
    world.wait()
    assert world.poll["n"] > 1 << 20


@pytest.mark.inventory("N-110", "N-111")
def test_every_job_in_flight_is_listed_with_its_state_and_start() -> None:
    world = World().up(run("a"), run("b"))
    assert world.poll["held"] == [["a", 1, True], ["b", 1, True]]
    world.started("a")
    world.answer(after=15.0)
    started = EPOCH + 100.0
    a, b = world.poll["invocations"]
    expected = {"invocation_id": "a", "state": "running", "started_at": started, "exit_code": None, "stdout_tail": None}
    assert a == expected
    assert b["started_at"] is None


@pytest.mark.inventory("N-377")
@pytest.mark.inventory("C-1477")
def test_the_end_of_a_jobs_output_is_told_once_while_it_does_not_change() -> None:
    world = World().up(run("a"))
    world.started("a")
    world.tell(events.JobOutput(invocation_id="a", claim=1, tail=b"x" * 9000 + b"end\xff"))
    world.answer(after=15.0)
    (status,) = world.poll["invocations"]
    assert status["stdout_tail"].endswith("xend�") and len(status["stdout_tail"]) == 8192
    world.answer(after=15.0)
    assert world.poll["invocations"][0]["stdout_tail"] is None
    world.fail(after=1.0)
    world.tell(events.JobOutput(invocation_id="a", claim=1, tail=b"more"))
    world.wait()
    assert world.poll["invocations"][0]["stdout_tail"] == "more"
    world.fail(after=1.0)
    world.wait()
    assert world.poll["invocations"][0]["stdout_tail"] == "more", "nobody has read it yet"


@pytest.mark.inventory("N-393")
def test_the_final_state_of_a_job_is_told_once_in_the_poll_after_its_ack() -> None:
    world = World(max_invocations=1).up(run("a"))
    world.ended("a", state="failed", exit_code=3)
    world.answer(acks=[{"invocation_id": "a", "claim": 1, "result": "ok"}], after=1.0)
    (status,) = world.poll["invocations"]
    assert (status["invocation_id"], status["state"], status["exit_code"]) == ("a", "failed", 3)
    world.answer(after=20.0)
    assert world.poll["invocations"] == []


# ---- slots


@pytest.mark.inventory("N-115", "N-164")
def test_runs_and_commands_share_the_slots() -> None:
    world = World(max_invocations=3).up(exec_("e1"), run("a"))
    assert world.one(RunExec).exec_id == "e1" and world.one(StartJob).invocation_id == "a"
    assert world.poll["capacity"] == 1
    world.answer(exec_("e2"), exec_("e3"))
    assert [one.exec_id for one in world.these(RunExec)] == ["e2"]
    world.ended("a")
    assert [one.exec_id for one in world.these(RunExec)] == ["e3"]


@pytest.mark.inventory("N-116", "K-11")
def test_a_full_daemon_asks_for_no_work_and_polls_every_15_seconds_for_what_else_there_is() -> None:
    world = World(max_invocations=1).up(run("a"))
    assert not world.these(Poll)
    for _ in range(3):
        before = world.now
        world.wait()
        assert world.now == before + 15.0
        assert (world.poll["capacity"], world.poll["timeout_s"]) == (0, 0.0)
        assert world.poll["held"] == [["a", 1, True]]
        world.answer()
    world.wait()
    world.answer(command("setup", script="true"), command("cancel", invocation_id="a", claim=1))
    assert world.these(RunSetup) and world.these(StopJob)


@pytest.mark.inventory("N-113", "N-114", "N-157")
@pytest.mark.parametrize("what", ["run", "exec"])
def test_whatever_ends_on_a_full_daemon_wakes_the_poll_loop_at_once(what: str) -> None:
    world = World(max_invocations=1).up(run("x") if what == "run" else exec_("x"))
    assert not world.these(Poll)
    world.now += 0.010
    world.ended("x") if what == "run" else world.exec_ended("x")
    assert world.poll["capacity"] == 1


@pytest.mark.inventory("K-28")
def test_the_poll_that_asks_for_the_next_job_carries_the_ack_of_the_last() -> None:
    world = World(max_invocations=1).up(run("a"))
    world.ended("a")
    assert not world.these(SendAcks), "one request does both"
    assert [ack["invocation_id"] for ack in world.poll["acks"]] == ["a"]
    assert world.poll["held"] == [["a", 1, True]]
    world.answer(run("b"), acks=[{"invocation_id": "a", "claim": 1, "result": "ok"}])
    assert world.one(StartJob).invocation_id == "b"


@pytest.mark.inventory("N-041", "K-9")
def test_no_bound_asks_for_as_much_as_an_answer_may_bring() -> None:
    assert World(max_invocations=0).up(*(run(f"j{k}") for k in range(200))).poll["capacity"] == 32
    assert World().up().poll["capacity"] == 32
    assert World(max_invocations=5).up(run("a")).poll["capacity"] == 4


@pytest.mark.inventory("K-8", "K-9")
def test_a_run_without_a_slot_is_not_listed_so_that_it_goes_back() -> None:
    world = World(max_invocations=1).up(run("a"), run("b"))
    assert [one.invocation_id for one in world.these(StartJob)] == ["a"]
    world.wait()
    assert world.poll["held"] == [["a", 1, True]]
    world.ended("a")
    world.answer()
    world.acked() if world.these(SendAcks) else None
    assert not any(isinstance(one, StartJob) and one.invocation_id == "b" for one in world.all)


# ---- what an answer brings


@pytest.mark.inventory("N-117", "N-118", "N-119")
@pytest.mark.parametrize(
    "bad",
    [
        {"id": "1", "kind": "teleport", "body": {}},
        {"id": "1", "kind": "run", "body": {"invocation_id": "a"}},
        {"id": "1", "kind": "run", "body": [1, 2]},
        {"id": "1", "kind": "exec", "body": {"exec_id": 7, "command": "true"}},
        {"id": "1", "kind": "hibernate", "body": {"until_epoch_s": "soon"}},
        {"id": "1", "kind": "setup", "body": None},
        {"id": "1", "body": {}},
        {"id": "1", "kind": ["run"], "body": {}},
        "run",
        None,
    ],
)
def test_a_command_that_is_not_understood_is_logged_and_skipped(bad: object) -> None:
    world = World().up()
    world.answer(bad, run("fine"))  # type: ignore[arg-type]  # that is the point
    assert "warning: skipping a command" in world.said
    assert world.one(StartJob).invocation_id == "fine"
    world.one(Poll)


@pytest.mark.inventory("N-120", "N-379", "N-135")
def test_commands_are_followed_in_the_documented_order_with_hibernate_last() -> None:
    until = EPOCH + 100 + 50
    world = World(has_identity=True).up(
        command("hibernate", "h", until_epoch_s=until),
        run("a"),
        {"id": "r", "kind": "rotate_key"},
        {"id": "b", "kind": "reset_backoff"},
        command("ota_update", "o", version="9", url="u", sha256="a" * 64),
        exec_("e"),
        command("setup", "s", script="true"),
    )
    kinds = [type(one).__name__ for one in world.did]
    assert kinds.index("InstallUpdate") < kinds.index("RotateKey")
    assert {"StartJob", "RunExec", "RunSetup"} <= set(kinds), "nothing was discarded"
    assert world.core.status()["run_state"] == "hibernating"


@pytest.mark.inventory("N-121")
@pytest.mark.parametrize("kind", ["ota-update", "otaUpdate", "resetBackoff", "rotateKey", "RUN"])
def test_the_kinds_are_spelled_as_documented(kind: str) -> None:
    world = World().up(command(kind, version="9", url="u", sha256="a" * 64, invocation_id="a", claim=1))
    assert f"skipping a command {kind!r}" in world.said


@pytest.mark.inventory("N-376", "K-5")
@pytest.mark.inventory("C-1454")
def test_a_command_that_comes_twice_is_followed_once() -> None:
    world = World().up(run("a"), exec_("e"), command("setup", "s1", script="true"))
    first = len(world.all)
    world.answer(run("a"), exec_("e"), command("setup", "s1", script="true"), after=15.0)
    assert not any(isinstance(one, (StartJob, RunExec, RunSetup)) for one in world.all[first:])
    world.exec_ended("e")
    world.answer(exec_("e"), after=1.0)
    assert not world.these(RunExec), "not when it is over either"


@pytest.mark.inventory("K-5")
def test_a_later_claim_of_an_invocation_is_a_new_run_and_an_earlier_one_is_not() -> None:
    world = World().up(run("a", 3))
    world.ended("a", 3)
    world.acked()
    world.answer(run("a", 2))
    assert not world.these(StartJob)
    world.wait()
    world.answer(run("a", 4), after=1.0)
    assert world.one(StartJob).claim == 4


def test_a_server_that_answers_at_once_with_nothing_new_is_not_asked_in_a_tight_loop() -> None:
    world = World().up()
    for _ in range(5):
        world.answer(after=0.001)
        assert not world.these(Poll)
        world.wait()
        world.one(Poll)
    assert world.now > 102.0
    world.answer(exec_("e"), after=0.001)
    world.one(Poll)


def test_a_cancel_that_is_said_again_and_again_does_not_make_a_tight_loop() -> None:
    world = World().up(run("a"))
    stop = command("cancel", invocation_id="a", claim=1)
    world.answer(stop, after=0.001)
    world.one(Poll)
    assert world.one(StopJob).why == "cancelled"
    world.answer(stop, after=0.001)
    assert not world.these(Poll) and not world.these(StopJob)


def test_time_may_not_go_back() -> None:
    world = World().up()
    with pytest.raises(ValueError, match="time went back"):
        world.core.handle(events.TimerFired(), world.now - 1)


@pytest.mark.inventory("N-105")
def test_the_first_poll_follows_hello_in_the_same_breath() -> None:
    world = World().boot()
    before = world.now
    world.tell(events.HelloAnswered(answer={"worker_id": "w1"}))
    assert world.poll["n"] == 1 and world.now == before
    assert isinstance(world.core, Core)


# ---- what is told once


def test_a_poll_that_asks_for_one_run_is_held_open() -> None:
    poll = World(max_invocations=1).up().poll
    assert (poll["capacity"], poll["timeout_s"]) == (1, 20.0)


@pytest.mark.inventory("N-110")
def test_what_waits_and_what_is_over_is_held_and_not_in_flight() -> None:
    polls, held, acks = Polls(settings()), Held(Story()), Outbox[tuple[str, int]]()
    held.receive({"invocation_id": "waits", "claim": 2}, 60.0, 0.0)
    held.adopt({"invocation_id": "runs", "claim": 1}, 60.0, 0.0)
    held.adopt({"invocation_id": "over", "claim": 1, "ending": {"state": "failed"}}, 60.0, 0.0)
    body = polls.compose(1.0, held, acks, capacity=1, draining=False).body
    assert body["held"] == [["waits", 2, False], ["runs", 1, True], ["over", 1, True]]
    assert [one["invocation_id"] for one in body["invocations"]] == ["runs"]


@pytest.mark.inventory("N-393")
def test_last_words_that_come_up_while_a_poll_is_out_ride_on_the_next_one() -> None:
    polls, held, acks = Polls(settings()), Held(Story()), Outbox[tuple[str, int]]()

    def words() -> list[str]:
        return [
            one["invocation_id"]
            for one in polls.compose(1.0, held, acks, capacity=1, draining=False).body["invocations"]
        ]

    polls.over = [{"invocation_id": "a"}]
    assert words() == ["a"]
    polls.over.append({"invocation_id": "b"})
    landed = polls.land(1, "PollAnswered")
    assert landed is not None
    polls.read(landed)
    assert words() == ["b"]


def test_the_answer_of_a_poll_that_never_was_is_a_fault_that_says_what_is_out() -> None:
    polls, held, acks = Polls(settings()), Held(Story()), Outbox[tuple[str, int]]()
    with pytest.raises(IllegalTransition) as none:
        polls.land(4, "PollAnswered")
    asked = (
        "poll 4 cannot go from nowhere to anything by PollAnswered; it has been 0 was the last whose answer was read, "
    )
    assert str(none.value) == f"{asked}no poll is out"
    polls.compose(1.0, held, acks, capacity=1, draining=False)
    with pytest.raises(IllegalTransition) as other:
        polls.land(4, "PollAnswered")
    assert str(other.value) == f"{asked}poll 1 is out"


def test_a_host_that_has_just_been_switched_on_polls_at_once() -> None:
    world = World()
    world.now = 0.0
    assert world.up().poll["n"] == 1


def test_of_many_polls_that_were_given_up_the_last_are_known_and_no_memory_grows() -> None:
    polls, held, acks = Polls(settings()), Held(Story()), Outbox[tuple[str, int]]()
    for _ in range(1000):
        polls.compose(1.0, held, acks, capacity=1, draining=False)
        polls.give_up()
    assert polls.land(1000, "PollAnswered") is None
    with pytest.raises(IllegalTransition):
        polls.land(1, "PollAnswered")


def test_a_daemon_that_was_given_no_other_name_and_its_acks_go_by_its_own() -> None:
    world = World(max_invocations=1).boot()
    world.tell(events.HelloAnswered(answer={"reject": None}))
    assert world.poll["worker_id"] == "box-01J"
    world.answer(run("a"))
    world.ended("a", after=1.0)
    assert [(ack["worker_id"], ack["invocation_id"]) for ack in world.poll["acks"]] == [("box-01J", "a")]


@pytest.mark.inventory("N-427")
def test_a_goodbye_is_waited_for_5_seconds() -> None:
    world = World().up()
    world.signal()
    assert world.one(Poll).patience_s == 5.0


@pytest.mark.inventory("K-11")
def test_a_daemon_that_comes_back_with_every_slot_taken_renews_its_claims_at_once() -> None:
    world = World(max_invocations=1).boot([{"invocation_id": "runs", "claim": 3}])
    world.tell(events.HelloAnswered(answer={"worker_id": "w1", "lost": []}))
    assert (world.poll["capacity"], world.poll["held"]) == (0, [["runs", 3, True]])
