"""The asyncio and the trio shell over real sockets: the same tests, run by either loop."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
from net_certs import certificate
from net_scripted import ScriptedServer, Served, scripted

from lakeshore.net import aio, trio_
from lakeshore.net.async_core import BaseAsyncConnection, BaseAsyncPool
from lakeshore.net.current import async_pool_for
from lakeshore.net.errors import ConnectFailed, ConnectionLost, ProtocolViolation, Timeout, TlsError
from lakeshore.net.target import Target, parse_target


class Asyncio:
    connection: type[BaseAsyncConnection] = aio.AsyncConnection
    pool: type[BaseAsyncPool] = aio.AsyncPool

    @staticmethod
    def run(main: Callable[[], Awaitable[Any]]) -> Any:
        async def guarded() -> Any:
            return await asyncio.wait_for(main(), 60)

        return asyncio.run(guarded())

    @staticmethod
    async def together(jobs: list[Callable[[], Awaitable[Any]]]) -> list[Any]:
        return list(await asyncio.gather(*[job() for job in jobs]))

    @staticmethod
    async def cancelled_once(job: Callable[[], Awaitable[Any]], event: threading.Event) -> None:
        """Start `job`, cancel it when `event` is set, and wait until it has ended."""
        task = asyncio.ensure_future(job())
        await asyncio.to_thread(event.wait, 10)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    in_thread = staticmethod(asyncio.to_thread)


class Trio:
    connection: type[BaseAsyncConnection] = trio_.AsyncConnection
    pool: type[BaseAsyncPool] = trio_.AsyncPool

    @staticmethod
    def run(main: Callable[[], Awaitable[Any]]) -> Any:
        async def guarded() -> Any:
            with trio.fail_after(60):
                return await main()

        return trio.run(guarded)

    @staticmethod
    async def together(jobs: list[Callable[[], Awaitable[Any]]]) -> list[Any]:
        results: list[Any] = [None] * len(jobs)

        async def one(place: int) -> None:
            results[place] = await jobs[place]()

        async with trio.open_nursery() as nursery:
            for place in range(len(jobs)):
                nursery.start_soon(one, place)
        return results

    @staticmethod
    async def cancelled_once(job: Callable[[], Awaitable[Any]], event: threading.Event) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(job)
            await trio.to_thread.run_sync(event.wait, 10)
            nursery.cancel_scope.cancel()

    @staticmethod
    async def in_thread(call: Callable[..., Any], *args: Any) -> Any:
        return await trio.to_thread.run_sync(call, *args)


@pytest.fixture(params=[Asyncio, Trio], ids=["asyncio", "trio"])
def loop(request: pytest.FixtureRequest) -> type[Asyncio] | type[Trio]:
    return request.param  # type: ignore[no-any-return]


Loop = type[Asyncio] | type[Trio]


def test_requests_on_one_connection_reuse_it(loop: Loop) -> None:
    with scripted(Served.echo_for_ever) as server:

        async def main() -> None:
            async with loop.connection(server.target) as connection:
                for n in range(20):
                    answer = await connection.request("POST", "/v1/x", headers={"x-n": str(n)}, body=b"%d" % n)
                    assert (answer.status, answer.body) == (200, b"%d" % n)

        loop.run(main)
        assert server.connections == 1


def test_64_concurrent_requests_share_the_pools_connections(loop: Loop) -> None:
    with scripted(Served.echo_for_ever) as server:

        async def main() -> None:
            async with loop.pool(server.target, max_connections=5) as pool:

                async def one(n: int) -> bytes:
                    return (await pool.request("POST", "/", body=b"%d" % n)).body

                for _ in range(3):
                    bodies = await loop.together([lambda n=n: one(n) for n in range(64)])  # type: ignore[misc]
                    assert bodies == [b"%d" % n for n in range(64)]
                assert pool.idle <= 5

        loop.run(main)
        assert server.connections <= 5


def test_a_kept_connection_that_the_server_closed_is_replaced_unnoticed(loop: Loop) -> None:
    def script(served: Served) -> None:
        request = served.read_request()
        served.answer(request[1] if request else b"")

    with scripted(script) as server:

        async def main() -> None:
            async with loop.pool(server.target) as pool:
                for n in range(4):
                    answer = await pool.request("POST", "/", body=b"%d" % n)
                    assert answer.body == b"%d" % n
                    await loop.in_thread(server.closed, n + 1)

        loop.run(main)
        assert server.connections == 4


def test_a_connection_that_closes_when_the_second_request_arrives_is_retried_once(loop: Loop) -> None:
    def script(served: Served) -> None:
        served.read_request()
        served.answer()
        if served.number == 1:
            served.read_request()
        else:
            served.echo_for_ever()

    with scripted(script) as server:

        async def main(retry: bool) -> None:
            async with loop.connection(server.target) as connection:
                await connection.request("POST", "/", body=b"1")
                assert (await connection.request("POST", "/", body=b"2", retry_stale=retry)).body == b"ok"

        loop.run(lambda: main(True))
        assert (server.connections, len(server.heads)) == (2, 3)

    with scripted(script) as server:
        with pytest.raises(ConnectionLost, match="without answering") as caught:
            loop.run(lambda: main(False))
        assert caught.value.sent_anything
        assert len(server.heads) == 2


def test_nobody_listening_is_a_failed_connection(loop: Loop) -> None:
    with scripted(Served.echo_for_ever) as server:
        target = server.target

    async def main() -> None:
        await loop.connection(target).request("GET", "/")

    with pytest.raises(ConnectFailed, match="refused"):
        loop.run(main)


def test_a_server_that_does_not_answer_is_a_timeout(loop: Loop) -> None:
    def script(served: Served) -> None:
        served.read_request()
        if served.number == 1:
            served.wait_for_close()
        else:
            served.echo_for_ever()
            served.answer()

    with scripted(script) as server:

        async def main() -> None:
            async with loop.pool(server.target) as pool:
                with pytest.raises(Timeout, match=r"within 0\.05 s"):
                    await pool.request("POST", "/", timeout=0.05)
                await loop.in_thread(server.closed, 1)
                assert pool.idle == 0

        loop.run(main)


def test_a_timeout_leaves_later_requests_of_the_connection_their_own_time(loop: Loop) -> None:
    with scripted(Served.echo_for_ever) as server:

        async def main() -> None:
            async with loop.connection(server.target) as connection:
                for timeout in (60, 20, None, 60, 20):
                    assert (await connection.request("POST", "/", body=b"x", timeout=timeout)).body == b"x"

        loop.run(main)
        assert server.connections == 1


def test_a_chunked_stream_arrives_piece_by_piece_and_its_connection_is_kept(loop: Loop) -> None:
    go = threading.Event()

    def script(served: Served) -> None:
        served.read_request()
        served.sock.sendall(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\none\r\n")
        go.wait(60)
        served.sock.sendall(b"3\r\ntwo\r\n0\r\n\r\n")
        served.echo_for_ever()

    with scripted(script) as server:

        async def main() -> None:
            async with loop.pool(server.target) as pool:
                async with await pool.stream("GET", "/s") as answer:
                    assert await anext(aiter(answer)) == b"one"
                    go.set()
                    assert [piece async for piece in answer] == [b"two"]
                assert pool.idle == 1
                assert (await pool.request("POST", "/", body=b"again")).body == b"again"

        loop.run(main)
        assert server.connections == 1


def test_a_stream_left_early_closes_its_connection(loop: Loop) -> None:
    def script(served: Served) -> None:
        served.read_request()
        served.sock.sendall(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\none\r\n")
        served.wait_for_close()

    with scripted(script) as server:

        async def main() -> None:
            async with loop.pool(server.target) as pool:
                async with await pool.stream("GET", "/s") as answer:
                    assert await anext(aiter(answer)) == b"one"
                await loop.in_thread(server.closed, 1)
                assert pool.idle == 0

        loop.run(main)


@pytest.mark.parametrize("framing", [b"content-length: 10", b"transfer-encoding: chunked"])
def test_a_truncated_answer_is_a_lost_connection(loop: Loop, framing: bytes) -> None:
    def script(served: Served) -> None:
        served.read_request()
        served.sock.sendall(b"HTTP/1.1 200 OK\r\n" + framing + b"\r\n\r\n5\r\none")

    with scripted(script) as server:

        async def main() -> None:
            with pytest.raises(ConnectionLost):
                await loop.connection(server.target).request("GET", "/s")
            async with await loop.connection(server.target).stream("GET", "/s") as answer:
                with pytest.raises(ConnectionLost):
                    await answer.read()

        loop.run(main)


def test_a_huge_head_is_refused(loop: Loop) -> None:
    def script(served: Served) -> None:
        served.read_request()
        served.sock.sendall(b"HTTP/1.1 200 OK\r\n")
        while True:
            served.sock.sendall(b"x-filler: " + b"a" * 8000 + b"\r\n")

    with scripted(script) as server, pytest.raises(ProtocolViolation, match="too large"):
        loop.run(lambda: loop.connection(server.target).request("GET", "/"))


def test_a_reader_that_stops_makes_the_server_wait(loop: Loop) -> None:
    stalled = threading.Event()
    sent = 0

    def script(served: Served) -> None:
        nonlocal sent
        served.read_request()
        served.sock.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 200000000\r\n\r\n")
        piece = b"x" * 100_000
        served.sock.settimeout(0.5)
        try:
            for _ in range(2000):
                served.sock.sendall(piece)
                sent += len(piece)
        except TimeoutError:
            stalled.set()

    with scripted(script) as server:

        async def main() -> None:
            async with await loop.connection(server.target).stream("GET", "/big") as answer:
                await anext(aiter(answer))
                assert await loop.in_thread(stalled.wait, 60)

        loop.run(main)
        assert sent < 60_000_000


def hang_on(path: bytes, seen: threading.Event) -> Callable[[Served], None]:
    def script(served: Served) -> None:
        while request := served.read_request():
            if path in request[0]:
                seen.set()
                served.server.late.wait(60)  # type: ignore[attr-defined]
                served.answer(b"somebody else's")
                return
            served.answer(request[1])

    return script


def test_a_cancelled_request_closes_its_connection_and_nobody_reads_its_answer(loop: Loop) -> None:
    seen = threading.Event()
    with scripted(hang_on(b"/hang", seen)) as server:
        server.late = threading.Event()  # type: ignore[attr-defined]

        async def main() -> None:
            async with loop.pool(server.target, max_connections=1) as pool:
                await pool.request("POST", "/", body=b"warm")
                await loop.cancelled_once(lambda: pool.request("POST", "/hang"), seen)
                server.late.set()  # type: ignore[attr-defined]
                assert pool.idle == 0
                for n in range(5):  # the one place in the pool is free again, too
                    assert (await pool.request("POST", "/", body=b"%d" % n)).body == b"%d" % n

        loop.run(main)
        assert server.connections == 2


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a connection on the loopback takes a turn of the loop")
@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_a_request_to_this_machine_has_left_before_the_loop_turns_again(host: str) -> None:
    """The loop may be long in one turn, with the other tasks of a large `gather`."""
    seen = threading.Event()

    def script(served: Served) -> None:
        while (request := served.read_request()) is not None:
            seen.set()
            served.answer(request[1])

    async def main() -> None:
        async with aio.AsyncPool(server.target) as pool:
            for body in (b"on a new connection", b"on a kept one"):
                seen.clear()
                asked = asyncio.ensure_future(pool.request("POST", "/", body=body))
                in_that_turn: list[bool] = []
                asyncio.get_running_loop().call_soon(lambda: in_that_turn.append(seen.wait(10)))  # noqa: B023
                assert (await asked).body == body
                assert in_that_turn == [True]

    with scripted(script, host=host) as server:
        Asyncio.run(main)
        assert server.connections == 1


def test_a_request_that_is_cancelled_in_the_turn_that_sends_it_leaves_nothing_open() -> None:
    async def main() -> None:
        async with aio.AsyncPool(server.target, max_connections=1) as pool:
            for size in (1, 32 * 2**20):  # whole in the socket's buffer, and not
                asked = asyncio.ensure_future(pool.request("POST", "/", body=bytes(size)))
                asyncio.get_running_loop().call_soon(asked.cancel)
                with pytest.raises(asyncio.CancelledError):
                    await asked
                assert pool.idle == 0
            assert (await pool.request("POST", "/", body=b"next")).body == b"next"
            await asyncio.to_thread(server.closed, 2)

    with scripted(Served.echo_for_ever) as server:
        Asyncio.run(main)
        assert server.connections == 3


def test_a_cancelled_stream_closes_its_connection(loop: Loop) -> None:
    reading = threading.Event()

    def script(served: Served) -> None:
        served.read_request()
        served.sock.sendall(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\none\r\n")
        served.wait_for_close()

    with scripted(script) as server:

        async def main() -> None:
            async with loop.pool(server.target) as pool:

                async def read() -> None:
                    async with await pool.stream("GET", "/") as answer:
                        async for _ in answer:
                            reading.set()

                await loop.cancelled_once(read, reading)
                await loop.in_thread(server.closed, 1)
                assert pool.idle == 0

        loop.run(main)


def test_a_waiting_request_that_is_cancelled_takes_no_place_in_the_pool(loop: Loop) -> None:
    seen = threading.Event()
    with scripted(hang_on(b"/hang", seen)) as server:
        server.late = threading.Event()  # type: ignore[attr-defined]

        async def main() -> None:
            async with loop.pool(server.target, max_connections=1) as pool:

                async def waiter() -> None:
                    assert await loop.in_thread(seen.wait, 10)
                    await loop.cancelled_once(lambda: pool.request("POST", "/", body=b"never"), seen)
                    server.late.set()  # type: ignore[attr-defined]

                async def holder() -> None:
                    assert (await pool.request("POST", "/hang")).body == b"somebody else's"

                await loop.together([holder, waiter])
                assert (await pool.request("POST", "/", body=b"next")).body == b"next"

        loop.run(main)
        assert len(server.heads) == 2


@pytest.mark.parametrize("kind", ["bytes", "pieces", "async pieces"])
def test_a_large_body_is_uploaded_whole_and_a_large_answer_read(loop: Loop, kind: str) -> None:
    big = os.urandom(3_000_000)
    pieces = [big[i : i + 99_999] for i in range(0, len(big), 99_999)]

    async def generated() -> AsyncIterator[bytes]:
        for piece in pieces:
            yield piece

    with scripted(Served.echo_for_ever) as server:

        async def main() -> None:
            body: Any = {"bytes": big, "pieces": iter(pieces), "async pieces": generated()}[kind]
            async with loop.connection(server.target) as connection:
                answer = await connection.request("PUT", "/b", body=body, content_length=len(big))
                assert answer.body == big

        loop.run(main)


def test_a_refusal_that_comes_before_the_upload_ends_is_the_answer(loop: Loop) -> None:
    gate = threading.Event()

    def script(served: Served) -> None:
        served.read_request()
        served.answer(b"warm")
        served.read_head()
        served.answer(b"too large", "413 Content Too Large")
        gate.wait(60)

    with scripted(script) as server:

        async def main() -> None:
            async with loop.connection(server.target) as connection:
                await connection.request("GET", "/")
                answer = await connection.request("PUT", "/", body=b"x" * 50_000_000, timeout=60)
                gate.set()
                assert (answer.status, answer.body) == (413, b"too large")
                assert not connection.connected

        loop.run(main)


def test_an_error_of_the_callers_body_is_raised_as_it_is(loop: Loop) -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield b"x"
        raise OSError(5, "disk on fire")

    def broken_too() -> Iterator[bytes]:
        yield b"x"
        raise TimeoutError("disk on ice")

    with scripted(Served.echo_for_ever) as server:

        async def main() -> None:
            async with loop.pool(server.target) as pool:
                with pytest.raises(OSError, match="disk on fire"):
                    await pool.request("PUT", "/", body=broken(), content_length=10)
                with pytest.raises(TimeoutError, match="disk on ice"):
                    await pool.request("PUT", "/", body=broken_too(), content_length=10)
                await loop.in_thread(server.closed, 2)
                assert pool.idle == 0

        loop.run(main)


def test_tls_needs_a_trusted_certificate_and_speaks_with_one(loop: Loop, tmp_path: Path) -> None:
    cert, context = certificate(tmp_path)
    big = os.urandom(1_000_000)
    with scripted(Served.echo_for_ever, context=context) as server:

        async def main() -> None:
            with pytest.raises(TlsError, match="LAKESHORE_CA_FILE"):
                await loop.connection(server.target).request("GET", "/")
            async with loop.pool(parse_target(server.url, ca_file=str(cert))) as pool:
                for n in range(3):
                    assert (await pool.request("POST", "/", body=b"%d" % n)).body == b"%d" % n
                assert (await pool.request("PUT", "/", body=big)).body == big
                fresh = loop.connection(pool.target)  # session tickets are not taken for an early answer
                assert (await fresh.request("PUT", "/", body=big, timeout=60)).body == big
                await fresh.aclose()
                assert pool.idle == 1
            with pytest.raises(TlsError):
                await loop.connection(parse_target(f"https://127.0.0.1:{plain.port}")).request("GET", "/")

        with scripted(lambda served: served.sock.sendall(b"HTTP/1.1 400 x\r\n\r\n" * 100)) as plain:
            loop.run(main)


def shared_pool_serves(loop: Loop, server: ScriptedServer) -> BaseAsyncPool:
    async def main() -> BaseAsyncPool:
        pool = async_pool_for(server.target)
        assert async_pool_for(parse_target(server.url)) is pool
        assert isinstance(pool, loop.pool)
        assert (await pool.request("POST", "/", body=b"x")).body == b"x"
        assert pool.idle == 1
        return pool

    return loop.run(main)  # type: ignore[no-any-return]


def test_each_loop_has_its_own_shared_pool_which_closes_when_the_loop_ends(loop: Loop) -> None:
    with scripted(Served.echo_for_ever) as server:
        first = shared_pool_serves(loop, server)
        server.closed(1)
        second = shared_pool_serves(loop, server)
        server.closed(2)
        assert first is not second
        assert first.idle == second.idle == 0


def test_outside_of_a_loop_there_is_no_shared_pool() -> None:
    with pytest.raises(RuntimeError):
        async_pool_for(parse_target("http://127.0.0.1:1"))


def test_a_pool_is_refused_in_a_forked_child(loop: Loop) -> None:
    async def main(target: Target) -> int:
        pool = loop.pool(target)
        pool._pid -= 1  # what a child sees of its parent's pool
        with pytest.raises(RuntimeError, match="parent process"):
            await pool.request("GET", "/")
        return pool.idle

    assert loop.run(lambda: main(parse_target("http://127.0.0.1:1"))) == 0
