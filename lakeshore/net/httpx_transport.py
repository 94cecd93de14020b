"""Our pools as httpx transports: `httpx.Client(transport=HttpxTransport())`, or under `mounts` for one base URL.

The only module of `net` that imports httpx. One pool per origin; redirects, cookies, decoding and authentication stay
httpx's.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator

import httpx

from .async_core import AsyncStreamingResponse
from .blocking import BlockingPool, StreamingResponse
from .current import async_pool_for
from .errors import ConnectFailed, ConnectionLost, NetError, Timeout
from .target import Target, parse_target

_OURS = frozenset(
    {"content-length", "transfer-encoding", "connection", "expect", "upgrade", "te", "trailer", "keep-alive"}
)


class HttpxTransport(httpx.BaseTransport):
    """A blocking transport. `ca_file` is a PEM bundle to trust for https instead of the system's. For any number of
    threads.
    """

    def __init__(self, *, ca_file: str | None = None, max_idle: int = 8) -> None:
        self._ca_file = ca_file
        self._max_idle = max_idle
        self._pools: dict[Target, BlockingPool] = {}

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        target = _target(request, self._ca_file)
        pool = self._pools.get(target) or self._pools.setdefault(target, BlockingPool(target, max_idle=self._max_idle))
        try:
            length = _length(request)
            answer = pool.stream(
                request.method,
                request.url.raw_path.decode("ascii"),
                headers=_headers(request),
                body=None if length == 0 else _sync_body(request),
                content_length=length,
                timeout=_timeout(request),
                retry_stale=True,
            )
        except NetError as error:
            raise _translated(error, request) from error
        return httpx.Response(answer.status, headers=answer.headers.raw, stream=_SyncBody(answer, request))

    def close(self) -> None:
        for pool in self._pools.values():
            pool.close()
        self._pools.clear()


class AsyncHttpxTransport(httpx.AsyncBaseTransport):
    """The same for `httpx.AsyncClient`, under asyncio or trio. Its connections are those of the running loop's shared
    pool.
    """

    def __init__(self, *, ca_file: str | None = None) -> None:
        self._ca_file = ca_file

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        pool = async_pool_for(_target(request, self._ca_file))
        try:
            length = _length(request)
            answer = await pool.stream(
                request.method,
                request.url.raw_path.decode("ascii"),
                headers=_headers(request),
                body=None if length == 0 else _async_body(request),
                content_length=length,
                timeout=_timeout(request),
                retry_stale=True,
            )
        except NetError as error:
            raise _translated(error, request) from error
        return httpx.Response(answer.status, headers=answer.headers.raw, stream=_AsyncBody(answer, request))


class _SyncBody(httpx.SyncByteStream):
    def __init__(self, answer: StreamingResponse, request: httpx.Request) -> None:
        self._answer = answer
        self._request = request

    def __iter__(self) -> Iterator[bytes]:
        try:
            yield from self._answer
        except NetError as error:
            raise _translated(error, self._request) from error

    def close(self) -> None:
        self._answer.close()


class _AsyncBody(httpx.AsyncByteStream):
    def __init__(self, answer: AsyncStreamingResponse, request: httpx.Request) -> None:
        self._answer = answer
        self._request = request

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for piece in self._answer:
                yield piece
        except NetError as error:
            raise _translated(error, self._request) from error

    async def aclose(self) -> None:
        self._answer.close()


def _target(request: httpx.Request, ca_file: str | None) -> Target:
    url = request.url
    if url.scheme not in ("http", "https"):
        raise httpx.UnsupportedProtocol(f"this transport speaks http and https, not {url.scheme!r}", request=request)
    port = "" if url.port is None else f":{url.port}"
    host = f"[{url.host}]" if ":" in url.host else url.raw_host.decode("ascii")
    return parse_target(f"{url.scheme}://{host}{port}", ca_file=ca_file if url.scheme == "https" else None)


def _headers(request: httpx.Request) -> list[tuple[str, str]]:
    pairs = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in request.headers.raw]
    return [(name, value) for name, value in pairs if name.lower() not in _OURS]


def _length(request: httpx.Request) -> int | None:
    """The body's length as httpx has framed it; None is chunked."""
    return None if "transfer-encoding" in request.headers else int(request.headers.get("content-length", "0"))


def _sync_body(request: httpx.Request) -> bytes | Iterable[bytes]:
    try:
        return request.content  # bytes can be sent again when a kept connection turns out to be closed
    except httpx.RequestNotRead:
        if not isinstance(request.stream, Iterable):
            raise TypeError("an async body cannot be sent by a blocking client; use httpx.AsyncClient") from None
        return request.stream


def _async_body(request: httpx.Request) -> bytes | AsyncIterable[bytes]:
    try:
        return request.content
    except httpx.RequestNotRead:
        if not isinstance(request.stream, AsyncIterable):
            raise TypeError("a blocking body cannot be sent by an async client; use httpx.Client") from None
        return request.stream


def _timeout(request: httpx.Request) -> float | None:
    # httpx has four; ours is per wait in a stream, which is what its read timeout means
    limits = request.extensions.get("timeout", {})
    value = limits.get("read", 60.0)
    return None if value is None else float(value)


def _translated(error: NetError, request: httpx.Request) -> httpx.TransportError:
    if isinstance(error, Timeout):
        return httpx.ReadTimeout(str(error), request=request)
    if isinstance(error, ConnectFailed):
        return httpx.ConnectError(str(error), request=request)
    if isinstance(error, ConnectionLost):
        return httpx.ReadError(str(error), request=request)
    return httpx.RemoteProtocolError(str(error), request=request)
