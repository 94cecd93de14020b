"""What stands between a server and an emulated EC2: it knows a ClientToken again, as EC2 does and the emulation does
not, loses answers, and refuses.
"""

from __future__ import annotations

import contextlib
import http.client
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit


@dataclass(slots=True)
class Front:
    """`loses`: so many of the next answers to RunInstances; `refuses`: error codes of the next ones, one each."""

    url: str = ""
    behind: str = ""
    loses: int = 0
    refuses: list[str] = field(default_factory=list)
    launched: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    front: Front

    def log_message(self, *_: object) -> None:
        """Quiet."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        said = parse_qs(body.decode())
        action, front = said["Action"][0], self.front
        with front.lock:
            front.asked.append(action)
            if action != "RunInstances":
                self._say(*self._behind(body))
                return
            code = front.refuses.pop(0) if front.refuses else None
            if code is not None:
                self._say(503 if code == "RequestLimitExceeded" else 403, _error(code))
                return
            token = said["ClientToken"][0]
            if token not in front.launched:
                front.launched[token] = self._behind(body)
            lost = front.loses > 0
            front.loses -= lost
        if lost:
            self.close_connection = True
            self.connection.close()
        else:
            self._say(*front.launched[token])

    def _behind(self, body: bytes) -> tuple[int, bytes]:
        parts = urlsplit(self.front.behind)
        with contextlib.closing(http.client.HTTPConnection(parts.hostname or "", parts.port)) as connection:
            headers = {name: value for name, value in self.headers.items() if name.lower() != "host"}
            connection.request("POST", self.path, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.read()

    def _say(self, status: int, data: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "text/xml")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def _error(code: str) -> bytes:
    message = f"<Code>{code}</Code><Message>it is {code}</Message>"
    return f"<Response><Errors><Error>{message}</Error></Errors><RequestID>r</RequestID></Response>".encode()


@contextlib.contextmanager
def front_of(behind: str) -> Iterator[Front]:
    """One that answers."""
    front = Front(behind=behind)
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"front": front}))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    front.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield front
    finally:
        server.shutdown()
        thread.join(60)
        server.server_close()
