"""The asyncio shell: a transport with a protocol, which costs a third of `loop.sock_*` per request."""

from __future__ import annotations

import asyncio
import socket
import ssl
import sys
from contextlib import suppress
from typing import cast

from . import addresses, tls
from .async_core import AsyncStreamingResponse, BaseAsyncConnection, BaseAsyncPool
from .errors import ConnectFailed
from .interface import Limit
from .target import Target

_RECEIVE = 64 * 1024
_HIGH = 256 * 1024  # bytes received and not yet taken at which reading stops


class AsyncConnection(BaseAsyncConnection):
    """`BaseAsyncConnection` for asyncio."""

    async def _dial(self, seconds: float) -> AioWire:
        return await dial(self.target, seconds)


class AsyncPool(BaseAsyncPool):
    """`BaseAsyncPool` for one asyncio loop."""

    def _new_limit(self, size: int) -> Limit:
        return asyncio.Semaphore(size)

    def _new_connection(self) -> AsyncConnection:
        return AsyncConnection(self.target, connect_timeout=self._connect_timeout)


async def dial(target: Target, seconds: float) -> AioWire:
    """Connect within `seconds`; ConnectFailed or TlsError."""
    loop = asyncio.get_running_loop()
    if (there := _connected_at_once(target)) is not None:
        return AioWire(loop, there)
    context = tls.context_for(target) if target.tls else None
    name = target.host if target.tls else None
    try:
        async with asyncio.timeout(seconds):
            sock = await _connected(loop, target, seconds)
            try:
                _, wire = await loop.create_connection(
                    lambda: AioWire(loop), sock=sock, ssl=context, server_hostname=name
                )
            except BaseException:  # also one that comes before the loop has taken it
                sock.close()
                raise
    except TimeoutError as error:
        raise ConnectFailed(
            f"{target.url}: no connection within {seconds:g} s. Check the address and firewalls in between",
            url=target.url,
        ) from error
    except OSError as error:
        if isinstance(error, (ssl.SSLError, ConnectionResetError, ConnectionAbortedError, BrokenPipeError)):
            raise tls.handshake_failed(target, error) from error
        # asyncio's own words for a refusal do not contain the word
        reason = "Connection refused" if isinstance(error, ConnectionRefusedError) else error.strerror or str(error)
        raise ConnectFailed(
            f"{target.url}: cannot connect ({reason}). Check the address and that the server runs",
            url=target.url,
        ) from error
    return wire


def _connected_at_once(target: Target) -> socket.socket | None:
    """A connected socket, where there is nothing to wait for; None leaves the connecting, and its errors, to the loop.

    On its loopback Linux has a listener's answer before `connect` returns.
    """
    if target.tls or not target.is_loopback or sys.platform != "linux":
        return None
    found = addresses.literal(target.host, target.port)
    if found is None:
        return None
    family, where = found[0]
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setblocking(False)
        made.connect_ex(where)
        made.getpeername()
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except OSError:
        made.close()
        return None
    return made


async def _connected(loop: asyncio.AbstractEventLoop, target: Target, seconds: float) -> socket.socket:
    """Raises TimeoutError, or the OSError of the last address. The loop's own resolver would be waited for at its end,
    and its own connect gives the first address all the time.
    """
    until = loop.time() + seconds
    found = addresses.literal(target.host, target.port) or await _found(loop, target)
    for at, (family, where) in enumerate(found):
        sock = socket.socket(family, socket.SOCK_STREAM)
        sock.setblocking(False)
        try:
            async with asyncio.timeout(addresses.share(until - loop.time(), found, at)):
                await loop.sock_connect(sock, where)
        except OSError:
            sock.close()
            if at + 1 == len(found):
                raise
        except BaseException:
            sock.close()
            raise
        else:
            return sock
    raise OSError(f"{target.host} has no address")


async def _found(loop: asyncio.AbstractEventLoop, target: Target) -> list[addresses.Address]:
    answer: asyncio.Future[list[addresses.Address]] = loop.create_future()

    def tell(found: list[addresses.Address] | OSError) -> None:
        if answer.done():
            return
        if isinstance(found, OSError):
            answer.set_exception(found)
        else:
            answer.set_result(found)

    def told(found: list[addresses.Address] | OSError) -> None:
        with suppress(RuntimeError):  # the loop has ended, and nobody waits
            loop.call_soon_threadsafe(tell, found)

    addresses.look_up(target.host, target.port, told)
    return await answer


