"""Peers for the HTTP tests: a real server in its own thread, and a client that writes bytes and reads them strictly."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import h11
import trio
import trio.abc

from lakeshore.server.http import HttpServer, Limits, Listener, Times, open_listeners
from lakeshore.server.http.connection import Handler
from lakeshore.server.http.render import RenderError, render_plainly

PATIENCE = 60.0  # seconds before a test that waits for its peer has failed

SOON = Times(tick=0.02)
"""The usual times, and a sweeper that looks often."""
QUICK = Times(head=0.15, idle=0.15, body=0.15, write=0.15, handshake=0.15, linger=0.3, tick=0.02)
"""For a server whose clock the test turns (`timed` in test_http_timers): no peer is as quick as this for sure."""


class Served:
    """A running server."""

    def __init__(self, server: HttpServer, listener: Listener, token: trio.lowlevel.TrioToken) -> None:
        self.server = server
        self.listener = listener
        self.port = listener.address[1]
        self._token = token

    def call(self, function: Callable[..., Awaitable[Any]], *args: Any) -> Any:
        """Run an async function on the server's loop."""
        return trio.from_thread.run(function, *args, trio_token=self._token)

    def do(self, function: Callable[..., Any], *args: Any) -> Any:
        """Run a plain function on the server's loop."""
        return trio.from_thread.run_sync(function, *args, trio_token=self._token)

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait for something that the server's loop can see."""
        deadline = time.monotonic() + PATIENCE
        while not self.do(condition):
            assert time.monotonic() < deadline, "the server never got there"
            time.sleep(0.002)

    def connect(self, **options: Any) -> Peer:
        """A new connection to it."""
        return Peer(socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE), **options)


@contextmanager
def serving(
    handler: Handler,
    *,
    limits: Limits | None = None,
    timers: Times | None = None,
    tls: ssl.SSLContext | None = None,
    render_error: RenderError = render_plainly,
    clock: trio.abc.Clock | None = None,
) -> Iterator[Served]:
    """Serve `handler` on a free port of 127.0.0.1 until the block ends."""
    ready = threading.Event()
    found: list[Served] = []
    failed: list[BaseException] = []
    stop: list[trio.CancelScope] = []

    async def run() -> None:
        server = HttpServer(handler, limits=limits, timers=timers, render_error=render_error)
        listeners = open_listeners("127.0.0.1", 0, tls=tls)
        async with trio.open_nursery() as nursery:
            stop.append(nursery.cancel_scope)
            await nursery.start(server.serve, listeners)
            found.append(Served(server, listeners[0], trio.lowlevel.current_trio_token()))
            ready.set()
            await trio.sleep_forever()

    def thread() -> None:
        try:
            trio.run(run, clock=clock)
        except BaseException as error:
            failed.append(error)
        finally:
            ready.set()

    running = threading.Thread(target=thread)
    running.start()
    ready.wait(PATIENCE)
    try:
        if failed:
            raise failed[0]
        yield found[0]
    finally:
        if found:
            found[0].do(stop[0].cancel)
        running.join(PATIENCE)
        assert not running.is_alive(), "the server did not stop"
        if failed:
            raise failed[0]


class Answer:
    """One answer as h11's client reads it."""

    def __init__(self, head: h11.Response, body: bytes) -> None:
        self.status = head.status_code
        self.headers = {name.decode(): value.decode() for name, value in head.headers}
        self.body = body

    @property
    def closes(self) -> bool:
        """Whether it said that the connection ends."""
        return self.headers.get("connection") == "close"


class Peer:
    """A client's end: bytes out as given, answers in through h11, which refuses malformed ones."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._unread = b""

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        self.sock.close()

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def get(self, path: str = "/", method: str = "GET") -> None:
        self.send(f"{method} {path} HTTP/1.1\r\nhost: x\r\n\r\n".encode())

    def post(self, path: str, body: bytes = b"") -> None:
        self.send(f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body)

    def answer(self, method: str = "GET") -> Answer:
        """The next answer to a request of `method`."""
        parser = h11.Connection(h11.CLIENT)
        parser.send(h11.Request(method=method, target="/", headers=[("host", "x")]))
        parser.send(h11.EndOfMessage())
        head: h11.Response | None = None
        body: list[bytes] = []
        if self._unread:
            parser.receive_data(self._unread)
        while True:
            event = parser.next_event()
            if event is h11.NEED_DATA:
                parser.receive_data(self.sock.recv(65536))
            elif isinstance(event, h11.Response):
                head = event
            elif isinstance(event, h11.Data):
                body.append(bytes(event.data))
            elif isinstance(event, h11.EndOfMessage):
                assert head is not None
                self._unread = parser.trailing_data[0]
                return Answer(head, b"".join(body))
            else:
                assert isinstance(event, h11.InformationalResponse), f"unexpected {event!r}"

    def exactly(self, count: int) -> bytes:
        """So many bytes, as they are."""
        data, self._unread = self._unread, b""
        while len(data) < count:
            more = self.sock.recv(count - len(data))
            assert more, f"the connection ended after {data!r}"
            data += more
        return data

    def rest(self) -> bytes:
        """Everything up to the end of the connection."""
        data, self._unread = [self._unread], b""
        while more := self.sock.recv(65536):
            data.append(more)
        return b"".join(data)

    def reset(self) -> None:
        """Close with RST, as a dying machine or a crashed process does."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        self.sock.close()
