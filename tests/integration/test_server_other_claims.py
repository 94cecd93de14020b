"""Whose credential is one worker's tells nothing of what another worker runs."""

from __future__ import annotations

from typing import Any

import pytest
from exec_peer import Peer
from served import ADMIN, JSON, Served, new_id, one

FRAME = b"\x94\x00\x01\x02\x03"
TOLD: dict[str, tuple[str, dict[str, Any]]] = {
    "an ack": ("ack", {"state": "succeeded", "result_blob": b"forged"}),
    "acks": ("ack", {"acks": [{"state": "succeeded", "result_blob": b"forged"}]}),
    "a frame": ("result-chunk", {"seq": 0, "bytes": FRAME}),
    "frames": ("result-chunk", {"chunks": [{"seq": 0, "bytes": FRAME}]}),
    "a run of frames": ("result-chunk", {"seq": 0, "frames": FRAME}),
    "output": ("log-chunk", {"attempt": 1, "parts": [["stdout", 0, b"forged"]]}),
}


def minted(server: Served) -> str:
    body = {"name": f"t-{new_id()}", "scope": "daemon"}
    answer = server.call("POST", "/v1/namespaces/default/tokens", body, encoding=JSON, token=ADMIN)
    return str(answer.body["plaintext"])


@pytest.fixture(scope="module")
def other(secured_server: Served) -> Peer:
    """A daemon with a token of its own."""
    return Peer(secured_server, token=minted(secured_server))


def named(body: dict[str, Any], id_: str, claim: int) -> dict[str, Any]:
    """The same, of one claim."""
    items = [name for name in ("acks", "chunks") if name in body]
    if not items:
        return {**body, "invocation_id": id_, "claim": claim}
    return {name: [{**item, "invocation_id": id_, "claim": claim} for item in body[name]] for name in items}


@pytest.mark.inventory("S-460")
@pytest.mark.parametrize("what", TOLD)
def test_nothing_is_told_of_another_workers_claim(secured_server: Served, other: Peer, what: str) -> None:
    queue = f"q-{new_id()}"
    holder = Peer(secured_server, token=minted(secured_server), queue=queue)
    call = one(queue=queue)
    assert secured_server.post("/v1/producer/submit", call, token=ADMIN).status == 200
    (run,) = holder.poll(capacity=1)
    id_, claim = run["body"]["invocation_id"], run["body"]["claim"]
    path, body = TOLD[what]
    told = named(body, id_, claim)

    for peer, refused in ((other, True), (holder, False)):
        answer = peer.post(f"/v1/daemon/{path}", told)
        assert ("bound to another worker" in str(answer.body)) is refused, answer.body
        assert not refused or answer.status == 403 or list(told) in (["acks"], ["chunks"])
        row = secured_server.post("/v1/producer/await", {"invocation_id": id_, "get": True}, token=ADMIN).body
        if refused:
            assert row["invocation"]["state"] == "running"


@pytest.mark.inventory("K-11")
def test_nobody_begins_or_renews_what_another_worker_holds(secured_server: Served, other: Peer) -> None:
    queue = f"q-{new_id()}"
    holder = Peer(secured_server, token=minted(secured_server), queue=queue)
    assert secured_server.post("/v1/producer/submit", one(queue=queue), token=ADMIN).status == 200
    (run,) = holder.poll(capacity=1)
    id_, claim = run["body"]["invocation_id"], run["body"]["claim"]

    def attempt() -> int:
        answer = secured_server.post("/v1/producer/await", {"invocation_id": id_, "get": True}, token=ADMIN)
        return int(answer.body["invocation"]["attempt"])

    other.poll(capacity=0, held=[[id_, claim, True]])
    assert attempt() == 0
    holder.poll(capacity=0, held=[[id_, claim, True]])
    assert attempt() == 1
