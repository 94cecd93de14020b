"""What the asyncio and the trio shell share: connection, stream and pool over a `Wire`. Imports neither loop.

The rules of `blocking.py` on retries, time and sizes hold here too. One more: whatever leaves a call early (an error,
a cancellation) closes the connection in use, so that half an answer is never read by somebody else.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator
from contextlib import aclosing
from time import monotonic
from typing import TYPE_CHECKING, BinaryIO

from .body import Framer, Upload, split_body
from .errors import ConnectionLost, ProtocolViolation
from .http1 import MAX_BODY, Exchange, HeaderItems, build_request
from .interface import AsyncBody, AsyncClient, Limit, Wire
from .response import Headers, Response
from .target import Target

_IDLE_S = 60.0


class BaseAsyncConnection(ABC):
    """One connection to `target`, opened when first needed and again when it was lost. For one task at a time."""

    def __init__(self, target: Target, *, connect_timeout: float = 10.0) -> None:
        self.target = target
        self.idle_since = 0.0
        self._connect_timeout = connect_timeout
        self._wire: Wire | None = None
        self._busy = False

    @abstractmethod
    async def _dial(self, seconds: float) -> Wire:
        """Connect within `seconds`; ConnectFailed or TlsError."""

    async def request(
        self,
        method: str,
        path: str,
        *,
        headers: HeaderItems = (),
        body: AsyncBody = None,
        content_length: int | None = None,
        timeout: float | None = 60.0,  # noqa: ASYNC109 - one meaning in all three shells
        retry_stale: bool = True,
        max_body: int = MAX_BODY,
    ) -> Response:
        """Send a request and read the whole answer, whatever its status. As `BlockingConnection.request`."""
        exchange = await self._begin(method, path, headers, body, content_length, timeout, retry_stale, max_body)
        try:
            while not exchange.complete:
                exchange.receive(await self._receive(exchange, timeout))
        except BaseException:
            self.close()
            raise
        self._end(exchange)
        return exchange.response()

    async def stream(
        self,
        method: str,
        path: str,
        *,
        headers: HeaderItems = (),
        body: AsyncBody = None,
        content_length: int | None = None,
        timeout: float | None = 60.0,  # noqa: ASYNC109 - as above
        retry_stale: bool = True,
    ) -> AsyncStreamingResponse:
        """Send a request and return as soon as the answer's head is there. `timeout` is for each wait."""
        exchange = await self._begin(method, path, headers, body, content_length, timeout, retry_stale, None)
        try:
            while exchange.status is None:
                exchange.receive(await self._receive(exchange, timeout))
            self._open_wire(exchange).arm(timeout, per_step=True)
        except BaseException:
            self.close()
            raise
        return AsyncStreamingResponse(self, exchange, timeout)

    @property
    def connected(self) -> bool:
        """Whether there is an open connection that another request may use."""
        return self._wire is not None and not self._busy

    def stale(self) -> bool:
        """Whether the idle connection has ended or has bytes that nobody asked for. Does not wait."""
        return self._wire is None or self._wire.answering()

    def close(self) -> None:
        """Close at once. The next request opens a new connection."""
        wire = self._wire
        self._wire = None
        self._busy = False
        if wire is not None:
            wire.close()

    async def aclose(self) -> None:
        """As `close`."""
        self.close()

    async def __aenter__(self) -> BaseAsyncConnection:
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.close()

    # -- one request -----------------------------------------------------------------------------------------------

    async def _begin(
        self,
        method: str,
        path: str,
        headers: HeaderItems,
        body: AsyncBody,
        content_length: int | None,
        timeout: float | None,  # noqa: ASYNC109 - as above
        retry_stale: bool,
        max_body: int | None,
    ) -> Exchange:
        if self._busy:
            raise RuntimeError("this connection is in use: finish or close its stream, or use a pool")
        now, upload, length = b"", None, content_length
        if not isinstance(body, AsyncIterable):
            now, upload = split_body(body, content_length)
            length = len(now) if upload is None else upload.content_length
        has_body = body is not None or method in ("POST", "PUT", "PATCH")
        head = build_request(self.target, method, path, headers, content_length=length, has_body=has_body)
        in_pieces = upload is not None or isinstance(body, AsyncIterable)
        retry = retry_stale and (not in_pieces or (upload is not None and upload.replayable))
        if self._wire is not None and self._wire.answering():
            self.close()
        while True:
            exchange = Exchange(self.target, method, path, max_body=max_body)
            reused = self._wire is not None
            self._busy = True
            try:
                if self._wire is None:
                    limit = self._connect_timeout
                    self._wire = await self._dial(limit if timeout is None else min(limit, timeout))
                self._wire.arm(timeout, per_step=in_pieces)
                source = body if isinstance(body, AsyncIterable) else upload
                await self._send(head + now, source, length, exchange, timeout)
                if reused and not exchange.started:
                    exchange.receive(await self._receive(exchange, timeout))
            except ConnectionLost as error:
                self.close()
                if not (reused and retry) or error.received_anything:
                    raise
                if upload is not None:
                    upload.rewind()
                continue
            except BaseException:
                self.close()
                raise
            return exchange

    def _end(self, exchange: Exchange) -> None:
        self._busy = False
        if exchange.reusable:
            self.idle_since = monotonic()
        else:
            self.close()

    async def _send(
        self,
        first: bytes,
        source: Upload | AsyncIterable[bytes] | None,
        length: int | None,
        exchange: Exchange,
        timeout: float | None,  # noqa: ASYNC109 - as above
    ) -> None:
        if not await self._push(first, exchange, timeout):
            raise exchange.lost("closed the connection while the request was sent")
        if source is None:
            return
        async with aclosing(_pieces(source, length)) as pieces:
            await self._send_pieces(pieces, exchange, timeout)

    async def _send_pieces(
        self,
        pieces: AsyncGenerator[bytes | memoryview, None],
        exchange: Exchange,
        timeout: float | None,  # noqa: ASYNC109 - as above
    ) -> None:
        async for piece in pieces:
            if self._open_wire(exchange).refusing() or not await self._push(piece, exchange, timeout):
                # a server that refuses an upload answers before it closes
                while not exchange.complete:
                    exchange.receive(await self._receive(exchange, timeout))
                exchange.reusable = False
                return

    async def _push(self, data: bytes | memoryview, exchange: Exchange, timeout: float | None) -> bool:  # noqa: ASYNC109 - as above
        """Send; False when the connection no longer takes anything."""
        try:
            await self._open_wire(exchange).send(data)
        except TimeoutError as error:
            raise exchange.timed_out("did not take the request", timeout) from error
        except OSError:
            return False
        return True

    async def _receive(self, exchange: Exchange, timeout: float | None) -> bytes:  # noqa: ASYNC109 - as above
        try:
            return await self._open_wire(exchange).receive()
        except TimeoutError as error:
            raise exchange.timed_out("did not answer", timeout) from error
        except OSError as error:
            raise exchange.lost(f"broke the connection ({error})") from error

    def _open_wire(self, exchange: Exchange) -> Wire:
        if self._wire is None:
            raise ConnectionLost(
                f"{exchange.url}: this connection was closed meanwhile; send the request again",
                url=exchange.url,
                sent_anything=True,
                received_anything=exchange.started,
            )
        return self._wire


