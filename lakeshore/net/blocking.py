"""The blocking shell: one connection, and a pool of them for threads.

Retries: a kept-alive connection may have been closed by the server a moment ago. When a *reused* connection ends
before one byte of an answer arrived, the request is sent once more on a new connection (`retry_stale=True`: our verbs
are idempotent by their ids). Nothing else is repeated.

Time: `timeout` is seconds for the whole request when the body is bytes; for uploads in pieces and for streams it is
seconds without progress. None waits for ever. Ctrl-C and any other exception close the connection in use.

Fork: a child closes its copies of the parent's sockets at once and never uses them; its first request connects anew.
"""

from __future__ import annotations

import os
import select
import socket
import weakref
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from time import monotonic
from types import TracebackType
from typing import BinaryIO

from . import addresses
from .body import PIECE, Body, Upload, split_body
from .errors import ConnectFailed, ConnectionLost, NetError, ProtocolViolation
from .http1 import MAX_BODY, Exchange, HeaderItems, Route, build_request, plain_answer
from .response import Headers, Response
from .target import Target

_RECEIVE = 64 * 1024
_RECEIVE_MANY = 512 * 1024
_IDLE_S = 60.0

_live: weakref.WeakSet[BlockingConnection] = weakref.WeakSet()


class BlockingConnection:
    """One connection to `target`, opened when first needed and again when it was lost. For one thread at a time."""

    def __init__(self, target: Target, *, connect_timeout: float = 10.0) -> None:
        self.target = target
        self.idle_since = 0.0
        self._connect_timeout = connect_timeout
        self._sock: socket.socket | None = None
        self._poll = select.poll()
        self._busy = False
        self._interrupted = False

    def request(
        self,
        method: str,
        path: str,
        *,
        headers: HeaderItems = (),
        body: Body = None,
        content_length: int | None = None,
        timeout: float | None = 60.0,
        retry_stale: bool = True,
        max_body: int = MAX_BODY,
    ) -> Response:
        """Send a request and read the whole answer, whatever its status. At most `max_body` bytes of body are accepted.

        ConnectFailed (nothing was sent), ConnectionLost, Timeout, ProtocolViolation; ValueError for a request that
        cannot be sent.
        """
        exchange, clock = self._begin(method, path, headers, body, content_length, timeout, retry_stale, max_body)
        return self._read_all(exchange, clock)

    def ask(
        self, route: Route, body: bytes, *, timeout: float, retry_stale: bool = True, max_body: int = MAX_BODY
    ) -> tuple[int, bytes]:
        """`request` for what nearly all of our own traffic is, in a tenth of the calls: (status, body of the answer).

        One write and one read on an open connection. Whatever differs from that (nothing open, TLS, a large body, an
        answer in pieces or of another shape) goes the way of `request`, with the same rules.
        """
        sock = self._sock
        if sock is None or self._busy or self.target.tls or len(body) > PIECE or self._poll.poll(0):
            return self._ask_generally(route, body, timeout, retry_stale, max_body)
        self._busy = True
        self._interrupted = False
        clock = _Clock(timeout, per_step=False)
        try:
            sock.settimeout(timeout)
            sock.sendall(route.request(body))
            data = sock.recv(_RECEIVE)
        except TimeoutError as error:
            self.close()
            raise Exchange(route.target, "POST", route.path).timed_out("did not answer", timeout) from error
        except OSError:
            data = b""
        except BaseException:
            self.close()
            raise
        if not data and retry_stale and not self._interrupted:
            self.close()
            return self._ask_generally(route, body, timeout, retry_stale, max_body)
        answer = plain_answer(data, max_body=max_body)
        if answer is not None:
            self._busy = False
            self.idle_since = monotonic()
            return answer
        exchange = Exchange(route.target, "POST", route.path, max_body=max_body)
        whole = self._read_all(exchange, clock, data)
        return whole.status, whole.body

    def _ask_generally(
        self, route: Route, body: bytes, timeout: float, retry_stale: bool, max_body: int
    ) -> tuple[int, bytes]:
        answer = self.request(
            "POST",
            route.path,
            headers=route.headers,
            body=body,
            timeout=timeout,
            retry_stale=retry_stale,
            max_body=max_body,
        )
        return answer.status, answer.body

    def stream(
        self,
        method: str,
        path: str,
        *,
        headers: HeaderItems = (),
        body: Body = None,
        content_length: int | None = None,
        timeout: float | None = 60.0,
        retry_stale: bool = True,
    ) -> StreamingResponse:
        """Send a request and return as soon as the answer's head is there. `timeout` is per wait. Raises what
        `request` raises.
        """
        exchange, clock = self._begin(method, path, headers, body, content_length, timeout, retry_stale, None)
        clock.per_step = True
        try:
            while exchange.status is None:
                exchange.receive(self._receive(exchange, clock))
        except BaseException:
            self.close()
            raise
        return StreamingResponse(self, exchange, clock)

    @property
    def connected(self) -> bool:
        """Whether there is an open connection that another request may use."""
        return self._sock is not None and not self._busy

    def stale(self) -> bool:
        """Whether the idle connection has ended or has bytes that nobody asked for; asks the kernel, does not wait."""
        return self._sock is None or bool(self._poll.poll(0))

    def close(self) -> None:
        """Close at once. The next request opens a new connection."""
        sock = self._sock
        self._sock = None
        self._busy = False
        if sock is not None:
            sock.close()

    def interrupt(self) -> None:
        """End the request that another thread waits for: it raises ConnectionLost there. For any thread; without one,
        no effect.
        """
        self._interrupted = True
        sock = self._sock
        if sock is not None:
            with suppress(OSError):  # it has just been closed or has ended by itself, which is what was wanted
                sock.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> BlockingConnection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- one request -----------------------------------------------------------------------------------------------

    def _begin(
        self,
        method: str,
        path: str,
        headers: HeaderItems,
        body: Body,
        content_length: int | None,
        timeout: float | None,
        retry_stale: bool,
        max_body: int | None,
    ) -> tuple[Exchange, _Clock]:
        """Send the request; on a reused connection also wait for the first bytes, so that a stale one is found out
        here.
        """
        if self._busy:
            raise RuntimeError("this connection is in use: finish or close its stream, or use a pool")
        now, upload = split_body(body, content_length)
        length = len(now) if upload is None else upload.content_length
        has_body = body is not None or method in ("POST", "PUT", "PATCH")
        head = build_request(self.target, method, path, headers, content_length=length, has_body=has_body)
        clock = _Clock(timeout, per_step=upload is not None)
        retry = retry_stale and (upload is None or upload.replayable)
        if self._sock is not None and self.stale():
            self.close()  # ended, or with bytes in it that would be taken for the answer
        self._interrupted = False
        while True:
            exchange = Exchange(self.target, method, path, max_body=max_body)
            reused = self._sock is not None
            self._busy = True
            try:
                if not reused:
                    self._connect(clock, exchange.url)
                self._send(head + now, upload, exchange, clock)
                if reused and not exchange.started:
                    exchange.receive(self._receive(exchange, clock))
            except ConnectionLost as error:
                self.close()
                if not (reused and retry) or error.received_anything or self._interrupted:
                    raise
                if upload is not None:
                    upload.rewind()
                continue
            except BaseException:
                self.close()
                raise
            return exchange, clock

    def _read_all(self, exchange: Exchange, clock: _Clock, data: bytes | None = None) -> Response:
        """The whole answer, of which `data` has arrived."""
        try:
            if data is not None:
                exchange.receive(data)
            while not exchange.complete:
                exchange.receive(self._receive(exchange, clock))
        except BaseException:
            self.close()
            raise
        self._end(exchange)
        return exchange.response()

    def _end(self, exchange: Exchange) -> None:
        self._busy = False
        if exchange.reusable:
            self.idle_since = monotonic()
        else:
            self.close()

    def _connect(self, clock: _Clock, url: str) -> None:
        target = self.target
        limit = self._connect_timeout
        try:
            left = clock.left()
            limit = limit if left is None else min(left, limit)
            sock = addresses.connect(target.host, target.port, limit)
        except TimeoutError as error:
            raise ConnectFailed(
                f"{url}: no connection within {limit:g} s. Check the address and firewalls in between", url=url
            ) from error
        except OSError as error:
            raise ConnectFailed(
                f"{url}: cannot connect ({error.strerror or error}). Check the address and that the server runs",
                url=url,
            ) from error
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if target.tls:
                from . import tls  # a wall: `ssl` costs 10 ms to import and most of our traffic is loopback http

                sock = tls.wrap(sock, target)
        except BaseException:
            sock.close()
            raise
        self._sock = sock
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)
        _live.add(self)

    def _send(self, first: bytes, upload: Upload | None, exchange: Exchange, clock: _Clock) -> None:
        sock = self._socket(exchange)
        try:
            sock.settimeout(clock.left())
            sock.sendall(first)
        except TimeoutError as error:
            raise exchange.timed_out("did not take the request", clock.timeout) from error
        except OSError as error:
            raise exchange.lost(f"closed the connection while the request was sent ({error})") from error
        if upload is None:
            return
        for piece in upload.pieces():  # what the caller's file or iterator raises is the caller's to see
            try:
                taken = self._send_piece(sock, piece, clock)
            except TimeoutError as error:
                raise exchange.timed_out("did not take the request", clock.timeout) from error
            except OSError:
                taken = False  # a server that refuses an upload answers before it closes
            if not taken:
                while not exchange.complete:
                    exchange.receive(self._receive(exchange, clock))
                exchange.reusable = False
                return

    def _send_piece(self, sock: socket.socket, piece: bytes | memoryview, clock: _Clock) -> bool:
        """Send all of `piece`, or return False when an answer arrives meanwhile."""
        if self.target.tls:  # readable may mean a session ticket; an early answer shows by the sending's failure
            sock.settimeout(clock.left())
            sock.sendall(piece)
            return True
        view = memoryview(piece)
        poll = select.poll()
        poll.register(sock, select.POLLIN | select.POLLOUT)
        while len(view):
            left = clock.left()
            events = poll.poll(None if left is None else left * 1000)
            if not events:
                raise TimeoutError
            if events[0][1] & ~select.POLLOUT:
                return False
            sock.settimeout(left)
            view = view[sock.send(view) :]
        return True

    def _receive(self, exchange: Exchange, clock: _Clock) -> bytes:
        sock = self._socket(exchange)
        try:
            sock.settimeout(clock.left())
            return sock.recv(max(_RECEIVE, min(exchange.expected, _RECEIVE_MANY)))
        except TimeoutError as error:
            raise exchange.timed_out("did not answer", clock.timeout) from error
        except OSError as error:
            raise exchange.lost(f"broke the connection ({error})") from error

    def _socket(self, exchange: Exchange) -> socket.socket:
        if self._sock is None:  # closed by another thread, or inherited through a fork
            raise ConnectionLost(
                f"{exchange.url}: this connection was closed, or belongs to the parent process; send the request again",
                url=exchange.url,
                sent_anything=True,
                received_anything=exchange.started,
            )
        return self._sock


