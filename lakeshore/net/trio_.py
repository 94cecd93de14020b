"""The trio shell. Deadlines follow trio's clock, so a `MockClock` moves them."""

from __future__ import annotations

import math
import re
import ssl
from dataclasses import replace
from typing import Any, TypeAlias

import trio

from . import tls
from .async_core import AsyncStreamingResponse, BaseAsyncConnection, BaseAsyncPool
from .errors import ConnectFailed
from .http1 import MAX_HEAD
from .interface import Limit
from .proxy import Proxy
from .target import Target

_RECEIVE = 64 * 1024
_LARGE = 16 * 1024
_TUNNEL = re.compile(rb"HTTP/1\.[01] 2[0-9][0-9] ")

Carrier: TypeAlias = trio.SocketStream | trio.SSLStream[Any]


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
    """Connect within `seconds`, through the target's proxy if it has one; ConnectFailed or TlsError."""
    with trio.move_on_after(seconds):
        if target.proxy is None:
            raw = await _connected(target.host, target.port, target.url, "the server runs")
            return TrioWire(await _secured(raw, raw, target) if target.tls else raw, raw)
        proxy = target.proxy
        raw = await _connected(proxy.host, proxy.port, f"proxy {proxy.host}:{proxy.port}", "the proxy runs")
        stream: Carrier = raw
        if proxy.tls:
            stream = await _secured(raw, raw, _of_proxy(proxy, target))
        if not target.tls:
            return TrioWire(stream, raw)
        await _tunnel(stream, raw, target, proxy)
        return TrioWire(await _secured(stream, raw, target), raw)
    raise ConnectFailed(
        f"{target.url}: no connection within {seconds:g} s. Check the address and firewalls in between", url=target.url
    )


async def _connected(host: str, port: int, url: str, runs: str) -> trio.SocketStream:
    try:
        return await trio.open_tcp_stream(host, port)
    except OSError as error:
        raise ConnectFailed(
            f"{url}: cannot connect ({_reason(error)}). Check the address and that {runs}", url=url
        ) from error


async def _secured(stream: Carrier, raw: trio.SocketStream, target: Target) -> trio.SSLStream[Any]:
    """TLS over a stream; `raw` is closed when that fails."""
    secure: trio.SSLStream[Any] = trio.SSLStream(
        stream, tls.context_for(target), server_hostname=target.host, https_compatible=True
    )
    done = False
    try:
        await secure.do_handshake()
        done = True
    except (trio.BrokenResourceError, OSError) as error:
        raise tls.handshake_failed(target, _tls_cause(error)) from error
    finally:
        if not done:
            raw.socket.close()
    return secure


def _of_proxy(proxy: Proxy, target: Target) -> Target:
    """The proxy as a target of its own, for its certificate."""
    name = f"{proxy.host}:{proxy.port}"
    return replace(
        target, proxy=None, scheme="https", host=proxy.host, port=proxy.port, host_header=name, url=f"https://{name}"
    )


async def _tunnel(stream: Carrier, raw: trio.SocketStream, target: Target, proxy: Proxy) -> None:
    """Ask a proxy for a way to the server (CONNECT)."""
    shown = f"[{target.host}]" if ":" in target.host else target.host
    place = f"{shown}:{target.port}"
    lines = [f"CONNECT {place} HTTP/1.1", f"host: {place}"]
    if proxy.authorization is not None:
        lines.append(f"proxy-authorization: {proxy.authorization}")
    told = bytearray()
    open_ = False
    try:
        await stream.send_all("\r\n".join([*lines, "", ""]).encode("latin-1"))
        while b"\r\n\r\n" not in told and len(told) < MAX_HEAD:
            data = await stream.receive_some(1)  # what follows the head is the server's
            if not data:
                break
            told += data
        open_ = _TUNNEL.match(told) is not None and told.endswith(b"\r\n\r\n")
    except (trio.BrokenResourceError, OSError):
        told.clear()
    finally:
        if not open_:
            raw.socket.close()
    if not open_:
        said = told.partition(b"\r\n")[0].decode("latin-1")[:100] or "nothing"
        raise ConnectFailed(
            f"{target.url}: the proxy {proxy.host}:{proxy.port} gives no way there: it answered {said!r}. "
            "NO_PROXY names servers that are reached directly",
            url=target.url,
        )


class TrioWire:
    """`Wire` for trio."""

    def __init__(self, stream: Carrier, raw: trio.SocketStream) -> None:
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
