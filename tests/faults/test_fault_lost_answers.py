"""A verb whose answer is lost is sent again by the clients, and is done once (K-17, K-18).

The line is cut when the answer begins, so the server has done what was asked; on a new connection, and on one that
has been in use. What cannot be made the same verb says that nobody knows, instead of doing it twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
import served
from cutting import NEVER, Cutter, cutting
from served import Served, new_id

from lakeshore import DispatchError, HttpDispatch, wire
from lakeshore.client.api import ApiClient
from lakeshore.net.errors import ConnectionLost

Lose = Callable[[], None]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served.running(tmp_path_factory.mktemp("server")) as server:
        yield server


@pytest.fixture
def line(server: Served) -> Iterator[Cutter]:
    parts = urlsplit(server.url)
    with cutting(str(parts.hostname), int(parts.port or 0)) as line:
        yield line


@pytest.fixture
def straight(server: Served) -> Iterator[HttpDispatch]:
    plane = HttpDispatch(server.url)
    yield plane
    plane.close()


@pytest.fixture
def plane(line: Cutter) -> Iterator[HttpDispatch]:
    plane = HttpDispatch(line.url)
    yield plane
    line.down = NEVER
    plane.close()


@pytest.fixture(params=["new", "used"])
def lose(request: pytest.FixtureRequest, line: Cutter, plane: HttpDispatch) -> Lose:
    """From the call of this on, the next answer is lost, and no other."""

    def lose() -> None:
        if request.param == "used":
            plane.count("any")
        line.most, line.down = line.cuts + 1, 0

    return lose


def failed(plane: HttpDispatch) -> str:
    queue = f"q-{new_id()}"
    inv = plane.submit(queue, b"args", id=new_id(), run_config={"max_attempts": 1})
    fail(plane, inv, queue)
    return inv


def fail(plane: HttpDispatch, inv: str, queue: str) -> None:
    job = plane.claim(queue, "w")
    assert job is not None
    plane.nack(inv, "w", error="no", retry=False, claim=job.claim)


def row(plane: HttpDispatch, inv: str) -> dict[str, Any]:
    found = plane.get(inv)
    assert found is not None
    return found


@pytest.mark.inventory("K-17")
@pytest.mark.parametrize("seen", [False, True])
def test_a_retry_is_one_retry(
    straight: HttpDispatch, plane: HttpDispatch, line: Cutter, lose: Lose, seen: bool
) -> None:
    inv = failed(straight)
    claim = row(straight, inv)["claim"]
    lose()
    assert plane.retry(inv, claim=claim if seen else None) == inv
    assert line.cuts == 1
    assert (row(straight, inv)["state"], row(straight, inv)["claim"]) == ("queued", claim + 1)


@pytest.mark.inventory("K-17")
def test_a_late_copy_of_a_retry_revives_nothing_also_after_other_retries(
    server: Served, straight: HttpDispatch
) -> None:
    """Whatever retried it since: another one by hand, or a submit."""
    inv = failed(straight)
    first = row(straight, inv)
    path = f"/v1/namespaces/default/invocations/{inv}/retry"
    call = {"invocation_id": inv, "queue": first["queue"], "args_blob": b"args", "run_config": first["run_config"]}
    ways: list[tuple[str, dict[str, Any]]] = [
        (path, {"nonce": "one"}),
        (path, {"nonce": "two", "claim": first["claim"] + 2}),
        ("/v1/producer/submit", {**call, "function": first["function"], "retry_failed": "three"}),
        (path, {"nonce": "four"}),
    ]
    for n, (where, body) in enumerate(ways, 1):
        answer = server.post(where, body)
        assert answer.status == 200, answer.body
        assert (row(straight, inv)["state"], row(straight, inv)["claim"]) == ("queued", first["claim"] + 2 * n - 1)
        fail(straight, inv, first["queue"])
        for earlier, copy in ways[:n]:
            assert server.post(earlier, copy).status == 200
            assert row(straight, inv)["state"] == "failed", (n, copy)
    assert server.post(path, {"nonce": "five", "claim": first["claim"]}).status == 409, (
        "a new one must have seen the row"
    )


@pytest.mark.inventory("K-27")
@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_cancel_that_was_done_says_so(
    straight: HttpDispatch, plane: HttpDispatch, line: Cutter, lose: Lose, asynchronous: bool
) -> None:
    inv = straight.submit(f"q-{new_id()}", b"", id=new_id())

    async def by_task() -> bool:
        await plane.aio.count("any", "queued")
        lose()
        return await plane.aio.cancel(inv)

    if not asynchronous:
        lose()
    assert (asyncio.run(by_task()) if asynchronous else plane.cancel(inv)) is True
    assert line.cuts == 1
    assert row(straight, inv)["state"] == "killed"
    assert straight.cancel(inv) is False, "nobody cancels it twice"


@pytest.mark.inventory("K-25")
@pytest.mark.parametrize("final", [False, True])
def test_a_post_to_a_topic_is_there_once(
    straight: HttpDispatch, plane: HttpDispatch, line: Cutter, lose: Lose, final: bool
) -> None:
    queue = f"q-{new_id()}"
    assert straight.topic_post(queue, "t", wire.pack("before")) == 0
    lose()
    assert plane.topic_post(queue, "t", wire.pack("value"), final=final) == 1
    assert line.cuts == 1
    if not final:
        assert straight.topic_post(queue, "t", wire.pack("value")) == 2, "the same value posted again is another post"
        straight.topic_post(queue, "t", b"", final=True)
    read = [wire.Frame.from_bytes(data).body for _seq, data in straight.topic_read(queue, "t")]
    assert read == (["before", None] if final else ["before", "value", "value", None])


@pytest.mark.inventory("K-25")
def test_a_copy_of_a_post_is_known_after_many_others_when_it_says_that_it_is_one(server: Served) -> None:
    path = f"/v1/producer/queues/q-{new_id()}/topics/t"
    post = {"bytes": wire.pack(1), "nonce": 2**32 - 1}
    assert server.post(path, post).body == {"seq": 0}
    for seq in range(1, 140):
        assert server.post(path, {**post, "nonce": seq}).body == {"seq": seq}
    assert server.post(path, {**post, "again": True}).body == {"seq": 0}
    assert server.post(path, {**post, "nonce": 139}).body == {"seq": 139}, "a copy that was overtaken by its resend"
    assert server.post(path, {**post, "bytes": wire.pack(2), "again": True}).body == {"seq": 140}, "another value"
    assert server.post(path, {**post, "nonce": 2**32}).status == 422


@pytest.mark.inventory("K-24")
def test_a_frame_of_a_seq_is_there_once_and_one_of_none_raises(
    straight: HttpDispatch, plane: HttpDispatch, line: Cutter, lose: Lose
) -> None:
    queue = f"q-{new_id()}"
    inv = straight.submit(queue, b"", id=new_id())
    job = straight.claim(queue, "w")
    assert job is not None
    frame = wire.FrameWriter(0).value("first")
    lose()
    assert plane.journal_append(inv, 0, frame, claim=job.claim) == 0
    lose()
    with pytest.raises(DispatchError, match="not known"):
        plane.journal_append(inv, None, wire.FrameWriter(1).value("second"), claim=job.claim)
    assert line.cuts == 2
    straight.ack(inv, "w", claim=job.claim, last_seq=1)
    read = [wire.Frame.from_bytes(data).body for _seq, data in straight.journal_read(inv)]
    assert read == ["first", "second", None]


@pytest.mark.inventory("K-17")
def test_the_clis_retry_and_kill_are_done_once_and_nothing_else_is_sent_twice(
    straight: HttpDispatch, line: Cutter
) -> None:
    inv = failed(straight)
    claim = row(straight, inv)["claim"]
    with ApiClient(line.url, namespace="default") as client:
        client.invocation(inv)
        line.most, line.down = line.cuts + 1, 0
        assert client.retry(inv, claim=claim)["state"] == "queued"
        assert row(straight, inv)["claim"] == claim + 1
        line.most = line.cuts + 1
        assert client.kill(inv)["state"] == "killed"
        assert line.cuts == 2
        queue = f"q-{new_id()}"
        inv = straight.submit(queue, b"", id=new_id())
        client.invocation(inv)
        line.most = line.cuts + 1
        with pytest.raises(ConnectionLost):
            client.bulk_cancel(queue=queue)  # how many there were cannot be asked again
        assert row(straight, inv)["state"] == "killed"
        line.most = NEVER
    line.down = NEVER
