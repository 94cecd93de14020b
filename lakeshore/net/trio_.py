"""The trio shell. Deadlines follow trio's clock, so a `MockClock` moves them."""

from __future__ import annotations

import math
import ssl

import trio

from . import tls
from .async_core import AsyncStreamingResponse, BaseAsyncConnection, BaseAsyncPool
from .errors import ConnectFailed
from .interface import Limit
from .target import Target

_RECEIVE = 64 * 1024
_LARGE = 16 * 1024


class AsyncConnection(BaseAsyncConnection):
    """`BaseAsyncConnection` for trio."""

    async def _dial(self, seconds: float) -> TrioWire:
        return await dial(self.target, seconds)


class AsyncPool(BaseAsyncPool):
    """`BaseAsyncPool` for one trio run."""

    def _new_limit(self, size: int) -> Limit:
        return trio.Semaphore(size)

    def _new_connection(self) -> AsyncConnection:
        return AsyncConnection(self.target, connect_timeout=self._connect_timeout)


async def dial(target: Target, seconds: float) -> TrioWire:
    """Connect within `seconds`; ConnectFailed or TlsError."""
    context = tls.context_for(target) if target.tls else None
    with trio.move_on_after(seconds):
        try:
            raw = await trio.open_tcp_stream(target.host, target.port)
        except OSError as error:
            raise ConnectFailed(
                f"{target.url}: cannot connect ({_reason(error)}). Check the address and that the server runs",
                url=target.url,
            ) from error
        if context is None:
            return TrioWire(raw, raw)
        secure = trio.SSLStream(raw, context, server_hostname=target.host, https_compatible=True)
        done = False
        try:
            await secure.do_handshake()
            done = True
        except (trio.BrokenResourceError, OSError) as error:
            raise tls.handshake_failed(target, _tls_cause(error)) from error
        finally:
            if not done:
                raw.socket.close()
        return TrioWire(secure, raw)
    raise ConnectFailed(
        f"{target.url}: no connection within {seconds:g} s. Check the address and firewalls in between", url=target.url
    )


class TrioWire:
    """`Wire` for trio."""

    def __init__(self, stream: trio.SocketStream | trio.SSLStream[trio.SocketStream], raw: trio.SocketStream) -> None:
        self._stream = stream
        self._raw = raw
        self._timeout: float | None = None
        self._per_step = False
        self._deadline = math.inf

    def arm(self, timeout: float | None, *, per_step: bool) -> None:
        self._timeout = timeout
        self._per_step = per_step
        self._deadline = math.inf if timeout is None else trio.current_time() + timeout

    async def send(self, data: bytes | memoryview) -> None:
        with trio.CancelScope(deadline=self._next_deadline()) as scope:
            try:
                if len(data) > _LARGE and self._stream is self._raw:
                    await self._send_until_answered(data)
                else:
                    await self._stream.send_all(data)
            except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
                raise ConnectionResetError(_reason(error)) from error
        if scope.cancelled_caught:
            raise TimeoutError

    async def receive(self) -> bytes:
        data = b""
        with trio.CancelScope(deadline=self._next_deadline()) as scope:
            try:
                data = bytes(await self._stream.receive_some(_RECEIVE))
            except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
                raise ConnectionResetError(_reason(error)) from error
        if scope.cancelled_caught:
            raise TimeoutError
        return data

    def answering(self) -> bool:
        # bytes that TLS has decrypted already are not seen: they belong to an answer that is being read
        return self._raw.socket.fileno() < 0 or self._raw.socket.is_readable()

    def refusing(self) -> bool:
        # under TLS readable may mean a session ticket; an early answer shows by the sending's failure
        return self._stream is self._raw and self.answering()

    def close(self) -> None:
        self._raw.socket.close()

    async def _send_until_answered(self, data: bytes | memoryview) -> None:
        """Send all, or give up when bytes arrive: a server that refuses an upload may have stopped reading it."""
        broken: Exception | None = None
        async with trio.open_nursery() as nursery:

            async def watch() -> None:
                await trio.lowlevel.wait_readable(self._raw.socket)
                nursery.cancel_scope.cancel()

            nursery.start_soon(watch)
            try:
                await self._raw.send_all(data)
            except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
                broken = error  # raised outside, or the nursery would wrap it
            nursery.cancel_scope.cancel()
        if broken is not None:
            raise broken

    def _next_deadline(self) -> float:
        if self._per_step and self._timeout is not None:
            return trio.current_time() + self._timeout
        return self._deadline


def _reason(error: BaseException) -> str:
    # trio wraps the system's error, and several of them when a name has several addresses
    cause = error.__cause__
    if isinstance(cause, BaseExceptionGroup):
        cause = cause.exceptions[0]
    if isinstance(cause, OSError):
        return cause.strerror or str(cause)
    return str(error) or type(error).__name__


def _tls_cause(error: BaseException) -> BaseException:
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ssl.SSLError):
        cause = cause.__cause__
    return error if cause is None else cause


__all__ = ["AsyncConnection", "AsyncPool", "AsyncStreamingResponse", "TrioWire", "dial"]
