"""A daemon and a server of two versions understand each other, both ways; what they say today is written down.

tests/fixtures/nymph_bodies.json has one body of each kind that a daemon and a server say, recorded between real ones:
in the order of its keys, with what differs from run to run by its name. A difference is a change of the protocol: make
it on purpose, only by adding, and with UPDATE_GOLDEN=1. What earlier versions said is in tests/fixtures/earlier, and is
never written again: whoever changes the protocol copies nymph_bodies.json there first.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import conversation as talk
import daemons as d
import msgpack
import pytest
import versions
from between import Ears, between
from served import ADMIN, JSON, Served, new_id, running

from lakeshore.nymph.core import events, instructions
from lakeshore.nymph.core.core import Core
from lakeshore.nymph.core.settings import Settings

FIXTURES = Path(__file__).parents[1] / "fixtures"
NOW = FIXTURES / "nymph_bodies.json"
RECORDED = [NOW, *sorted((FIXTURES / "earlier").glob("*.json"))]
"""The first version had no daemon yet: its worker before its server, and a later daemon before it."""
Bodies = dict[str, dict[str, Any]]

needs_proc = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a keeper counts processes in /proc")


def recorded(path: Path) -> Bodies:
    found: Bodies = json.loads(path.read_text())
    return {"hello": json.loads(NOW.read_text())["hello"], **found}  # the first worker has no hello


def as_it_is(_path: str, body: Any) -> Any:
    return body


# ---- live


@pytest.fixture(scope="module")
def life(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ears]:
    """A daemon with a key of its own, from its hello to its goodbye, before a server of a later version."""
    place = tmp_path_factory.mktemp("life")
    env = {"LAKESHORE_ADMIN_TOKEN": ADMIN, "LAKESHORE_DAEMON_KEY_MAX_AGE_S": "8"}
    with (
        running(place / "server", env=env, token=ADMIN) as server,
        between(server.url, answered=versions.newer_answer) as ears,
    ):
        minted = server.post("/v1/namespaces/default/enroll-tokens", {"label": "host"}, encoding=JSON).body
        identity = {"enabled": True, "key_file": str(place / "key"), "enroll_token": minted["plaintext"]}
        sections = {"identity": identity, "poll": {"wait_max_s": 0.5}}
        with d.daemon(ears.url, place / "host", sections, LAKESHORE_TOKEN=ADMIN) as daemon:
            lived = talk.Life(server, daemon.start(), place)
            lived.calls()
            lived.commands()
            told = "poll with what the host is"
            daemon.until(lambda: any("updated_capabilities" in one.request for one in ears.to(talk.POLL)), told)
            lived.orders()
            daemon.until(lambda: ears.to(talk.KEYS))
            assert daemon.stop() == 0, daemon.said()
            assert f"skipping a command '{versions.NEW}': this daemon does not know it" in daemon.said()
        yield ears


@needs_proc
@pytest.mark.inventory("P-472")
def test_before_a_later_server_a_daemon_does_all_that_it_knows_and_says_what_it_said_before(life: Ears) -> None:
    now = talk.golden(life)
    if os.environ.get("UPDATE_GOLDEN"):
        NOW.write_text(json.dumps(now, indent=1) + "\n")
    before = recorded(NOW)
    assert list(now) == list(before)
    for name, said in now.items():
        assert json.dumps(said, indent=1) == json.dumps(before[name], indent=1), name  # the order of keys counts


@needs_proc
def test_a_later_daemon_works_for_the_first_server_which_knows_no_commands(server: Served, tmp_path: Path) -> None:
    missing = tuple(f"/v1/daemon/{name}" for name in ("exec", "event", "keys"))
    asked, answered = versions.newer_request, versions.older_answer
    with (
        between(server.url, asked=asked, answered=answered, unknown=missing) as ears,
        d.daemon(ears.url, tmp_path / "host") as daemon,
    ):
        talk.Life(server, daemon.start(), tmp_path).calls()
        assert daemon.stop() == 0, daemon.said()
    heard = [one for one in ears.heard if not one.path.startswith(missing)]
    assert not [one for one in heard if one.status in (400, 404, 413, 415, 422, 500)]  # a 409 is no misunderstanding


# ---- what was recorded, said again


class Replay:
    """A daemon of another version, which says what was recorded; the names in it are filled in."""

    def __init__(self, server: Served, bodies: Bodies, change: Callable[[str, Any], Any]) -> None:
        self.server, self.bodies, self.change = server, bodies, change
        queue = f"q-{new_id()}"
        facts = {"tags": ["host=local"], "runners": ["process"], "workdir": "/w", "versions": None}
        self.values: dict[str, Any] = {"machine_id": new_id(), "label": "", "queue": queue, "session": "1", **facts}
        self.values |= {"versions": {"daemon": "1", "protocol": "1"}, "n": 0, "seen": 0, "timeout_s": 0, "claim": 1}
        self.values |= {"started_at": None, "stdout_tail": "line", "traceback": "", "seq": 0, "offset": 0}
        self.values |= {"printed": b"line\n", "frames": msgpack.packb([0, 0, 1, None]), "last_seq": 0}
        self.values |= {"duration_ms": 3, "ts": 1.0, "env": {}, "python": "python3", "public_key": None}

    def say(self, name: str) -> dict[str, Any]:
        """It is taken, and answered with all that was recorded, at least."""
        told = self.bodies[name]
        body = talk.filled(told["request"], self.values)
        path = told["path"].replace("<exec_id>", str(self.values.get("exec_id")))
        if isinstance(body, bytes):
            answer = self.server.raw("POST", f"{path}?offset=0", body, {"Content-Type": "application/octet-stream"})
        else:
            answer = self.server.post(path, self.change(path, body))
        assert answer.status == told["status"], answer.body
        found: dict[str, Any] = answer.body
        assert told["answer"].keys() <= found.keys() | {"key_id"}
        assert found.get("reject") is None
        return found

    def poll(self, name: str = "poll") -> dict[str, Any]:
        self.values["n"] += 1
        found = self.say(name)
        self.values["seen"] = self.values["n"]
        return found

    def brought(self, kind: str) -> dict[str, Any]:
        """The one command of the next answer is of this kind, and has the keys that were recorded of it."""
        (command,) = [command for command in self.poll()["commands"] if command["kind"] == kind]
        if f"command {kind}" in self.bodies:
            (before,) = self.bodies[f"command {kind}"]["answer"]["commands"]
            assert before.keys() == command.keys()
            assert before["body"].keys() <= command["body"].keys() | {"name", "refresh_capabilities"}
        return dict(command)

    def call(self) -> str:
        body = {"invocation_id": new_id(), "queue": self.values["queue"], "args_blob": b"args"}
        assert self.server.post("/v1/producer/submit", body).status == 200
        run = self.brought("run")["body"]
        assert run["invocation_id"] == body["invocation_id"]
        self.values |= {"invocation_id": run["invocation_id"], "claim": run["claim"]}
        return str(run["invocation_id"])

    def ack(self, state: str) -> None:
        (told,) = self.say(f"ack {state}")["acks"]
        (before,) = self.bodies[f"ack {state}"]["answer"]["acks"]
        assert (told["result"], told["state"]) == ("ok", before["state"])


def together(replay: Replay, at: str) -> None:
    """Ends of commands may travel together; a server that does not know that gets them one by one."""
    replay.server.post(f"{at}/exec", {"command": "true"}, encoding=JSON)
    end = talk.filled(replay.bodies["exec result"]["request"], replay.values)
    body = {"results": [{"exec_id": replay.brought("exec")["body"]["exec_id"], **end}]}
    path = "/v1/daemon/exec/results"
    (told,) = replay.server.post(path, replay.change(path, body)).body["results"]
    assert (told["ok"], told["status"]) == (True, "done")


WAYS = {"as it is": as_it_is, "later": versions.newer_request, "earlier": versions.older_request}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
@pytest.mark.inventory("S-009")
def test_a_server_takes_what_daemons_of_other_versions_say(server: Served, path: Path, way: str) -> None:
    bodies = recorded(path)
    replay = Replay(server, bodies, WAYS[way])
    replay.values["worker_id"] = replay.say("hello")["worker_id"]
    at = f"/v1/namespaces/default/workers/{replay.values['worker_id']}"

    id_ = replay.call()
    assert replay.poll("poll with a call")["lost"] == []
    for name in ("frames", "logs"):
        if name in bodies:
            assert replay.say(name)["ok"] is True
    replay.ack("succeeded")
    assert d.row(server, id_)["state"] == "succeeded"
    id_ = replay.call()
    replay.poll("poll with a call")
    server.post(f"/v1/producer/invocations/{id_}/cancel", {})
    assert [command["kind"] for command in replay.poll("poll with a call")["commands"]] == ["cancel"]
    replay.ack("killed")
    assert d.row(server, id_)["state"] == "killed"
    replay.call()
    replay.ack("failed")

    if "exec result" in bodies:
        asked = server.post(f"{at}/exec", {"command": "true", "log": True}, encoding=JSON).body
        replay.values["exec_id"] = replay.brought("exec")["body"]["exec_id"]
        assert replay.values["exec_id"] == asked["exec_id"]
        replay.say("exec chunk")
        assert replay.say("exec result")["status"] == "done"
        assert server.get(f"/v1/namespaces/default/exec/{asked['exec_id']}").body["exit_code"] == 3
        together(replay, at)
        server.post(f"{at}/setup", {"script": "true"}, encoding=JSON)
        replay.values["setup_id"] = replay.brought("setup")["id"]
        replay.say("event")
        assert server.get(at).body["setups"][0]["state"] == "done"
        replay.poll("poll with what the host is")
        server.post(f"{at}/reset", {}, encoding=JSON)
        replay.brought("reset_backoff")
    if "poll that drains" in bodies:
        replay.poll("poll that drains")
        holds = bodies["poll that drains"]["request"]["held"]
        assert server.get(at).body["state"] == ("draining" if holds else "gone")


ANSWERS = {"as it is": as_it_is, "later": versions.newer_answer, "earlier": versions.older_answer}
FOLLOWS = {
    "run": instructions.StartJob,
    "exec": instructions.RunExec,
    "cancel of a command": instructions.StopExec,
    "setup": instructions.RunSetup,
    "rotate_key": instructions.RotateKey,
    "reset_backoff": None,
    "cancel of a call": instructions.StopJob,
    "ota_update": instructions.InstallUpdate,
    "hibernate": None,
}


class Answered:
    """A daemon's core before a server of another version, whose answers were recorded."""

    def __init__(self, bodies: Bodies, change: Callable[[str, Any], Any]) -> None:
        self.bodies, self.change, self.now, self.n = bodies, change, 100.0, 0
        self.core = Core(
            Settings(worker_id="box", session="01SESSION", version="1", keep_alive_s=-1, has_identity=True)
        )
        self.values: dict[str, Any] = {"invocation_id": "inv", "root_invocation_id": "inv", "queue": "q", "env": {}}
        self.values |= {"id": "c1", "exec_id": "e1", "command": "true", "url": "http://x/y", "python": "python3"}
        self.values |= {"args_blob": b"args", "deadline_epoch_s": 2e9, "key_id": "k", "worker_id": "w1", "claim": 1}
        self.values |= {"session_token": "t", "server_time_epoch_s": 1e9, "until_epoch_s": 2e9}

    def tell(self, event: Any) -> list[Any]:
        did = list(self.core.handle(event, self.now))
        self.n = max([self.n, *(one.n for one in did if isinstance(one, instructions.Poll))])
        return did

    def answer(self, name: str) -> Any:
        told = self.bodies[name]
        return self.change(told["path"], talk.filled(told["answer"], self.values))

    def up(self) -> None:
        self.tell(events.Booted())
        did = self.tell(events.HelloAnswered(answer=self.answer("hello")))
        (poll,) = [one for one in did if isinstance(one, instructions.Poll)]
        assert poll.body["worker_id"] == "w1"

    def polled(self, name: str) -> list[Any]:
        self.now += 1.0
        return self.tell(events.PollAnswered(n=self.n, answer=self.answer(name), epoch=1e9))


@pytest.mark.parametrize("way", ANSWERS)
@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_a_daemon_follows_what_servers_of_other_versions_say(path: Path, way: str) -> None:
    bodies = recorded(path)
    it = Answered(bodies, ANSWERS[way])
    it.up()
    it.polled("poll")
    for what, follows in FOLLOWS.items():
        if f"command {what}" not in bodies:
            continue
        did = it.polled(f"command {what}")
        assert follows is None or [one for one in did if isinstance(one, follows)], (what, did)
        if what == "run":
            it.tell(events.JobStarted(invocation_id="inv", claim=1, epoch=1e9))
    ended = {"state": "killed", "error": {"type": "Cancelled", "message": "cancelled", "traceback": ""}}
    did = it.tell(events.JobEnded(invocation_id="inv", claim=1, ending=ended))
    (batch,) = [one for one in did if isinstance(one, instructions.SendAcks)]
    answer = it.answer("ack killed")
    did = it.tell(events.AcksAnswered(batch=batch.batch, answers=answer["acks"]))
    assert [one.claim for one in did if isinstance(one, instructions.ReleaseJob)] == [1]
    if "command hibernate" in bodies:
        assert it.core.status()["run_state"] == "hibernating"
