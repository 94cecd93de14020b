"""Bodies that are nearly right, over every route that takes one: refused by name, never a 500, and nothing piles up."""

from __future__ import annotations

import http.client
import json
import random
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgpack
import pytest
from mutations import JSON, MSGPACK, Mutant, mutants, packed
from route_bodies import ROUTES
from served import Served, new_id, running

SEED = 20
COUNT = 120

NEEDED = {"claim", "n", "size", "session", "adopted", "args_blob", "key", "workerId"}
"""Fields that another one asks for."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with running(tmp_path_factory.mktemp("mutants")) as served:
        yield served
        assert served.stop() == 0
        assert "Traceback" not in served.said()


def gauges(server: Served) -> dict[str, float]:
    lines = server.get("/metrics").raw.decode().splitlines()
    found = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    names = ("lakeshore_parked_polls", "lakeshore_waiters", "lakeshore_http_parked_requests")
    return {name: float(found[name]) for name in names}


class Line:
    """One connection for many requests. A request that is held is left after a moment, and counted."""

    def __init__(self, server: Served) -> None:
        self._server = server
        self._connection = server.connection()
        self.held = 0
        self.opened = 1

    def send(self, path: str, mutant: Mutant) -> tuple[int, Any] | None:
        try:
            self._connection.request("POST", path, mutant.raw, {"Content-Type": mutant.encoding})
            answer = self._connection.getresponse()
            raw = answer.read()
        except TimeoutError:
            self.held += 1
            self.close()
            self._connection = self._server.connection(timeout=0.5)
            self.opened += 1
            return None
        assert answer.headers["content-type"] == mutant.encoding, mutant
        if self._connection.sock is not None:
            self._connection.sock.settimeout(0.5)  # the first one had all the time that it wanted
        return answer.status, _read(raw, mutant.encoding)

    def close(self) -> None:
        self._connection.close()


def _read(raw: bytes, encoding: str) -> Any:
    return msgpack.unpackb(raw, strict_map_key=False) if encoding == MSGPACK else json.loads(raw)


def fields_of(status: int, told: Any) -> set[str]:
    """The fields that were named as wrong: by the refusal of the whole, or by those of a batch's items."""
    found = {str(told.get("field"))} if status == 422 else set()
    for items in ("results", "chunks"):
        found |= {str(item.get("field")) for item in told.get(items) or () if item.get("status") == 422}
    found |= {str(item.get("field")) for item in told.get("acks") or () if item.get("result") == "refused"}
    return found - {"None"}  # an item that is no map at all has no fields


KINDS_OF_BODY = {"watch", "invocations", "acks", "chunks"}
"""Keys that say what a body is: without them it is another one, and lacks other fields."""


@pytest.mark.inventory("S-383", "S-003")
@pytest.mark.parametrize("encoding", [MSGPACK, JSON], ids=["msgpack", "json"])
@pytest.mark.parametrize("name", ROUTES)
def test_a_body_that_is_nearly_right_is_answered_by_name_and_the_connection_goes_on(
    server: Served, name: str, encoding: str
) -> None:
    path, body = ROUTES[name]
    rng = random.Random(f"{SEED} {name} {encoding}")
    line, seen = Line(server), Counter[int]()
    answered = line.send(path, Mutant(packed(body, encoding), encoding, (), "nothing changed"))
    assert answered is not None
    always = fields_of(*answered)
    for number, mutant in enumerate(mutants(body, encoding, rng, COUNT)):
        if name.startswith("poll") and mutant.path[:1] == ("timeout_s",) and number % 4:
            continue  # most of them only hold it open
        answered = line.send(path, mutant)
        if answered is None:
            continue
        status, told = answered
        seen[status] += 1
        assert status < 500, (mutant.what, status, told)
        if status >= 400:
            assert told["error"], mutant.what
        if status == 422:
            assert told["field"], (mutant.what, told)
        changed = {str(part) for part in mutant.path}
        for field in fields_of(status, told) - always:
            spelled = set(field.replace("[", ".").replace("]", "").split("."))
            assert not changed or changed & (spelled | KINDS_OF_BODY) or field in NEEDED, (mutant.what, told)
    assert seen[400] > 0, seen
    assert line.opened <= 1 + line.held, "a refusal closed the connection"
    line.close()


@pytest.mark.inventory("K-21")
def test_nothing_piles_up_behind_requests_that_were_refused_or_left(server: Served) -> None:
    """Polls and waits whose peers have gone, and watched ids that nobody knows."""
    before = gauges(server)
    for number in range(40):
        watch = {"watch": f"w-{number % 4}", "add": [new_id() for _ in range(10)], "timeout_s": 0}
        answer = server.post("/v1/producer/await", watch).body
        assert {result["state"] for result in answer["results"]} == {"unknown"}
    peers: list[http.client.HTTPConnection] = []
    for number in range(20):
        peer = server.connection()
        poll = {"worker_id": f"w{number}", "queue": new_id(), "session": "s", "n": 1, "timeout_s": 20}
        path, asked = (("/v1/daemon/poll", poll), ("/v1/producer/await", {"watch": new_id(), "timeout_s": 20}))[
            number % 2
        ]
        peer.request("POST", path, msgpack.packb(asked), {"Content-Type": MSGPACK})
        peers.append(peer)
    for peer in peers:
        peer.close()
    deadline = time.monotonic() + 60
    while (now := gauges(server)) != before:
        assert time.monotonic() < deadline, (before, now)
        time.sleep(0.05)


@pytest.mark.inventory("K-20", "S-259")
@pytest.mark.parametrize("how", ["announced", "chunked"])
def test_a_body_of_101_mib_is_refused_while_it_is_sent(server: Served, how: str) -> None:
    connection = server.connection()
    part = b"\0" * 65536
    parts = 101 * 16
    try:
        connection.putrequest("POST", "/v1/producer/submit")
        connection.putheader("Content-Type", MSGPACK)
        if how == "announced":
            connection.putheader("Content-Length", str(len(part) * parts))
        else:
            connection.putheader("Transfer-Encoding", "chunked")
        connection.endheaders()
        sent = 0
        try:
            for _ in range(parts):
                connection.send(part if how == "announced" else b"10000\r\n" + part + b"\r\n")
                sent += len(part)
        except (BrokenPipeError, ConnectionResetError):
            pass  # it has closed its ear
        answer = connection.getresponse()
        assert answer.status == 413
        assert "presign" in msgpack.unpackb(answer.read())["hint"]
    finally:
        connection.close()
    assert server.get("/readyz").status == 200
