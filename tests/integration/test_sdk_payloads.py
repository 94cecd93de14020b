"""Payloads beside the call, to a server that is older than the route for them, and over a line that changes them."""

from __future__ import annotations

import contextlib
import http.client
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

import msgpack
import pytest
from served import MSGPACK, Served, new_id

from lakeshore.sdk.errors import DispatchError
from lakeshore.sdk.http_dispatch import HttpDispatch

STORE = "/v1/namespaces/default/payloads?"
PRESIGN = "/v1/namespaces/default/payloads/presign"


class Relay:
    """Passes requests on to a server. `old`: as one that has no route for a payload in one exchange. `change`: what
    becomes of a payload on its way up.
    """

    def __init__(self, server: Served, *, old: bool = False, change: Callable[[bytes], bytes] = bytes) -> None:
        self.seen: Counter[str] = Counter()
        relay, to = self, urlsplit(server.url).netloc

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None:
                return

            def pass_on(self) -> None:
                relay.seen[f"{self.command} {self.path.partition('?')[0]}"] += 1
                left = int(self.headers.get("content-length") or 0)
                stores = self.path.startswith(STORE)
                if stores and old:
                    self.answer(404, MSGPACK, msgpack.packb({"error": "no such route", "hint": "not part of this"}))
                    self.close_connection = True
                    self.wfile.flush()
                    self.rfile.read(left)  # closing over unread input would reset the connection under the answer
                    return
                body = self.rfile.read(left)
                with contextlib.closing(http.client.HTTPConnection(to)) as line:
                    headers = {k: v for k, v in self.headers.items() if k.lower() not in ("host", "content-length")}
                    line.request(self.command, self.path, body=change(body) if stores else body, headers=headers)
                    answer = line.getresponse()
                    self.answer(answer.status, answer.headers["content-type"], answer.read())

            def answer(self, status: int, media: str, body: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Type", media)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_POST = do_PUT = pass_on  # as http.server calls them

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self._thread = threading.Thread(target=self._http.serve_forever, daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._http.server_port}"

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


@contextlib.contextmanager
def through(relay: Relay) -> Iterator[HttpDispatch]:
    plane = HttpDispatch(relay.url, timeout=10.0)
    try:
        yield plane
    finally:
        plane.close()
        relay.close()


@pytest.mark.inventory("K-20")
@pytest.mark.parametrize("size", [300_000, 5_000_000])
def test_an_older_server_is_asked_for_a_place_first_and_not_tried_again(server: Served, size: int) -> None:
    relay, queue = Relay(server, old=True), f"q-{new_id()}"
    with through(relay) as plane:
        calls = {plane.submit(queue, data, id=new_id()): data for data in (os.urandom(size) for _ in range(3))}
        for _ in calls:
            job = plane.claim(queue, "w")
            assert job is not None
            assert job.envelope == calls[job.id]
    seen = {asked: count for asked, count in relay.seen.items() if "payloads" in asked and "blobs" not in asked}
    assert seen == {f"POST {STORE[:-1]}": 1, f"POST {PRESIGN}": 3}


def test_a_payload_takes_one_exchange_and_none_of_another_attempt_is_in_its_way(server: Served) -> None:
    relay, queue, inv = Relay(server), f"q-{new_id()}", new_id()
    with through(relay) as plane:
        data, result, other = (os.urandom(size) for size in (300_000, 3_000_000, 400_000))
        assert [plane.submit(queue, data, id=inv) for _ in range(2)] == [inv, inv]
        with pytest.raises(DispatchError, match="refused"):
            plane.submit(queue, other, id=inv)
        job = plane.claim(queue, "w")
        assert job is not None
        assert job.envelope == data
        plane.ack(inv, "w", result=result)
        assert plane.result(inv) == result
    assert relay.seen[f"POST {STORE[:-1]}"] == 4
    assert relay.seen[f"POST {PRESIGN}"] == 0


@pytest.mark.parametrize("change", [lambda data: data[:-1] + bytes([data[-1] ^ 1]), lambda data: data[:-1]])
def test_a_payload_that_is_changed_on_its_way_is_not_submitted(
    server: Served, change: Callable[[bytes], bytes]
) -> None:
    queue = f"q-{new_id()}"
    with (
        through(Relay(server, change=change)) as plane,
        pytest.raises(DispatchError, match="other bytes arrived than were sent"),
    ):
        plane.submit(queue, os.urandom(300_000), id=new_id())
    assert len(server.get(f"/v1/namespaces/default/invocations?queue={queue}").body["invocations"]) == 0


def test_payloads_of_many_threads_at_once_are_each_their_own(server: Served) -> None:
    queue, plane = f"q-{new_id()}", HttpDispatch(server.url)
    calls = {new_id(): os.urandom(500_000 + 150_000 * number) for number in range(16)}
    with ThreadPoolExecutor(16) as threads:
        list(threads.map(lambda inv: plane.submit(queue, calls[inv], id=inv), calls))
    while calls:
        job = plane.claim(queue, "w")
        assert job is not None
        assert job.envelope == calls.pop(job.id)
    plane.close()
