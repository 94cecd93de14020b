"""Requests that wait for news: woken, timed out, left by their client."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator

import pytest
import trio
from http_peer import PATIENCE, SOON, Peer, Served, serving

from lakeshore.server.http import Request, Response, StreamResponse
from lakeshore.server.http.messages import Woken


class Parker:
    """A handler that parks every request and notes why each came back."""

    def __init__(self) -> None:
        self.parked: list[Request] = []
        self.reasons: list[Woken] = []

    async def __call__(self, request: Request) -> Response:
        await request.body()
        self.parked.append(request)
        why = await request.park(float(request.query.get("timeout_s", "60")))
        self.reasons.append(why)
        return Response(body=why.encode())


def held(served: Served, peer: Peer, parker: Parker, path: str = "/") -> Request:
    """Send a request and wait until it is parked."""
    before = len(parker.parked)
    peer.post(path, b"abc")
    served.until(lambda: len(parker.parked) > before and served.server.parked_requests > 0)
    return parker.parked[-1]


def test_a_parked_request_is_answered_when_it_is_woken_and_its_connection_goes_on() -> None:
    parker = Parker()
    with serving(parker) as served, served.connect() as peer:
        for _ in range(2):
            request = held(served, peer, parker)
            served.do(request.wake)
            assert peer.answer().body == b"woken"
        served.until(lambda: served.server.parked_requests == 0)


def test_a_wake_that_comes_before_the_parking_is_not_lost() -> None:
    async def handler(request: Request) -> Response:
        request.wake()
        request.wake()
        first = await request.park(60)
        return Response(body=f"{first} {await request.park(0.01)}".encode())

    with serving(handler) as served, served.connect() as peer:
        peer.get()
        assert peer.answer().body == b"woken timeout"


def test_parking_ends_at_its_timeout() -> None:
    parker = Parker()
    with serving(parker) as served, served.connect() as peer:
        for seconds in ("0", "0.05"):
            peer.post(f"/?timeout_s={seconds}")
            assert peer.answer().body == b"timeout"


@pytest.mark.parametrize("how", ["reset", "close"])
def test_a_client_that_leaves_a_parked_request_is_noticed(how: str) -> None:
    parker = Parker()
    with serving(parker, timers=SOON) as served:
        peer = served.connect()
        request = held(served, peer, parker)
        assert not served.do(request.is_gone)
        peer.reset() if how == "reset" else peer.sock.close()
        served.until(lambda: served.server.open_connections == 0)
        assert parker.reasons == ["gone"]


@pytest.mark.parametrize("how", ["reset", "close"])
def test_whoever_is_about_to_hand_something_over_can_ask_at_once(how: str) -> None:
    parker = Parker()
    with serving(parker) as served:  # the sweeper's own look is half a second away
        peer = served.connect()
        request = held(served, peer, parker)
        peer.reset() if how == "reset" else peer.sock.close()
        served.until(request.is_gone)
        served.until(lambda: parker.reasons == ["gone"])


def test_a_parked_request_that_was_half_closed_gets_its_answer_at_once() -> None:
    parker = Parker()
    with serving(parker, timers=SOON) as served, served.connect() as peer:
        held(served, peer, parker)
        peer.sock.shutdown(1)
        assert peer.answer().body == b"gone"


def test_a_client_that_leaves_behind_pipelined_requests_is_noticed_too() -> None:
    parker = Parker()
    with serving(parker, timers=SOON) as served:
        peer = served.connect()
        held(served, peer, parker)
        peer.get("/next")
        served.until(lambda: not parker.parked[0].is_gone())
        peer.sock.close()
        served.until(lambda: parker.reasons[:1] == ["gone"])


def test_a_task_beside_the_handler_can_wait_for_the_client_to_go() -> None:
    ready, gone = threading.Event(), threading.Event()

    async def handler(request: Request) -> Response:
        ready.set()
        await request.wait_gone()
        gone.set()
        return Response()

    with serving(handler, timers=SOON) as served:
        peer = served.connect()
        peer.get()
        assert ready.wait(PATIENCE)
        peer.reset()
        assert gone.wait(PATIENCE)


def test_a_handler_with_its_whole_body_runs_to_its_end_though_the_client_has_gone() -> None:
    started, go, finished = threading.Event(), trio.Event(), threading.Event()

    async def handler(request: Request) -> Response:
        await request.body()
        started.set()
        await go.wait()
        await trio.sleep(0.1)
        finished.set()
        return Response()

    with serving(handler, timers=SOON) as served:
        peer = served.connect()
        peer.post("/", b"abc")
        assert started.wait(PATIENCE)
        peer.reset()
        served.do(go.set)
        assert finished.wait(PATIENCE)
        served.until(lambda: served.server.open_connections == 0)


def test_a_client_that_goes_in_the_middle_of_its_body_ends_the_handler() -> None:
    ended: list[str] = []

    async def handler(request: Request) -> Response:
        try:
            await request.body()
        except Exception as error:
            ended.append(type(error).__name__)
            raise
        return Response()

    with serving(handler) as served:
        peer = served.connect()
        peer.send(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\nabc")
        served.until(lambda: served.server.open_connections == 1)
        peer.sock.close()
        served.until(lambda: served.server.open_connections == 0)
        assert ended == ["ClientGone"]


@pytest.mark.parametrize("how", ["reset", "close"])
@pytest.mark.parametrize("parks", [True, False])
def test_a_stream_that_waits_ends_when_its_client_goes(how: str, parks: bool) -> None:
    closed = threading.Event()

    async def pieces(request: Request) -> AsyncIterator[bytes]:
        try:
            yield b"first"
            if parks:
                assert await request.park(60) == "gone"
            else:
                await trio.sleep_forever()
        finally:
            closed.set()

    async def handler(request: Request) -> StreamResponse:
        return StreamResponse(chunks=pieces(request))

    with serving(handler, timers=SOON) as served:
        peer = served.connect()
        peer.get()
        head = peer.exactly(15)
        assert head == b"HTTP/1.1 200 OK"
        served.until(lambda: served.server.parked_requests == 1)
        peer.reset() if how == "reset" else peer.sock.close()
        assert closed.wait(PATIENCE)
        served.until(lambda: served.server.open_connections == 0)


def test_a_half_closed_client_still_gets_a_stream_that_has_something_to_send() -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(300):
            yield bytes(100_000)

    async def handler(_request: Request) -> StreamResponse:
        return StreamResponse(chunks=pieces())

    with serving(handler, timers=SOON) as served, served.connect() as peer:
        peer.get()
        peer.sock.shutdown(1)
        assert len(peer.answer().body) == 30_000_000
