"""Between a daemon and its server: every exchange is kept, and either side may be told something else than was said.

    with between(server.url) as ears:                                # nothing is changed, so signatures hold
        ...
    with between(server.url, asked=older_body, answered=newer_answer, unknown=("/v1/daemon/event",)) as ears:
        ...                                                          # two versions that know less and more

`asked(path, body)` and `answered(path, body)` give the body that is passed on. `unknown` are the beginnings of paths
that the server is taken not to have.
"""

from __future__ import annotations

import contextlib
import http.client
import select
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

import msgpack

MSGPACK = "application/x-msgpack"
Change = Callable[[str, Any], Any]
NO_ROUTE = msgpack.packb({"error": "no such route"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """One request and its answer as they were said, decoded where they are msgpack. `path` has its query."""

    path: str
    request: Any
    status: int
    answer: Any


@dataclass
class Ears:
    """What was heard so far."""

    url: str = ""
    heard: list[Exchange] = field(default_factory=list)

    def to(self, path: str) -> list[Exchange]:
        return [one for one in list(self.heard) if urlsplit(one.path).path == path]

    def commands(self, kind: str) -> list[dict[str, Any]]:
        """The commands of one kind that polls were answered with."""
        polls = [one for one in self.to("/v1/daemon/poll") if one.status == 200]
        return [command for one in polls for command in one.answer["commands"] if command["kind"] == kind]


@contextlib.contextmanager
def between(
    url: str, *, asked: Change | None = None, answered: Change | None = None, unknown: tuple[str, ...] = ()
) -> Iterator[Ears]:
    """Listen between a daemon of `Ears.url` and the server at `url`."""
    ears, target = Ears(), urlsplit(url).netloc

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def _pass_on(self) -> None:
            data = self.rfile.read(int(self.headers.get("content-length") or 0))
            said = _decoded(data, self.headers.get("content-type"))
            if asked is not None and isinstance(said, dict):
                data = msgpack.packb(asked(self.path, said))
            status, kind, back = 404, MSGPACK, NO_ROUTE
            if not self.path.startswith(unknown or ("-",)):
                found = _asked(target, self, data)
                if found is None:
                    self.close_connection = True  # who asked does not wait any more
                    return
                status, kind, back = found
            told = _decoded(back, kind)
            if answered is not None and isinstance(told, dict):
                back = msgpack.packb(answered(self.path, told))
            ears.heard.append(Exchange(path=self.path, request=said, status=status, answer=told))
            with contextlib.suppress(OSError):
                self.send_response_only(status)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(back)))
                self.end_headers()
                self.wfile.write(back)

        do_GET = do_POST = do_PUT = _pass_on

    class Quiet(ThreadingHTTPServer):
        def handle_error(self, request: Any, client_address: Any) -> None:
            if not isinstance(sys.exc_info()[1], OSError):  # a side that was killed is no news
                super().handle_error(request, client_address)

    server = Quiet(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    ears.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield ears
    finally:
        server.shutdown()
        server.server_close()
        thread.join(60)


def _asked(target: str, request: BaseHTTPRequestHandler, data: bytes) -> tuple[int, str, bytes] | None:
    """The server's answer; None when whoever asked has hung up, and then the server is hung up on as well."""
    line = http.client.HTTPConnection(target, timeout=60)
    try:
        headers = {name: value for name, value in request.headers.items() if name.lower() != "content-length"}
        line.request(request.command, request.path, body=data, headers=headers)
        ready, _, _ = select.select([line.sock, request.connection], [], [], 60)
        if line.sock not in ready:
            return None
        answer = line.getresponse()
        return answer.status, answer.headers.get("content-type", ""), answer.read()
    finally:
        line.close()


def _decoded(data: bytes, kind: str | None) -> Any:
    return msgpack.unpackb(data, strict_map_key=False) if data and (kind or "").startswith(MSGPACK) else data
