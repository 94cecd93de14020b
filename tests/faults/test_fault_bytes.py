"""Hostile bytes against the running server: smuggled requests are not run, slow heads cost nobody else anything."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from served import Served, new_id, one, running

HEAD_S = 10.0
"""What the server gives a request's head."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with running(tmp_path_factory.mktemp("bytes")) as served:
        yield served
        assert served.stop() == 0
        assert "Traceback" not in served.said()


def connect(server: Served) -> socket.socket:
    parts = urlsplit(server.url)
    return socket.create_connection((parts.hostname or "", parts.port or 0), timeout=60)


def everything(peer: socket.socket) -> bytes:
    answer = b""
    try:
        while data := peer.recv(65536):
            answer += data
    except ConnectionResetError:
        pass  # it closed while we were still sending
    return answer


def post(queue: str, *headers: bytes, body: bytes | None = None) -> bytes:
    """A submit; with `headers` in place of Content-Length, and `body` in place of its own."""
    own = json.dumps({"invocation_id": new_id(), "queue": queue, "args_blob": ""}).encode()
    lines = headers or (b"Content-Length: %d" % len(own),)
    head = [b"POST /v1/producer/submit HTTP/1.1", b"Host: localhost", b"Content-Type: application/json", *lines]
    return b"\r\n".join([*head, b"", b""]) + (own if body is None else body)


def smuggled(queue: str) -> dict[str, bytes]:
    """What two readers of HTTP may see as one request or as two; the second would submit to `queue`."""
    hidden = post(queue)
    chunked = b"Transfer-Encoding: chunked"
    length = b"Content-Length: 4"
    end = b"0\r\n\r\n"
    return {
        "length and chunked": post("x", length, chunked, body=end + hidden),
        "chunked and length": post("x", chunked, length, body=end + hidden),
        "chunked with a space before the colon": post("x", length, b"Transfer-Encoding : chunked", body=end + hidden),
        "chunked behind a tab": post("x", length, b"Transfer-Encoding:\tchunked", body=end + hidden),
        "chunked behind a vertical tab": post("x", length, b"Transfer-Encoding:\x0bchunked", body=end + hidden),
        "chunked in capitals and identity": post("x", b"Transfer-Encoding: identity, CHUNKED", body=end + hidden),
        "chunked, misspelt": post("x", b"Transfer-Encoding: xchunked", body=end + hidden),
        "two lengths": post("x", b"Content-Length: 0", b"Content-Length: 9", body=hidden),
        "a signed length": post("x", b"Content-Length: +0", body=hidden),
        "a long length": post("x", b"Content-Length: " + b"9" * 40, body=hidden),
        "an underlined length": post("x", b"Content-Length: 1_0", body=hidden),
        "a folded length": post("x", b"Content-Length:\r\n 0", body=hidden),
        "a length behind a bare CR": post("x", b"A: b\rContent-Length: 0", body=hidden),
        "a length behind a bare LF": post("x", b"A: b\nContent-Length: 0", body=hidden),
        "a chunk of a signed size": post("x", chunked, body=b"+0\r\n\r\n" + hidden),
        "a chunk of a huge size": post("x", chunked, body=b"f" * 20 + b"\r\n" + hidden),
        "a chunk size that is too long": post("x", chunked, body=b"f" * 40 + b"\r\n" + hidden),
        "a chunk with a bare LF": post("x", chunked, body=b"0\n\n" + hidden),
        "a chunk size of 0x0": post("x", chunked, body=b"0x0\r\n\r\n" + hidden),
        "a chunk longer than it says": post("x", chunked, body=b"1\r\n{}\r\n" + end + hidden),
        "a trailer that is a request": post("x", chunked, body=b"0\r\n" + hidden + b"\r\n"),
        "garbage first": b"\x16\x03\x01\x00" + hidden,
        "half a request line first": b"POST /v1/producer/submit" + hidden,
        "no Host": hidden.replace(b"Host: localhost\r\n", b""),
        "two Hosts": hidden.replace(b"Host: localhost", b"Host: localhost\r\nHost: evil.example"),
        "an absolute target of another host": hidden.replace(b"POST /", b"POST http://evil.example/"),
        "a NUL in a header": hidden.replace(b"Host: localhost", b"Host: localhost\r\nA: \0"),
    }


@pytest.mark.parametrize("name", smuggled("x"))
def test_a_smuggled_request_is_answered_once_with_a_refusal_and_never_run(server: Served, name: str) -> None:
    queue = f"q-{new_id()}"
    with connect(server) as peer:
        peer.sendall(smuggled(queue)[name])
        peer.shutdown(socket.SHUT_WR)
        answer = everything(peer)
    assert server.get(f"/v1/producer/queues/{queue}/count").body == {"count": 0}
    assert answer.count(b"HTTP/1.1 ") == 1, answer
    assert answer.split(b" ", 2)[1] in (b"400", b"501", b"413", b"403"), answer
    assert b"onnection: close" in answer


