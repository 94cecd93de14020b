"""What the HTTP server refuses, byte by byte."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from http_peer import SOON, serving

from lakeshore.server.http import HttpError, Limits, Request, Response

LIMITS = Limits(max_head=2048, max_target=512, max_headers=10, max_body=1000, max_discard=100)


async def echo(request: Request) -> Response:
    return Response(body=await request.body() + request.path.encode())


def head(*lines: str, end: str = "\r\n\r\n") -> bytes:
    return ("\r\n".join(lines) + end).encode("latin-1")


REFUSED = {
    "both length and transfer encoding": (
        head("POST / HTTP/1.1", "Host: x", "Content-Length: 3", "Transfer-Encoding: chunked"),
        400,
        "both Content-Length and Transfer-Encoding",
    ),
    "bare LF after the request line": (b"GET / HTTP/1.1\nHost: x\r\n\r\n", 400, "bare line feed"),
    "bare LF between headers": (b"GET / HTTP/1.1\r\nHost: x\nA: b\r\n\r\n", 400, "bare line feed"),
    "bare LF everywhere, told at once": (b"GET / HTTP/1.1\nHost: x\n\n", 400, "bare line feed"),
    "bare CR": (b"GET / HTTP/1.1\r\nHost: x\r\nA: b\rc\r\n\r\n", 400, "control character"),
    "NUL in a header": (b"GET / HTTP/1.1\r\nHost: x\r\nA: b\0c\r\n\r\n", 400, "control character"),
    "folded header": (b"GET / HTTP/1.1\r\nHost: x\r\nA: b\r\n c\r\n\r\n", 400, "folded header"),
    "folded with a tab": (b"GET / HTTP/1.1\r\nHost: x\r\nA: b\r\n\tc\r\n\r\n", 400, "folded header"),
    "missing Host": (head("GET / HTTP/1.1", "A: b"), 400, "ost"),
    "two Hosts": (head("GET / HTTP/1.1", "Host: x", "Host: x"), 400, "ost"),
    "Host with a path": (head("GET / HTTP/1.1", "Host: x/y"), 400, "malformed Host"),
    "Host with a user": (head("GET / HTTP/1.1", "Host: a@x"), 400, "malformed Host"),
    "HTTP/0.9": (b"GET /\r\n", 400, "malformed request line"),
    "HTTP/2.0": (head("GET / HTTP/2.0", "Host: x"), 400, "unsupported HTTP version"),
    "HTTP/2 preface": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400, "unsupported HTTP version"),
    "HTTP/1.2": (head("GET / HTTP/1.2", "Host: x"), 400, "unsupported HTTP version"),
    "lower-case version": (head("GET / http/1.1", "Host: x"), 400, "malformed request"),
    "TLS on a plain port": (b"\x16\x03\x01\x02\x00\x01\x00", 400, "malformed request line"),
    "space in a header name": (head("GET / HTTP/1.1", "Host: x", "A b: c"), 400, "illegal header line"),
    "space before the colon": (head("GET / HTTP/1.1", "Host: x", "A : c"), 400, "illegal header line"),
    "space before the length's colon": (
        head("POST / HTTP/1.1", "Host: x", "Content-Length : 3"),
        400,
        "illegal header line",
    ),
    "no colon": (head("GET / HTTP/1.1", "Host: x", "abc"), 400, "illegal header line"),
    "differing lengths": (head("POST / HTTP/1.1", "Host: x", "Content-Length: 3", "Content-Length: 4"), 400, "ontent-"),
    "differing lengths in one": (head("POST / HTTP/1.1", "Host: x", "Content-Length: 3, 4"), 400, "ontent-"),
    "negative length": (head("POST / HTTP/1.1", "Host: x", "Content-Length: -3"), 400, "ontent-"),
    "signed length": (head("POST / HTTP/1.1", "Host: x", "Content-Length: +3"), 400, "ontent-"),
    "hexadecimal length": (head("POST / HTTP/1.1", "Host: x", "Content-Length: 0x3"), 400, "ontent-"),
    "unknown transfer coding": (head("POST / HTTP/1.1", "Host: x", "Transfer-Encoding: gzip"), 501, "ransfer"),
    "chunked twice": (head("POST / HTTP/1.1", "Host: x", "Transfer-Encoding: chunked, chunked"), 501, "ransfer"),
    "two transfer encodings": (
        head("POST / HTTP/1.1", "Host: x", "Transfer-Encoding: chunked", "Transfer-Encoding: chunked"),
        501,
        "ransfer",
    ),
    "chunked in HTTP/1.0": (head("POST / HTTP/1.0", "Transfer-Encoding: chunked"), 400, "HTTP/1.0"),
    "unknown expectation": (head("POST / HTTP/1.1", "Host: x", "Expect: tea"), 417, "unknown expectation"),
    "relative target": (head("GET a/b HTTP/1.1", "Host: x"), 400, "bad request target"),
    "asterisk for GET": (head("GET * HTTP/1.1", "Host: x"), 400, "bad request target"),
    "CONNECT": (head("CONNECT x:80 HTTP/1.1", "Host: x"), 400, "bad request target"),
    "fragment": (head("GET /a#b HTTP/1.1", "Host: x"), 400, "bad request target"),
    "fragment in the query": (head("GET /a?b#c HTTP/1.1", "Host: x"), 400, "bad request target"),
    "backslash": (head("GET /a\\b HTTP/1.1", "Host: x"), 400, "bad request target"),
    "half an escape": (head("GET /a%2 HTTP/1.1", "Host: x"), 400, "bad request target"),
    "bad escape": (head("GET /a%zz HTTP/1.1", "Host: x"), 400, "bad request target"),
    "dot segments": (head("GET /a/../b HTTP/1.1", "Host: x"), 400, "dot segment"),
    "encoded dot segments": (head("GET /a/%2e%2E/b HTTP/1.1", "Host: x"), 400, "dot segment"),
    "trailing dot segment": (head("GET /a/. HTTP/1.1", "Host: x"), 400, "dot segment"),
    "space in the target": (head("GET /a b HTTP/1.1", "Host: x"), 400, "illegal request line"),
    "raw UTF-8 in the target": (head("GET /\xc3\xa9 HTTP/1.1", "Host: x"), 400, "illegal request line"),
    "absolute target of another host": (head("GET http://y/a HTTP/1.1", "Host: x"), 400, "another host"),
    "long target": (head("GET /" + "a" * 600 + " HTTP/1.1", "Host: x"), 414, "target too long"),
    "endless target, told at once": (b"GET /" + b"a" * 3000, 414, "target too long"),
    "large head": (head("GET / HTTP/1.1", "Host: x", "A: " + "b" * 2100), 431, "head too large"),
    "endless head, told at once": (b"GET / HTTP/1.1\r\nHost: x\r\nA: " + b"b" * 3000, 431, "head too large"),
    "many headers": (head("GET / HTTP/1.1", "Host: x", *[f"A{n}: b" for n in range(10)]), 431, "too many headers"),
    "large announced body": (head("POST / HTTP/1.1", "Host: x", "Content-Length: 1001"), 413, "body too large"),
    "large chunked body": (
        head("POST / HTTP/1.1", "Host: x", "Transfer-Encoding: chunked") + b"3e9\r\n" + b"x" * 1001 + b"\r\n0\r\n\r\n",
        413,
        "body too large",
    ),
    "large chunk, told before it comes": (
        head("POST / HTTP/1.1", "Host: x", "Transfer-Encoding: chunked") + b"3e9\r\n",
        413,
        "body too large",
    ),
    "huge chunk behind a small one": (
        head("POST / HTTP/1.1", "Host: x", "Transfer-Encoding: chunked") + b"1\r\nx\r\nffffffffffffffff\r\nx",
        413,
        "body too large",
    ),
    "endless chunk size": (
        head("POST / HTTP/1.1", "Host: x", "Transfer-Encoding: chunked") + b"0" * 5000,
        400,
        "malformed chunked body",
    ),
    "length in a trailer": (
        head("POST / HTTP/1.1", "Host: x", "Transfer-Encoding: chunked") + b"0\r\nContent-Length: 3\r\n\r\n",
        400,
        "malformed chunked body",
    ),
    "bad chunk size": (
        head("POST / HTTP/1.1", "Host: x", "Transfer-Encoding: chunked") + b"zz\r\n",
        400,
        "malformed chunked body",
    ),
    "bad chunk end": (
        head("POST / HTTP/1.1", "Host: x", "Transfer-Encoding: chunked") + b"2\r\nabXX0\r\n\r\n",
        400,
        "malformed chunked body",
    ),
    "bare LF after the last chunk": (
        head("POST / HTTP/1.1", "Host: x", "Transfer-Encoding: chunked") + b"2\r\nab\r\n0\r\n\n",
        400,
        "malformed chunked body",
    ),
    "bare LF after a trailer": (
        head("POST / HTTP/1.1", "Host: x", "Transfer-Encoding: chunked") + b"2\r\nab\r\n0\r\nA: b\n\r\n",
        400,
        "malformed chunked body",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_request_that_readers_could_disagree_about_is_refused_and_the_connection_ends(name: str) -> None:
    raw, status, error = REFUSED[name]
    with serving(echo, limits=LIMITS) as served, served.connect() as peer:
        peer.send(raw)
        answer = peer.answer()
        assert answer.status == status
        assert error in json.loads(answer.body)["error"]
        assert answer.closes
        assert peer.rest() == b""


def test_a_refusal_never_repeats_a_header_that_may_be_a_secret() -> None:
    with serving(echo) as served, served.connect() as peer:
        peer.send(head("GET / HTTP/1.1", "Host: x", "Authorization : Bearer planted-secret"))
        assert b"planted-secret" not in peer.rest()


ACCEPTED = {
    "an empty line before the request": (b"\r\n\r\n" + head("GET /a HTTP/1.1", "Host: x"), b"/a"),
    "an absolute target of this host": (head("GET http://X:80/a?b HTTP/1.1", "Host: x:80"), b"/a"),
    "an absolute target without a path": (head("GET http://x HTTP/1.1", "Host: x"), b"/"),
    "an IPv6 host": (head("GET /a HTTP/1.1", "Host: [::1]:8080"), b"/a"),
    "a dot inside a segment": (head("GET /a/..b/c.d HTTP/1.1", "Host: x"), b"/a/..b/c.d"),
    "equal lengths twice": (
        head("POST / HTTP/1.1", "Host: x", "Content-Length: 2", "Content-Length: 2") + b"ab",
        b"ab/",
    ),
    "Latin-1 in a header": (head("GET /a HTTP/1.1", "Host: x", "A: \xe9"), b"/a"),
    "trailers": (
        head("POST / HTTP/1.1", "Host: x", "Transfer-Encoding: Chunked") + b"2;ext=1\r\nab\r\n0\r\nA: b\r\n\r\n",
        b"ab/",
    ),
    "HTTP/1.0 without a host": (head("GET /a HTTP/1.0"), b"/a"),
}


@pytest.mark.parametrize("name", ACCEPTED)
@pytest.mark.parametrize("piecewise", [False, True])
def test_an_unusual_but_clear_request_is_answered(name: str, piecewise: bool) -> None:
    raw, body = ACCEPTED[name]
    with serving(echo) as served, served.connect() as peer:
        for piece in [bytes([byte]) for byte in raw] if piecewise else [raw]:
            peer.send(piece)
        answer = peer.answer()
        assert (answer.status, answer.body) == (200, body)


def test_one_connection_too_many_is_told_when_to_come_back_and_a_freed_place_is_used_again() -> None:
    with serving(echo, limits=Limits(max_connections=2)) as served:
        first, second = served.connect(), served.connect()
        for peer in (first, second):
            peer.get("/a")
            assert peer.answer().status == 200
        with served.connect() as third:
            third.get("/a")
            answer = third.answer()
            assert (answer.status, answer.headers["retry-after"], answer.closes) == (503, "1", True)
            assert third.rest() == b""
        first.sock.close()
        served.until(lambda: served.server.open_connections == 1)
        with served.connect() as fourth:
            fourth.get("/a")
            assert fourth.answer().status == 200
        second.sock.close()


@pytest.mark.parametrize("connection", ["keep-alive", "close"])
@pytest.mark.parametrize("size", [100_000, 8_000_000])
def test_a_refused_upload_still_gets_its_answer_while_it_is_being_sent(connection: str, size: int) -> None:
    async def refuse(_request: Request) -> Response:
        raise HttpError(401, "no token")

    with serving(refuse) as served, served.connect() as peer:
        peer.send(head("PUT /blob HTTP/1.1", "Host: x", f"Connection: {connection}", f"Content-Length: {size}"))
        for _ in range(10):  # in all more than the sockets hold: the server must read on for this to return
            peer.send(b"x" * (size // 10))
        answer = peer.answer()
        assert answer.status == 401
        assert answer.closes == (connection == "close" or size > Limits().max_discard)
        if answer.closes:
            assert peer.rest() == b""
        else:
            peer.get("/again")
            assert peer.answer().status == 401


def test_a_refused_peer_that_never_ends_is_let_go_when_its_time_is_up() -> None:
    with serving(echo, timers=replace(SOON, linger=0.3)) as served, served.connect() as peer:
        peer.send(b"nonsense\r\n\r\n")
        assert peer.answer().status == 400
        served.until(lambda: served.server.open_connections == 0)
