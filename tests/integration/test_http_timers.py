"""Peers that take too long, each at its own stage."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
import trio
import trio.testing
from http_peer import PATIENCE, QUICK, Served, serving

from lakeshore.server.http import HttpServer, Request, Response, StreamResponse, Times, open_listeners
from lakeshore.server.http.connection import Handler


async def echo(request: Request) -> Response:
    return Response(body=await request.body())


GAP_S = 3 * QUICK.tick
"""Shorter than any of its times, also when a look or two come before what was sent."""


@contextmanager
def timed(handler: Handler, **times: float) -> Iterator[tuple[Served, Callable[[float], None]]]:
    """A server whose time stands still but while the test lets so many seconds go by: nobody here can be too late."""
    clock = trio.testing.MockClock()
    with serving(handler, timers=replace(QUICK, **times), clock=clock) as served:

        def later(seconds: float) -> None:
            for _ in range(round(seconds / QUICK.tick)):
                served.do(clock.jump, QUICK.tick)  # and its loop goes round

        yield served, later


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it never came to that"


def test_a_head_that_does_not_end_in_time_is_answered_408() -> None:
    with timed(echo) as (served, later), served.connect() as peer:
        peer.send(b"GET / HTTP/1.1\r\nhost:")
        later(1.0)
        answer = peer.answer()
        assert (answer.status, answer.closes) == (408, True)
        assert "head" in json.loads(answer.body)["error"]
        assert peer.rest() == b""


def test_a_head_has_its_time_from_its_first_byte_however_steadily_it_drips() -> None:
    with timed(echo) as (served, later), served.connect() as peer:
        peer.send(b"GET / HTTP/1.1\r\nhost: x\r\na: ")
        for _ in range(5):
            later(GAP_S)
            with contextlib.suppress(OSError):  # it has hung up by the last ones
                peer.send(b"b")
        assert peer.answer().status == 408


def test_the_second_head_on_a_connection_is_timed_too() -> None:
    with timed(echo) as (served, later), served.connect() as peer:
        peer.get()
        assert peer.answer().status == 200
        peer.send(b"GET /")
        later(1.0)
        assert peer.answer().status == 408


def test_an_idle_connection_is_closed_without_a_word() -> None:
    with timed(echo) as (served, later):
        with served.connect() as silent:
            later(1.0)
            assert silent.rest() == b""
        with served.connect() as peer:
            peer.get()
            assert not peer.answer().closes
            later(1.0)
            assert peer.rest() == b""
        served.until(lambda: served.server.open_connections == 0)


@pytest.mark.parametrize("framing", [b"content-length: 10\r\n\r\n", b"transfer-encoding: chunked\r\n\r\n5\r\n"])
def test_a_body_that_stalls_is_answered_408_and_its_handler_is_cancelled(framing: bytes) -> None:
    cancelled = threading.Event()

    async def handler(request: Request) -> Response:
        try:
            return Response(body=await request.body())
        except trio.Cancelled:
            cancelled.set()
            raise

    with timed(handler) as (served, later), served.connect() as peer:
        peer.send(b"POST / HTTP/1.1\r\nhost: x\r\n" + framing + b"ab")
        later(1.0)
        answer = peer.answer()
        assert (answer.status, answer.closes) == (408, True)
        assert "body" in json.loads(answer.body)["error"]
        assert cancelled.is_set()


def test_a_body_that_keeps_coming_takes_the_time_it_needs() -> None:
    with timed(echo) as (served, later), served.connect() as peer:
        peer.send(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 8\r\n\r\n")
        for _ in range(8):
            peer.send(b"a")
            later(GAP_S)
        assert peer.answer().body == b"a" * 8


def test_a_slow_handler_is_never_timed() -> None:
    async def handler(_request: Request) -> Response:
        await trio.sleep(0.6)
        return Response(body=b"late")

    with timed(handler) as (served, later), served.connect() as peer:
        peer.post("/", b"abc")
        later(2.0)
        assert peer.answer().body == b"late"


@pytest.mark.parametrize("kind", ["whole", "stream", "sized"])
def test_a_reader_that_stops_reading_is_let_go(kind: str) -> None:
    closed = threading.Event()

    async def pieces() -> AsyncIterator[bytes]:
        try:
            for _ in range(500):
                yield bytes(100_000)
        finally:
            closed.set()

    async def handler(_request: Request) -> Response | StreamResponse:
        if kind == "whole":
            closed.set()
            return Response(body=bytes(50_000_000))
        return StreamResponse(chunks=pieces(), content_length=50_000_000 if kind == "sized" else None)

    with timed(handler) as (served, later), served.connect() as peer:
        peer.get()
        peer.exactly(15)

        def let_go() -> bool:
            later(GAP_S)
            return served.server.open_connections == 0

        until(let_go)
        assert closed.is_set()


def test_a_reader_that_is_slow_but_reads_is_kept() -> None:
    size = 12_000_000

    async def handler(_request: Request) -> Response:
        return Response(body=bytes(size))

    with timed(handler, write=0.6) as (served, later), served.connect() as peer:
        peer.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        peer.get()
        for _ in range(28):  # longer than the time for one write, as a whole
            peer.exactly(400_000)
            later(GAP_S)
        peer.exactly(size - 28 * 400_000)


def test_the_default_times_hold_on_the_loops_own_clock() -> None:
    """The documented defaults, under a clock that jumps: 10 s for a head, 75 s idle, 30 s for a body."""
    clock = trio.testing.MockClock(autojump_threshold=0.02)

    async def ends_after(port: int, sent: bytes) -> tuple[float, bytes]:
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        started = trio.current_time()
        async with stream:
            if sent:
                await stream.send_all(sent)
            answer = b""
            async for data in stream:
                answer += data
        return trio.current_time() - started, answer[9:12]

    async def main() -> None:
        times = Times(tick=2.5)  # fewer looks, so that the test is short
        server = HttpServer(echo, timers=times)
        listeners = open_listeners("127.0.0.1", 0)
        port = listeners[0].address[1]
        async with trio.open_nursery() as nursery:
            await nursery.start(server.serve, listeners)
            slack = 3 * times.tick
            for sent, seconds, status in (
                (b"GET / HT", 10, b"408"),
                (b"", 75, b""),
                (b"GET / HTTP/1.1\r\nhost: x\r\n\r\n", 75, b"200"),
                (b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\nab", 30, b"408"),
            ):
                took, answer = await ends_after(port, sent)
                assert seconds <= took <= seconds + slack, (sent, took)
                assert answer == status
            nursery.cancel_scope.cancel()

    trio.run(main, clock=clock)