class AioWire(asyncio.BufferedProtocol):
    """`Wire` for asyncio. One timer serves all waits of a connection: it moves only when a deadline comes nearer.

    Made with a connected socket it sends what that takes at once: the loop comes to know of it one turn later, and
    that turn may be a long one.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, connected: socket.socket | None = None) -> None:
        self._loop = loop
        self._connected = connected
        self._transport: asyncio.Transport | None = None
        self._buffer = memoryview(bytearray(_RECEIVE))
        self._received: list[bytes] = []
        self._size = 0
        self._reading = True
        self._writing = True
        self._ended: BaseException | bool = False
        self._waiter: asyncio.Future[None] | None = None
        self._timeout: float | None = None
        self._per_step = False
        self._deadline = 0.0
        self._timer: asyncio.TimerHandle | None = None

    # -- Wire ------------------------------------------------------------------------------------------------------

    def arm(self, timeout: float | None, *, per_step: bool) -> None:
        self._timeout = timeout
        self._per_step = per_step
        if timeout is not None:
            self._deadline = self._loop.time() + timeout

    async def send(self, data: bytes | memoryview) -> None:
        if self._connected is not None:
            data = await self._send_first(self._connected, data)
        self._raise_if_broken()
        assert self._transport is not None
        self._transport.write(data)
        if not self._writing:
            self._step()
            while not self._writing and not self._received and not self._ended:
                await self._wait()
            self._raise_if_broken()

    async def _send_first(self, connected: socket.socket, data: bytes | memoryview) -> memoryview:
        """What is left of the data; from here on the loop has the socket."""
        try:
            sent = connected.send(data)
        except BlockingIOError:
            sent = 0
        self._connected = None
        try:
            await self._loop.create_connection(lambda: self, sock=connected)
        except BaseException:  # also one that comes before the loop has taken it
            connected.close()
            raise
        return memoryview(data)[sent:]

    async def receive(self) -> bytes:
        if not self._received:
            self._step()
            while not self._received:
                if self._ended:
                    if isinstance(self._ended, OSError):
                        raise self._ended
                    return b""
                await self._wait()
        received = self._received
        data = received[0] if len(received) == 1 else b"".join(received)
        received.clear()
        self._size = 0
        if not self._reading and self._transport is not None:
            self._reading = True
            self._transport.resume_reading()
        return data

    def answering(self) -> bool:
        return bool(self._received) or self._ended is not False

    refusing = answering

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._connected is not None:
            self._connected.close()
            self._connected = None
        if self._transport is not None and not self._loop.is_closed():
            self._transport.abort()
        if not self._ended:
            self._ended = ConnectionAbortedError("closed by this process")
        self._wake()

    # -- asyncio.BufferedProtocol ----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._received.append(bytes(self._buffer[:nbytes]))
        self._size += nbytes
        if self._size > _HIGH and self._reading and self._transport is not None:
            self._reading = False
            self._transport.pause_reading()
        self._wake()

    def eof_received(self) -> bool:
        self._ended = self._ended or True
        self._wake()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended = self._ended or exc or True
        self._transport = None
        self._wake()

    def pause_writing(self) -> None:
        self._writing = False

    def resume_writing(self) -> None:
        self._writing = True
        self._wake()

    # -- waiting ---------------------------------------------------------------------------------------------------

    def _raise_if_broken(self) -> None:
        if self._ended:
            raise self._ended if isinstance(self._ended, OSError) else ConnectionResetError("closed by the server")

    def _step(self) -> None:
        if self._per_step and self._timeout is not None:
            self._deadline = self._loop.time() + self._timeout

    async def _wait(self) -> None:
        if self._timeout is not None:
            timer = self._timer
            if timer is None or timer.when() > self._deadline:
                if timer is not None:
                    timer.cancel()
                self._timer = self._loop.call_at(self._deadline, self._tick)
        waiter = self._waiter = self._loop.create_future()
        try:
            await waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _tick(self) -> None:
        self._timer = None
        waiter = self._waiter
        if waiter is None or waiter.done() or self._timeout is None:
            return
        if self._loop.time() >= self._deadline:
            waiter.set_exception(TimeoutError())
        else:
            self._timer = self._loop.call_at(self._deadline, self._tick)


__all__ = ["AioWire", "AsyncConnection", "AsyncPool", "AsyncStreamingResponse", "dial"]
