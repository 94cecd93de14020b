"""The client against our own HTTP server: what the two halves of the protocol must agree on."""

from __future__ import annotations

import asyncio
import io
import os
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from functools import partial

import pytest
import trio
from net_scripted import eventually

from lakeshore.net import aio, trio_
from lakeshore.net.blocking import BlockingPool
from lakeshore.net.target import Target, parse_target
from lakeshore.server.http import HttpServer, Limits, Request, Response, StreamResponse, Times, open_listeners


async def handler(request: Request) -> Response | StreamResponse:
    if request.path == "/frames":

        async def frames() -> AsyncIterator[bytes]:
            for n in range(50):
                yield b"%d," % n

        return StreamResponse(chunks=frames())
    if request.path == "/none":
        return Response(status=204)
    if request.path == "/count":
        size = 0
        async for piece in request.stream(1 << 30):
            size += len(piece)
        return Response(body=b"%d" % size)
    if request.path == "/park":
        return Response(body=(await request.park(20)).encode())
    return Response(body=await request.body())


@contextmanager
def ours(*, times: Times | None = None, limits: Limits | None = None) -> Iterator[tuple[HttpServer, Target]]:
    """Our server in a thread of its own; it drains at the end."""
    listeners = open_listeners("127.0.0.1", 0)
    server = HttpServer(handler, timers=times, limits=limits)
    ready = threading.Event()
    tokens: list[trio.lowlevel.TrioToken] = []

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            await nursery.start(partial(server.serve, listeners))
            tokens.append(trio.lowlevel.current_trio_token())
            ready.set()

    thread = threading.Thread(target=trio.run, args=(main,))
    thread.start()
    assert ready.wait(60)
    try:
        yield server, parse_target(listeners[0].url)
    finally:
        trio.from_thread.run(server.drain, 2, trio_token=tokens[0])
        thread.join(60)
        assert not thread.is_alive()


def test_requests_streams_and_uploads_share_one_kept_connection() -> None:
    with ours() as (server, target), BlockingPool(target) as pool:
        for n in range(10):
            assert pool.request("POST", "/", body=b"%d" % n).body == b"%d" % n
        with pool.stream("GET", "/frames") as answer:
            assert b"".join(answer) == b"".join(b"%d," % n for n in range(50))
        assert pool.request("GET", "/none").status == 204
        big = os.urandom(3_000_000)
        assert pool.request("PUT", "/count", body=big).body == b"3000000"
        assert pool.request("PUT", "/count", body=io.BytesIO(big)).body == b"3000000"
        assert pool.request("PUT", "/count", body=iter([big, big]), content_length=6_000_000).body == b"6000000"
        assert (pool.idle, server.open_connections) == (1, 1)


def test_a_connection_that_our_server_found_idle_is_replaced_unnoticed() -> None:
    with ours(times=Times(idle=0.05, tick=0.01)) as (server, target), BlockingPool(target) as pool:
        for n in range(3):
            assert pool.request("POST", "/", body=b"%d" % n).body == b"%d" % n
            eventually(lambda: server.open_connections == 0)


def test_an_upload_that_our_server_refuses_gets_the_refusal() -> None:
    with ours(limits=Limits(max_body=1000)) as (_, target), BlockingPool(target) as pool:
        assert pool.request("POST", "/", body=b"x" * 20_000_000).status == 413
        assert pool.request("POST", "/", body=iter([b"x" * 100_000] * 100)).status == 413
        assert pool.request("POST", "/", body=b"next").body == b"next"


@pytest.mark.parametrize("loop", ["asyncio", "trio"])
def test_a_cancelled_poll_is_seen_by_our_server_as_gone(loop: str) -> None:
    with ours() as (server, target):

        async def in_trio() -> None:
            async with trio_.AsyncPool(target) as pool, trio.open_nursery() as nursery:
                nursery.start_soon(partial(pool.request, "POST", "/park", body=b""))
                await trio.to_thread.run_sync(eventually, lambda: server.parked_requests == 1)
                nursery.cancel_scope.cancel()

        async def in_asyncio() -> None:
            async with aio.AsyncPool(target) as pool:
                poll = asyncio.ensure_future(pool.request("POST", "/park", body=b""))
                await asyncio.to_thread(eventually, lambda: server.parked_requests == 1)
                poll.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await poll
                assert (await pool.request("POST", "/", body=b"next")).body == b"next"

        if loop == "trio":
            trio.run(in_trio)
        else:
            asyncio.run(in_asyncio())
        eventually(lambda: server.parked_requests == 0)
