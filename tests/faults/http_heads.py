"""Requests as real clients write them, and small changes that may turn them into something readers disagree about."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable

from lakeshore.net.http1 import build_request
from lakeshore.net.target import parse_target
from lakeshore.sdk.http_wire import headers as sdk_headers

_TARGET = parse_target("http://127.0.0.1:8080")


def _sdk(method: str, path: str, body: bytes = b"", *, token: str | None = "t0k-en", has_body: bool = True) -> bytes:
    head = build_request(
        _TARGET, method, path, sdk_headers(token, "default"), content_length=len(body), has_body=has_body
    )
    return head + body


def _sdk_chunked(path: str, *pieces: bytes) -> bytes:
    return build_request(_TARGET, "PUT", path, sdk_headers(None, "a-b"), content_length=None) + chunked(*pieces)


def _lines(*lines: str, body: bytes = b"") -> bytes:
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def chunked(*pieces: bytes, extension: bytes = b"", trailers: bytes = b"") -> bytes:
    """A chunked body."""
    return b"".join(b"%x%b\r\n%b\r\n" % (len(p), extension, p) for p in pieces) + b"0\r\n" + trailers + b"\r\n"


_CHROME = (
    "Connection: keep-alive",
    'sec-ch-ua: "Chromium";v="138", "Not)A;Brand";v="8"',
    "sec-ch-ua-mobile: ?0",
    'sec-ch-ua-platform: "Linux"',
    "User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/138.0.0.0 Safari/537.36",
    "Accept-Encoding: gzip, deflate, br, zstd",
    "Accept-Language: en-GB,en-US;q=0.9,en;q=0.8",
)
_FORM = b"invocation_id=x&queue=q"
_PACKED = bytes.fromhex("83ad696e766f636174696f6e5f6964a161a57175657565a171a9617267735f626c6f62c403010203")

REAL: dict[str, bytes] = {
    "sdk submit": _sdk("POST", "/v1/producer/submit", _PACKED),
    "sdk submit without a token": _sdk("POST", "/v1/producer/submit", _PACKED, token=None),
    "sdk await": _sdk("POST", "/v1/producer/await", b"\x81\xa5watch\xa1w"),
    "sdk poll": _sdk("POST", "/v1/daemon/poll", b"\x80" * 3),
    "sdk ack": _sdk("POST", "/v1/daemon/ack", b"\x80" * 700),
    "sdk stream": _sdk("GET", "/v1/producer/invocations/0f3a-77/result/stream?from=3", has_body=False),
    "sdk cancel": _sdk("POST", "/v1/producer/invocations/0f3a/cancel"),
    "sdk delete": _sdk("DELETE", "/v1/namespaces/a%20b/invocations/0f3a", has_body=False),
    "sdk upload in chunks": _sdk_chunked("/v1/blobs/payloads/default/0f?sig=aZ09-_&expires=1", b"x" * 300, b"y"),
    "curl": _lines("GET /healthz HTTP/1.1", "Host: localhost:8080", "User-Agent: curl/7.88.1", "Accept: */*"),
    "curl -I": _lines("HEAD /healthz HTTP/1.1", "Host: localhost:8080", "User-Agent: curl/7.88.1", "Accept: */*"),
    "curl -d": _lines(
        "POST /v1/producer/submit HTTP/1.1",
        "Host: [::1]:8080",
        "User-Agent: curl/8.14.1",
        "Accept: */*",
        "Content-Length: 23",
        "Content-Type: application/x-www-form-urlencoded",
        body=_FORM,
    ),
    "curl -T of a large file": _lines(
        "PUT /v1/blobs/a/b HTTP/1.1",
        "Host: localhost:8080",
        "User-Agent: curl/7.88.1",
        "Accept: */*",
        "Content-Length: 2000",
        "Expect: 100-continue",
        body=b"z" * 2000,
    ),
    "curl -T of a pipe": _lines(
        "PUT /v1/blobs/a/b HTTP/1.1",
        "Host: localhost:8080",
        "Transfer-Encoding: chunked",
        "User-Agent: curl/7.88.1",
        "Accept: */*",
        "Expect: 100-continue",
        body=chunked(b"a" * 17, b"\r\n\r\n0\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n"),
    ),
    "http.client": _lines(
        "POST /v1/daemon/hello HTTP/1.1",
        "Host: 127.0.0.1:8080",
        "Accept-Encoding: identity",
        "Content-Length: 2",
        "Content-Type: application/json",
        body=b"{}",
    ),
    "requests": _lines(
        "GET /v1/producer/queues?limit=2&after=%E2%98%83 HTTP/1.1",
        "Host: lakeshore.internal",
        "User-Agent: python-requests/2.32.3",
        "Accept-Encoding: gzip, deflate",
        "Accept: */*",
        "Connection: keep-alive",
        "Authorization: Bearer abc.def-ghi_jkl",
    ),
    "a generator through urllib3": _lines(
        "POST /v1/daemon/result-chunk HTTP/1.1",
        "Host: h",
        "Transfer-Encoding: Chunked",
        "Content-Type: application/x-msgpack",
        body=chunked(_PACKED, b"\0" * 40, extension=b';note="a;b"', trailers=b"X-Sum: 1\r\n"),
    ),
    "chrome": _lines(
        "GET /metrics?x=1&y= HTTP/1.1",
        "Host: 127.0.0.1:8080",
        *_CHROME,
        "Upgrade-Insecure-Requests: 1",
        "Accept: text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8",
        "Sec-Fetch-Site: none",
        "Cookie: a=b; c=d=e; f=\xe9",
    ),
    "chrome posts a form": _lines(
        "POST /v1/producer/submit HTTP/1.1",
        "Host: 127.0.0.1:8080",
        "Content-Length: 23",
        "Cache-Control: max-age=0",
        "Origin: https://evil.example",
        "Content-Type: application/x-www-form-urlencoded",
        "Sec-Fetch-Site: cross-site",
        *_CHROME,
        body=_FORM,
    ),
    "firefox preflight": _lines(
        "OPTIONS /v1/producer/submit HTTP/1.1",
        "Host: localhost:8080",
        "User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0",
        "Accept: */*",
        "Access-Control-Request-Method: POST",
        "Access-Control-Request-Headers: content-type,x-ls-namespace",
        "Origin: null",
        "Connection: keep-alive",
        "Priority: u=4",
    ),
    "a websocket": _lines(
        "GET /v1/daemon/poll HTTP/1.1",
        "Host: localhost",
        "Connection: keep-alive, Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        "Sec-WebSocket-Version: 13",
    ),
    "a probe": _lines("GET /readyz HTTP/1.1", "Host: 10.0.0.7:8080", "User-Agent: kube-probe/1.3", "Connection: close"),
    "an old probe": _lines("GET /healthz HTTP/1.0"),
    "ab": _lines("GET /healthz HTTP/1.0", "Connection: Keep-Alive", "Host: localhost:8080", "Accept: */*"),
    "a proxy": _lines(
        "GET http://localhost:8080/v1/producer/queues HTTP/1.1",
        "host: LOCALHOST:8080",
        "via: 1.1 gateway.example",
        "x-forwarded-for: 10.0.0.1, 10.0.0.2",
        "x-forwarded-for: 10.0.0.3",
        "x-forwarded-proto: https",
        "te: trailers",
        "connection: keep-alive, te",
    ),
    "many fields": _lines("GET / HTTP/1.1", "Host: x", *[f"X-{n}:\t v{n} \t" for n in range(60)]),
    "empty values": _lines("POST / HTTP/1.1", "Host:", "A:", "B: ", "Content-Length: 003", "C:\t", body=b"abc"),
    "a length twice": _lines("PUT / HTTP/1.1", "Host: x", "Content-Length: 3", "content-length: 3", body=b"abc"),
    "any method": _lines("M-SEARCH /a/b?c#".rstrip("#") + " HTTP/1.1", "Host: x", "Content-Length: 0"),
    "asterisk": _lines("OPTIONS * HTTP/1.1", "Host: x"),
}

# What is put somewhere into a head. Much of it is one byte that some readers take for a space, a line end or nothing.
_BYTES = [
    bytes([n]) for n in (*range(0x21), 0x22, 0x23, 0x28, 0x2C, 0x2F, 0x3A, 0x3B, 0x5C, 0x7F, 0x80, 0x85, 0xA0, 0xFF)
]
_PIECES = [
    *_BYTES,
    b"\r\n",
    b"\r\r\n",
    b"\n\r",
    b"\r\n ",
    b"\r\n\t",
    b"\r\n\r\n",
    b"\n\n",
    b"  ",
    b"%",
    b"%2e%2e/",
    b"/../",
    b"//",
    b"%00",
    b"%0d%0a",
    b"\xc3\xa9",
    b"\xe2\x80\xa8",
    b"a" * 300,
    b"HTTP/1.1",
    b"GET /x HTTP/1.1\r\nHost: x\r\n\r\n",
]
_LINES = [
    b"Content-Length: 0",
    b"Content-Length: 1",
    b"Content-Length:5",
    b"Content-Length: +3",
    b"Content-Length: -1",
    b"Content-Length: 0x3",
    b"Content-Length: 3, 3",
    b"Content-Length: 3,4",
    b"Content-Length: 1_0",
    b"Content-Length: \xb2",
    b"Content-Length: " + b"9" * 25,
    b"Content-Length: 3 ",
    b"Content-Length : 3",
    b" Content-Length: 3",
    b"Content_Length: 3",
    b"Content-Length: 3;q=1",
    b"Content-Length: 3\r\nContent-Length: 3",
    b"Content-Length:",
    b"Transfer-Encoding: chunked",
    b"Transfer-Encoding: CHUNKED",
    b"Transfer-Encoding:chunked ",
    b"Transfer-Encoding : chunked",
    b"Transfer-Encoding:\tchunked",
    b"Transfer-Encoding:\x0bchunked",
    b"Transfer-Encoding: chunked\x00",
    b"Transfer-Encoding: chunked, chunked",
    b"Transfer-Encoding: identity",
    b"Transfer-Encoding: gzip, chunked",
    b"Transfer-Encoding: chunked;a=b",
    b'Transfer-Encoding: "chunked"',
    b"Transfer-Encoding: xchunked",
    b"Transfer-Encoding:",
    b"Transfer-Encoding\x00: chunked",
    b"Transfer-Encoding\r\n: chunked",
    b"Connection: close",
    b"Connection: Close",
    b"Connection: keep-alive, close",
    b"Connection: keep-alive",
    b"Connection: close,",
    b"Connection: content-length",
    b"Connection: upgrade\r\nUpgrade: h2c",
    b"Expect: 100-continue",
    b"Expect: 100-Continue",
    b"Expect: 200-ok",
    b"Expect:",
    b"Host: other",
    b"Host: x y",
    b"Host: x/y",
    b"Host: a@b",
    b"Host: x:99999999",
    b"Host:",
    b"Host : x",
    b": no name",
    b"no colon",
    b"a b: space in the name",
    b"a(b): separator",
    b"a\xe9: not ascii",
    b"Proxy-Connection: close",
    b"Trailer: x",
    b"TE: chunked",
    b"X: \xff\xfe",
    b"X: \x01",
    b"X: " + b"y" * 2000,
    b"",
]
_REQUEST_LINES = [
    b"GET / HTTP/1.0",
    b"GET / HTTP/1.2",
    b"GET / HTTP/2.0",
    b"GET / HTTP/0.9",
    b"GET / HTTP/1.1 ",
    b"GET  / HTTP/1.1",
    b"GET\t/ HTTP/1.1",
    b" GET / HTTP/1.1",
    b"GET / http/1.1",
    b"GET / HTTP/1.01",
    b"GET / HTTP/1",
    b"GET / HTTPS/1.1",
    b"GET /",
    b"GET",
    b"get / HTTP/1.1",
    b"GE(T / HTTP/1.1",
    b"G\xc9T / HTTP/1.1",
    b"POST x HTTP/1.1",
    b"POST * HTTP/1.1",
    b"OPTIONS * HTTP/1.1",
    b"CONNECT x:1 HTTP/1.1",
    b"GET /a#b HTTP/1.1",
    b"GET /a?b#c HTTP/1.1",
    b"GET /a\\b HTTP/1.1",
    b"GET /%zz HTTP/1.1",
    b"GET /%2 HTTP/1.1",
    b"GET /.. HTTP/1.1",
    b"GET /a/%2E./b HTTP/1.1",
    b"GET //x/y HTTP/1.1",
    b"GET http://x/ HTTP/1.1",
    b"GET HTTP://x HTTP/1.1",
    b"GET http:///a HTTP/1.1",
    b"GET http://u@x/ HTTP/1.1",
    b"GET ftp://x/ HTTP/1.1",
    b"GET /\x7f HTTP/1.1",
    b"GET /\xe9 HTTP/1.1",
    b"GET /" + b"p" * 9000 + b" HTTP/1.1",
    b"PRI * HTTP/2.0",
]


def _place(raw: bytes, rng: random.Random) -> int:
    """Somewhere in the head, often where the meaning is: at a colon, a line's end, the blanks of the first line."""
    head = max(1, raw.find(b"\r\n\r\n") + 4)
    marks = [at for at in range(min(head, len(raw))) if raw[at : at + 1] in (b":", b"\r", b"\n", b" ", b",")]
    if marks and rng.random() < 0.6:
        return min(len(raw), rng.choice(marks) + rng.randrange(2))
    return rng.randrange(min(len(raw), head) + 1)


