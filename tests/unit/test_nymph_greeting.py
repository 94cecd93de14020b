"""The daemon's first contact: nothing is polled before hello is answered; who is refused leaves."""

from __future__ import annotations

import pytest
from nymph_world import World, run

from lakeshore.nymph.core import events, instructions
from lakeshore.nymph.core.instructions import Exit, Poll, SendAcks, SendHello, StopJob


@pytest.mark.inventory("N-064", "N-090")
def test_hello_is_the_first_thing_said_and_a_poll_follows_its_answer() -> None:
    world = World().boot()
    assert world.one(SendHello) == SendHello(adopted=(), reenroll=False)
    assert not world.these(Poll)
    world.tell(events.HelloAnswered(answer={"worker_id": "w1", "reject": None}))
    assert world.poll["held"] == []


@pytest.mark.inventory("N-070", "N-099", "N-106")
@pytest.mark.parametrize(("told", "used"), [("65f0", "65f0"), (None, "box-01J")])
def test_the_id_that_hello_gives_is_used_from_then_on_else_the_provisional_one(told: str | None, used: str) -> None:
    world = World(max_invocations=2).boot()
    assert world.core.status()["worker_id"] is None
    world.tell(events.HelloAnswered(answer={"worker_id": told, "reject": None}))
    assert world.poll["worker_id"] == used
    world.answer(run("a"))
    world.ended("a")
    assert world.one(SendAcks).items[0]["worker_id"] == used
    assert world.core.status()["worker_id"] == used


@pytest.mark.inventory("N-067", "N-100")
def test_a_rejected_hello_ends_the_start_with_the_reason() -> None:
    world = World().boot()
    reject = {"code": "protocol_mismatch", "message": "this server speaks 2"}
    world.tell(events.HelloAnswered(answer={"worker_id": None, "reject": reject}))
    last = world.one(Exit)
    assert last.code == 1 and "protocol_mismatch: this server speaks 2" in last.why
    assert not world.these(Poll)


@pytest.mark.inventory("N-101", "N-102", "N-103")
def test_what_else_hello_answers_changes_nothing() -> None:
    world, plain = World().boot(), World().boot()
    more = {"session_token": "t", "session_ttl_s": 1, "config": {"poll": {"wait_max_s": 1}}, "cursor": "c"}
    more |= {"key_id": "k" * 16, "key_rotation_max_age_s": 5, "server_time_epoch_s": 1.0}
    said = world.tell(events.HelloAnswered(answer={"worker_id": "w1", "reject": None, **more}))
    assert said == plain.tell(events.HelloAnswered(answer={"worker_id": "w1"}))


@pytest.mark.inventory("K-12")
def test_hello_tells_how_long_a_lease_is_so_that_no_first_poll_waits_for_longer() -> None:
    world = World().boot()
    world.tell(events.HelloAnswered(answer={"worker_id": "w1", "lease_s": 3.0}))
    assert world.poll["timeout_s"] == 1.5
    for odd in (None, 0, -1, "3", float("nan"), True, [3]):
        other = World().boot()
        other.tell(events.HelloAnswered(answer={"worker_id": "w1", "lease_s": odd}))
        assert other.poll["timeout_s"] == 20.0


@pytest.mark.inventory("N-395")
def test_the_session_is_the_daemons_own_not_the_token_of_hello() -> None:
    world = World(session="01MINE").boot()
    world.tell(events.HelloAnswered(answer={"worker_id": "w1", "session_token": "01THEIRS"}))
    assert world.poll["session"] == "01MINE"


def test_a_server_that_is_not_there_yet_is_greeted_again_at_the_pace_of_the_back_off() -> None:
    world = World().boot()
    for wait in (1.0, 2.0, 4.0):
        world.tell(events.HelloFailed(rand=0.0, reason="connection refused"))
        assert not world.these(SendHello)
        assert world.timer == world.now + wait
        world.wait()
        world.one(SendHello)


@pytest.mark.parametrize("status", [401, 403, 422])
def test_a_refusal_that_will_not_change_ends_the_start(status: int) -> None:
    world = World().boot()
    world.tell(events.HelloFailed(rand=0.0, reason="unknown token", status=status))
    assert world.one(Exit).code == 1
    assert "unknown token" in world.one(Exit).why


def test_a_server_that_is_busy_is_greeted_again() -> None:
    world = World().boot()
    world.tell(events.HelloFailed(rand=0.0, reason="busy", status=503))
    assert not world.these(Exit)


@pytest.mark.inventory("K-15")
def test_jobs_of_an_older_daemon_are_adopted_and_those_that_are_lost_are_stopped() -> None:
    found = [
        {"invocation_id": "runs", "claim": 3, "started_at": 5.0},
        {"invocation_id": "gone", "claim": 4},
        {"invocation_id": "over", "claim": 1, "ending": {"state": "succeeded", "result_blob": b"42"}},
    ]
    world = World().boot(found)
    assert world.one(SendHello).adopted == (("runs", 3), ("gone", 4), ("over", 1))
    assert not world.these(SendAcks), "nobody is told anything before hello"
    world.tell(events.HelloAnswered(answer={"worker_id": "w1", "lost": [["gone", 4]]}))
    assert world.one(StopJob).invocation_id == "gone"
    assert world.poll["held"] == [["runs", 3, True], ["over", 1, True]]
    (ack,) = world.poll["acks"]
    assert ack["result_blob"] == b"42" and ack["claim"] == 1
    (status,) = world.poll["invocations"]
    assert status["invocation_id"] == "runs" and status["started_at"] == 5.0


def test_jobs_that_were_adopted_end_with_a_daemon_that_is_rejected() -> None:
    world = World().boot([{"invocation_id": "runs", "claim": 3}])
    world.tell(events.HelloAnswered(answer={"reject": {"code": "session_superseded", "message": "older"}}))
    assert world.one(StopJob).invocation_id == "runs"
    assert not world.these(Exit)
    world.ended("runs", 3, "killed")
    assert world.one(Exit).code == 1


@pytest.mark.inventory("N-421")
@pytest.mark.parametrize("fresh_token", [True, False])
def test_a_revoked_daemon_enrolls_again_once_if_it_can_else_it_leaves(fresh_token: bool) -> None:
    world = World(may_reenroll=fresh_token).up()
    world.fail(status=403, revoked=True)
    if fresh_token:
        assert world.one(SendHello).reenroll
        world.tell(events.HelloAnswered(answer={"worker_id": "w1"}))
        assert world.poll["n"] == 2
        world.fail(status=403, revoked=True)
    assert world.one(Exit).code == 1
    assert not world.these(instructions.Poll), "a goodbye would be refused as well"
