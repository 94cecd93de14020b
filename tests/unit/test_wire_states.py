"""Every state machine is whole: nothing dangles, nothing is stuck, somebody always moves a row on."""

from __future__ import annotations

import pickle

import pytest

from lakeshore.wire import messages, states
from lakeshore.wire.states import INVOCATION, MACHINES, IllegalTransition, Machine

every = pytest.mark.parametrize("machine", MACHINES, ids=lambda m: m.name.replace(" ", "-"))


@every
def test_a_machine_names_only_its_own_states(machine: Machine) -> None:
    known = set(machine.states)
    assert len(known) == len(machine.states)
    assert set(machine.initial) | machine.terminal <= known
    assert {s for s, _ in machine.transitions} | set(machine.transitions.values()) <= known


@every
def test_every_state_can_be_reached(machine: Machine) -> None:
    seen = set(machine.initial)
    while more := {to for (s, _), to in machine.transitions.items() if s in seen} - seen:
        seen |= more
    assert seen == set(machine.states)


@every
def test_somebody_moves_on_each_row_that_is_not_at_its_end(machine: Machine) -> None:
    assert set(machine.after_crash) == set(machine.states) - machine.terminal


@every
def test_only_an_invocations_end_can_be_left_and_only_by_a_retry(machine: Machine) -> None:
    leaving = {(s, e) for s, e in machine.transitions if s in machine.terminal}
    assert leaving == ({(s, "retry") for s in ("failed", "killed", "timeout")} if machine is INVOCATION else set())


@pytest.mark.inventory("S-627", "K-2")
def test_the_invocation_is_the_documented_machine() -> None:
    shown = ("queued", "running", "succeeded", "failed", "killed", "timeout")
    assert INVOCATION.states == (states.DELAYED, *shown), "a delayed one is shown as queued"
    assert INVOCATION.terminal == {"succeeded", "failed", "killed", "timeout"} == set(messages.ACK_STATES)
    assert INVOCATION.after("queued", "claim") == "running"
    assert {INVOCATION.after("running", f"settle_{s}") for s in messages.ACK_STATES} == INVOCATION.terminal
    assert {INVOCATION.after("running", e) for e in ("release", "lose", "nack")} == {"queued"}
    assert INVOCATION.sources("cancel") == ("delayed", "queued")
    assert INVOCATION.after("delayed", "promote") == "queued"
    assert ("delayed", "claim") not in INVOCATION.transitions
    assert INVOCATION.sources("retry") == ("failed", "killed", "timeout")


@pytest.mark.inventory("S-623", "S-626", "S-629")
@pytest.mark.parametrize(
    ("machine", "state", "event", "to"),
    [
        (states.QUEUE, "active", "drain", "draining"),
        (states.QUEUE, "draining", "archive", "archived"),
        (states.QUEUE, "archived", "unarchive", "active"),
        (states.WORKER, "pending", "hello", "joining"),
        (states.WORKER, "pending", "hello_with_setup", "setting_up"),
        (states.WORKER, "joining", "poll", "active"),
        (states.WORKER, "active", "silence", "gone"),
        (states.EXEC_JOB, "running", "time_out", "timeout"),
        (states.DAEMON_KEY, "active", "rotate", "retiring"),
        (states.ENROLL_TOKEN, "unspent", "consume", "consumed"),
        (states.SESSION, "current", "fence", "fenced"),
        (states.HOST, "starting", "saw_running", "running"),
    ],
)
def test_a_documented_transition_holds(machine: Machine, state: str, event: str, to: str) -> None:
    assert machine.after(state, event) == to
    machine.check(state, to)


def test_an_illegal_transition_says_all_it_knows() -> None:
    with pytest.raises(
        IllegalTransition, match="invocation 01HX cannot go from succeeded to queued by retry"
    ) as raised:
        INVOCATION.after("succeeded", "retry", key="01HX", history=("queued", "running", "succeeded"))
    assert "queued, running, succeeded" in str(raised.value)
    assert (raised.value.key, raised.value.from_, raised.value.to) == ("01HX", "succeeded", "queued")
    assert raised.value.event == "retry"
    with pytest.raises(IllegalTransition, match="from queued to succeeded"):
        INVOCATION.check("queued", "succeeded", key="01HX")
    with pytest.raises(IllegalTransition, match="nowhere"):
        INVOCATION.after("queued", "no such event")


