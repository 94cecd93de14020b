"""A front before any HTTP server: it passes requests on, unless it is to answer one itself, or to lose an answer."""

from __future__ import annotations

import contextlib
import http.client
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

LOST = (0, b"")
"""The request is passed on, and its answer is not."""
Told = tuple[int, bytes] | None
Decide = Callable[[str, str, bytes], Told]


@dataclass
class Front:
    """`decide(method, path, body)` gives the answer to a request; None is the server's own. `most`: at once."""

    url: str = ""
    asked: list[tuple[str, str, bytes]] = field(default_factory=list)
    most: int = 0


@contextlib.contextmanager
def front(url: str, decide: Decide) -> Iterator[Front]:
    """Listen before the server at `url`."""
    made, target = Front(), urlsplit(url).netloc
    lock, inside = threading.Lock(), [0]

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            """Silent."""

        def _pass_on(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            with lock:
                made.asked.append((self.command, self.path, body))
                if self.command == "POST":
                    inside[0] += 1
                    made.most = max(made.most, inside[0])
            try:
                told = decide(self.command, self.path, body)
                status, kind, back = (told[0], "application/json", told[1]) if told else (0, "", b"")
                if told is None or told is LOST:
                    status, kind, back = self._asked(body)
                if told is LOST:
                    self.close_connection = True
                    return
            finally:
                with lock:
                    inside[0] -= self.command == "POST"
            self.send_response_only(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(back)))
            self.end_headers()
            self.wfile.write(back)

        def _asked(self, body: bytes) -> tuple[int, str, bytes]:
            with contextlib.closing(http.client.HTTPConnection(target, timeout=60)) as line:
                line.request(self.command, self.path, body=body, headers=dict(self.headers.items()))
                answer = line.getresponse()
                return answer.status, answer.headers.get("content-type", ""), answer.read()

        do_GET = do_POST = do_PUT = do_DELETE = _pass_on

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    made.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield made
    finally:
        server.shutdown()
        server.server_close()
