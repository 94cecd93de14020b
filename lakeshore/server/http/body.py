"""A request's body on its way in: by announced length, or chunked through h11. Bounded, read only when asked for."""

from __future__ import annotations

from typing import Protocol

import h11
import trio

from lakeshore.server.http.head import END
from lakeshore.server.http.messages import Head, HttpError

_PIECES = 64  # chunks decoded in one go


class Source(Protocol):
    """The connection, as a body sees it."""

    buffered: bytes
    """What was received and not used yet: a body takes its part and leaves the rest."""

    async def more(self) -> bytes:
        """At least one byte more. Raises ClientGone at the end of input."""
        ...

    async def send_continue(self) -> None:
        """Tell the waiting client to go on."""
        ...


class Body:
    """One body. `complete` once its last byte was taken."""

    __slots__ = ("_decoder", "_expects", "_pieces", "_source", "_tail", "_taken", "complete", "length", "remaining")

    def __init__(self, head: Head, length: int | None, source: Source) -> None:
        self._source = source
        self._expects = head.expects_continue
        self._taken = 0
        self._tail = b""
        self._pieces = 0
        self._decoder = head.decoder
        self.length = length
        self.remaining: int = length or 0
        """Bytes still to come of an announced length; 0 for a chunked body."""
        self.complete = length == 0

    @property
    def discardable(self) -> int | None:
        """How many bytes must be dropped to reach the next request; None when that cannot be known."""
        return None if self._decoder is not None or self._expects else self.remaining

    async def read(self, limit: int) -> bytes:
        """The rest of the body in one piece. HttpError 413 or 400; ClientGone."""
        if self.complete:
            return b""
        wanted = self.remaining
        if self._decoder is None and len(self._source.buffered) >= wanted and self._taken + wanted <= limit:
            buffered = self._source.buffered  # the usual small request: it all came with its head
            self._source.buffered = buffered[wanted:]
            self._taken += wanted
            self.remaining = 0
            self.complete = True
            return buffered[:wanted]
        parts = []
        while chunk := await self.next_chunk(limit):
            parts.append(chunk)
        return b"".join(parts)

    async def next_chunk(self, limit: int) -> bytes:
        """The next piece as it arrived; b"" at the end. HttpError 413 or 400; ClientGone."""
        if self.complete:
            return b""
        if self._decoder is not None:
            return await self._next_decoded(self._decoder, limit)
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
        return await source.more()

    async def _next_decoded(self, decoder: h11.Connection, limit: int) -> bytes:
        while True:
            try:
                event = decoder.next_event()
            except h11.RemoteProtocolError as error:
                raise _malformed() from error
            if event is h11.NEED_DATA:
                data = await self._take()
                self._tail = self._tail[-len(END) :] + data
                decoder.receive_data(data)
            elif type(event) is h11.Data:
                self._taken += len(event.data)
                if self._taken > limit:
                    raise _too_large(limit)
                self._pieces += 1
                if self._pieces % _PIECES == 0:
                    await trio.lowlevel.checkpoint()  # a body of tiny chunks must not keep the loop to itself
                return bytes(event.data)
            else:
                assert type(event) is h11.EndOfMessage
                rest = decoder.trailing_data[0]
                # h11 also takes a bare LF for the end of the trailers: another reader of these bytes may not
                if not self._tail[: len(self._tail) - len(rest)].endswith(END):
                    raise _malformed()
                self._source.buffered = rest
                self._decoder = None
                self.complete = True
                return b""


def _too_large(limit: int) -> HttpError:
    return HttpError(413, "request body too large", hint=f"send at most {limit} bytes", limit=limit)


def _malformed() -> HttpError:
    return HttpError(400, "malformed chunked body")
