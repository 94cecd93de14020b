"""Requests and answers over one connection."""

from __future__ import annotations

import http.client
import json
import logging
import shutil
import subprocess
import threading
from collections.abc import AsyncIterator

import pytest
import trio
from http_peer import PATIENCE, serving

from lakeshore.server.http import HttpError, Limits, Request, Response, StreamResponse

TEXT = (("content-type", "text/plain"),)


async def echo(request: Request) -> Response:
    return Response(headers=TEXT, body=await request.body())


def test_a_connection_carries_one_request_after_the_other() -> None:
    with serving(echo) as served:
        client = http.client.HTTPConnection("127.0.0.1", served.port, timeout=PATIENCE)
        for number in range(5):
            client.request("POST", "/", body=b"%d" % number)
            answer = client.getresponse()
            assert (answer.status, answer.read()) == (200, b"%d" % number)
            assert answer.headers["content-type"] == "text/plain"
            assert answer.headers["date"].endswith("GMT")
        assert served.server.open_connections == 1
        client.close()


def test_pipelined_requests_are_answered_in_order_even_when_the_first_is_slow() -> None:
    async def handler(request: Request) -> Response:
        if request.path == "/0":
            await trio.sleep(0.02)
        return Response(body=request.path.encode() + await request.body())

    with serving(handler) as served, served.connect() as peer:
        bodies = [b"", b"a" * 10, b"b" * 100_000, b"c"]
        threading.Thread(
            target=peer.send,
            args=(
                b"".join(
                    b"POST /%d HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%b" % (n, len(b), b)
                    for n, b in enumerate(bodies)
                ),
            ),
        ).start()
        for number, body in enumerate(bodies):
            assert peer.answer().body == b"/%d%b" % (number, body)


