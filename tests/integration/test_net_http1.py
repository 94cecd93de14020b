"""The protocol without I/O: every cut of the bytes gives the same answer, and the short path never differs from h11."""

from __future__ import annotations

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeshore.net.errors import ConnectionLost, NetError, ProtocolViolation
from lakeshore.net.http1 import Exchange, build_request, plain_answer
from lakeshore.net.target import parse_target

TARGET = parse_target("http://lake.example:8787/base")

PLAIN = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n\r\nhello"
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n1;x=y\r\n!\r\n0\r\ntrailer: t\r\n\r\n"
CONTINUED = b"HTTP/1.1 100 Continue\r\n\r\n" + PLAIN
CLOSING = b"HTTP/1.1 409 Conflict\r\nconnection: close\r\ncontent-length: 2\r\n\r\nno"
EMPTY = b"HTTP/1.1 204 No Content\r\n\r\n"
OLD = b"HTTP/1.0 200 OK\r\n\r\nuntil the end"
ANSWERS = [PLAIN, CHUNKED, CONTINUED, CLOSING, EMPTY, OLD]


def outcome(pieces: list[bytes], method: str = "POST", max_body: int = 10_000) -> object:
    exchange = Exchange(TARGET, method, "/v1/x?signature=secret", max_body=max_body)
    try:
        for piece in pieces:
            if not exchange.complete or piece:
                exchange.receive(piece)
    except NetError as error:
        return type(error)
    if not exchange.complete:
        return "incomplete"
    answer = exchange.response()
    return (answer.status, list(answer.headers.raw), answer.body, exchange.reusable)


@st.composite
def cut(draw: st.DrawFn, data: bytes) -> list[bytes]:
    places = sorted(draw(st.sets(st.integers(1, len(data) - 1), max_size=12)))
    return [data[a:b] for a, b in zip([0, *places], [*places, len(data)], strict=True)]


@pytest.mark.parametrize("answer", ANSWERS)
def test_an_answer_split_at_any_one_byte_reads_the_same(answer: bytes) -> None:
    whole = outcome([answer, b""])
    assert isinstance(whole, tuple)
    for place in range(1, len(answer)):
        assert outcome([answer[:place], answer[place:], b""]) == whole
    assert outcome([answer[i : i + 1] for i in range(len(answer))] + [b""]) == whole


@given(st.sampled_from(ANSWERS).flatmap(lambda answer: cut(answer).map(lambda pieces: (answer, pieces))))
def test_an_answer_split_anywhere_reads_the_same(case: tuple[bytes, list[bytes]]) -> None:
    answer, pieces = case
    assert outcome([*pieces, b""]) == outcome([answer, b""])


def by_h11(data: bytes) -> object:
    """The same exchange as h11 alone sees it."""
    conn = h11.Connection(h11.CLIENT, max_incomplete_event_size=64 * 1024)
    conn.send(h11.Request(method="POST", target="/", headers=[("host", "h")]))
    conn.send(h11.EndOfMessage())
    conn.receive_data(data)
    status, headers, body = 0, [], b""
    try:
        while True:
            event = conn.next_event()
            if event is h11.NEED_DATA:
                return "incomplete"
            if isinstance(event, h11.Response):
                status, headers = event.status_code, list(event.headers)
            elif isinstance(event, h11.Data):
                body += bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                reusable = conn.states == {h11.CLIENT: h11.DONE, h11.SERVER: h11.DONE} and not conn.trailing_data[0]
                return (status, headers, body, reusable)
            elif event is h11.PAUSED:
                return ProtocolViolation
    except h11.RemoteProtocolError:
        return ProtocolViolation


line = st.sampled_from(
    [
        b"Content-Length: 3\r\n",
        b"content-length:3\r\n",
        b"Content-Length: 3, 3\r\n",
        b"Content-Length: +3\r\n",
        b"Content-Length: 4\r\n",
        b"Content-Length: 0\r\n",
        b"content-length: 00003 \t\r\n",
        b"Content-Length: 99999999999999999999999\r\n",
        b"Connection: close\r\n",
        b"Connection: keep-alive\r\n",
        b"Upgrade: h2c\r\n",
        b"X-One:\t a b \r\n",
        b"X-Empty:\r\n",
        b"X-High: \xe9\r\n",
        b"X-Bad : 1\r\n",
        b" folded\r\n",
        b"no colon\r\n",
        b"X-Lf: 1\n",
    ]
)
first = st.sampled_from(
    [b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 404 \r\n", b"HTTP/1.1 500\r\n", b"HTTP/1.0 200 OK\r\n", b"HTTP/1.1 204 x\r\n",
     b"HTTP/1.1 304 Not\r\n", b"HTTP/1.1 20 OK\r\n", b"HTTP/2 200 OK\r\n", b"ICY 200 OK\r\n", b"HTTP/1.1 999 Y\r\n"]
)  # fmt: skip


@given(first, st.lists(line, max_size=5), st.sampled_from([b"", b"abc", b"abcd", b"ab"]))
def test_the_short_path_says_what_h11_says(start: bytes, lines: list[bytes], body: bytes) -> None:
    data = start + b"".join(lines) + b"\r\n" + body
    judged = by_h11(data)
    assert outcome([data], max_body=1 << 62) == judged
    at_once = plain_answer(data, max_body=1 << 62)
    if at_once is not None:
        assert isinstance(judged, tuple)
        assert (*at_once, True) == (judged[0], judged[2], judged[3])