class StreamingResponse:
    """An answer whose body is read as it arrives. Iterate for chunks; leaving the `with` block early closes the
    connection.
    """

    def __init__(self, connection: BlockingConnection, exchange: Exchange, clock: _Clock) -> None:
        self._connection: BlockingConnection | None = connection
        self._exchange = exchange
        self._clock = clock
        self._ready: deque[bytes] = deque(exchange.take())
        self._pool: BlockingPool | None = None
        self.status: int = exchange.status or 0
        self.headers: Headers = exchange.headers
        if exchange.complete:
            self._finish()

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        while not self._ready:
            connection = self._connection
            if connection is None:
                raise StopIteration
            try:
                self._exchange.receive(connection._receive(self._exchange, self._clock))
            except BaseException:
                self.close()
                raise
            self._ready.extend(self._exchange.take())
            if self._exchange.complete:
                self._finish()
        return self._ready.popleft()

    def read(self, *, max_body: int = MAX_BODY) -> bytes:
        """The rest of the body, at most `max_body` bytes (else ProtocolViolation)."""
        chunks: list[bytes] = []
        size = 0
        for piece in self:
            size += len(piece)
            if size > max_body:
                self.close()
                raise ProtocolViolation(
                    f"{self._exchange.url}: the answer is larger than the {max_body} bytes allowed; save it to a file",
                    url=self._exchange.url,
                )
            chunks.append(piece)
        return b"".join(chunks)

    def save_to(self, file: BinaryIO) -> int:
        """Write the rest of the body to `file`; the number of bytes written."""
        size = 0
        for piece in self:
            file.write(piece)
            size += len(piece)
        return size

    def close(self) -> None:
        """Stop reading. An unfinished answer costs the connection."""
        connection = self._connection
        self._connection = None
        self._ready.clear()
        if connection is not None:
            connection.close()

    def __enter__(self) -> StreamingResponse:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    def _finish(self) -> None:
        connection = self._connection
        self._connection = None
        if connection is not None:
            connection._end(self._exchange)
            if self._pool is not None:
                self._pool._give_back(connection)

    def _attach(self, pool: BlockingPool) -> None:
        if self._connection is not None:
            self._pool = pool


