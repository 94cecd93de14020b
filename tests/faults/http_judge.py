"""h11 as the judge of what bytes mean, and for what reasons our server may refuse bytes that h11 accepts.

h11 reads one request after the other as a server does that answers each. Empty lines before a request are taken
off first: RFC 9112 (2.2) lets a server ignore them, ours does, h11 does not.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

import h11

MAX_HEAD = 32 * 1024


@dataclass(slots=True)
class Heard:
    """One request as a reader understood it. Repeated fields are joined by ", "; Content-Length is `length`."""

    method: str
    target: str
    version: str
    headers: dict[bytes, bytes]
    length: int | None
    """None for a chunked body."""
    body: bytes = b""
    says_length: bool = field(default=False, compare=False)


@dataclass(slots=True)
class Verdict:
    """The whole requests that the bytes hold, and what comes behind them."""

    requests: list[Heard] = field(default_factory=list)
    refused: bool = False
    """The next bytes can never be a request."""
    closed: bool = False
    """The last request ended the connection."""
    rest: bytes = b""
    """What comes behind the whole requests."""


def request_of(event: h11.Request) -> Heard:
    """An h11 request in our words."""
    headers: dict[bytes, bytes] = {}
    for name, value in event.headers:
        headers[name] = headers[name] + b", " + value if name in headers else value
    length = None if b"transfer-encoding" in headers else int(headers.get(b"content-length", 0))
    says_length = headers.pop(b"content-length", None) is not None
    return Heard(
        method=event.method.decode(),
        target=event.target.decode(),
        version=event.http_version.decode(),
        headers=headers,
        length=length,
        says_length=says_length,
    )


def head_of(raw: bytes) -> Heard | None:
    """One whole head; None when h11 refuses it, or reads more than one head in it."""
    connection = _reading(raw)
    try:
        event = connection.next_event()
    except h11.RemoteProtocolError:
        return None
    if not isinstance(event, h11.Request) or connection.trailing_data[0]:
        return None
    return request_of(event)


def body_of(raw: bytes) -> tuple[bytes, bytes] | None:
    """A chunked body and what comes behind it; None when it is malformed, or not all there."""
    connection = _reading(b"PUT / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + raw)
    body = b""
    while True:
        try:
            event = connection.next_event()
        except h11.RemoteProtocolError:
            return None
        if event is h11.NEED_DATA:
            return None
        if isinstance(event, h11.Data):
            body += bytes(event.data)
        elif isinstance(event, h11.EndOfMessage):
            return body, connection.trailing_data[0]


def judged(raw: bytes) -> Verdict:
    """What a connection that receives exactly these bytes has asked for."""
    verdict = Verdict(rest=_without_empty_lines(raw))
    connection = _reading(verdict.rest)
    heard: Heard | None = None
    while verdict.rest:
        try:
            event = connection.next_event()
        except h11.RemoteProtocolError:
            verdict.refused = True
            return verdict
        if event is h11.NEED_DATA:
            return verdict
        if isinstance(event, h11.Request):
            heard = request_of(event)
        elif isinstance(event, h11.Data):
            assert heard is not None
            heard.body += bytes(event.data)
        else:
            assert isinstance(event, h11.EndOfMessage), event
            assert heard is not None
            verdict.requests.append(heard)
            verdict.rest = _without_empty_lines(connection.trailing_data[0])
            connection.send(h11.Response(status_code=404, headers=[("content-length", "0")]))
            connection.send(h11.EndOfMessage())
            if connection.our_state is h11.MUST_CLOSE:
                verdict.closed = True
                return verdict
            connection = _reading(verdict.rest)
    return verdict


def _reading(raw: bytes) -> h11.Connection:
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD)
    if raw:  # to h11 an empty piece is the end of input
        connection.receive_data(raw)
    return connection


def _without_empty_lines(raw: bytes) -> bytes:
    while raw.startswith(b"\r\n"):
        raw = raw[2:]
    return raw


def _absolute(head: Heard) -> bool:
    return re.match(r"https?://", head.target, re.IGNORECASE) is not None


_UNCLEAR = (
    rb"(?<!\r)\n",
    rb"\n[ \t]",
    rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]",
    rb"\r(?!\n)",
    rb"[^\n]{4000}",
    rb"\n(?i:content-length|transfer-encoding|host):",
)


def unclear_chunks(raw: bytes) -> bool:
    """What h11 lets through in a chunked body: line feeds, control characters, endless lines, framing in trailers."""
    return any(re.search(pattern, raw) for pattern in _UNCLEAR)


# Where ours is stricter than h11: the words of the refusal, and what must then be seen in the bytes.
STRICTER: dict[str, Callable[[bytes, Heard], object]] = {
    "bare line feed in the request head": lambda raw, _: re.search(rb"(?<!\r)\n", raw),
    "control character in the request head": lambda raw, _: re.search(
        rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|\r(?!\n)", raw
    ),
    "folded header line": lambda raw, _: re.search(rb"\n[ \t]", raw),
    "malformed request line": lambda raw, _: re.search(rb"(?<!\r)\n", raw),
    "unsupported HTTP version": lambda _, head: head.version not in ("1.0", "1.1"),
    "too many headers": lambda raw, _: raw.count(b"\n") > 100,
    "both Content-Length and Transfer-Encoding": lambda _, head: (
        head.says_length and b"transfer-encoding" in head.headers
    ),
    "Transfer-Encoding in an HTTP/1.0 request": lambda _, head: (
        head.version == "1.0" and b"transfer-encoding" in head.headers
    ),
    "unknown expectation": lambda _, head: head.headers.get(b"expect", b"100-continue").lower() != b"100-continue",
    "malformed Host header": lambda _, head: (
        not re.fullmatch(rb"[a-z0-9.-]*(:[0-9]{0,5})?", head.headers.get(b"host", b""), re.IGNORECASE)
    ),
    "bad request target": lambda _, head: (
        head.target[:1] != "/" or re.search(r"[#\\]|%(?![0-9a-f]{2})", head.target, re.IGNORECASE)
    ),
    "the request target names another host than the Host header": lambda _, head: _absolute(head),
    "dot segment in the request path": lambda _, head: re.search(r"/(\.|%2e)", head.target, re.IGNORECASE),
    "request target too long": lambda _, head: len(head.target) > 8000,
    "request head too large": lambda raw, _: len(raw) > MAX_HEAD,
    "malformed chunked body": lambda raw, head: head.length is None and unclear_chunks(raw),
}


def is_stricter(error: str, raw: bytes, head: Heard) -> bool:
    """Whether ours refused for a reason that it is known to have, and that these bytes give."""
    return any(error.startswith(words) and seen(raw, head) for words, seen in STRICTER.items())