def _put(raw: bytes, rng: random.Random) -> bytes:
    at = _place(raw, rng)
    return raw[:at] + rng.choice(_PIECES) + raw[at:]


def _replace(raw: bytes, rng: random.Random) -> bytes:
    at = _place(raw, rng)
    return raw[:at] + rng.choice(_BYTES) + raw[at + 1 :]


def _turn(raw: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(raw))
    return raw[:at] + bytes([raw[at] ^ 1 << rng.randrange(8)]) + raw[at + 1 :]


def _drop(raw: bytes, rng: random.Random) -> bytes:
    at = _place(raw, rng)
    return raw[:at] + raw[at + rng.choice((1, 1, 1, 2, 5)) :]


def _on_lines(change: Callable[[list[bytes], random.Random], None]) -> Callable[[bytes, random.Random], bytes]:
    def changed(raw: bytes, rng: random.Random) -> bytes:
        head, end, rest = raw.partition(b"\r\n\r\n")
        lines = head.split(b"\r\n")
        change(lines, rng)
        return b"\r\n".join(lines) + end + rest

    return changed


def _add_line(lines: list[bytes], rng: random.Random) -> None:
    lines.insert(rng.randrange(1, len(lines) + 1), rng.choice(_LINES))


def _change_line(lines: list[bytes], rng: random.Random) -> None:
    if len(lines) > 1:
        lines[rng.randrange(1, len(lines))] = rng.choice(_LINES)


