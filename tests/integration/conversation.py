"""One daemon's life before a server, from hello to goodbye: every command that there is, and all that it tells.

`live` runs it; `SAMPLES` picks from what was heard one body of each kind, for tests/fixtures/nymph_bodies.json.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import daemons as d
import entry_bodies as bodies
from between import Ears, Exchange
from served import JSON, Served

HELLO, POLL, ACK, EVENT = (f"/v1/daemon/{name}" for name in ("hello", "poll", "ack", "event"))
KEYS, FRAMES, LOGS = (f"/v1/daemon/{name}" for name in ("keys", "result-chunk", "log-chunk"))
EXEC = "/v1/daemon/exec/"
KINDS = ("run", "setup", "ota_update", "reset_backoff", "rotate_key", "hibernate")


class Life:
    """What people ask of the daemon in it."""

    def __init__(self, server: Served, daemon: d.Daemon, gates: Path) -> None:
        self.server, self.daemon, self.gates = server, daemon, gates
        daemon.polls()
        self.worker = ""
        for row in server.get("/v1/namespaces/default/workers").body["workers"]:
            if row["label"] == daemon.name:
                self.worker = row["id"]

    def order(self, verb: str, body: dict[str, Any]) -> dict[str, Any]:
        answer = self.server.post(f"/v1/namespaces/default/workers/{self.worker}/{verb}", body, encoding=JSON)
        assert answer.status in (200, 202), answer.raw
        told: dict[str, Any] = answer.body
        return told

    def calls(self) -> None:
        """One that yields and prints, one that fails, one that is cancelled while it runs."""
        gate = self.gates / "gate"
        streams = d.submit(self.server, self.daemon.queue, bodies.counted, 4, str(gate))
        fails = d.submit(self.server, self.daemon.queue, bodies.fails)
        waits = d.submit(self.server, self.daemon.queue, bodies.counted, 2, str(self.gates / "no gate"))
        self.daemon.until(lambda: waits in [one["invocation_id"] for one in self.daemon.events("JobStarted")])
        self.daemon.until(lambda: d.row(self.server, waits)["attempt"])  # the server knows that it began
        self.server.post(f"/v1/producer/invocations/{waits}/cancel", {})
        gate.touch()
        states = [d.ended(self.server, id_)["state"] for id_ in (streams, fails, waits)]
        assert states == ["succeeded", "failed", "killed"], self.daemon.said()

    def commands(self) -> None:
        """One that prints, one that is cancelled, a script."""
        at = "/v1/namespaces/default/exec"
        prints = self.order("exec", {"command": "echo out; echo err >&2; exit 3", "log": True, "env": {"A": "b"}})
        self.order("setup", {"script": "true", "name": "a script", "refresh_capabilities": True})
        ended = self.server.get(f"{at}/{prints['exec_id']}?wait_s=20").body
        assert ended["exit_code"] == 3, self.daemon.said()
        begun = self.gates / "exec-begun"
        waits = self.order("exec", {"command": f"touch {begun}; exec sleep 1000"})["exec_id"]
        self.daemon.until(begun.exists)
        assert self.server.post(f"{at}/{waits}/cancel", {}, encoding=JSON).status in (200, 202)
        assert self.server.get(f"{at}/{waits}?wait_s=20").body["exit_code"] == -1, self.daemon.said()
        ended = f"/v1/namespaces/default/events?type=setup&worker={self.worker}"
        d.until(lambda: self.server.get(ended).body["events"], self.daemon.said)

    def orders(self) -> None:
        """What needs no answer: the last one sends it to sleep for a moment."""
        self.order("reset", {})
        self.order("update", {"version": "9.9.9", "url": f"{self.server.url}/nowhere", "sha256": "0" * 64})
        self.daemon.until(lambda: self.daemon.events("UpdateFailed"))
        self.order("hibernate", {"until_epoch_s": time.time() + 0.5})
        self.daemon.until(lambda: "hibernate" in self.daemon.record.read_text())


def _first(ears: Ears, path: str, fits: Callable[[Exchange], object] = lambda one: True) -> Exchange:
    found = [one for one in ears.to(path) if one.status == 200 and fits(one)]
    assert found, f"{path}: none of {len(ears.to(path))} is what is looked for"
    return found[0]


def _poll(ears: Ears, fits: Callable[[dict[str, Any]], object]) -> Exchange:
    """What a poll says; what it brings, and whether it carries acks, depends on the moment."""
    one = _first(ears, POLL, lambda one: fits(one.request))
    quiet = {"acks": [], "commands": [], "lost": []}
    request = {
        **one.request,
        "acks": [],
        "held": one.request["held"][:1],
        "invocations": one.request["invocations"][:1],
    }
    return Exchange(path=POLL, request=request, status=one.status, answer={**one.answer, **quiet})


def _command(kind: str, key: str | None = None) -> Callable[[Ears], Exchange]:
    """The poll that brought one, whose body has that key; only that command is kept of its answer."""

    def fits(command: dict[str, Any]) -> bool:
        body = command["body"]
        return command["kind"] == kind and (key is None or key in body) and (key == "log" or "log" not in body)

    def pick(ears: Ears) -> Exchange:
        found = _first(ears, POLL, lambda one: any(map(fits, one.answer["commands"])))
        command = next(filter(fits, found.answer["commands"]))
        only = {"commands": [command], "acks": [], "lost": []}
        return Exchange(path=POLL, request={}, status=200, answer={**found.answer, **only})

    return pick


def _ack(state: str) -> Callable[[Ears], Exchange]:
    """An ack is the same by itself and on a poll."""

    def pick(ears: Ears) -> Exchange:
        for one in (*ears.to(ACK), *ears.to(POLL)):
            for said, told in zip(one.request.get("acks", ()), one.answer.get("acks", ()), strict=False):
                if said["state"] == state:
                    return Exchange(path=ACK, request={"acks": [said]}, status=200, answer={"acks": [told]})
        raise AssertionError(f"nobody acked {state}")

    return pick


def _of_exec(what: str) -> Callable[[Ears], Exchange]:
    def fits(one: Exchange) -> bool:
        ours = one.path.startswith(EXEC) and f"/{what}" in one.path
        return ours and (not isinstance(one.request, dict) or one.request["exit_code"] == 3)

    def pick(ears: Ears) -> Exchange:
        one = next(one for one in ears.heard if fits(one))
        return Exchange(path=f"{EXEC}<exec_id>/{what}", request=one.request, status=one.status, answer=one.answer)

    return pick


SAMPLES: dict[str, Callable[[Ears], Exchange]] = {
    "hello": lambda ears: _first(ears, HELLO),
    "poll": lambda ears: _poll(ears, lambda said: not said["held"]),
    "poll with a call": lambda ears: _poll(
        ears, lambda said: said["held"] and (said["invocations"] or "ended" in said)
    ),
    "poll with what the host is": lambda ears: _poll(ears, lambda said: "updated_capabilities" in said),
    "poll that drains": lambda ears: _poll(ears, lambda said: "draining" in said),
    **{f"command {kind}": _command(kind) for kind in KINDS},
    "command exec": _command("exec", "stdin"),
    "command exec that is followed": _command("exec", "log"),
    "command cancel of a call": _command("cancel", "invocation_id"),
    "command cancel of a command": _command("cancel", "exec_id"),
    **{f"ack {state}": _ack(state) for state in ("succeeded", "failed", "killed")},
    "frames": lambda ears: _first(ears, FRAMES),
    "logs": lambda ears: _first(ears, LOGS),
    "exec chunk": _of_exec("chunk"),
    "exec result": _of_exec("result"),
    "event": lambda ears: _first(ears, EVENT),
    "keys": lambda ears: _first(ears, KEYS),
}


# ---- what is the same in every run

NAMES = frozenset(
    {
        "args_blob",
        "command",
        "deadline_epoch_s",
        "duration_ms",
        "env",
        "exec_id",
        "expires_at",
        "frames",
        "id",
        "invocation_id",
        "key_id",
        "label",
        "last_seq",
        "machine_id",
        "n",
        "offset",
        "position",
        "public_key",
        "python",
        "queue",
        "root_invocation_id",
        "runners",
        "seen",
        "seq",
        "server_time_epoch_s",
        "session",
        "session_token",
        "setup_id",
        "started_at",
        "stderr_url",
        "stdout_tail",
        "stdout_url",
        "tags",
        "timeout_s",
        "traceback",
        "ts",
        "until_epoch_s",
        "url",
        "versions",
        "workdir",
        "worker_id",
    }
)
"""What differs from run to run, or from host to host, is written down by its name."""


def masked(value: Any, name: str = "") -> Any:
    """A body as the fixture has it, in JSON."""
    if name in NAMES and value not in ({}, []):
        return f"<{name}>"
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    if isinstance(value, dict):
        return {key: masked(inner, key) for key, inner in value.items()}
    if name == "held":
        return [["<invocation_id>", "<claim>", begun] for _, _, begun in value]
    if name == "parts":
        return [["stdout", "<offset>", "<printed>"]]
    return [masked(inner) for inner in value] if isinstance(value, list) else value


def golden(ears: Ears) -> dict[str, Any]:
    """One of each kind."""
    found = {}
    for name, pick in SAMPLES.items():
        try:
            one = pick(ears)
        except (AssertionError, StopIteration) as error:
            raise AssertionError(f"{name}: {error}; heard: {ears.heard}") from error
        request = "<printed>" if isinstance(one.request, bytes) else masked(one.request)
        found[name] = {"path": one.path, "request": request, "status": one.status, "answer": masked(one.answer)}
    return found


def filled(value: Any, values: dict[str, Any]) -> Any:
    """A body of the fixture with these in the places that are named."""
    if isinstance(value, dict):
        if set(value) == {"bytes"}:
            return bytes.fromhex(value["bytes"])
        return {key: filled(inner, values) for key, inner in value.items()}
    if isinstance(value, list):
        return [filled(inner, values) for inner in value]
    if isinstance(value, str) and value.startswith("<") and value.endswith(">"):
        return values[value[1:-1]]
    return value
