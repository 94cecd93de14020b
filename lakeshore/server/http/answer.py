"""Answers as bytes. The framing is ours alone; a handler's headers are checked once and their rendering is kept.

500 and 504 are never sent: asking for one is a programming error.
"""

from __future__ import annotations

import re
import time
from email.utils import formatdate
from http import HTTPStatus

from lakeshore.server.http.messages import HeaderList, Response

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"

_NAME = re.compile(r"[-!#$%&'*+.^_`|~0-9a-zA-Z]+")
_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_OURS = frozenset({"content-length", "transfer-encoding", "connection", "date", "keep-alive", "upgrade", "trailer"})
_NEVER = frozenset({500, 504})
_CACHED = 512

_prefixes: dict[tuple[int, HeaderList], bytes] = {}


class _Clock:
    """The Date line, rendered once a second."""

    __slots__ = ("line", "second")

    def __init__(self) -> None:
        self.second = 0
        self.line = b""

    def __call__(self) -> bytes:
        second = int(time.time())
        if second != self.second:
            self.second = second
            self.line = f"date: {formatdate(second, usegmt=True)}\r\n".encode("ascii")
        return self.line


_date = _Clock()


def encode(response: Response, *, close: bool, without_body: bool) -> bytes:
    """A whole answer. ValueError for a status or header that must not be sent."""
    body = response.body
    status = response.status
    if status in (204, 304):
        if body:
            raise ValueError(f"an answer with status {status} has no body")
        length = b""
    else:
        length = b"content-length: %d\r\n" % len(body)
    return b"%b%b%b%b\r\n%b" % (
        _prefix(status, response.headers),
        _date(),
        length,
        b"connection: close\r\n" if close else b"",
        b"" if without_body else body,
    )


def encode_stream_head(
    status: int, headers: HeaderList, *, content_length: int | None, chunked: bool, close: bool
) -> bytes:
    """The head of an answer that is sent in pieces."""
    framing = b""
    if content_length is not None:
        framing = b"content-length: %d\r\n" % content_length
    elif chunked:
        framing = b"transfer-encoding: chunked\r\n"
    return b"%b%b%b%b\r\n" % (_prefix(status, headers), _date(), framing, b"connection: close\r\n" if close else b"")


def encode_chunk(data: bytes) -> bytes:
    """One chunk of a chunked answer; never empty, since that would end it."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def _prefix(status: int, headers: HeaderList) -> bytes:
    key = (status, headers)
    known = _prefixes.get(key)
    if known is not None:
        return known
    if status in _NEVER or not 200 <= status <= 599:
        raise ValueError(f"status {status} is never sent")
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = "Status"
    lines = [f"HTTP/1.1 {status} {phrase}\r\n"]
    for name, value in headers:
        if not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
            raise ValueError(f"header {name!r} holds characters that cannot be sent")
        if name.lower() in _OURS:
            raise ValueError(f"header {name!r} is the server's to set")
        lines.append(f"{name}: {value}\r\n")
    rendered = "".join(lines).encode("latin-1")
    if len(_prefixes) >= _CACHED:
        _prefixes.clear()  # values such as Location never repeat: start over rather than grow
    _prefixes[key] = rendered
    return rendered