def _repeat_line(lines: list[bytes], rng: random.Random) -> None:
    lines.insert(rng.randrange(1, len(lines) + 1), rng.choice(lines))


def _remove_line(lines: list[bytes], rng: random.Random) -> None:
    del lines[rng.randrange(len(lines))]


def _swap_lines(lines: list[bytes], rng: random.Random) -> None:
    rng.shuffle(lines)


def _new_request_line(lines: list[bytes], rng: random.Random) -> None:
    lines[:1] = [rng.choice(_REQUEST_LINES)]


def _change_case(lines: list[bytes], rng: random.Random) -> None:
    at = rng.randrange(len(lines))
    lines[at] = rng.choice((bytes.upper, bytes.lower, bytes.swapcase, bytes.title))(lines[at])


def _many_lines(lines: list[bytes], rng: random.Random) -> None:
    lines.extend(b"N%d: v" % n for n in range(rng.choice((40, 95, 99, 100, 101, 150))))


def _line_ends(raw: bytes, rng: random.Random) -> bytes:
    other = rng.choice((b"\n", b"\r", b"\n\r", b"\r\r\n", b"\x0b\n", b"\r\n\r"))
    if rng.random() < 0.5:
        return raw.replace(b"\r\n", other)
    spots = raw.count(b"\r\n")
    parts = raw.split(b"\r\n")
    at = rng.randrange(max(1, spots))
    return b"\r\n".join(parts[: at + 1]) + other + b"\r\n".join(parts[at + 1 :])


