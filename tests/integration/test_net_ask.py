"""`ask`, the short way of a request: the rules of `request` hold for it, whatever the server does."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from net_scripted import Served, eventually, scripted

from lakeshore.net.blocking import BlockingConnection, BlockingPool
from lakeshore.net.body import PIECE
from lakeshore.net.errors import ConnectionLost, ProtocolViolation, Timeout
from lakeshore.net.http1 import Route


def test_a_request_that_is_asked_is_the_one_that_request_sends() -> None:
    with scripted(Served.echo_for_ever) as server, BlockingConnection(server.target) as connection:
        route = Route(server.target, "/v1/x", {"x-a": "b"})
        for body in (b"one", b"x" * PIECE, b"y" * (PIECE + 1)):
            assert connection.ask(route, body, timeout=60) == (200, body)
            assert connection.request("POST", "/v1/x", headers={"x-a": "b"}, body=body).body == body
        assert server.connections == 1
        assert server.heads[0::2] == server.heads[1::2]


def test_an_answer_of_any_shape_and_in_any_pieces_is_understood() -> None:
    sent = threading.Semaphore(0)

    def script(served: Served) -> None:
        served.read_request()
        served.answer(b"first")
        served.read_request()
        for piece in (b"HTTP/1.1 200 OK\r\ncontent-le", b"ngth: 6\r\n\r\nsec", b"ond"):
            served.sock.sendall(piece)
            sent.acquire(timeout=0.05)
        served.read_request()
        served.sock.sendall(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nthird\r\n0\r\n\r\n")
        served.read_request()
        served.sock.sendall(b"HTTP/1.1 409 Conflict\r\ncontent-length: 6\r\nconnection: close\r\n\r\nfourth")

    with scripted(script) as server, BlockingConnection(server.target) as connection:
        route = Route(server.target, "/", ())
        said = [connection.ask(route, b"?", timeout=60) for _ in range(4)]
        assert said == [(200, b"first"), (200, b"second"), (200, b"third"), (409, b"fourth")]
        assert not connection.connected


def test_a_kept_connection_that_ends_is_replaced_unless_the_request_may_be_sent_once_only() -> None:
    def script(served: Served) -> None:
        served.read_request()
        served.answer(b"%d" % served.number)
        served.read_request()

    with scripted(script) as server, BlockingConnection(server.target) as connection:
        route = Route(server.target, "/", ())
        assert connection.ask(route, b"", timeout=60) == (200, b"1")
        assert connection.ask(route, b"", timeout=60) == (200, b"2")
        with pytest.raises(ConnectionLost, match="without answering"):
            connection.ask(route, b"", timeout=10, retry_stale=False)
        assert server.connections == 2


def test_an_answer_that_is_too_large_breaks_off_or_does_not_come_closes_the_connection() -> None:
    def script(served: Served) -> None:
        served.read_request()
        served.answer(b"first")
        served.read_request()
        if served.number == 1:
            served.answer(b"too large")
        elif served.number == 2:
            served.sock.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhalf")
        else:
            served.wait_for_close()

    with scripted(script) as server, BlockingConnection(server.target) as connection:
        route = Route(server.target, "/", ())
        for error, timeout in ((ProtocolViolation, 10), (ConnectionLost, 10), (Timeout, 0.05)):
            connection.ask(route, b"", timeout=60)
            with pytest.raises(error):
                connection.ask(route, b"", timeout=timeout, max_body=5)
            assert not connection.connected
        assert server.connections == 3


def test_bytes_that_nobody_asked_for_are_no_answer() -> None:
    poisoned = threading.Event()

    def script(served: Served) -> None:
        served.read_request()
        served.answer(b"good")
        if served.number == 1:
            served.sock.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil")
            poisoned.set()
            served.wait_for_close()

    with scripted(script) as server, BlockingPool(server.target) as pool:
        route = Route(server.target, "/", ())
        assert pool.ask(route, b"", timeout=60) == (200, b"good")
        assert poisoned.wait(60)
        eventually(lambda: pool.idle == 0 or pool._idle[0].stale())
        assert pool.ask(route, b"", timeout=60) == (200, b"good")


def test_another_thread_can_interrupt_what_is_asked() -> None:
    waiting = threading.Event()

    def script(served: Served) -> None:
        served.read_request()
        served.answer()
        served.read_request()
        waiting.set()
        served.wait_for_close()

    with scripted(script) as server, BlockingConnection(server.target) as connection, ThreadPoolExecutor(1) as thread:
        route = Route(server.target, "/", ())
        connection.ask(route, b"", timeout=60)
        blocked = thread.submit(connection.ask, route, b"", timeout=60)
        assert waiting.wait(60)
        connection.interrupt()
        with pytest.raises(ConnectionLost):
            blocked.result(60)
        assert server.connections == 1
