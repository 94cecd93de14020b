"""Bytes in and out of one accepted socket, plain or TLS. Every failure of the peer's is `ClientGone`.

The plain one talks to the socket directly and waits only when the kernel says so: trio's own socket calls yield to the
scheduler at each one, which would double the scheduling of a small request. Its `receive` always yields, so a busy
connection still shares the loop.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

import trio

from lakeshore.server.http.messages import ClientGone

_SLICE = 64 * 1024
_RECEIVE = 64 * 1024
_RECEIVE_MANY = 512 * 1024


class Transport(Protocol):
    """One connection's bytes."""

    @property
    def sock(self) -> socket.socket:
        """The socket underneath, to probe."""
        ...

    async def start(self) -> None:
        """The handshake, where there is one."""
        ...

    async def receive(self, expected: int = 0) -> bytes:
        """Some bytes, more at once when many are expected; b"" at the end of input."""
        ...

    async def send(self, data: bytes, progressed: Callable[[], None]) -> None:
        """All of it; `progressed` is called before each wait for a peer that is not taking more."""
        ...

    async def end_sending(self) -> None:
        """No more will be sent; input may still come."""
        ...

    async def close(self) -> None:
        """Let go of the socket. Never raises for the peer's doing."""
        ...


class PlainTransport:
    """TCP as it is."""

    __slots__ = ("_fd", "sock")

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._fd = sock.fileno()

    async def start(self) -> None:
        """Nothing to agree on."""

    async def receive(self, expected: int = 0) -> bytes:
        most = _RECEIVE if expected <= _RECEIVE else min(expected, _RECEIVE_MANY)
        while True:
            await trio.lowlevel.wait_readable(self._fd)
            try:
                return self.sock.recv(most)
            except BlockingIOError:
                continue
            except OSError as error:
                raise ClientGone from error

    async def send(self, data: bytes, progressed: Callable[[], None]) -> None:
        try:
            sent = self.sock.send(data)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            raise ClientGone from error
        if sent < len(data):
            await self._send_rest(memoryview(data)[sent:], progressed)

    async def _send_rest(self, rest: memoryview, progressed: Callable[[], None]) -> None:
        while rest:
            progressed()
            await trio.lowlevel.wait_writable(self._fd)
            try:
                rest = rest[self.sock.send(rest) :]
            except BlockingIOError:
                continue
            except OSError as error:
                raise ClientGone from error

    async def end_sending(self) -> None:
        try:
            self.sock.shutdown(socket.SHUT_WR)
        except OSError as error:
            raise ClientGone from error

    async def close(self) -> None:
        trio.lowlevel.notify_closing(self._fd)
        self.sock.close()


class TlsTransport:
    """TLS over the same socket, by trio's SSLStream."""

    __slots__ = ("_stream", "sock")

    def __init__(self, sock: socket.socket, context: ssl.SSLContext) -> None:
        self.sock = sock
        under = trio.SocketStream(trio.socket.from_stdlib_socket(sock))
        self._stream: trio.SSLStream[trio.SocketStream] = trio.SSLStream(under, context, server_side=True)

    async def start(self) -> None:
        try:
            await self._stream.do_handshake()
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise ClientGone from error

    async def receive(self, expected: int = 0) -> bytes:
        try:
            return bytes(await self._stream.receive_some(_RECEIVE))
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise ClientGone from error

    async def send(self, data: bytes, progressed: Callable[[], None]) -> None:
        try:
            if len(data) <= _SLICE:
                progressed()
                await self._stream.send_all(data)
                return
            whole = memoryview(data)
            for start in range(0, len(data), _SLICE):
                progressed()
                await self._stream.send_all(whole[start : start + _SLICE])
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise ClientGone from error

    async def end_sending(self) -> None:
        try:
            await self._stream.transport_stream.send_eof()
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise ClientGone from error

    async def close(self) -> None:
        # a closing alert if it can be sent at once; a peer that takes nothing is not waited for
        with trio.move_on_after(1):
            # a peer that was gone already is no news; aclose lets go of the socket in any case
            with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                await self._stream.aclose()
