"""What the daemon's core says is what the wire's statement of the protocol says; what it reads, as well."""

from __future__ import annotations

import random
from typing import Any

import msgpack
import pytest
from nymph_chaos import Chaos
from nymph_world import EPOCH, World, command, exec_, run

from lakeshore.nymph.core import commands, events, instructions
from lakeshore.server.structure import structure
from lakeshore.wire.messages import MSGPACK, AckBatch, PollRequest


class Listener(Chaos):
    """Keeps what was said."""

    def _perform(self, one: Any, drained: bool) -> None:
        self.said = [*getattr(self, "said", []), one]
        super()._perform(one, drained)


@pytest.mark.inventory("N-106", "N-110", "K-8")
def test_every_body_is_one_that_a_server_structures() -> None:
    polls = acks = 0
    for seed in range(30):
        rng = random.Random(seed)
        world = Listener(lambda options, rng=rng: options[rng.randrange(len(options))], max_invocations=2)
        for _ in range(80):
            if not world.over:
                world.step()
        world.leave()
        for one in world.said:
            if isinstance(one, instructions.Poll):
                sent = msgpack.unpackb(msgpack.packb(one.body))
                asked = structure(sent, PollRequest, MSGPACK)
                assert asked.n == one.n and asked.session == "01SESSION"
                assert [list(pair) for pair in asked.held] == one.body["held"]
                polls += 1
            elif isinstance(one, instructions.SendAcks):
                sent = msgpack.unpackb(msgpack.packb({"acks": one.items}))
                assert len(structure(sent, AckBatch, MSGPACK).acks) == len(one.items)
                acks += 1
    assert polls > 100 and acks > 10


@pytest.mark.inventory("N-196", "S-448")
def test_an_ack_without_a_worker_is_one_and_ours_names_it() -> None:
    bare = {"invocation_id": "a", "state": "succeeded", "claim": 1}
    (item,) = structure({"acks": [bare]}, AckBatch, MSGPACK).acks
    assert item.worker_id is None
    world = World().up(run("a"))
    world.ended("a")
    (sent,) = world.one(instructions.SendAcks).items
    assert sent["worker_id"] == "w1"


@pytest.mark.inventory("N-120", "N-379", "K-28")
def test_commands_are_read_in_their_order_whatever_order_they_came_in() -> None:
    sent = [
        command("hibernate", until_epoch_s=EPOCH),
        run("b"),
        run("a"),
        {"id": "1", "kind": "rotate_key"},
        {"id": "2", "kind": "reset_backoff"},
        command("ota_update", version="9", url="u", sha256="a" * 64),
        exec_("e"),
        command("setup", script="true"),
        command("cancel", invocation_id="a", claim=1),
    ]
    understood, skipped = commands.read(sent)
    assert [one.kind for one in understood] == [
        *("cancel", "setup", "exec", "ota_update", "reset_backoff", "rotate_key"),
        *("run", "run", "hibernate"),
    ]
    assert [one.body["invocation_id"] for one in understood if one.kind == "run"] == ["b", "a"]
    assert not skipped


def test_every_event_and_instruction_has_a_name_of_its_own() -> None:
    names = [kind.__name__ for kind in (*events.EVENTS, *instructions.INSTRUCTIONS)]
    assert len(set(names)) == len(names)