def test_a_plain_answer_in_one_piece_is_read_at_once_and_no_other() -> None:
    assert plain_answer(PLAIN, max_body=5) == (200, b"hello")
    for other in (PLAIN[:-1], PLAIN + b"x", PLAIN[:20], b"", *ANSWERS[1:]):
        assert plain_answer(other, max_body=5) is None
    assert plain_answer(PLAIN, max_body=4) is None


def test_bytes_after_an_answer_make_the_connection_unusable() -> None:
    assert outcome([PLAIN + b"HTTP/1.1 200 OK\r\n"])[3] is False  # type: ignore[index]
    assert outcome([PLAIN, b"x"])[3] is False  # type: ignore[index]
    assert outcome([CHUNKED + b"x"])[3] is False  # type: ignore[index]


@pytest.mark.parametrize("answer", [PLAIN, CHUNKED])
def test_a_truncated_answer_is_a_lost_connection_at_every_byte(answer: bytes) -> None:
    for place in range(len(answer)):
        pieces = [answer[:place], b""] if place else [b""]
        assert outcome(pieces) is ConnectionLost


def test_a_lost_connection_says_whether_part_of_an_answer_had_come() -> None:
    for pieces, received in ([[b""], False], [[b"H", b""], True]):
        exchange = Exchange(TARGET, "GET", "/v1/x?signature=secret")
        with pytest.raises(ConnectionLost) as caught:
            for piece in pieces:
                exchange.receive(piece)
        assert caught.value.received_anything is received
        assert caught.value.sent_anything
        assert "http://lake.example:8787/base/v1/x" in str(caught.value)
        assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\n" + b"x-big: " + b"a" * 300_000 + b"\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 50_000 + b"content-length: 0\r\n\r\n",
        b"HTTP/1.1 102 P\r\n\r\n" * 50,
        b"a" * 200_000,
        b"HTTP/1.1 101 Switching\r\nupgrade: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 10001\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 10001\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + b"800\r\n" + (b"a" * 0x800 + b"\r\n800\r\n") * 6,
    ],
)
def test_an_answer_beyond_all_bounds_or_form_is_refused(answer: bytes) -> None:
    assert outcome([answer]) is ProtocolViolation
    assert outcome([answer[i : i + 1000] for i in range(0, len(answer), 1000)]) is ProtocolViolation


def test_an_answer_to_head_has_no_body_whatever_its_length_says() -> None:
    result = outcome([b"HTTP/1.1 200 OK\r\ncontent-length: 999999999\r\n\r\n"], method="HEAD")
    assert result == (200, [(b"content-length", b"999999999")], b"", True)


def test_a_request_is_one_head_with_host_prefix_and_length() -> None:
    head = build_request(TARGET, "POST", "/v1/x?a=b", {"authorization": "Bearer t"}, content_length=7)
    assert head == (
        b"POST /base/v1/x?a=b HTTP/1.1\r\nhost: lake.example:8787\r\n"
        b"authorization: Bearer t\r\ncontent-length: 7\r\n\r\n"
    )
    assert b"content-length" not in build_request(TARGET, "GET", "/", has_body=False)
    assert b"transfer-encoding: chunked" in build_request(TARGET, "PUT", "/", content_length=None)
    assert build_request(TARGET, "GET", "/", {"Host": "other"}).count(b"ost: ") == 1


@given(st.text(max_size=20), st.text(max_size=20))
def test_a_header_that_is_sent_arrives_as_exactly_one_header(name: str, value: str) -> None:
    try:
        head = build_request(TARGET, "GET", "/", {name: value}, has_body=False)
    except ValueError:
        return
    server = h11.Connection(h11.SERVER)
    server.receive_data(head)
    request = server.next_event()
    assert isinstance(request, h11.Request)
    others = [pair for pair in request.headers if pair[0] != b"host"]
    if name.lower() != "host":
        assert others == [(name.lower().encode(), value.strip(" \t").encode("latin-1"))]


@pytest.mark.parametrize(
    ("method", "path", "headers"),
    [
        ("get", "/", {}),
        ("CONNECT", "/", {}),
        ("GET", "no-slash", {}),
        ("GET", "/a b", {}),
        ("GET", "/a\r\nx: y", {}),
        ("GET", "/é", {}),
        ("GET", "/a#b", {}),
        ("GET", "/", {"x": "a\r\ny: b"}),
        ("GET", "/", {"x": "a\nb"}),
        ("GET", "/", {"x": "\u20ac"}),
        ("GET", "/", {"": "a"}),
        ("GET", "/", {"Content-Length": "1"}),
        ("GET", "/", {"transfer-encoding": "chunked"}),
        ("GET", "/", {"Connection": "close"}),
    ],
)
def test_a_request_that_could_be_framed_in_two_ways_is_refused(method: str, path: str, headers: dict[str, str]) -> None:
    with pytest.raises(ValueError):
        build_request(TARGET, method, path, headers)
