"""Answers of any shape, read by h11: chunked, split heads, 1xx, HTTP/1.0, `Connection: close`, and all that is
malformed.

Loaded when the first such answer arrives. h11 frames an answer by the request's method alone, so it is told of that
and no more.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import h11

from .response import Headers

if TYPE_CHECKING:
    from .http1 import Exchange

_MAX_INFORMATIONAL = 16
_SLICE = 16 * 1024  # h11 checks its limit only when a head is incomplete, so heads reach it in slices


@lru_cache(maxsize=32)
def _request(method: str) -> h11.Request:
    return h11.Request(method=method, target="/", headers=[("host", "h")])


class AnyAnswer:
    """Fills an exchange from bytes. Raises what `Exchange.receive` raises."""

    __slots__ = ("_conn", "_exchange", "_informational", "_size")

    def __init__(self, exchange: Exchange, *, max_head: int) -> None:
        self._exchange = exchange
        self._informational = 0
        self._size = 0
        self._conn = h11.Connection(h11.CLIENT, max_incomplete_event_size=max_head)
        self._conn.send(_request(exchange.method))
        self._conn.send(h11.EndOfMessage())

    def feed(self, data: bytes) -> None:
        """Received bytes; b"" is the end of the connection."""
        exchange = self._exchange
        try:
            if not data:
                self._conn.receive_data(b"")
                self._pump()
                return
            start = 0
            while start < len(data):
                # small slices while a head may be growing, the rest at once when the body has begun
                stop = start + _SLICE if exchange.status is None else len(data)
                self._conn.receive_data(data[start:stop])
                start = stop
                self._pump()
        except h11.RemoteProtocolError as error:
            if not data:
                raise exchange.lost("closed the connection before the end of its answer") from None
            hint = "its head is too large" if error.error_status_hint == 431 else str(error)
            raise exchange.violation(f"is not a valid HTTP/1.1 answer ({hint})") from None

    def _pump(self) -> None:
        exchange, conn = self._exchange, self._conn
        while not exchange.complete:
            event = conn.next_event()
            if event is h11.NEED_DATA:
                return
            if isinstance(event, h11.Data):
                if event.data:
                    self._size += len(event.data)
                    exchange.check_size(self._size)
                    exchange.chunks.append(bytes(event.data))
            elif isinstance(event, h11.EndOfMessage):
                exchange.complete = True
            elif isinstance(event, h11.Response):
                self._head(event)
            elif isinstance(event, h11.InformationalResponse) and event.status_code != 101:
                self._informational += 1
                if self._informational > _MAX_INFORMATIONAL:
                    raise exchange.violation("announces itself without end (too many 1xx answers)")
            else:  # PAUSED or 101: the peer switches to a protocol that nobody asked for
                raise exchange.violation("switches to another protocol")
        exchange.reusable = conn.states == {h11.CLIENT: h11.DONE, h11.SERVER: h11.DONE} and not conn.trailing_data[0]

    def _head(self, event: h11.Response) -> None:
        exchange = self._exchange
        fields = dict(event.headers)
        if b"content-length" in fields and b"transfer-encoding" in fields:
            raise exchange.violation("states its length in two ways (Content-Length and Transfer-Encoding)")
        exchange.status = event.status_code
        exchange.headers = Headers(tuple(event.headers))
        if b"content-length" in fields and exchange.method != "HEAD" and event.status_code not in (204, 304):
            exchange.check_size(int(fields[b"content-length"]))
