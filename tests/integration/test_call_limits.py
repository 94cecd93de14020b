"""A call that is waited for ends within its `_timeout`, also where no server takes it or none answers."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import pytest
import served
import trio
from ports import free_port

import dreamlake.lakeshore as dls
from lakeshore.sdk.errors import Timeout
from lakeshore.sdk.http_dispatch import HttpDispatch

PATIENCE_S = 60.0
LIMIT_S = 1.2
SOON_S = 20.0
"""Far below the 30 s that the plane itself would try for."""


@dls.udf
def plain(x: Any) -> Any:
    return x


@dls.udf
async def awaited(x: Any) -> Any:
    return x


@dls.udf
async def streamed(x: Any) -> AsyncIterator[Any]:
    yield x


def _remote(plane: Any) -> None:
    plain.remote(1, _queue="q", _dispatch=plane, _timeout=LIMIT_S)


def _delayed(plane: Any) -> None:
    plain.remote(1, _queue="q", _dispatch=plane, _timeout=LIMIT_S, _delay=600)


def _large(plane: Any) -> None:
    plain.remote(b"x" * 2**20, _queue="q", _dispatch=plane, _timeout=LIMIT_S)


def _queue_call(plane: Any) -> None:
    dls.SyncQueue("q", dispatch=plane).call(1, timeout=LIMIT_S)


async def _awaited(plane: Any) -> None:
    await awaited.remote(1, _queue="q", _dispatch=plane, _timeout=LIMIT_S)


async def _streamed(plane: Any) -> None:
    async for _ in streamed.remote(1, _queue="q", _dispatch=plane, _timeout=LIMIT_S):
        pass


async def _awaited_queue_call(plane: Any) -> None:
    await dls.Queue("q", dispatch=plane).call(1, timeout=LIMIT_S)


WAYS: dict[str, Callable[[Any], None]] = {
    "remote": _remote,
    "delayed": _delayed,
    "large": _large,
    "queue call": _queue_call,
    "awaited": lambda plane: asyncio.run(_awaited(plane)),
    "awaited on trio": lambda plane: trio.run(_awaited, plane),
    "streamed": lambda plane: asyncio.run(_streamed(plane)),
    "awaited queue call": lambda plane: asyncio.run(_awaited_queue_call(plane)),
}


@pytest.fixture
def nobody() -> str:
    """Where nobody listens."""
    return f"http://127.0.0.1:{free_port()}"


@pytest.fixture
def mute() -> Iterator[str]:
    """Where every connection is taken, and no request answered."""
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


@pytest.mark.filterwarnings("ignore:.*travels by value")
@pytest.mark.parametrize(
    ("where", "said"), [("nobody", "was not reached within 1.2s"), ("mute", "did not answer within 1.2s")]
)
def test_no_way_of_calling_outlasts_its_timeout(request: pytest.FixtureRequest, where: str, said: str) -> None:
    url = request.getfixturevalue(where)

    def ended(way: Callable[[Any], None]) -> tuple[float, Exception]:
        plane = HttpDispatch(url)  # of its own: none is told what another one met
        began = time.monotonic()
        try:
            with pytest.raises(Timeout) as caught:
                way(plane)
        finally:
            plane.close()
        return time.monotonic() - began, caught.value

    with ThreadPoolExecutor(len(WAYS)) as threads:
        tried = {name: threads.submit(ended, way) for name, way in WAYS.items()}
    for name, done in tried.items():
        took_s, error = done.result()
        assert LIMIT_S <= took_s < SOON_S, name
        assert said in str(error), name
        assert isinstance(error, TimeoutError)


GAVE_UP = "was not submitted|may have taken"
"""The second from who gives up while a try is on its way: nobody knows then what becomes of it."""


def _in_threads(q: dls.SyncQueue, all_gave_up: threading.Barrier) -> Any:
    """What the patient one gets: the first one of the others is the one that sends."""

    def hasty(_n: int) -> None:
        with pytest.raises(Timeout, match=GAVE_UP):
            q.call("hasty", timeout=LIMIT_S)

    with ThreadPoolExecutor(4) as threads:
        tried = [threads.submit(hasty, 0)]
        waits = threads.submit(q.call, "patient", timeout=PATIENCE_S)
        tried += [threads.submit(hasty, n) for n in (1, 2)]
        for one in tried:
            one.result(PATIENCE_S)
        all_gave_up.wait(PATIENCE_S)
        return waits.result(PATIENCE_S)


async def _in_tasks(q: dls.Queue, all_gave_up: threading.Barrier) -> Any:
    async def hasty() -> None:
        with pytest.raises(Timeout, match=GAVE_UP):
            await q.call("hasty", timeout=LIMIT_S)

    tried = [asyncio.create_task(hasty()) for _ in range(3)]
    waits = asyncio.create_task(q.call("patient", timeout=PATIENCE_S))
    await asyncio.gather(*tried)
    await asyncio.to_thread(all_gave_up.wait, PATIENCE_S)
    return await waits


def test_in_company_each_has_its_own_limit_and_who_gave_up_is_not_submitted_later(tmp_path: Path) -> None:
    port = str(free_port())
    planes = [HttpDispatch(f"http://127.0.0.1:{port}") for _ in range(2)]
    queues = [dls.SyncQueue(f"q-{n}", dispatch=plane) for n, plane in enumerate(planes)]
    gave_up = threading.Barrier(3)
    with ThreadPoolExecutor(5) as threads:
        in_threads = threads.submit(_in_threads, queues[0], gave_up)
        in_tasks = threads.submit(lambda: asyncio.run(_in_tasks(dls.Queue("q-1", dispatch=planes[1]), gave_up)))
        reached = threads.submit(gave_up.wait, PATIENCE_S)
        (first, *_others), _ = wait((reached, in_threads, in_tasks), return_when=FIRST_COMPLETED)
        first.result()  # one that failed never comes there
        server = served.start(tmp_path / "server", "--port", port)
        answering = [threads.submit(_answer_one, q) for q in queues]
        assert in_threads.result(PATIENCE_S) == in_tasks.result(PATIENCE_S) == "PATIENT"
        for one in answering:
            one.result(PATIENCE_S)
    assert [(q.count(), q.count("succeeded")) for q in queues] == [(0, 1)] * 2
    for plane in planes:
        plane.close()
    server.process.kill()
    server.process.wait()


def _answer_one(q: dls.SyncQueue) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while (job := q.claim()) is None:
        assert time.monotonic() < deadline, "nothing was submitted"
        time.sleep(0.01)
    q.ack(job, job.payload.upper())
