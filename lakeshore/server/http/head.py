"""A request's head: h11 parses it, this module refuses what h11 lets through and proxies disagree about.

Refused: Content-Length beside Transfer-Encoding, bare LF or CR, folded header lines, control characters, a missing,
repeated or malformed Host, targets that are neither a path nor an absolute URL of this very host, dot segments,
half-written percent escapes, versions other than 1.0 and 1.1. A refusal closes the connection: what follows on it
cannot be told apart from the request's body.

A client repeats itself: the same bytes are the same head, so the last few hundred are kept (h11 takes half of a small
request's time). Only the bytes decide, so nothing can differ from parsing them again. The digits of a Content-Length
are looked through: two heads that differ in nothing else say the same but for the length of what follows. Whatever the
layers above conclude from a head alone may stay in its `memo`.
"""

from __future__ import annotations

import re
from types import MappingProxyType

import h11

from lakeshore.server.http.limits import Limits
from lakeshore.server.http.messages import Head, HttpError

END = b"\r\n\r\n"

_KEPT = 512
_KEPT_SIZE = 1024
_LENGTH_NAMES = (b"\r\nContent-Length: ", b"\r\ncontent-length: ")  # as clients write it
_LENGTH_DIGITS = 12
_ALLOWED = bytes([9, 10, 13, *range(0x20, 0x7F), *range(0x80, 0x100)])
_HOST = re.compile(rb"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._~%!$&'()*+,;=-]*)(?::[0-9]{0,5})?")
_TARGET_PATH = re.compile(r"/(?:[^%#?\\]|%[0-9A-Fa-f]{2})*")
_DOT_SEGMENT = re.compile(r"/(?:\.|%2[eE]){1,2}(?:/|$)")
_ABSOLUTE = re.compile(r"https?://([^/?#]*)(.*)", re.IGNORECASE)
_REQUEST_LINE = re.compile(rb"[!-~]+ [!-~]+ HTTP/[0-9]\.[0-9]\r?")


class HeadParser:
    """`parse_head` with a memory for heads that come again."""

    __slots__ = ("_known", "_limits")

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._known: dict[bytes, Head] = {}

    def __call__(self, raw: bytes) -> tuple[Head, int | None]:
        """Parse the bytes up to and with the empty line: the head, and the length of its body (None: chunked).

        Raises HttpError (400, 414, 417, 431, 501).
        """
        start = raw.find(_LENGTH_NAMES[0])
        if start < 0:
            start = raw.find(_LENGTH_NAMES[1])
        if start < 0:
            head = self._known.get(raw)
            return (head, head.content_length) if head is not None else self._parse(raw, raw)
        start += len(_LENGTH_NAMES[0])
        end = raw.find(b"\r\n", start)
        digits = raw[start:end]
        key = raw[:start] + raw[end:]
        head = self._known.get(key)
        if head is not None and digits.isdigit() and len(digits) <= _LENGTH_DIGITS:
            return head, int(digits)
        return self._parse(raw, key)

    def _parse(self, raw: bytes, key: bytes) -> tuple[Head, int | None]:
        head = parse_head(raw, self._limits)
        if self._may_stand_for_others(head, raw):
            if len(self._known) >= _KEPT:
                self._known.clear()  # heads that never come again (nonces) push the others out: they come back
            self._known[key] = head
        return head, head.content_length

    def _may_stand_for_others(self, head: Head, raw: bytes) -> bool:
        """A second Content-Length, or 100-continue, makes the digits matter."""
        return (
            len(raw) + _LENGTH_DIGITS <= min(_KEPT_SIZE, self._limits.max_head)
            and b"expect" not in head.headers
            and raw.lower().count(b"content-length") <= 1
        )


def parse_head(raw: bytes, limits: Limits) -> Head:
    """Parse the bytes up to and with the empty line. Raises HttpError (400, 414, 417, 431, 501)."""
    if len(raw) > limits.max_head:
        raise head_too_large(raw, limits)
    _refuse_ambiguous_bytes(raw)
    decoder = h11.Connection(h11.SERVER, max_incomplete_event_size=limits.max_head)
    decoder.receive_data(raw)
    try:
        event = decoder.next_event()
    except h11.RemoteProtocolError as error:
        raise _malformed(error) from error
    assert type(event) is h11.Request
    head = Head()
    version = event.http_version
    if version != b"1.1" and version != b"1.0":
        raise HttpError(400, f"unsupported HTTP version {version.decode()}", hint="send HTTP/1.1")
    head.version = version.decode()
    headers: dict[bytes, bytes] = {}
    count = 0
    for name, value in event.headers:
        count += 1
        headers[name] = headers[name] + b", " + value if name in headers else value
    if count > limits.max_headers:
        raise HttpError(431, "too many headers", hint=f"send at most {limits.max_headers}")
    head.headers = MappingProxyType(headers)
    head.memo = {}
    head.method = event.method.decode("ascii")
    _read_framing(head, headers, modern=version == b"1.1")
    headers.pop(b"content-length", None)  # each request's own: it must not stay in a head that others share
    _read_target(head, event.target.decode("ascii"), headers.get(b"host"), limits)
    return head