async def _pieces(
    source: Upload | AsyncIterable[bytes], length: int | None
) -> AsyncGenerator[bytes | memoryview, None]:
    if isinstance(source, Upload):
        for piece in source.pieces():
            yield piece
    else:
        framer = Framer(length)
        async for data in source:
            if data:
                yield framer.frame(data)
        if end := framer.finish():
            yield end


class AsyncStreamingResponse:
    """An answer whose body is read as it arrives. Iterate for chunks; leaving `async with` early closes the connection.

    Nothing is read ahead of the reader but what the socket and one buffer hold. Use `async with` or `close`: a stream
    that is merely dropped keeps its connection until the loop ends.
    """

    def __init__(self, connection: BaseAsyncConnection, exchange: Exchange, timeout: float | None) -> None:
        self._connection: BaseAsyncConnection | None = connection
        self._exchange = exchange
        self._timeout = timeout
        self._ready: deque[bytes] = deque(exchange.take())
        self._pool: BaseAsyncPool | None = None
        self.status: int = exchange.status or 0
        self.headers: Headers = exchange.headers
        if exchange.complete:
            self._finish()

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        while not self._ready:
            connection = self._connection
            if connection is None:
                raise StopAsyncIteration
            try:
                self._exchange.receive(await connection._receive(self._exchange, self._timeout))
            except BaseException:
                self.close()
                raise
            self._ready.extend(self._exchange.take())
            if self._exchange.complete:
                self._finish()
        return self._ready.popleft()

    async def read(self, *, max_body: int = MAX_BODY) -> bytes:
        """The rest of the body, at most `max_body` bytes (else ProtocolViolation)."""
        chunks: list[bytes] = []
        size = 0
        async for piece in self:
            size += len(piece)
            if size > max_body:
                self.close()
                raise ProtocolViolation(
                    f"{self._exchange.url}: the answer is larger than the {max_body} bytes allowed; save it to a file",
                    url=self._exchange.url,
                )
            chunks.append(piece)
        return b"".join(chunks)

    async def save_to(self, file: BinaryIO) -> int:
        """Write the rest of the body to `file`, piece by piece on the loop; the number of bytes written."""
        size = 0
        async for piece in self:
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

    async def aclose(self) -> None:
        """As `close`."""
        self.close()

    async def __aenter__(self) -> AsyncStreamingResponse:
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.close()

    def _finish(self) -> None:
        connection = self._connection
        self._connection = None
        if connection is not None:
            connection._end(self._exchange)
            if self._pool is not None:
                self._pool._give_back(connection)