def test_an_illegal_transition_says_no_more_than_it_knows() -> None:
    with pytest.raises(IllegalTransition) as raised:
        INVOCATION.check("queued", "succeeded")
    assert str(raised.value) == "invocation ? cannot go from queued to succeeded"
    assert (raised.value.event, raised.value.history) == (None, ())
    with pytest.raises(IllegalTransition) as raised:
        INVOCATION.check("no such state", "queued", key="01HX", history=["delayed", "queued"])
    assert str(raised.value) == ("invocation 01HX cannot go from no such state to queued; it has been delayed, queued")
    assert (raised.value.machine, raised.value.key) == ("invocation", "01HX")
    assert raised.value.history == ("delayed", "queued")


def test_a_machine_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        INVOCATION.transitions["queued", "x"] = "running"  # type: ignore[index]
    with pytest.raises(AttributeError):
        INVOCATION.name = "x"  # type: ignore[misc]


def test_a_machine_is_what_its_table_said_when_it_was_made() -> None:
    table = {("on", "flip"): "off", ("off", "flip"): "on", ("on", "burn"): "broken"}
    crash = {"on": "whoever looks", "off": "whoever looks"}
    lamp = Machine(
        name="lamp",
        states=("on", "off", "broken"),
        initial=("off",),
        terminal=frozenset({"broken"}),
        transitions=table,
        after_crash=crash,
    )
    table["broken", "flip"] = "on"
    crash["broken"] = "nobody"
    assert ("broken", "flip") not in lamp.transitions and len(lamp.transitions) == 3
    assert lamp.after_crash == {"on": "whoever looks", "off": "whoever looks"}
    for kept in (lamp.transitions, lamp.after_crash):
        with pytest.raises(TypeError):
            kept["broken"] = "on"  # type: ignore[index]
    with pytest.raises(IllegalTransition, match=r"^lamp \? cannot go from broken to off or on by flip$"):
        lamp.after("broken", "flip")
    with pytest.raises(IllegalTransition, match=r"^lamp \? cannot go from on to nowhere by wash$"):
        lamp.after("on", "wash")
    for state, reached in (("on", {"off", "broken"}), ("off", {"on"}), ("broken", set())):
        for to in lamp.states:
            if to in reached:
                lamp.check(state, to)
            else:
                with pytest.raises(IllegalTransition, match=f"lamp 7 cannot go from {state} to {to}"):
                    lamp.check(state, to, key="7")


@pytest.mark.inventory("P-280", "P-721")
def test_the_local_plane_says_cancelled_for_killed() -> None:
    assert states.LOCAL_NAMES == {"killed": "cancelled"}
    assert [states.local_name(s) for s in ("killed", "failed")] == ["cancelled", "failed"]
    assert {states.row_state(s) for s in ("killed", "cancelled")} == {"killed"}
    assert [states.row_state(s) for s in ("failed", "queued")] == ["failed", "queued"]


@pytest.mark.inventory("S-352", "S-659", "P-512")
def test_the_protocols_constants_are_the_documented_ones() -> None:
    assert (messages.INLINE_THRESHOLD_BYTES, messages.MAX_PAYLOAD_BYTES, messages.MAX_PREFETCH) == (
        256 << 10,
        100 << 20,
        32,
    )
    stub = messages.NATIVE_FUNCTION
    assert (stub.module, stub.qualname, stub.version) == ("_native_wire", "_native_wire.envelope", "v1")
    item = messages.SubmitItem(invocation_id="a", args_blob=b"x")
    assert (item.queue, item.run_config, item.code_context, item.parent_invocation_id) == ("default", {}, {}, None)
    assert pickle.loads(pickle.dumps(item)) == item


@pytest.mark.inventory("S-413", "S-415", "K-8")
def test_the_shapes_can_be_structured_by_whoever_receives_them() -> None:
    cattrs = pytest.importorskip("cattrs")
    poll = cattrs.structure(
        {
            "worker_id": "w",
            "timeout_s": 5,
            "cursor": None,
            "held": [["01HX", 3, True]],
            "acks": [{"invocation_id": "a", "state": "failed", "error": {"type": "E", "message": "m"}}],
            "something_newer": 1,
        },
        messages.PollRequest,
    )
    assert (poll.held, poll.capacity, poll.acks[0].error.type) == ((("01HX", 3, True),), 1, "E")
    chunk = cattrs.structure({"invocation_id": "a", "seq": 3, "bytes": b"x"}, messages.ChunkItem)
    assert (chunk.bytes, chunk.final, chunk.claim) == (b"x", False, None)
