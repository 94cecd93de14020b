"""The daemon's machines are whole, and what cannot be raises with its story."""

from __future__ import annotations

import pytest
from nymph_world import World, exec_, run

from lakeshore.nymph.core import events
from lakeshore.nymph.core.machines import JOB, LOOP, TASK
from lakeshore.nymph.core.story import Story
from lakeshore.wire.states import IllegalTransition, Machine

every = pytest.mark.parametrize("machine", [LOOP, JOB, TASK], ids=lambda machine: machine.name)


@every
def test_a_machine_is_whole(machine: Machine) -> None:
    known = set(machine.states)
    assert set(machine.initial) | machine.terminal <= known
    assert {state for state, _ in machine.transitions} | set(machine.transitions.values()) <= known
    assert set(machine.after_crash) == known - machine.terminal
    seen = set(machine.initial)
    while more := {to for (state, _), to in machine.transitions.items() if state in seen} - seen:
        seen |= more
    assert seen == known
    assert not [state for state, _ in machine.transitions if state in machine.terminal]


@every
def test_every_state_leads_to_an_end(machine: Machine) -> None:
    ends = set(machine.terminal)
    while more := {state for (state, _), to in machine.transitions.items() if to in ends} - ends:
        ends |= more
    assert ends == set(machine.states)


@pytest.mark.inventory("N-275")
def test_the_loops_states_are_the_documented_ones() -> None:
    assert LOOP.states == ("starting", "polling", "backoff", "hibernating", "draining", "gone")


def impossible() -> list[tuple[str, World, events.Event]]:
    done = World().up(run("a"))
    done.started("a")
    done.ended("a")
    done.acked()
    twice = World().up(run("a"))
    twice.ended("a")
    acks = World().up()
    told = World().up(exec_("e"))
    again = World().up()
    again.answer(after=20.0)
    return [
        ("a job's second end", twice, events.JobEnded(invocation_id="a", claim=1, ending={"state": "failed"})),
        ("a start after the end", twice, events.JobStarted(invocation_id="a", claim=1, epoch=0.0)),
        ("an end after it was settled", done, events.JobEnded(invocation_id="a", claim=1, ending={})),
        ("a job that nobody knows", acks, events.JobStarted(invocation_id="b", claim=1, epoch=0.0)),
        ("acks that nobody sent", acks, events.AcksAnswered(batch=1, answers=[])),
        ("a poll that nobody sent", acks, events.PollFailed(n=9, rand=0.0, reason="")),
        ("a second answer", again, events.PollAnswered(n=1, answer={}, epoch=0.0)),
        ("a result that was not there", told, events.ResultAnswered(kind="exec", id="e")),
        ("a command that nobody runs", acks, events.ExecEnded(exec_id="e", result={})),
        ("a script that nobody runs", acks, events.SetupEnded(setup_id="s", result={})),
        ("a hello that nobody said", acks, events.HelloAnswered(answer={})),
        ("a second boot", acks, events.Booted()),
        ("something before the boot", World(), events.TimerFired()),
    ]


@pytest.mark.parametrize("case", impossible(), ids=lambda case: case[0].replace(" ", "-"))
def test_what_cannot_be_raises(case: tuple[str, World, events.Event]) -> None:
    _, world, event = case
    with pytest.raises(IllegalTransition) as caught:
        world.tell(event)
    assert caught.value.event == type(event).__name__ or caught.value.from_ != "nowhere"


def test_it_raises_with_the_keys_story_also_when_that_is_over() -> None:
    world = World().up(run("a", 4))
    world.started("a", 4)
    world.ended("a", 4)
    with pytest.raises(IllegalTransition) as caught:
        world.ended("a", 4)
    error = caught.value
    assert (error.machine, error.key, error.from_, error.to) == ("job", "a.4", "ended", "ended")
    assert error.history == (
        "waiting at 100.000",
        "starting by begin at 100.000",
        "running by start at 100.000",
        "ended by finish at 100.000",
    )
    world.acked()
    with pytest.raises(IllegalTransition) as caught:
        world.ended("a", 4)
    assert caught.value.history[-1] == "settled by answer at 100.000"
    assert "a.4" in str(caught.value) and "settled by answer" in str(caught.value)


def test_an_event_that_cannot_be_changes_nothing() -> None:
    world = World().up(run("a"))
    world.ended("a")
    with pytest.raises(IllegalTransition):
        world.started("a")
    world.acked()
    world.answer(after=15.0)
    assert world.poll["held"] == []


def test_stories_are_bounded() -> None:
    story = Story()
    for k in range(1000):
        story.born(JOB, f"j{k}", "waiting", 0.0)
        story.step(JOB, f"j{k}", "waiting", "give_back", 1.0)
    assert story.of("j0") == ()
    assert story.of("j999") == ("waiting at 0.000", "dropped by give_back at 1.000")
    story.born(LOOP, "d", "starting", 0.0)
    state = "polling"
    story.step(LOOP, "d", "starting", "hello", 0.0)
    for _ in range(100):
        state = story.step(LOOP, "d", state, "failure", 0.0)
        state = story.step(LOOP, "d", state, "answer", 0.0)
    assert len(story.of("d")) == 16
