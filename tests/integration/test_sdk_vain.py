"""A wait that is in vain says why after a few seconds, and again when it ends (a control plane knows)."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import served
import trio

from lakeshore.sdk import vain
from lakeshore.sdk.errors import Timeout
from lakeshore.sdk.functions import udf
from lakeshore.sdk.http_dispatch import HttpDispatch
from lakeshore.sdk.queues import Queue, SyncQueue
from lakeshore.sdk.worker import run_worker

SOON_S = 0.2
WAIT_S = 1.0
PATIENCE_S = 60.0
going = threading.Event()
let_go = threading.Event()


@udf(queue="vain")
def holds_its_worker() -> str:
    going.set()
    assert let_go.wait(PATIENCE_S)
    return "done"


@pytest.fixture
def plane(server: served.Served, monkeypatch: pytest.MonkeyPatch) -> Iterator[HttpDispatch]:
    monkeypatch.setattr(vain, "SAID_AFTER_S", SOON_S)
    made = HttpDispatch(server.url)
    yield made
    made.close()


@pytest.fixture
def name() -> str:
    return f"q-{served.new_id()}"


def result(q: SyncQueue) -> None:
    q.result(q.submit(1), timeout=WAIT_S)


def call(q: SyncQueue) -> None:
    q.call(1, timeout=WAIT_S)


async def _awaited(q: SyncQueue, verb: str) -> None:
    ours = Queue(q.name, dispatch=q.plane)
    if verb == "call":
        await ours.call(1, timeout=WAIT_S)
    else:
        await ours.result(await ours.submit(1), timeout=WAIT_S)


def on_asyncio(main: Callable[..., Any], *args: Any) -> None:
    asyncio.run(main(*args))


LOOPS: dict[str, Callable[..., Any]] = {"asyncio": on_asyncio, "trio": trio.run}
WAYS: dict[str, Callable[[SyncQueue], None]] = {
    "result": result,
    "call": call,
    **{
        f"{loop}-{verb}": partial(lambda loop, verb, q: LOOPS[loop](_awaited, q, verb), loop, verb)
        for loop in LOOPS
        for verb in ("result", "call")
    },
}


@pytest.mark.parametrize("way", WAYS)
def test_a_wait_for_a_queue_that_nobody_serves_says_so_soon_and_at_its_end(
    plane: HttpDispatch, name: str, caplog: pytest.LogCaptureFixture, way: str
) -> None:
    with caplog.at_level(logging.WARNING, "lakeshore.sdk.vain"), pytest.raises(Timeout) as ended:
        WAYS[way](SyncQueue(name, dispatch=plane))
    said = f"no worker serves queue {name!r}; `lakeshore worker start --queue {name}` starts one here"
    (line,) = (record.getMessage() for record in caplog.records if record.name == "lakeshore.sdk.vain")
    assert line.startswith(f"lakeshore: waiting: {said}")
    assert said in str(ended.value)
    assert "The id stays valid" in str(ended.value)


def test_many_waits_of_a_process_say_it_once(plane: HttpDispatch, name: str, caplog: pytest.LogCaptureFixture) -> None:
    q = SyncQueue(name, dispatch=plane)
    ids = [q.submit(n) for n in range(8)]

    def wait(id_: str) -> None:
        with pytest.raises(Timeout):
            q.result(id_, timeout=WAIT_S)

    threads = [threading.Thread(target=wait, args=(id_,)) for id_ in ids]
    with caplog.at_level(logging.WARNING, "lakeshore.sdk.vain"):
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sum(name in record.getMessage() for record in caplog.records) == 1


def test_who_waits_behind_others_is_not_told_that_nobody_comes(
    plane: HttpDispatch, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    going.clear()
    let_go.clear()
    q = SyncQueue(name, dispatch=plane)
    first = holds_its_worker.submit(_queue=name, _dispatch=plane)
    worker = threading.Thread(target=run_worker, args=(q,), kwargs={"once": True}, daemon=True)
    worker.start()
    assert going.wait(PATIENCE_S)
    with caplog.at_level(logging.WARNING, "lakeshore.sdk.vain"), pytest.raises(Timeout) as ended:
        holds_its_worker.remote(_queue=name, _dispatch=plane, _timeout=WAIT_S)
    let_go.set()
    assert "no worker serves" not in str(ended.value)
    assert not [record for record in caplog.records if record.name == "lakeshore.sdk.vain"]
    assert q.result(first, timeout=PATIENCE_S) is not None
    worker.join(PATIENCE_S)


def test_a_paused_queue_is_named_in_the_wait(server: served.Served, plane: HttpDispatch, name: str) -> None:
    assert server.post("/v1/namespaces/default/queues", {"name": name}).status == 201
    assert server.call("PATCH", f"/v1/namespaces/default/queues/{name}", {"state": "paused"}).status == 200
    with pytest.raises(Timeout, match=f"queue '{name}' is paused; `lakeshore queues resume {name}`"):
        SyncQueue(name, dispatch=plane).call(1, timeout=WAIT_S)


def test_a_server_that_says_nothing_of_why_is_waited_for_as_before() -> None:
    for answer in ({}, {"why": None}, {"why": {"reason": "busy", "message": "the one worker is busy"}}):
        vain.tell(answer)
        assert vain.hint(answer) is None
    assert not vain._told & {"the one worker is busy"}


def test_a_process_remembers_a_bounded_number_of_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vain, "_told", set())
    monkeypatch.setattr(vain, "_MOST", 3)
    for number in range(10):
        vain.tell({"why": {"reason": "no_worker", "message": f"queue {number}"}})
    assert len(vain._told) == 3
