"""Going down."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import AsyncIterator

import pytest
import trio
from http_peer import PATIENCE, serving

from lakeshore.server.http import Limits, Request, Response, StreamResponse, allow_open_files


async def parked(request: Request) -> Response:
    return Response(body=(await request.park(60)).encode())


def test_a_thousand_held_requests_are_answered_and_closed_within_five_seconds() -> None:
    count = 1000
    files = allow_open_files(4 * count)
    if files is not None and files < 2 * count + 200:
        pytest.skip(f"only {files} open files are allowed here")
    with serving(parked) as served:
        peers = [served.connect() for _ in range(count)]
        for peer in peers:
            peer.get("/poll")
        served.until(lambda: served.server.parked_requests == count)
        started = served.do(time.thread_time)
        served.call(served.server.drain, PATIENCE)
        assert served.do(time.thread_time) - started < 5, "of its own time: others may have the processor meanwhile"
        for peer in peers:
            answer = peer.answer()
            assert (answer.body, answer.closes) == (b"draining", True)
            assert peer.rest() == b""
            peer.sock.close()
        assert served.server.open_connections == 0


def test_idle_connections_are_closed_at_once_and_no_more_are_accepted() -> None:
    with serving(parked) as served:
        fresh, used = served.connect(), served.connect()
        used.get("/nothing")
        served.until(lambda: served.server.parked_requests == 1)
        served.call(served.server.drain, PATIENCE)
        assert used.answer().body == b"draining"
        assert fresh.rest() == used.rest() == b""
        with pytest.raises(OSError, match="refused"):
            served.connect()
        fresh.sock.close()
        used.sock.close()


def test_a_request_under_way_is_finished_and_told_that_the_connection_ends() -> None:
    started, go = threading.Event(), trio.Event()

    async def handler(request: Request) -> Response:
        body = await request.body()
        started.set()
        await go.wait()
        assert request.draining
        return Response(body=body)

    with serving(handler) as served, served.connect() as peer:
        peer.post("/", b"abc")
        assert started.wait(PATIENCE)
        draining = threading.Thread(target=served.call, args=(served.server.drain, PATIENCE))
        draining.start()
        served.until(served.server.draining.is_set)
        served.do(go.set)
        answer = peer.answer()
        assert (answer.body, answer.closes) == (b"abc", True)
        draining.join(PATIENCE)


def test_what_is_left_at_the_deadline_is_cut() -> None:
    started = threading.Event()
    cancelled = threading.Event()

    async def handler(_request: Request) -> Response:
        started.set()
        try:
            await trio.sleep_forever()
        finally:
            cancelled.set()

    with serving(handler) as served, served.connect() as peer:
        peer.get("/")
        assert started.wait(PATIENCE)
        served.call(served.server.drain, 0.05)
        assert cancelled.is_set()
        assert peer.rest() == b""


def test_a_waiting_stream_sees_the_drain_and_ends_properly() -> None:
    async def pieces(request: Request) -> AsyncIterator[bytes]:
        yield b"first "
        yield (await request.park(60)).encode()

    async def handler(request: Request) -> StreamResponse:
        return StreamResponse(chunks=pieces(request))

    with serving(handler) as served, served.connect() as peer:
        peer.get("/")
        served.until(lambda: served.server.parked_requests == 1)
        served.call(served.server.drain, PATIENCE)
        assert peer.answer().body == b"first draining"
        assert peer.rest() == b""


def test_a_drain_with_nothing_open_returns_at_once_and_may_be_repeated() -> None:
    with serving(parked, limits=Limits()) as served:
        served.call(served.server.drain, PATIENCE)
        served.call(served.server.drain, PATIENCE)
        with pytest.raises(OSError, match="refused"):
            socket.create_connection(("127.0.0.1", served.port))
