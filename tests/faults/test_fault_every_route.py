"""A storm of random requests over every route of the table: none fails inside, none is stuck, nothing grows.

A route that is added to the table is covered by that alone. `ROUTES_SEED` is the seed, `ROUTES_COUNT` how many requests
each route gets (`ROUTES_COUNT=2000` takes some minutes).
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import vitals
from mutations import JSON, MSGPACK
from route_bodies import HELLO
from served import Served, new_id, one, running
from storm import Known, Line, Shot, query_names, read, shot

from lakeshore.server.routes.table import TABLE, Row

SEED = os.environ.get("ROUTES_SEED", "1")
COUNT = int(os.environ.get("ROUTES_COUNT", "60"))
PATIENCE_S = 0.15
MORE_MIB = 8
MORE_FILES = 4
MORE_THREADS = 8


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with running(tmp_path_factory.mktemp("storm")) as served:
        yield served
        assert served.stop() == 0
        assert "Traceback" not in served.said(), served.said()[-3000:]


@pytest.fixture(scope="module")
def known(server: Served) -> Known:
    return populated(server)


def populated(server: Served) -> Known:
    """Jobs in several states, a worker, a topic, a token, blobs: so that not every request is about nothing."""
    queued, running_, ended = (one(queue=queue) for queue in ("waiting", "working", "done"))
    for call in (queued, running_, ended):
        assert server.post("/v1/producer/submit", call).status == 200
    for call in (running_, ended):
        poll = {"worker_id": call["queue"], "queue": call["queue"], "session": "s", "n": 1, "timeout_s": 0}
        (command,) = server.post("/v1/daemon/poll", poll).body["commands"]
    ack = {"invocation_id": ended["invocation_id"], "claim": command["body"]["claim"], "state": "succeeded"}
    assert server.post("/v1/daemon/ack", {**ack, "result_blob": b"r"}).body["result"] == "ok"
    server.post("/v1/producer/queues/waiting/topics/t", {"bytes": b"\x01", "final": False})
    presign = "/v1/namespaces/default/payloads/presign"
    puts = [server.post(presign, {"op": "put", "size": 9, "jobId": new_id(), "kind": "args"}).body for _ in range(3)]
    target = puts[0]["url"].removeprefix(server.url)
    assert server.raw("PUT", target, b"123456789").status == 201
    got = server.post(presign, {"op": "get", "key": puts[0]["key"]}).body["url"]
    worker = server.post("/v1/daemon/hello", HELLO).body["worker_id"]
    ids = [worker, *(call["invocation_id"] for call in (queued, running_, ended))]
    return Known(
        values={
            "ns": ["default"],
            "slug": ["default", "other"],
            "id": ids,
            "worker": [worker],
            "queue": ["waiting", "working"],
            "name": ["waiting", "t", "done"],
            "key": [puts[0]["key"]],
        },
        signed={
            "PUT": [put["url"].removeprefix(server.url) for put in puts],
            "GET": [got.removeprefix(server.url)],
        },
    )


def judge(shot: Shot, status: int, headers: Any, body: bytes) -> None:
    """What every answer owes, whatever was asked."""
    what = (SEED, str(shot), status, body[:500])
    assert 200 <= status < 500, what
    if shot.method == "HEAD" or status in (204, 304):
        assert body == b"", what
        return
    if status >= 400:
        told = read(headers["content-type"], body)
        assert isinstance(told["error"], str), what
        assert told["error"], what
        said = dict(shot.headers).get("Content-Type")
        unread = status in (400, 414, 431) and headers["connection"] == "close"  # its head was refused: JSON then
        assert said not in (JSON, MSGPACK) or unread or headers["content-type"] == said, what
        assert status != 405 or "allow" in headers, what
        assert status != 422 or told.get("field"), what


def storm(server: Served, row: Row, known: Known, rng: random.Random, count: int) -> Counter[int]:
    line, seen = Line(server, PATIENCE_S), Counter[int]()
    for number in range(count):
        if line.held > 8 + count // 10:
            count = number  # a stream: each of its requests takes all our patience
            break
        sent = shot(row, known, rng)
        answer = line.send(sent)
        if answer is None:
            continue
        judge(sent, *answer)
        seen[answer[0]] += 1
    line.close()
    assert sum(seen.values()) + line.held == count
    return seen


def named(row: Row) -> str:
    return f"{row.method} {row.pattern}"


@pytest.mark.inventory("S-383", "S-003")
@pytest.mark.parametrize("row", TABLE, ids=named)
def test_a_storm_over_a_route_ends_in_answers_and_leaves_nothing_behind(server: Served, known: Known, row: Row) -> None:
    before = vitals.gauges(server)
    seen = storm(server, row, known, random.Random(f"{SEED} {named(row)}"), COUNT)
    print(SEED, seen)
    vitals.until_as_before(server, before)


def test_a_reader_that_leaves_a_large_body_unread_behind_is_known_to_be_gone(server: Served) -> None:
    before = vitals.gauges(server)
    line = Line(server, 1.0)
    headers = (("Content-Type", "application/json"),)
    target = "/v1/producer/queues/waiting/topics/t/stream"
    assert line.send(Shot(method="GET", target=target, headers=headers, body=b"\0" * 1_000_000)) is None
    line.close()
    vitals.until_as_before(server, before)


def test_storms_over_all_routes_do_not_make_the_server_grow(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The first ones fill caches and pools; from then on a storm costs nothing that stays."""
    with running(tmp_path_factory.mktemp("growth")) as server:
        known, sizes = populated(server), []
        before = vitals.gauges(server)
        for turn in range(4):
            rng = random.Random(f"{SEED} growth {turn}")
            for row in TABLE:
                storm(server, row, known, rng, max(6, COUNT // 10))
            vitals.until_as_before(server, before)
            sizes.append((vitals.memory_kib(server) / 1024, vitals.open_files(server), vitals.threads(server)))
        print(SEED, sizes)
        (memory, files, threads), (memory_then, files_then, threads_then) = sizes[1], sizes[-1]
        assert memory_then - memory < MORE_MIB, sizes
        assert files_then - files <= MORE_FILES, sizes
        assert threads_then - threads <= MORE_THREADS, sizes
        assert server.stop() == 0
        assert "Traceback" not in server.said()


def test_the_storm_knows_the_names_that_routes_read_from_their_queries() -> None:
    assert {"limit", "state", "queue", "namespace", "cursor", "timeout_s"} <= set(query_names())
