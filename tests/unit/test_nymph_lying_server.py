"""Whatever a server says, the daemon goes on: what makes no sense is as if it had not been said."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nymph_world import World, command, run

from lakeshore.nymph import told
from lakeshore.nymph.core import events, instructions
from lakeshore.nymph.core.commands import ORDER
from lakeshore.nymph.hello import read_answer
from lakeshore.nymph.keeping.protocol import is_id

ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.sampled_from(["A", "B", "gap", "ok", "", "../x", "\x1b[31m\n"])
    | st.binary(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["kind", "id", "body", "result", "expected", "invocation_id", "claim", "code"])
            | st.integers(),
            inner,
            max_size=4,
        )
    ),
    max_leaves=8,
)
FIELDS = (
    *("exec_id", "command", "env", "timeout_s", "log", "script", "payload_inline", "payload_ref", "name"),
    *("run_config", "until_epoch_s", "version", "url", "sha256", "refresh_capabilities"),
)
BODIES = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(FIELDS, ANYTHING),
        "invocation_id": st.sampled_from(["A", "B"]) | ANYTHING,
        "claim": st.integers(0, 3) | ANYTHING,
    },
)
COMMANDS = st.fixed_dictionaries({"id": ANYTHING, "kind": st.sampled_from(ORDER), "body": BODIES | ANYTHING})
ACKS = st.fixed_dictionaries(
    {"invocation_id": st.just("A") | ANYTHING, "claim": st.just(1) | ANYTHING, "result": ANYTHING}
)
ANSWERS = st.fixed_dictionaries(
    {},
    optional={
        "commands": st.lists(COMMANDS, max_size=4) | ANYTHING,
        "acks": st.lists(ACKS, max_size=2) | ANYTHING,
        **dict.fromkeys(("lost", "lease_s", "target_nymph_version", "status", "reason"), ANYTHING),
    },
)
HELLOS = st.fixed_dictionaries({}, optional=dict.fromkeys(("worker_id", "reject", "lost", "key_id"), ANYTHING))


@given(hello=HELLOS, answers=st.lists(ANSWERS, max_size=5), acks=ANYTHING)
@settings(max_examples=60, deadline=None)
def test_no_answer_ends_a_daemon(hello: Any, answers: list[Any], acks: Any) -> None:
    world = World(max_invocations=4, auto_update=True)
    world.boot()
    read_answer(hello)
    world.tell(events.HelloAnswered(answer=hello))
    if not world.these(instructions.Poll):
        return  # it was rejected
    world.answer(run("A"), run("B"))
    world.started("A")
    world.ended("A")
    world.tell(events.AcksAnswered(batch=world.last(instructions.SendAcks).batch, answers=acks))
    for body in answers:
        n = world.last(instructions.Poll).n
        if any(one.n == n for one in world.all if isinstance(one, instructions.GiveUpPoll)):
            return
        world.tell(events.PollAnswered(n=n, answer=body, epoch=1.75e9), after=0.1)
        assert world.timer is None or math.isfinite(world.timer)
        if not world.these(instructions.Poll):
            return  # it waits, hibernates or leaves


@pytest.mark.parametrize("lost", [5, "ab", [5], [["A"]], [[["A"], 1]], [["A", "1"]], {"A": 1}, [None, ["A", 1]]])
def test_a_pair_that_is_none_costs_no_other(lost: Any) -> None:
    world = World().up(run("A"))
    world.started("A")
    world.answer(lost=lost)

    really = isinstance(lost, list) and ["A", 1] in lost
    assert [one.invocation_id for one in world.these(instructions.StopJob)] == (["A"] if really else [])
    assert world.core.status()["run_state"] == "polling"


@pytest.mark.parametrize("until", [math.nan, math.inf, 10**400, "9999", True, None])
def test_no_time_that_never_comes_is_waited_for(until: Any) -> None:
    world = World().up(command("hibernate", until_epoch_s=until))

    assert "skipping a command 'hibernate'" in "\n".join(
        one.message for one in world.all if isinstance(one, instructions.Say)
    )
    assert world.core.status()["run_state"] == "polling"


@pytest.mark.parametrize("lease_s", [math.nan, math.inf, -1, 0, "60", 10**400])
def test_a_lease_that_is_none_changes_nothing(lease_s: Any) -> None:
    world = World().up(run("A"))
    world.started("A")
    world.answer(lease_s=lease_s)

    assert world.wait(16.0)
    assert [pair[:2] for pair in world.last(instructions.Poll).body["held"]] == [["A", 1]]
    assert world.core.status()["inflight"]["count"] == 1


def test_scripts_without_ids_have_ids_that_name_directories() -> None:
    world = World().up({"kind": "setup", "body": {"script": "true"}})

    assert is_id(world.last(instructions.RunSetup).setup_id)


def test_numbers_are_finite() -> None:
    assert [told.number(said) for said in (1, 1.5, -2)] == [1.0, 1.5, -2.0]
    assert not any(told.number(said) is not None for said in (True, "1", math.nan, math.inf, -math.inf, 10**400, None))