class BlockingPool:
    """Connections to one target, shared by threads. At most `max_idle` are kept; as many are open as there are
    requests at once.
    """

    def __init__(self, target: Target, *, max_idle: int = 8, connect_timeout: float = 10.0) -> None:
        self.target = target
        self._max_idle = max_idle
        self._connect_timeout = connect_timeout
        self._idle: deque[BlockingConnection] = deque()  # append and pop are atomic: no lock to be caught by a fork
        self._pid = os.getpid()
        self._closed = False

    def request(
        self,
        method: str,
        path: str,
        *,
        headers: HeaderItems = (),
        body: Body = None,
        content_length: int | None = None,
        timeout: float | None = 60.0,
        retry_stale: bool = True,
        max_body: int = MAX_BODY,
    ) -> Response:
        """As `BlockingConnection.request`, on any free connection."""
        connection = self._take()
        try:
            return connection.request(
                method,
                path,
                headers=headers,
                body=body,
                content_length=content_length,
                timeout=timeout,
                retry_stale=retry_stale,
                max_body=max_body,
            )
        finally:
            self._give_back(connection)

    def ask(self, route: Route, body: bytes, *, timeout: float, retry_stale: bool = True) -> tuple[int, bytes]:
        """As `BlockingConnection.ask`, on any free connection."""
        connection = self._take()
        try:
            return connection.ask(route, body, timeout=timeout, retry_stale=retry_stale)
        finally:
            self._give_back(connection)

    def stream(
        self,
        method: str,
        path: str,
        *,
        headers: HeaderItems = (),
        body: Body = None,
        content_length: int | None = None,
        timeout: float | None = 60.0,
        retry_stale: bool = True,
    ) -> StreamingResponse:
        """As `BlockingConnection.stream`; the connection returns to the pool when the answer has been read to its
        end.
        """
        connection = self._take()
        try:
            answer = connection.stream(
                method,
                path,
                headers=headers,
                body=body,
                content_length=content_length,
                timeout=timeout,
                retry_stale=retry_stale,
            )
            answer._attach(self)
        finally:
            self._give_back(connection)
        return answer

    @property
    def idle(self) -> int:
        """How many connections wait for a request."""
        return len(self._idle)

    def close(self) -> None:
        """Close idle connections; those in use are closed when their request ends."""
        self._closed = True
        self._drop_idle()

    def __del__(self) -> None:
        self._drop_idle()

    def __enter__(self) -> BlockingPool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _take(self) -> BlockingConnection:
        if self._closed:
            raise RuntimeError("this pool is closed; make a new one")
        if self._pid != os.getpid():
            self._pid = os.getpid()
            self._drop_idle()
        oldest = monotonic() - _IDLE_S
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                return BlockingConnection(self.target, connect_timeout=self._connect_timeout)
            if connection.connected and connection.idle_since > oldest:
                return connection
            connection.close()

    def _give_back(self, connection: BlockingConnection) -> None:
        """Keep what another request may use, also one that was refused before a byte of it was sent."""
        if not connection.connected:
            return
        if self._closed or self._pid != os.getpid() or len(self._idle) >= self._max_idle:
            connection.close()
        else:
            self._idle.append(connection)

    def _drop_idle(self) -> None:
        while True:
            try:
                self._idle.pop().close()
            except IndexError:
                return


class _Clock:
    """Time left: until a fixed moment, or anew for each step."""

    __slots__ = ("_until", "per_step", "timeout")

    def __init__(self, timeout: float | None, *, per_step: bool) -> None:
        self.timeout = timeout
        self.per_step = per_step
        self._until = 0.0 if timeout is None else monotonic() + timeout

    def left(self) -> float | None:
        """Seconds for the next wait; TimeoutError when there are none."""
        if self.timeout is None:
            return None
        left = self.timeout if self.per_step else self._until - monotonic()
        if left <= 0:
            raise TimeoutError
        return left


def _forget_after_fork() -> None:
    # only the child's descriptors are closed: no shutdown and no TLS goodbye reaches the parent's connection
    for connection in list(_live):
        connection.close()


os.register_at_fork(after_in_child=_forget_after_fork)

__all__ = ["BlockingConnection", "BlockingPool", "NetError", "StreamingResponse"]