def test_what_was_pipelined_before_garbage_is_answered_and_what_comes_after_is_not_run(server: Served) -> None:
    before, after = f"q-{new_id()}", f"q-{new_id()}"
    with connect(server) as peer:
        peer.sendall(post(before) + post(before) + b"\x00garbage\r\n\r\n" + post(after))
        answer = everything(peer)
    assert [part.split(b" ", 1)[0] for part in answer.split(b"HTTP/1.1 ")[1:]] == [b"200", b"200", b"400"]
    assert server.get(f"/v1/producer/queues/{before}/count").body == {"count": 2}
    assert server.get(f"/v1/producer/queues/{after}/count").body == {"count": 0}


def test_a_submit_whose_client_left_counts_when_it_had_come_whole(server: Served) -> None:
    queue = f"q-{new_id()}"
    whole = post(queue)
    for cut in range(1, len(whole), 9):
        with connect(server) as peer:
            peer.sendall(whole[:cut])
    assert server.get(f"/v1/producer/queues/{queue}/count").body == {"count": 0}
    token = (server.state_dir / "admin.token").read_text().strip()  # whose a closed socket was, nobody can tell
    with connect(server) as peer:
        peer.sendall(whole.replace(b"\r\n\r\n", f"\r\nAuthorization: Bearer {token}\r\n\r\n".encode(), 1))
    deadline = time.monotonic() + 60
    while server.get(f"/v1/producer/queues/{queue}/count").body != {"count": 1}:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_slow_heads_and_bodies_are_let_go_and_nobody_waits_for_them(server: Served) -> None:
    """Forty peers that drip a byte now and then: others are answered at once, and each of them is told 408."""
    queue = f"q-{new_id()}"
    whole = post(queue)
    peers = [connect(server) for _ in range(40)]
    began = time.monotonic()
    sent, slowest = 0, 0.0
    try:
        while time.monotonic() - began < HEAD_S + 2.0:
            if time.monotonic() - began < HEAD_S / 2:  # the last of it is long there when its time is up
                for peer in peers:
                    peer.sendall(whole[sent : sent + 1])
                sent += 1
            asked = time.monotonic()
            assert server.post("/v1/producer/submit", one()).status == 200
            slowest = max(slowest, time.monotonic() - asked)
            time.sleep(0.5)
        assert slowest < HEAD_S - 1.0, "it waited for one of them"
        for peer in peers:
            answer = everything(peer)
            assert answer.startswith(b"HTTP/1.1 408"), answer
    finally:
        for peer in peers:
            peer.close()
    assert server.get(f"/v1/producer/queues/{queue}/count").body == {"count": 0}


def test_a_client_that_has_ended_its_own_side_still_gets_its_whole_answer(server: Served) -> None:
    """Small and large ones, with and without a body; a poll that would be held is answered at once instead."""
    presign = "/v1/namespaces/default/payloads/presign"
    blob = b"\x5a" * 6_000_000
    put = server.post(presign, {"op": "put", "size": len(blob), "jobId": new_id(), "kind": "args"}).body
    got = {"op": "get", "key": put["key"]}
    queue = f"q-{new_id()}"
    poll = json.dumps({"worker_id": "w", "queue": queue, "session": "s", "n": 1, "timeout_s": 20}).encode()
    head = "{} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n"

    def said(line: str, body: bytes = b"") -> bytes:
        with connect(server) as peer:
            peer.sendall(head.format(line, len(body)).encode() + body)
            peer.shutdown(socket.SHUT_WR)
            return everything(peer)

    assert said("GET /healthz").startswith(b"HTTP/1.1 200")
    with connect(server) as peer:
        peer.sendall(post(queue))
        peer.shutdown(socket.SHUT_WR)
        assert everything(peer).startswith(b"HTTP/1.1 200")
    assert said(f"PUT {put['url']}", blob).startswith(b"HTTP/1.1 201")
    answer = said(f"GET {server.post(presign, got).body['url']}")
    assert answer.startswith(b"HTTP/1.1 200")
    assert answer.endswith(b"\r\n\r\n" + blob)
    began = time.monotonic()
    assert said("POST /v1/daemon/poll", poll.replace(queue.encode(), b"empty")).startswith(b"HTTP/1.1 200")
    assert time.monotonic() - began < HEAD_S
    assert server.get(f"/v1/producer/queues/{queue}/count").body == {"count": 1}
