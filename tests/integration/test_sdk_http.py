"""The SDK over a real server: shared waits, async verbs without threads, forks, restarts, large payloads."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import served
import trio
import trio.testing
from ports import free_port

from lakeshore.sdk.errors import DispatchError
from lakeshore.sdk.http_dispatch import HttpDispatch
from lakeshore.sdk.queues import Queue, SyncQueue

PATIENCE_S = 60.0


@pytest.fixture
def plane(server: served.Served) -> Iterator[HttpDispatch]:
    made = HttpDispatch(server.url)
    yield made
    made.close()


@pytest.fixture
def name() -> str:
    return f"q-{served.new_id()}"


class Drain:
    """A hand-written worker on a thread: doubles what it gets."""

    def __init__(self, q: SyncQueue) -> None:
        self._q = q
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            job = self._q.claim()
            if job is None:
                self._stop.wait(0.01)
            else:
                self._q.ack(job, job.payload * 2)

    def __enter__(self) -> Drain:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(PATIENCE_S)


def on_asyncio(main: Callable[[], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        return await main()

    return asyncio.run(run())


LOOPS = pytest.mark.parametrize("run", [on_asyncio, trio.run], ids=["asyncio", "trio"])


async def gather(*calls: Callable[[], Awaitable[Any]]) -> list[Any]:
    """All results in order, on whatever loop runs."""
    results: list[Any] = [None] * len(calls)

    async def one(k: int) -> None:
        results[k] = await calls[k]()

    if "trio" in str(type(_loop())):
        async with trio.open_nursery() as nursery:
            for k in range(len(calls)):
                nursery.start_soon(one, k)
    else:
        async with asyncio.TaskGroup() as group:
            for k in range(len(calls)):
                group.create_task(one(k))
    return results


def _loop() -> object:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return trio.lowlevel.current_trio_token()


@LOOPS
@pytest.mark.inventory("P-239", "P-241", "P-751")
def test_a_hundred_awaits_cost_no_thread(plane: HttpDispatch, name: str, run: Callable[..., Any]) -> None:
    async def main() -> None:
        q = Queue(name, dispatch=plane)
        before = set(threading.enumerate())
        ids = await gather(*(lambda n=n: q.submit(n) for n in range(100)))
        assert set(threading.enumerate()) == before
        with Drain(SyncQueue(name, dispatch=plane)):
            values = await gather(*(lambda i=i: q.result(i, timeout=PATIENCE_S) for i in ids))
        assert values == [2 * n for n in range(100)]
        assert await q.count("succeeded") == 100
        assert await q.cancel(ids[0]) is False

    run(main)


@LOOPS
@pytest.mark.inventory("P-227", "P-228", "P-735")
def test_streams_are_followed_live_on_the_loop(plane: HttpDispatch, name: str, run: Callable[..., Any]) -> None:
    hand = SyncQueue(name, dispatch=plane)

    async def main() -> None:
        q = Queue(name, dispatch=plane)
        ids = [await q.submit(n) for n in range(5)]
        jobs = [await q.claim() for _ in ids]

        async def read(inv_id: str) -> list[Any]:
            return [value async for value in q.stream(inv_id, timeout=PATIENCE_S)]

        def write() -> None:
            for job in jobs:
                assert job is not None
                for k in range(3):
                    q.sync.post(job.id, [job.payload, k])
                q.sync.ack(job, "end")

        writer = threading.Thread(target=write)
        writer.start()
        streams = await gather(*(lambda i=i: read(i) for i in ids))
        writer.join()
        assert streams == [[[n, k] for k in range(3)] for n in range(5)]
        tail = [value async for value in q.stream(ids[0], since=1)]
        assert tail == [[0, 2]]

    run(main)
    assert hand.count("succeeded") == 5


@LOOPS
@pytest.mark.inventory("P-223", "K-22")
def test_an_await_that_ends_first_leaves_the_id_valid(plane: HttpDispatch, name: str, run: Callable[..., Any]) -> None:
    async def main() -> None:
        q = Queue(name, dispatch=plane)
        inv_id = await q.submit(4)
        with pytest.raises(TimeoutError, match=f"invocation {inv_id} still 'queued' after 0.05s"):
            await q.result(inv_id, timeout=0.05)
        with Drain(SyncQueue(name, dispatch=plane)):
            assert await q.result(inv_id, timeout=PATIENCE_S) == 8

    run(main)


@LOOPS
def test_a_cancelled_waiter_passes_the_lead_on(plane: HttpDispatch, name: str, run: Callable[..., Any]) -> None:
    """The task that reads for all the others is cancelled; the others still get their results."""

    async def main() -> None:
        q = Queue(name, dispatch=plane)
        ids = [await q.submit(n) for n in range(4)]
        got: dict[int, Any] = {}

        async def lead() -> None:
            await q.result(ids[0], timeout=PATIENCE_S)

        async def follow(n: int) -> None:
            got[n] = await q.result(ids[n], timeout=PATIENCE_S)

        if run is trio.run:
            done = trio.Event()
            async with trio.open_nursery() as nursery:
                scope = trio.CancelScope()

                async def followed(n: int) -> None:
                    await follow(n)
                    if len(got) == 3:
                        done.set()

                async def led() -> None:
                    with scope:
                        await lead()

                nursery.start_soon(led)
                for n in (1, 2, 3):
                    nursery.start_soon(followed, n)
                await trio.testing.wait_all_tasks_blocked(0.05)
                scope.cancel()
                with Drain(SyncQueue(name, dispatch=plane)):
                    await done.wait()
        else:
            leader = asyncio.create_task(lead())
            followers = [asyncio.create_task(follow(n)) for n in (1, 2, 3)]
            await asyncio.sleep(0.05)
            leader.cancel()
            with Drain(SyncQueue(name, dispatch=plane)):
                await asyncio.wait_for(asyncio.gather(*followers), PATIENCE_S)
        assert got == {1: 2, 2: 4, 3: 6}

    run(main)


@pytest.mark.inventory("K-18", "K-29")
def test_threads_submit_and_wait_together(plane: HttpDispatch, name: str) -> None:
    q = SyncQueue(name, dispatch=plane)
    got: dict[int, Any] = {}

    def call(n: int) -> None:
        got[n] = q.call(n, timeout=PATIENCE_S)

    with Drain(SyncQueue(name, dispatch=plane)):
        threads = [threading.Thread(target=call, args=(n,)) for n in range(24)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)
    assert got == {n: 2 * n for n in range(24)}


@pytest.mark.inventory("K-33")
def test_a_forked_child_uses_connections_of_its_own(plane: HttpDispatch, name: str) -> None:
    q = SyncQueue(name, dispatch=plane)
    with Drain(SyncQueue(name, dispatch=plane)):
        assert q.call(1, timeout=PATIENCE_S) == 2
        readable, writable = os.pipe()
        child = os.fork()
        if child == 0:
            status = 1
            try:
                os.write(writable, str(q.call(20, timeout=PATIENCE_S)).encode())
                status = 0
            finally:
                os._exit(status)
        os.close(writable)
        assert os.read(readable, 100) == b"40"
        os.close(readable)
        assert os.waitpid(child, 0)[1] == 0
        assert q.call(3, timeout=PATIENCE_S) == 6


@pytest.mark.inventory("K-33")
def test_no_child_hangs_that_is_forked_while_threads_are_in_the_plane(server: served.Served, name: str) -> None:
    script = """
        import asyncio, os, signal, sys, threading
        from lakeshore.sdk.http_dispatch import HttpDispatch
        from lakeshore.sdk.ids import new_id

        url, queue = sys.argv[1:]
        plane = HttpDispatch(url)
        stop = threading.Event()

        async def gather():
            await asyncio.gather(*(plane.aio.submit(queue, b"", id=new_id()) for _ in range(5)))

        def run(me):
            while not stop.is_set():
                if me == 0:
                    asyncio.run(gather())
                elif me == 1:
                    other = HttpDispatch(url)
                    other.submit(queue, b"", id=new_id())
                    other.close()
                else:
                    plane.submit(queue, b"", id=new_id())
                    plane.count(queue)

        plane.submit(queue, b"", id=new_id())
        asyncio.run(gather())  # Python's import locks are not ours: what is loaded late is loaded before the forks
        threads = [threading.Thread(target=run, args=(me,)) for me in range(4)]
        for thread in threads:
            thread.start()
        for _ in range(40):
            if (child := os.fork()) == 0:
                signal.alarm(20)  # ends a child that hangs
                plane.submit(f"{queue}-forked", b"", id=new_id())
                asyncio.run(plane.aio.submit(f"{queue}-forked", b"", id=new_id()))
                os._exit(0)
            print(os.waitpid(child, 0)[1])
        stop.set()
        for thread in threads:
            thread.join()
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), server.url, name],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (done.returncode, done.stdout.split()) == (0, ["0"] * 40), done.stderr
    plane = HttpDispatch(server.url)
    assert plane.count(f"{name}-forked") == 80
    plane.close()


