"""A request's body on its way in: by announced length, or in chunks. Bounded, read only when asked for."""

from __future__ import annotations

from typing import Protocol

import trio

from lakeshore.server.http.chunked import ChunkReader, MalformedChunks
from lakeshore.server.http.messages import Head, HttpError

_PIECES = 64  # chunks decoded in one go
_PARTS = 1024  # put together then: millions of two-byte pieces would take twenty times their size


class Source(Protocol):
    """The connection, as a body sees it."""

    buffered: bytes
    """What was received and not used yet: a body takes its part and leaves the rest."""

    async def more(self, expected: int) -> bytes:
        """At least one byte more, of about `expected`. Raises ClientGone at the end of input."""
        ...

    async def send_continue(self) -> None:
        """Tell the waiting client to go on."""
        ...


class Body:
    """One body. `complete` once its last byte was taken."""

    __slots__ = ("_chunks", "_expects", "_pieces", "_source", "_taken", "complete", "length", "remaining")

    def __init__(self, head: Head, length: int | None, source: Source) -> None:
        self._source = source
        self._expects = head.expects_continue
        self._taken = 0
        self._pieces = 0
        self._chunks = ChunkReader() if length is None else None
        self.length = length
        self.remaining: int = length or 0
        """Bytes still to come of an announced length; 0 for a chunked body."""
        self.complete = length == 0

    @property
    def discardable(self) -> int | None:
        """How many bytes must be dropped to reach the next request; None when that cannot be known."""
        return None if self._chunks is not None or self._expects else self.remaining

    async def read(self, limit: int) -> bytes:
        """The rest of the body in one piece. HttpError 413 or 400; ClientGone."""
        if self.complete:
            return b""
        wanted = self.remaining
        if self._chunks is None and len(self._source.buffered) >= wanted and self._taken + wanted <= limit:
            buffered = self._source.buffered  # the usual small request: it all came with its head
            self._source.buffered = buffered[wanted:]
            self._taken += wanted
            self.remaining = 0
            self.complete = True
            return buffered[:wanted]
        whole, parts = bytearray(), []
        while chunk := await self.next_chunk(limit):
            parts.append(chunk)
            if len(parts) == _PARTS:
                whole += b"".join(parts)
                parts.clear()
        return bytes(whole) + b"".join(parts) if whole else b"".join(parts)

    async def next_chunk(self, limit: int) -> bytes:
        """The next piece as it arrived; b"" at the end. HttpError 413 or 400; ClientGone."""
        if self.complete:
            return b""
        if self._chunks is not None:
            return await self._next_decoded(self._chunks, limit)
        if self._taken + self.remaining > limit:
            raise _too_large(limit)
        data = await self._take()
        if len(data) > self.remaining:
            data, self._source.buffered = data[: self.remaining], data[self.remaining :]
        self.remaining -= len(data)
        self._taken += len(data)
        self.complete = self.remaining == 0
        return data

    async def _take(self) -> bytes:
        source = self._source
        data = source.buffered
        if data:
            source.buffered = b""
            self._expects = False  # it did not wait
            return data
        if self._expects:
            self._expects = False
            await source.send_continue()
        return await source.more(self.remaining)

    async def _next_decoded(self, chunks: ChunkReader, limit: int) -> bytes:
        while True:
            try:
                piece = chunks.next_piece()
            except MalformedChunks as error:
                raise HttpError(400, "malformed chunked body", hint=str(error)) from error
            if self._taken + len(piece or b"") + chunks.announced > limit:
                raise _too_large(limit)  # as soon as a chunk says so, not when it has come
            if piece is not None:
                self._taken += len(piece)
                self._pieces += 1
                if self._pieces % _PIECES == 0:
                    await trio.lowlevel.checkpoint()  # a body of tiny chunks must not keep the loop to itself
                return piece
            if chunks.ended:
                self._source.buffered = chunks.rest
                self._chunks = None
                self.complete = True
                return b""
            chunks.feed(await self._take())


def _too_large(limit: int) -> HttpError:
    return HttpError(413, "request body too large", hint=f"send at most {limit} bytes", limit=limit)