class BaseAsyncPool(ABC):
    """Connections to one target, for the tasks of one loop. Requests share at most `max_connections`; more of them
    wait in turn.

    Streams are not counted: each holds a connection for as long as it is read, and a reader may need a request to get
    on.
    """

    def __init__(self, target: Target, *, max_connections: int = 16, connect_timeout: float = 10.0) -> None:
        self.target = target
        self._connect_timeout = connect_timeout
        self._max_idle = max_connections
        self._limit = self._new_limit(max_connections)
        self._idle: list[BaseAsyncConnection] = []
        self._pid = os.getpid()
        self._closed = False

    @abstractmethod
    def _new_limit(self, size: int) -> Limit: ...

    @abstractmethod
    def _new_connection(self) -> BaseAsyncConnection: ...

    async def request(
        self,
        method: str,
        path: str,
        *,
        headers: HeaderItems = (),
        body: AsyncBody = None,
        content_length: int | None = None,
        timeout: float | None = 60.0,  # noqa: ASYNC109 - one meaning in all three shells
        retry_stale: bool = True,
        max_body: int = MAX_BODY,
    ) -> Response:
        """As `AsyncConnection.request`, on any free connection. The wait for one is not part of `timeout`."""
        await self._limit.acquire()
        try:
            connection = self._take()
            try:
                return await connection.request(
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
        finally:
            self._limit.release()

    async def stream(
        self,
        method: str,
        path: str,
        *,
        headers: HeaderItems = (),
        body: AsyncBody = None,
        content_length: int | None = None,
        timeout: float | None = 60.0,  # noqa: ASYNC109 - as above
        retry_stale: bool = True,
    ) -> AsyncStreamingResponse:
        """As `AsyncConnection.stream`; the connection returns to the pool when the answer has been read to its end."""
        connection = self._take()
        try:
            answer = await connection.stream(
                method,
                path,
                headers=headers,
                body=body,
                content_length=content_length,
                timeout=timeout,
                retry_stale=retry_stale,
            )
            if not connection.connected:
                answer._pool = self
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
        idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    async def aclose(self) -> None:
        """As `close`."""
        self.close()

    async def __aenter__(self) -> BaseAsyncPool:
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.close()

    def _take(self) -> BaseAsyncConnection:
        if self._closed:
            raise RuntimeError("this pool is closed; make a new one")
        if self._pid != os.getpid():
            raise RuntimeError("this pool belongs to the parent process; make a new one in a new loop after a fork")
        oldest = monotonic() - _IDLE_S
        while self._idle:
            connection = self._idle.pop()
            if connection.connected and connection.idle_since > oldest and not connection.stale():
                return connection
            connection.close()
        return self._new_connection()

    def _give_back(self, connection: BaseAsyncConnection) -> None:
        """Keep what another request may use, also one that was refused before a byte of it was sent."""
        if not connection.connected:
            return
        if self._closed or len(self._idle) >= self._max_idle:
            connection.close()
        else:
            self._idle.append(connection)


if TYPE_CHECKING:  # both keep the common interface

    def _connection_is_a_client(connection: BaseAsyncConnection) -> AsyncClient:
        return connection

    def _pool_is_a_client(pool: BaseAsyncPool) -> AsyncClient:
        return pool