def test_requests_pipelined_behind_a_chunked_body_are_answered() -> None:
    with serving(echo) as served, served.connect() as peer:
        chunked = b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
        peer.send(chunked + chunked + b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        assert [peer.answer().body for _ in range(3)] == [b"abcde", b"abcde", b""]


def test_a_small_answer_leaves_in_one_write() -> None:
    with serving(echo) as served, served.connect() as peer:
        peer.post("/", b"hello")
        assert peer.sock.recv(65536).endswith(b"\r\n\r\nhello")


def test_a_client_that_asks_is_told_to_continue_only_when_its_body_is_wanted() -> None:
    wanted = trio.Event()

    async def handler(request: Request) -> Response:
        if request.path == "/no":
            raise HttpError(401, "no token")
        await wanted.wait()
        return Response(body=await request.body())

    ask = b"POST /%b HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 3\r\n\r\n"
    with serving(handler) as served:
        with served.connect() as peer:
            peer.send(ask % b"yes")
            peer.sock.settimeout(0.05)
            with pytest.raises(TimeoutError):
                peer.sock.recv(1)
            peer.sock.settimeout(PATIENCE)
            served.do(wanted.set)
            assert peer.exactly(25) == b"HTTP/1.1 100 Continue\r\n\r\n"
            peer.send(b"abc")
            assert peer.answer().body == b"abc"
            peer.send(ask % b"yes" + b"def")  # it did not wait: nothing to tell it
            assert peer.exactly(12) == b"HTTP/1.1 200"
        with served.connect() as peer:
            peer.send(ask % b"no")
            answer = peer.answer()
            assert (answer.status, answer.closes) == (401, True)
            assert peer.rest() == b""


def test_a_body_too_large_is_refused_before_it_is_asked_for() -> None:
    with serving(echo, limits=Limits(max_body=10)) as served, served.connect() as peer:
        peer.send(b"POST / HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 11\r\n\r\n")
        assert peer.exactly(12) == b"HTTP/1.1 413"


@pytest.mark.parametrize("size", [0, 1, 65_536, 3_000_000])
def test_a_body_of_any_size_comes_back_whole(size: int) -> None:
    data = bytes(range(256)) * (size // 256 + 1)
    data = data[:size]

    def chunks() -> list[bytes]:
        return [data[start : start + 100_000] for start in range(0, size, 100_000)]

    with serving(echo) as served:
        client = http.client.HTTPConnection("127.0.0.1", served.port, timeout=PATIENCE)
        client.request("POST", "/", body=data)
        assert client.getresponse().read() == data
        client.request("POST", "/", body=iter(chunks()), encode_chunked=True, headers={"Transfer-Encoding": "chunked"})
        assert client.getresponse().read() == data
        client.close()


def test_a_streamed_upload_holds_its_sender_back_until_the_handler_takes_it() -> None:
    taken = 0
    go = trio.Event()

    async def handler(request: Request) -> Response:
        nonlocal taken
        async for chunk in request.stream(limit=100_000_000):
            taken += len(chunk)
            await go.wait()
        return Response(body=str(taken).encode())

    size = 50_000_000
    with serving(handler) as served, served.connect() as peer:
        peer.send(b"PUT / HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % size)
        sender = threading.Thread(target=peer.send, args=(bytes(size),))
        sender.start()
        served.until(lambda: taken > 0)
        sender.join(0.1)
        assert sender.is_alive()
        assert taken < 1_000_000
        served.do(go.set)
        assert peer.answer().body == b"%d" % size
        sender.join()


def test_a_streamed_answer_is_chunked_and_its_source_waits_for_the_reader() -> None:
    made = 0
    closed = threading.Event()

    async def pieces() -> AsyncIterator[bytes]:
        nonlocal made
        try:
            yield b""  # an empty piece must not end the stream
            for _ in range(200):
                made += 1
                yield b"x" * 100_000
        finally:
            closed.set()

    async def handler(_request: Request) -> StreamResponse:
        return StreamResponse(headers=TEXT, chunks=pieces())

    with serving(handler) as served, served.connect() as peer:
        peer.get()
        assert peer.exactly(15) == b"HTTP/1.1 200 OK"
        served.until(lambda: made > 0)
        before = -1
        while before != made:  # until it stands still
            before = made
            threading.Event().wait(0.05)
        assert made < 150
        assert not closed.is_set()
        peer._unread = b"HTTP/1.1 200 OK"
        answer = peer.answer()
        assert answer.headers["transfer-encoding"] == "chunked"
        assert len(answer.body) == 20_000_000
        assert closed.wait(PATIENCE)
        peer.get()
        assert peer.exactly(15) == b"HTTP/1.1 200 OK"


def test_an_answer_may_be_made_of_the_body_while_that_arrives() -> None:
    async def doubled(request: Request) -> AsyncIterator[bytes]:
        async for chunk in request.stream():
            yield chunk + chunk

    async def handler(request: Request) -> StreamResponse:
        return StreamResponse(chunks=doubled(request))

    with serving(handler) as served, served.connect() as peer:
        peer.send(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\n\r\nab")
        assert peer.exactly(15) == b"HTTP/1.1 200 OK"
        peer.send(b"cd")
        peer._unread = b"HTTP/1.1 200 OK"
        answer = peer.answer()
        assert (answer.body, answer.closes) == (b"ababcdcd", True)
        assert peer.rest() == b""


def test_a_body_of_thousands_of_tiny_chunks_is_read_whole() -> None:
    async def handler(request: Request) -> Response:
        return Response(body=str(len(await request.body())).encode())

    with serving(handler) as served, served.connect() as peer:
        peer.send(b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n")
        peer.send(b"1\r\nx\r\n" * 5000 + b"0\r\n\r\n")
        assert peer.answer().body == b"5000"


def test_a_stream_of_known_length_says_so_and_must_keep_its_word(caplog: pytest.LogCaptureFixture) -> None:
    async def pieces(*sizes: int) -> AsyncIterator[bytes]:
        for size in sizes:
            yield b"x" * size

    async def handler(request: Request) -> StreamResponse:
        sizes = [int(size) for size in request.query_values("s")]
        return StreamResponse(chunks=pieces(*sizes), content_length=10)

    with serving(handler) as served:
        with served.connect() as peer:
            peer.get("/?s=4&s=6")
            answer = peer.answer()
            assert (answer.headers["content-length"], answer.body) == ("10", b"x" * 10)
            assert not answer.closes
        for path, wrong in (("/?s=4", "shorter"), ("/?s=4&s=60", "longer")):
            caplog.clear()
            with served.connect() as peer:
                peer.get(path)
                assert len(peer.rest().partition(b"\r\n\r\n")[2]) < 10
            assert wrong in caplog.text


def test_a_stream_that_fails_half_way_ends_without_its_last_chunk(caplog: pytest.LogCaptureFixture) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield b"first"
        raise RuntimeError("disk on fire")

    async def handler(_request: Request) -> StreamResponse:
        return StreamResponse(chunks=pieces())

    with serving(handler) as served, served.connect() as peer:
        peer.get()
        raw = peer.rest()
        assert b"first" in raw
        assert not raw.endswith(b"0\r\n\r\n")
        assert "disk on fire" in caplog.text


def test_head_answers_as_get_would_but_without_a_body() -> None:
    ended = threading.Event()

    async def pieces() -> AsyncIterator[bytes]:
        yield b"never"

    async def handler(request: Request) -> Response | StreamResponse:
        if request.path == "/stream":
            chunks = pieces()
            return StreamResponse(chunks=chunks, content_length=5)
        ended.set()
        return Response(body=b"hello")

    with serving(handler) as served, served.connect() as peer:
        for path in ("/", "/stream"):
            peer.get(path, "HEAD")
            answer = peer.answer("HEAD")
            assert (answer.headers["content-length"], answer.body) == ("5", b"")
        peer.get("/")
        assert peer.answer().body == b"hello"


def test_statuses_without_a_body_have_no_length() -> None:
    async def handler(_request: Request) -> Response:
        return Response(status=204)

    with serving(handler) as served, served.connect() as peer:
        peer.get()
        answer = peer.answer()
        assert answer.status == 204
        assert "content-length" not in answer.headers
        peer.get()
        assert peer.answer().status == 204


def test_http_1_0_gets_a_plain_answer_and_the_end() -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield b"a"
        yield b"b"

    async def handler(request: Request) -> Response | StreamResponse:
        return StreamResponse(chunks=pieces()) if request.path == "/stream" else Response(body=b"whole")

    with serving(handler) as served:
        for path, body in (("/", b"whole"), ("/stream", b"ab")):
            with served.connect() as peer:
                peer.send(f"GET {path} HTTP/1.0\r\n\r\n".encode())
                head, _, rest = peer.rest().partition(b"\r\n\r\n")
                assert rest == body
                assert b"chunked" not in head
                assert b"connection: close" in head


def test_a_half_closed_socket_still_gets_its_answer() -> None:
    async def handler(request: Request) -> Response:
        body = await request.body()
        await trio.sleep(0.05)
        return Response(body=body)

    with serving(handler) as served, served.connect() as peer:
        peer.post("/", b"abc")
        peer.sock.shutdown(1)
        assert peer.answer().body == b"abc"
        assert peer.rest() == b""


def test_an_unread_body_is_dropped_when_short_and_ends_the_connection_when_long() -> None:
    async def handler(request: Request) -> Response:
        if request.path == "/half":
            async for _chunk in request.stream():
                break
        return Response(body=request.path.encode())

    with serving(handler, limits=Limits(max_discard=1000)) as served:
        with served.connect() as peer:
            for path in ("/a", "/half"):
                peer.send(b"POST %b HTTP/1.1\r\nhost: x\r\ncontent-length: 900\r\n\r\n" % path.encode() + b"x" * 400)
                answer = peer.answer()
                assert (answer.body, answer.closes) == (path.encode(), False)
                peer.send(b"x" * 500)
            peer.get("/b")
            assert peer.answer().body == b"/b"
        with served.connect() as peer:
            peer.send(b"POST /a HTTP/1.1\r\nhost: x\r\ncontent-length: 1001\r\n\r\n")
            assert peer.answer().closes
        with served.connect() as peer:
            peer.send(b"POST /a HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n5\r\nab")
            assert peer.answer().closes


def test_a_handler_that_fails_is_logged_and_answered_503_never_500(caplog: pytest.LogCaptureFixture) -> None:
    async def handler(request: Request) -> Response:
        if request.path == "/status":
            return Response(status=int(request.query["s"]))
        if request.path == "/split":
            return Response(headers=(("x-a", "b\r\nset-cookie: c"),))
        if request.path == "/framing":
            return Response(headers=(("Content-Length", "3"),), body=b"abcd")
        if request.path == "/nothing":
            return None  # type: ignore[return-value]
        raise RuntimeError("a bug")

    with serving(handler) as served:
        for path in ("/", "/nothing", "/status?s=500", "/status?s=504", "/split", "/framing"):
            caplog.clear()
            with served.connect() as peer:
                peer.get(path)
                answer = peer.answer()
                assert answer.status == 503
                assert json.loads(answer.body)["error"] == "internal error"
                assert "hint" in json.loads(answer.body)
                assert answer.closes
                assert peer.rest() == b""
            assert "Traceback" in caplog.text
            assert caplog.records[-1].levelno == logging.ERROR


def test_a_refusal_is_rendered_by_the_given_function_and_plainly_when_that_fails(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def handler(_request: Request) -> Response:
        raise HttpError(409, "conflict", "id", "look", expected=3, headers=(("x-a", "b"),))

    def render(request: Request | None, error: HttpError) -> Response:
        if request is not None and request.path == "/broken":
            raise RuntimeError("cannot render")
        return Response(status=error.status, body=repr(sorted(error.as_body())).encode(), headers=error.headers)

    with serving(handler, render_error=render) as served, served.connect() as peer:
        peer.get("/")
        answer = peer.answer()
        assert (answer.status, answer.headers["x-a"]) == (409, "b")
        assert answer.body == b"['error', 'expected', 'field', 'hint']"
        peer.get("/broken")
        answer = peer.answer()
        assert json.loads(answer.body) == {"error": "conflict", "field": "id", "hint": "look", "expected": 3}
        assert "cannot render" in caplog.text


def test_a_refusal_raised_inside_the_handlers_own_nursery_is_still_that_refusal() -> None:
    async def refuse() -> None:
        raise HttpError(422, "no")

    async def handler(_request: Request) -> Response:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(refuse)
        return Response()

    with serving(handler) as served, served.connect() as peer:
        peer.get("/")
        assert peer.answer().status == 422


def test_headers_and_query_are_read_as_sent() -> None:
    seen: list[object] = []

    async def handler(request: Request) -> Response:
        seen.extend([request.header("X-A"), request.header("x-b"), request.header("none"), request.target])
        return Response(body=json.dumps([request.query, request.query_values("k")]).encode())

    with serving(handler) as served, served.connect() as peer:
        peer.send(b"GET /p?k=1&k=%C3%A9+x&e= HTTP/1.1\r\nhost: x\r\nx-A: 1\r\nX-B: 2\r\nx-b: 3\r\n\r\n")
        assert json.loads(peer.answer().body) == [{"k": "é x", "e": ""}, ["1", "é x"]]
        assert seen == ["1", "2, 3", None, "/p?k=1&k=%C3%A9+x&e="]
        peer.get("/p?k=%FF")
        assert peer.answer().status == 400


def test_equal_heads_are_separate_requests() -> None:
    async def handler(request: Request) -> Response:
        assert request.params == {}
        request.params["seen"] = "1"
        body = await request.body()
        with pytest.raises(TypeError):
            request.headers[b"host"] = b"y"  # type: ignore[index]
        return Response(body=body)

    with serving(handler) as served, served.connect() as peer:
        for body in (b"aa", b"bb", b"ccc", b"", b"d" * 1234):
            peer.post("/", body)
            assert peer.answer().body == body


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_curl_uploads_and_downloads(tmp_path: object) -> None:
    with serving(echo) as served:
        data = b"x" * 2_000_000
        for options in ([], ["-H", "Transfer-Encoding: chunked"], ["-H", "Expect: 100-continue"]):
            done = subprocess.run(
                [
                    *("curl", "-sS", "--noproxy", "*", "-m", "20", *options, "--data-binary", "@-"),
                    f"http://127.0.0.1:{served.port}/",
                ],
                input=data,
                capture_output=True,
                check=True,
            )
            assert done.stdout == data
