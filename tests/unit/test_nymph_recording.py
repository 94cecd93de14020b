"""A run that was written down happens again, and nothing of the user's is written down."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from nymph_chaos import Chaos
from nymph_world import EPOCH, command, exec_, run, settings

from lakeshore.nymph.core import events, instructions
from lakeshore.nymph.recording import Differs, Hidden, Recorder, replay

SECRETS = ("sesame", "hunter2", "swordfish")


def a_run(seed: int = 7, steps: int = 150) -> list[str]:
    rng = random.Random(seed)
    world = Chaos(lambda options: options[rng.randrange(len(options))], max_invocations=3, has_identity=True)
    for _ in range(steps):
        if not world.over:
            world.step()
    world.leave()
    return world.log


@pytest.mark.parametrize("seed", range(20))
def test_a_recorded_run_gives_the_same_instructions_again(seed: int) -> None:
    log = a_run(seed)
    replayed = list(replay(log))
    assert len(replayed) == len(log) - 1
    assert isinstance(replayed[-1][2][-1], instructions.Exit | instructions.Restart)


def test_each_line_is_one_event_with_its_time_and_what_followed() -> None:
    head, boot, *_ = (json.loads(line) for line in a_run())
    assert head["settings"]["worker_id"] == "box-01J"
    assert (boot["event"], boot["now"], boot["does"][0]) == (
        "Booted",
        100.0,
        {"do": "SendHello", "adopted": [], "reenroll": False},
    )
    assert all(line.endswith("\n") and line.count("\n") == 1 for line in a_run())


def test_a_replay_stops_where_other_instructions_follow_than_followed_then() -> None:
    log = a_run()
    number = next(k for k, line in enumerate(log) if '"do":"Poll"' in line)
    log[number] = log[number].replace('"capacity":3', '"capacity":2')
    with pytest.raises(Differs, match=rf"line {number + 1}, HelloAnswered"):
        list(replay(log))


def everything_secret() -> list[str]:
    log: list[str] = []
    daemon = Recorder(settings(max_invocations=2), log.append)
    now = EPOCH

    def tell(event: Any) -> None:
        nonlocal now
        now += 1.0
        daemon.handle(event, now)

    tell(events.Booted(adopted=[{"invocation_id": "old", "claim": 1, "body": {"args_blob": b"sesame"}}]))
    tell(events.HelloAnswered(answer={"worker_id": "w1", "session_token": "sesame", "config": {"x": "sesame"}}))
    config = {"env": {"PASSWORD": "sesame"}, "docker": {"registry_auth": {"password": "hunter2"}}}
    more = {"script": "echo sesame", "run_config": config, "payload_ref": {"url": "/v1/blobs/k?sig=swordfish"}}
    commands = [
        run("a", **more),
        exec_("e", payload_inline=b"sesame", log={"stdout_url": "/x?sig=swordfish"}),
        command("setup", "s", script="export TOKEN=hunter2"),
        command("ota_update", version="9", url="https://u/?sig=swordfish", sha256="a" * 64),
    ]
    commands[0]["body"]["args_blob"] = b"sesame"
    commands[1]["body"] |= {"command": "echo sesame", "env": {"A": "hunter2"}, "stdin": b"swordfish"}
    tell(events.PollAnswered(n=1, answer={"commands": commands}, epoch=now))
    tell(events.JobOutput(invocation_id="old", claim=1, tail=b"printed sesame"))
    failed = {"state": "failed", "error": {"type": "E", "message": "bad sesame", "traceback": "hunter2"}}
    tell(events.JobEnded(invocation_id="old", claim=1, ending=failed))
    tell(events.ExecEnded(exec_id="e", result={"exit_code": 0, "stdout": b"sesame", "stderr": b"", "error": "hunter2"}))
    tell(events.Signalled(name="SIGTERM"))
    return log


@pytest.mark.parametrize("secret", SECRETS)
def test_nothing_of_the_users_is_written_down(secret: str) -> None:
    log = "".join(everything_secret())
    assert secret not in log
    assert "c2VzYW1l" not in log, "nor in base64"
    assert '{"$hidden":6}' in log


def test_what_is_hidden_replays_all_the_same() -> None:
    log = everything_secret()
    assert len(list(replay(log))) == len(log) - 1


def test_hidden_bytes_are_as_long_as_they_were() -> None:
    assert len(Hidden(1 << 20)) == 1 << 20
    log: list[str] = []
    daemon = Recorder(settings(), log.append)
    daemon.handle(events.Booted(), 1.0)
    daemon.handle(events.HelloAnswered(answer={"worker_id": "w"}), 1.0)
    daemon.handle(events.PollAnswered(n=1, answer={"commands": [run(f"j{k}") for k in range(5)]}, epoch=1.0), 1.0)
    batches = []
    for k in range(5):
        ending = {"state": "succeeded", "result_blob": bytes(3 << 20)}
        did = daemon.handle(events.JobEnded(invocation_id=f"j{k}", claim=1, ending=ending), 2.0)
        batches += [one for one in did if isinstance(one, instructions.SendAcks)]
    answers = [{"invocation_id": "j0", "claim": 1, "result": "ok"}]
    did = daemon.handle(events.AcksAnswered(batch=1, answers=answers), 3.0)
    (batch,) = (one for one in did if isinstance(one, instructions.SendAcks))
    assert len(batch.items) == 1, "two would be above 4 MiB"
    assert len(list(replay(log))) == len(log) - 1
    assert sum(map(len, log)) < 20_000