@pytest.mark.inventory("K-21", "K-24", "K-16")
def test_waits_and_streams_outlive_the_server(tmp_path: Path, name: str) -> None:
    port = str(free_port())
    first = served.start(tmp_path / "server", "--port", port)
    plane = HttpDispatch(f"http://127.0.0.1:{port}")
    q = SyncQueue(name, dispatch=plane)
    awaited, streamed = q.submit(21), q.submit("stream")
    plain, live = q.claim(), q.claim()
    assert plain is not None
    assert live is not None
    q.post(live.id, "before")
    results: list[Any] = []
    seen: list[Any] = []
    one_frame = threading.Event()

    def follow() -> None:
        for value in q.stream(streamed, timeout=PATIENCE_S):
            seen.append(value)
            one_frame.set()

    waiting = threading.Thread(target=lambda: results.append(q.result(awaited, timeout=PATIENCE_S)))
    following = threading.Thread(target=follow)
    waiting.start()
    following.start()
    assert one_frame.wait(PATIENCE_S)
    first.process.send_signal(signal.SIGKILL)
    first.process.wait()
    second = served.start(tmp_path / "server", "--port", port)
    q.ack(plain, 42)
    q.post(live.id, "after")
    q.ack(live)
    waiting.join(PATIENCE_S)
    following.join(PATIENCE_S)
    assert (results, seen) == ([42], ["before", "after"])
    plane.close()
    second.process.kill()
    second.process.wait()


