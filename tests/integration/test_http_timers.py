"""Peers that take too long, each at its own stage."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import trio
import trio.testing
from http_peer import QUICK, serving

from lakeshore.server.http import HttpServer, Request, Response, StreamResponse, Times, open_listeners


async def echo(request: Request) -> Response:
    return Response(body=await request.body())


def test_a_head_that_does_not_end_in_time_is_answered_408() -> None:
    with serving(echo, timers=QUICK) as served, served.connect() as peer:
        peer.send(b"GET / HTTP/1.1\r\nhost: x\r\n")
        answer = peer.answer()
        assert (answer.status, answer.closes) == (408, True)
        assert "head" in json.loads(answer.body)["error"]
        assert peer.rest() == b""


def test_a_head_has_its_time_from_its_first_byte_however_steadily_it_drips() -> None:
    with serving(echo, timers=QUICK) as served, served.connect() as peer:
        stop = threading.Event()

        def drip() -> None:
            peer.send(b"GET / HTTP/1.1\r\nhost: x\r\na: ")
            while not stop.wait(0.03):
                try:
                    peer.send(b"b")
                except OSError:
                    return

        dripping = threading.Thread(target=drip)
        dripping.start()
        assert peer.answer().status == 408
        stop.set()
        dripping.join()


def test_the_second_head_on_a_connection_is_timed_too() -> None:
    with serving(echo, timers=QUICK) as served, served.connect() as peer:
        peer.get()
        assert peer.answer().status == 200
        peer.send(b"GET /")
        assert peer.answer().status == 408


def test_an_idle_connection_is_closed_without_a_word() -> None:
    with serving(echo, timers=QUICK) as served:
        with served.connect() as silent:
            assert silent.rest() == b""
        with served.connect() as peer:
            peer.get()
            assert not peer.answer().closes
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

    with serving(handler, timers=QUICK) as served, served.connect() as peer:
        peer.send(b"POST / HTTP/1.1\r\nhost: x\r\n" + framing + b"ab")
        answer = peer.answer()
        assert (answer.status, answer.closes) == (408, True)
        assert "body" in json.loads(answer.body)["error"]
        assert cancelled.is_set()


def test_a_body_that_keeps_coming_takes_the_time_it_needs() -> None:
    with serving(echo, timers=QUICK) as served, served.connect() as peer:
        peer.send(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 8\r\n\r\n")
        for _ in range(8):
            peer.send(b"a")
            threading.Event().wait(0.05)
        assert peer.answer().body == b"a" * 8


def test_a_slow_handler_is_never_timed() -> None:
    async def handler(_request: Request) -> Response:
        await trio.sleep(0.6)
        return Response(body=b"late")

    with serving(handler, timers=QUICK) as served, served.connect() as peer:
        peer.post("/", b"abc")
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

    with serving(handler, timers=QUICK) as served, served.connect() as peer:
        peer.get()
        peer.exactly(15)
        served.until(lambda: served.server.open_connections == 0)
        assert closed.is_set()


def test_a_reader_that_is_slow_but_reads_is_kept() -> None:
    size = 12_000_000

    async def handler(_request: Request) -> Response:
        return Response(body=bytes(size))

    with serving(handler, timers=replace(QUICK, write=0.6)) as served, served.connect() as peer:
        peer.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        peer.get()
        started = time.monotonic()
        for _ in range(28):  # longer than the time for one write, as a whole
            peer.exactly(400_000)
            threading.Event().wait(0.04)
        peer.exactly(size - 28 * 400_000)
        assert time.monotonic() - started > 0.6


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
