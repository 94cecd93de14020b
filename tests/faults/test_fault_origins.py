"""A page of another origin, in a browser on this machine, reads nothing of an open server and changes nothing."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from served import Served, new_id, one, running

QUEUE = "watched"
JSON = "Content-Type: application/json"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with running(tmp_path_factory.mktemp("open")) as served:
        assert served.post("/v1/producer/submit", one(queue=QUEUE, invocation_id="known")).status == 200
        yield served


def say(server: Served, raw: bytes) -> tuple[int, bytes]:
    """Send bytes as they are; the status and all that came back."""
    parts = urlsplit(server.url)
    with socket.create_connection((parts.hostname or "", parts.port or 0), timeout=60) as peer:
        peer.sendall(raw)
        peer.shutdown(socket.SHUT_WR)
        answer = b""
        while data := peer.recv(65536):
            answer += data
    return int(answer.split(b" ", 2)[1]), answer


def request(server: Served, line: str, *headers: str, body: bytes = b"", host: str | None = None) -> bytes:
    named = urlsplit(server.url).netloc if host is None else host
    head = [f"{line} HTTP/1.1", f"Host: {named}", "Connection: close", *headers, f"Content-Length: {len(body)}", "", ""]
    return "\r\n".join(head).encode("latin-1") + body


CALLS = {
    "submit": (
        "POST /v1/producer/submit",
        json.dumps({"invocation_id": "x", "queue": QUEUE, "args_blob": ""}).encode(),
    ),
    "bulk cancel": (f"POST /v1/namespaces/default/invocations/bulk-cancel?queue={QUEUE}", b""),
    "cancel": ("POST /v1/producer/invocations/known/cancel", b""),
    "delete": ("DELETE /v1/namespaces/default/invocations/known", b""),
    "list": ("GET /v1/namespaces/default/invocations", b""),
    "mint": ("POST /v1/namespaces/default/tokens", json.dumps({"name": "stolen"}).encode()),
    "take": ("POST /v1/daemon/poll", json.dumps({"worker_id": "w", "queue": QUEUE, "timeout_s": 0}).encode()),
    "topic": ("GET /v1/producer/queues/q/topics/t/stream", b""),
    "metrics": ("GET /metrics", b""),
}
PAGES = {
    "a foreign page": (None, ["Origin: https://evil.example", "Sec-Fetch-Site: cross-site"]),
    "a foreign page in an old browser": (None, ["Origin: http://evil.example"]),
    "a foreign form": (None, ["Origin: null", "Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate"]),
    "a foreign image": (None, ["Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: no-cors"]),
    "another port of this machine": (None, ["Origin: http://127.0.0.1:1", "Sec-Fetch-Site: same-site"]),
    "a look-alike": (None, ["Origin: http://127.0.0.1.evil.example"]),
    "an origin with our address in its path": (None, ["Origin: http://evil.example/127.0.0.1"]),
    "a name rebound to loopback": ("evil.example", ["Origin: http://evil.example", "Sec-Fetch-Site: same-origin"]),
    "a rebound name with our port": ("evil.example:{port}", ["Sec-Fetch-Site: same-origin"]),
    "a rebound name without a word": ("rebound.evil.example", []),
    "a name that begins as ours": ("localhost.evil.example:{port}", []),
    "a name with our address in it": ("127.0.0.1.nip.io:{port}", []),
    "zeroes": ("0.0.0.0:{port}", ["Origin: http://0.0.0.0:{port}", "Sec-Fetch-Site: same-origin"]),
    "with a made-up token": (
        None,
        ["Origin: https://evil.example", "Sec-Fetch-Site: cross-site", "Authorization: Bearer made-up"],
    ),
    "with a made-up namespace": (None, ["Origin: https://evil.example", "X-LS-Namespace: default"]),
}


@pytest.mark.inventory("S-014")
@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("call", CALLS)
def test_a_page_of_another_origin_is_refused_whatever_it_calls(server: Served, call: str, page: str) -> None:
    port = str(urlsplit(server.url).port)
    (line, body), (host, headers) = CALLS[call], PAGES[page]
    named = None if host is None else host.replace("{port}", port)
    sent = [header.replace("{port}", port) for header in headers]
    for kind in (JSON, "Content-Type: text/plain"):
        status, answer = say(server, request(server, line, kind, *sent, body=body, host=named))
        assert status == 403, answer
        if "Authorization" not in " ".join(sent):
            assert b"access-control-allow-origin" not in answer.lower()
    assert server.get(f"/v1/producer/queues/{QUEUE}/count").body == {"count": 1}
    assert "stolen" not in str(server.get("/v1/namespaces/default/tokens").body)


HOSTS = [
    "[::1].evil.example",
    "[::1",
    "127.0.0.1:80:80",
    "localhost@evil.example",
    "localhost/evil",
    "loc alhost",
    "",
    "[",
]


@pytest.mark.parametrize("host", HOSTS)
def test_a_host_that_is_no_host_is_refused(server: Served, host: str) -> None:
    status, answer = say(server, request(server, "GET /v1/producer/queues", host=host))
    assert status in (400, 403), answer


@pytest.mark.inventory("S-014")
def test_a_preflight_of_a_foreign_page_without_a_token_is_refused(server: Served) -> None:
    asked = ["Origin: https://evil.example", "Access-Control-Request-Method: POST"]
    for names in ("content-type", "content-type, x-ls-namespace", ""):
        wanted = [*asked, *([f"Access-Control-Request-Headers: {names}"] if names else [])]
        status, answer = say(server, request(server, "OPTIONS /v1/producer/submit", *wanted))
        assert status == 403
        assert b"access-control-allow-origin" not in answer.lower()


def test_the_servers_own_page_and_programs_are_let_in(server: Served) -> None:
    own = f"Origin: {server.url}"
    body = json.dumps({"invocation_id": new_id(), "queue": new_id(), "args_blob": ""}).encode()
    for headers in ([own, "Sec-Fetch-Site: same-origin"], []):
        status, answer = say(server, request(server, "POST /v1/producer/submit", JSON, *headers, body=body))
        assert status == 200, answer