@pytest.mark.inventory("K-20")
@pytest.mark.parametrize("size", [0, 65_535, 65_536, 262_144, 262_145, 3_000_000])
def test_payloads_of_any_size_arrive(plane: HttpDispatch, name: str, size: int) -> None:
    q = SyncQueue(name, dispatch=plane)
    value = os.urandom(size)
    inv_id = q.submit(value)
    job = q.claim()
    assert job is not None
    assert job.payload == value
    q.ack(job, value)
    assert q.result(inv_id) == value


@pytest.mark.inventory("K-20")
def test_a_payload_over_the_limit_fails_before_a_byte_is_sent(name: str) -> None:
    plane = HttpDispatch("http://127.0.0.1:9", timeout=0.1)  # nobody listens there
    with pytest.raises(DispatchError, match=r"101\.0 MiB, the limit is 100 MiB; pass a key or a path"):
        SyncQueue(name, dispatch=plane).submit(b"x" * (101 * 2**20 - 5))


@pytest.mark.inventory("P-415")
def test_a_server_that_is_not_there_is_named(name: str) -> None:
    plane = HttpDispatch("http://127.0.0.1:9", timeout=0.2)
    began = time.monotonic()
    with pytest.raises(DispatchError, match=r"127\.0\.0\.1:9"):
        SyncQueue(name, dispatch=plane).submit(1)
    assert time.monotonic() - began < 30