def _body(raw: bytes, rng: random.Random) -> bytes:
    head, end, rest = raw.partition(b"\r\n\r\n")
    if not rest:
        return raw + rng.choice(_PIECES)
    at = rng.randrange(len(rest))
    return head + end + rest[:at] + rng.choice(_PIECES) + rest[at + rng.randrange(2) :]


_CHANGES: tuple[Callable[[bytes, random.Random], bytes], ...] = (
    _put,
    _put,
    _replace,
    _replace,
    _turn,
    _drop,
    _on_lines(_add_line),
    _on_lines(_add_line),
    _on_lines(_add_line),
    _on_lines(_change_line),
    _on_lines(_repeat_line),
    _on_lines(_remove_line),
    _on_lines(_swap_lines),
    _on_lines(_new_request_line),
    _on_lines(_change_case),
    _on_lines(_many_lines),
    _line_ends,
    _body,
)


def changed(raw: bytes, rng: random.Random) -> bytes:
    """One to three changes, mostly one."""
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3))):
        raw = rng.choice(_CHANGES)(raw, rng) or b"\r\n"
    return raw


_CHUNK_PIECES = [
    *_PIECES,
    *(b"%x" % n for n in range(17)),
    *(b"0\r\n\r\n", b";", b"0x", b"+1", b"-1", b"_", b"0" * 18, b"f" * 21, b"Content-Length: 1\r\n"),
]


