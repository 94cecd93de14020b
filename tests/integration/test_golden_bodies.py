"""The bodies of hello, poll, frames and ack, as a daemon of another language meets them: pinned byte by byte.

tests/fixtures/daemon_bodies.json has each request as the msgpack that is sent (the worker's id, which the server gives,
replaced by another of its length), and each answer decoded, in the order of its keys, with what differs from run to run
named in angle brackets. A difference is a change of the protocol: make it on purpose, with UPDATE_GOLDEN=1.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import msgpack
import pytest
from served import Served

FIXTURE = Path(__file__).parents[1] / "fixtures" / "daemon_bodies.json"
MSGPACK = {"Content-Type": "application/x-msgpack", "X-LS-Namespace": "golden"}
INVOCATION, FAILING, QUEUE, MACHINE = (
    "01GOLDEN000000000000000001",
    "01GOLDEN000000000000000002",
    "golden",
    "golden-machine",
)


STAND_IN = b"a worker of 24 letters.."
OF_THIS_RUN = ("id", "worker_id", "session_token", "server_time_epoch_s")


def frame(kind: int, seq: int, body: Any) -> bytes:
    packed: bytes = msgpack.packb([kind, seq, body, None])
    return packed


def told(value: Any, name: str = "") -> Any:
    """A value as JSON has it: bytes are marked, what is of this run only is named."""
    if value is not None and name in OF_THIS_RUN:
        return f"<{name}>"
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    if isinstance(value, dict):
        return {key: told(found, key) for key, found in value.items()}
    return [told(found) for found in value] if isinstance(value, list) else value


class Talk:
    """One daemon's conversation, written down."""

    def __init__(self, server: Served) -> None:
        self._server = server
        self._worker = "nobody yet"
        self.lines: list[dict[str, Any]] = []

    def say(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        data = msgpack.packb(body)
        answer = self._server.raw("POST", path, data, MSGPACK)
        found: dict[str, Any] = msgpack.unpackb(answer.raw)
        if "worker_id" in found:
            self._worker = found["worker_id"]
            assert len(self._worker) == len(STAND_IN)
        self.lines.append(
            {
                "path": path,
                "request": data.replace(self._worker.encode(), STAND_IN).hex(),
                "status": answer.status,
                "content-type": answer.headers["content-type"],
                "answer": told(found),
            }
        )
        return found


@pytest.fixture(scope="module")
def talk(server: Served) -> list[dict[str, Any]]:
    talk = Talk(server)
    for inv in (INVOCATION, FAILING):
        call = {"invocation_id": inv, "queue": QUEUE, "args_blob": b"args", "run_config": {"prefix": "scenes/0007"}}
        assert server.call("POST", "/v1/producer/submit", call, X_LS_Namespace="golden").status == 200
    versions = {"daemon": "1.0", "protocol": "1"}
    capabilities = {"runners": ["process"]}
    hello = {"machine_id": MACHINE, "label": "box", "tags": [], "lanes": [QUEUE]}
    worker = talk.say("/v1/daemon/hello", {**hello, "capabilities": capabilities, "versions": versions})["worker_id"]
    poll = {"worker_id": worker, "queue": "default", "timeout_s": 5, "cursor": None, "invocations": []}
    talk.say("/v1/daemon/poll", poll)
    chunk = {"invocation_id": INVOCATION, "seq": 0, "bytes": frame(0, 0, "value"), "final": False}
    for _ in range(2):
        talk.say("/v1/daemon/result-chunk", chunk)
    for _ in range(2):
        ack = {"invocation_id": INVOCATION, "state": "succeeded", "result_blob": b"result", "worker_id": worker}
        talk.say("/v1/daemon/ack", ack)
    talk.say("/v1/daemon/poll", poll)
    error = {"type": "ValueError", "message": "bad", "traceback": "line 1"}
    failed = {"invocation_id": FAILING, "state": "failed", "result_blob": b"", "error": error, "worker_id": worker}
    talk.say("/v1/daemon/ack", failed)
    talk.say("/v1/daemon/poll", {**poll, "timeout_s": 0})
    talk.say("/v1/daemon/poll", {"queue": QUEUE})
    talk.say("/v1/daemon/ack", {**failed, "invocation_id": "01NOBODY"})
    return talk.lines


@pytest.mark.inventory("P-472")
@pytest.mark.inventory("S-009")
def test_a_daemons_conversation_is_what_it_was(talk: list[dict[str, Any]]) -> None:
    if os.environ.get("UPDATE_GOLDEN"):
        FIXTURE.write_text(json.dumps(talk, indent=1) + "\n")
    pinned = json.loads(FIXTURE.read_text())
    assert [line["path"] for line in talk] == [line["path"] for line in pinned]
    for now, before in zip(talk, pinned, strict=True):
        assert json.dumps(now, indent=1) == json.dumps(before, indent=1)  # the order of keys counts
