"""The other end of `Storage`: the documented storage routes, and a store that takes signed URLs only, as S3 does.

What is here answers as the pages say and as the test says, and keeps what it was asked. A real control plane and a real
store are in test_storage_sdk.py.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

SIGNATURE = "X-Amz-Signature=0123456789abcdef"


@dataclass(slots=True)
class Store:
    """`objects` by whole key, `asked` as (path, headers, body) of each request to a storage route."""

    url: str = ""
    objects: dict[str, bytes] = field(default_factory=dict)
    asked: list[tuple[str, dict[str, str], dict[str, Any]]] = field(default_factory=list)
    moved: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    expired: bool = False
    answer: tuple[int, dict[str, Any]] | None = None


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    store: Store

    def log_message(self, *_: object) -> None:
        """Quiet."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.store.asked.append((self.path, {k.lower(): v for k, v in self.headers.items()}, body))
        if self.store.answer is not None:
            self._say(self.store.answer[0], json.dumps(self.store.answer[1]).encode())
            return
        *_, name, verb = self.path.split("/")
        if name != "my-data":
            self._say(404, b'{"error": "storage not found"}')
        elif verb == "presign":
            key = f"prefix/{body['key']}"
            url = f"{self.store.url}/bucket/{quote(key)}?op={body['operation']}&{SIGNATURE}"
            self._say(200, json.dumps({"url": url, "key": key}).encode())
        else:
            told = {"accessKeyId": "AKIA1", "secretAccessKey": "s3cret", "sessionToken": "t0ken", "region": "eu-1"}
            self._say(200, json.dumps({**told, "expiration": "2030-01-01T00:00:00Z"}).encode())

    def do_GET(self) -> None:
        key = self._signed("get")
        if key is not None:
            content = self.store.objects.get(key)
            self._say(*((404, b"<Code>NoSuchKey</Code>") if content is None else (200, content)))

    def do_PUT(self) -> None:
        key = self._signed("put")
        if "chunked" in self.headers.get("Transfer-Encoding", ""):
            self.close_connection = True
            self._say(501, b"<Code>NotImplemented</Code>")
            return
        content = self.rfile.read(int(self.headers["Content-Length"]))
        if key is not None:
            self.store.objects[key] = content
            self._say(200, b"")

    def _signed(self, operation: str) -> str | None:
        parts = urlsplit(self.path)
        self.store.moved.append((self.command, {k.lower(): v for k, v in self.headers.items()}))
        if SIGNATURE not in parts.query or parse_qs(parts.query)["op"] != [operation] or self.store.expired:
            self._say(403, b"<Code>AccessDenied</Code>")
            return None
        return unquote(parts.path).removeprefix("/bucket/")

    def _say(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextlib.contextmanager
def storing() -> Iterator[Store]:
    """A store with one entry, `my-data`, in every namespace."""
    store = Store()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"store": store}))
    store.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield store
    finally:
        server.shutdown()
        thread.join(60)
        server.server_close()
