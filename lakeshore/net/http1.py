"""HTTP/1.1 from the client's side, without I/O: bytes of a request out, bytes of an answer in.

`build_request` writes a head. An `Exchange` is one request's answer: feed it what was received (b"" at the end of the
connection) and it has `status`, `headers`, body chunks, `complete`, and `reusable`: whether another request may
follow on the connection.

h11 judges every answer but one strict shape, which is nearly all of our own traffic and costs h11 70 µs: a head that
arrives whole, in plain ASCII, `HTTP/1.1`, with one Content-Length and neither Transfer-Encoding, Connection nor
Upgrade. What deviates in any way goes to h11 from its first byte; a property test holds the two paths equal. Sizes
are bounded: head, in-memory body, number of 1xx answers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from .errors import ConnectionLost, ProtocolViolation, Timeout
from .response import Headers, Response
from .target import Target

if TYPE_CHECKING:
    from .any_answer import AnyAnswer

MAX_HEAD = 64 * 1024
MAX_BODY = 64 * 1024 * 1024

HeaderItems = Mapping[str, str] | Iterable[tuple[str, str]]

_NAME = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_FIELDS = re.compile(_NAME + r": [\t\x20-\x7e\x80-\xff]*\r\n(?:" + _NAME + r": [\t\x20-\x7e\x80-\xff]*\r\n)*")
_METHOD = re.compile(r"[A-Z]+")
_PATH = re.compile(r"/[!-~]*")
_OURS = frozenset(
    {"content-length", "transfer-encoding", "connection", "expect", "upgrade", "te", "trailer", "keep-alive"}
)
_PLAIN = re.compile(
    rb"HTTP/1\.1 ([2-5][0-9][0-9]) [\t\x20-\x7e]*\r\n((?:" + _NAME.encode() + rb":[\t\x20-\x7e]*\r\n)*)\r\n"
)
_NOT_PLAIN = frozenset({b"transfer-encoding", b"connection", b"upgrade"})


def build_request(
    target: Target,
    method: str,
    path: str,
    headers: HeaderItems = (),
    *,
    content_length: int | None = 0,
    has_body: bool = True,
) -> bytes:
    """The head of a request, blank line included. `content_length=None` announces a chunked body; `has_body=False`
    none at all.

    ValueError for anything that could change how the request is framed: a header that is ours to write, a line break,
    a path with spaces or non-ASCII characters. `Host` may be given; else it is the target's.
    """
    if not _METHOD.fullmatch(method) or method == "CONNECT":
        raise ValueError(f"{method!r} is not a method that can be sent; use an upper-case name such as GET or POST")
    if not _PATH.fullmatch(path) or "#" in path:
        raise ValueError("a path starts with '/' and is percent-encoded ASCII without a fragment")
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    block = ""
    count = 0
    host = f"host: {target.host_header}\r\n"
    for name, value in pairs:
        lower = name.lower()
        if lower in _OURS:
            raise ValueError(f"the header {name!r} frames the request and is written by the connection; leave it out")
        if lower == "host":
            host = ""
        block += f"{name}: {value}\r\n"
        count += 1
    # a smuggled line break makes more lines than headers, so one match and one count cover every field
    if count and (not _FIELDS.fullmatch(block) or block.count("\n") != count):
        raise ValueError("a header has an invalid name, or a value with line breaks or characters outside latin-1")
    if not has_body:
        framing = ""
    elif content_length is None:
        framing = "transfer-encoding: chunked\r\n"
    else:
        framing = f"content-length: {content_length}\r\n"
    prefix = target.prefix
    if target.proxy is not None and not target.tls:  # it is told the whole URL; a tunnel leads to the server itself
        prefix = target.url
        if target.proxy.authorization is not None:
            host += f"proxy-authorization: {target.proxy.authorization}\r\n"
    return f"{method} {prefix}{path} HTTP/1.1\r\n{host}{block}{framing}\r\n".encode("latin-1")


class Route:
    """A POST that is sent again and again: its head is checked and written once, but for the length of the body."""

    __slots__ = ("_start", "headers", "path", "target")

    def __init__(self, target: Target, path: str, headers: HeaderItems) -> None:
        self.target = target
        self.path = path
        self.headers = headers
        self._start = build_request(target, "POST", path, headers, content_length=0).removesuffix(b"0\r\n\r\n")

    def request(self, body: bytes) -> bytes:
        """The whole request."""
        return b"%b%d\r\n\r\n%b" % (self._start, len(body), body)


class PlainHead(NamedTuple):
    """What the strict shape of a head says."""

    status: int
    length: int
    headers: Headers


def plain_answer(data: bytes, *, max_body: int) -> tuple[int, bytes] | None:
    """(status, body) when `data` is exactly one answer of the strict shape, with at most `max_body` bytes of body."""
    end = data.find(b"\r\n\r\n") + 4
    head = _plain_head(data[:end]) if 4 <= end <= MAX_HEAD else None
    if head is None or head.length != len(data) - end or head.length > max_body:
        return None
    return head.status, data[end:]


@lru_cache(maxsize=128)  # within a second, all answers of one length have the same head
def _plain_head(head: bytes) -> PlainHead | None:
    """What a head says, blank line included; None for any but the strict shape."""
    match = _PLAIN.fullmatch(head)
    if match is None:
        return None
    status = int(match[1])
    if status in (204, 304):
        return None
    length: bytes | None = None
    fields: list[tuple[bytes, bytes]] = []
    for line in match[2].split(b"\r\n")[:-1]:
        name, _, value = line.partition(b":")
        name = name.lower()
        value = value.strip(b" \t")
        if name == b"content-length":
            if length is not None or not value.isdigit() or len(value) > 18:
                return None
            length = value
        elif name in _NOT_PLAIN:
            return None
        fields.append((name, value))
    return None if length is None else PlainHead(status, int(length), Headers(tuple(fields)))


class Exchange:
    """The answer to one request, as far as it has arrived.

    `max_body` bounds the body in bytes (None for streams, whose reader takes chunks as they come).
    """

    __slots__ = (
        "_any", "_left", "_max_body", "_max_head", "_path", "_target",
        "chunks", "complete", "headers", "method", "reusable", "started", "status",
    )  # fmt: skip

    def __init__(
        self, target: Target, method: str, path: str, *, max_body: int | None = MAX_BODY, max_head: int = MAX_HEAD
    ) -> None:
        self._target = target
        self.method = method
        self._path = path
        self._max_body = max_body
        self._max_head = max_head
        self._any: AnyAnswer | None = None
        self._left = 0
        self.chunks: list[bytes] = []
        self.started = False
        self.status: int | None = None
        self.headers = Headers(())
        self.complete = False
        self.reusable = False

    @property
    def expected(self) -> int:
        """How many bytes of a body of known length have not arrived."""
        return self._left

    @property
    def url(self) -> str:
        """What was asked, without the query: signatures travel there."""
        return self._target.url + self._path.partition("?")[0]

    def receive(self, data: bytes) -> None:
        """Take received bytes; b"" means that the connection has ended.

        ConnectionLost when it ended before the answer did; ProtocolViolation when the answer is malformed or too large.
        """
        if self.complete:
            self.reusable = False  # the end, or bytes that nobody asked for: the next answer could be read from them
            return
        if not self.started:
            if not data:
                raise self.lost("closed the connection without answering")
            self.started = True
            if not data.startswith(b"HTTP/"[: len(data)]):
                raise self.violation("is not HTTP; another kind of server listens there")
            if not self._receive_plain_head(data):
                self._feed_any(data)
        elif self._any is None:
            if not data:
                raise self.lost(f"closed the connection {self._left} bytes before the end of its answer")
            self._receive_counted(data)
        else:
            self._feed_any(data)

    def take(self) -> list[bytes]:
        """The body chunks that have arrived since the last call. None is empty."""
        chunks = self.chunks
        self.chunks = []
        return chunks

    def response(self) -> Response:
        """The whole answer, once `complete`."""
        assert self.complete and self.status is not None
        chunks = self.chunks
        return Response(
            status=self.status, headers=self.headers, body=chunks[0] if len(chunks) == 1 else b"".join(chunks)
        )

    def lost(self, what: str) -> ConnectionLost:
        """The error for a connection that ended now; `what` completes 'the server …'."""
        return ConnectionLost(
            f"{self.method} {self.url}: the server {what}. If it was restarted, try again; else look at its log",
            url=self.url,
            sent_anything=True,
            received_anything=self.started,
        )

    def timed_out(self, what: str, seconds: float | None) -> Timeout:
        """The error for a wait of `seconds` that brought nothing; `what` completes 'the server …'."""
        return Timeout(
            f"{self.method} {self.url}: the server {what} within {seconds or 0:g} s. Check its load or allow more",
            url=self.url,
        )

    # -- the strict shape ----------------------------------------------------------------------------------------

    def _receive_plain_head(self, data: bytes) -> bool:
        end = data.find(b"\r\n\r\n") + 4
        head = _plain_head(data[:end]) if 4 <= end <= self._max_head and self.method != "HEAD" else None
        if head is None:
            return False
        self._left = head.length
        self.check_size(self._left)
        self.status = head.status
        self.headers = head.headers
        self._receive_counted(data[end:])
        return True

    def _receive_counted(self, data: bytes) -> None:
        extra = len(data) - self._left
        if extra > 0:
            data = data[: self._left]
        if data:
            self.chunks.append(data)
            self._left -= len(data)
        if self._left == 0:
            self.complete = True
            self.reusable = extra <= 0

    # -- everything else -----------------------------------------------------------------------------------------

    def _feed_any(self, data: bytes) -> None:
        if self._any is None:
            from .any_answer import AnyAnswer  # a wall: a command that asks our server one thing never needs h11

            self._any = AnyAnswer(self, max_head=self._max_head)
        self._any.feed(data)

    def check_size(self, size: int) -> None:
        """ProtocolViolation when a body of `size` bytes is more than is allowed."""
        if self._max_body is not None and size > self._max_body:
            raise self.violation(f"is larger than the {self._max_body} bytes allowed; stream it to a file instead")

    def violation(self, what: str) -> ProtocolViolation:
        """The error for an answer that is refused; `what` completes 'the answer …'."""
        return ProtocolViolation(
            f"{self.method} {self.url}: the answer {what}. Check that this URL is a Lakeshore server", url=self.url
        )