def changed_body(raw: bytes, rng: random.Random) -> bytes:
    """Like `changed`, for a chunked body: most of its sense is where its lines begin and end."""
    marks = [at for at in range(len(raw)) if raw[at] in b"\r\n;:"]
    for _ in range(rng.choice((1, 1, 2))):
        at = rng.choice(marks) + rng.randrange(2) if marks and rng.random() < 0.7 else rng.randrange(len(raw) + 1)
        raw = raw[:at] + rng.choice((b"", rng.choice(_CHUNK_PIECES))) + raw[at + rng.choice((0, 0, 1, 2)) :]
    return raw


def pieces(raw: bytes, rng: random.Random) -> list[bytes]:
    """The same bytes in several reads: at random places, often inside a line end."""
    kind = rng.randrange(4)
    if kind == 0:
        return [raw]
    spots = [
        at for at in range(1, len(raw)) if raw[at - 1 : at + 1] in (b"\r\n", b"\n\r", b"\n\n") or raw[at - 1] == 10
    ]
    chosen = rng.sample(range(1, len(raw)), min(len(raw) - 1, rng.randrange(1, 5))) if len(raw) > 1 else []
    if kind == 1 and spots:
        chosen = rng.sample(spots, min(len(spots), 3))
    cuts = [0, *sorted(chosen), len(raw)]
    return [raw[a:b] for a, b in itertools.pairwise(cuts)]