def check_partial(raw: bytes | bytearray, limits: Limits) -> None:
    """Refuse early what can never become a head: so that a wrong peer is told now, not when its time is up."""
    if len(raw) > limits.max_head:
        raise head_too_large(raw, limits)
    line_end = raw.find(b"\n")
    if raw.count(b"\n") != raw.count(b"\r\n"):
        raise HttpError(400, "bare line feed in the request head", hint="end each line with CR LF")
    if line_end >= 0 and not _REQUEST_LINE.fullmatch(raw, 0, line_end):
        raise HttpError(400, "malformed request line", hint="send '<METHOD> <path> HTTP/1.1'")
    if raw[:1] < b"!":
        raise HttpError(400, "malformed request line", hint="plain HTTP/1.1 is spoken here; is the client using TLS?")


def head_too_large(raw: bytes | bytearray, limits: Limits) -> HttpError:
    """414 when the request line alone is too long, 431 otherwise."""
    line_end = raw.find(b"\r\n")
    if line_end < 0 or line_end > limits.max_target:
        return HttpError(414, "request target too long", hint=f"at most {limits.max_target} bytes")
    return HttpError(431, "request head too large", hint=f"at most {limits.max_head} bytes of headers")


def _refuse_ambiguous_bytes(raw: bytes) -> None:
    lines = raw.count(b"\r\n")
    if raw.count(b"\n") != lines:
        raise HttpError(400, "bare line feed in the request head", hint="end each line with CR LF")
    if raw.count(b"\r") != lines or raw.translate(None, _ALLOWED):
        raise HttpError(400, "control character in the request head")
    if b"\n " in raw or b"\n\t" in raw:
        raise HttpError(400, "folded header line", hint="write each header on one line")


def _malformed(error: h11.RemoteProtocolError) -> HttpError:
    # h11 quotes the offending line: cut it off, a header may be a secret
    what = str(error).split(": bytearray", 1)[0].split(": b'", 1)[0]
    status = error.error_status_hint if error.error_status_hint in (400, 431, 501) else 400
    return HttpError(status, f"malformed request: {what[:1].lower()}{what[1:]}"[:200])


def _read_framing(head: Head, headers: dict[bytes, bytes], *, modern: bool) -> None:
    length, coding = headers.get(b"content-length"), headers.get(b"transfer-encoding")
    if coding is not None:
        if length is not None:
            raise HttpError(400, "both Content-Length and Transfer-Encoding", hint="send one of them")
        if not modern:
            raise HttpError(400, "Transfer-Encoding in an HTTP/1.0 request", hint="send HTTP/1.1 or a Content-Length")
        head.content_length = None
    else:
        head.content_length = int(length) if length is not None else 0
    connection = headers.get(b"connection")
    head.close = not modern or (
        connection is not None and b"close" in [token.strip() for token in connection.lower().split(b",")]
    )
    expectation = headers.get(b"expect")
    head.expects_continue = False
    if expectation is not None and modern:
        if expectation.lower() != b"100-continue":
            raise HttpError(417, "unknown expectation", field="Expect", hint="only 100-continue is understood")
        head.expects_continue = head.content_length != 0


def _read_target(head: Head, target: str, host: bytes | None, limits: Limits) -> None:
    if len(target) > limits.max_target:
        raise HttpError(414, "request target too long", hint=f"at most {limits.max_target} bytes")
    if host is not None and not _HOST.fullmatch(host):
        raise HttpError(400, "malformed Host header", field="Host", hint="send host or host:port")
    head.target = target
    local = target
    if not target.startswith("/"):
        if target == "*" and head.method == "OPTIONS":
            head.path, head.query_string = "*", ""
            return
        absolute = _ABSOLUTE.fullmatch(target)
        if absolute is None:
            raise HttpError(400, "bad request target", hint="send a path that begins with /")
        if host is None or absolute.group(1).lower() != host.decode("latin-1").lower():
            raise HttpError(400, "the request target names another host than the Host header")
        local = absolute.group(2)
        if not local.startswith("/"):
            local = "/" + local
    path, _, query = local.partition("?")
    if not _TARGET_PATH.fullmatch(path) or "#" in query:
        raise HttpError(400, "bad request target", hint="percent-encode what is not a URL character; no fragment")
    if ("." in path or "%2" in path) and _DOT_SEGMENT.search(path):
        raise HttpError(400, "dot segment in the request path", hint="send the path it resolves to")
    head.path = path
    head.query_string = query
