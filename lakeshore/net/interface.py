"""What the asyncio and the trio shell have in common: `AsyncClient` for callers, `Wire` for the core that both
share.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator
from typing import BinaryIO, Protocol

from .body import Body
from .http1 import HeaderItems
from .response import Headers, Response
from .target import Target

AsyncBody = Body | AsyncIterable[bytes]


class AsyncStream(Protocol):
    """An answer whose body is read as it arrives. Leaving the `async with` block early closes the connection."""

    status: int
    headers: Headers

    def __aiter__(self) -> AsyncIterator[bytes]: ...
    async def __aenter__(self) -> AsyncStream: ...
    async def __aexit__(self, *exc: object) -> None: ...
    async def read(self, *, max_body: int = ...) -> bytes: ...
    async def save_to(self, file: BinaryIO) -> int: ...
    async def aclose(self) -> None: ...


class AsyncClient(Protocol):
    """A connection or a pool. The verbs, their arguments and errors are those of `blocking.BlockingConnection`.

    Cancel-safe: a cancelled call closes its connection, which no other call gets to see.
    """

    target: Target

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
        max_body: int = ...,
    ) -> Response: ...

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
    ) -> AsyncStream: ...

    async def aclose(self) -> None: ...


class Wire(Protocol):
    """A connected byte stream with a clock. Waits raise TimeoutError; a broken stream raises another OSError."""

    def arm(self, timeout: float | None, *, per_step: bool) -> None:
        """Start the clock: `timeout` seconds in all, or for each wait."""

    async def send(self, data: bytes | memoryview) -> None:
        """Send all, or return early once an answer arrives."""

    async def receive(self) -> bytes:
        """Some bytes; b"" at the end."""

    def answering(self) -> bool:
        """Whether bytes, or the end, have arrived that nobody took: an idle connection is then of no use."""

    def refusing(self) -> bool:
        """Whether an answer is surely arriving while a request is still being sent. Does not wait."""

    def close(self) -> None:
        """Close at once, without waiting."""


class Limit(Protocol):
    """A semaphore of either loop."""

    async def acquire(self) -> object: ...
    def release(self) -> None: ...
