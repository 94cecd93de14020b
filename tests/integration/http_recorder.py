"""A pair of ears between a client and a server: bytes pass both ways as they are, requests are kept."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import msgpack


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """One request. `body` is unpacked when it is msgpack."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any


@dataclass(slots=True)
class Recorder:
    """`url` is the server's, through it."""

    target: tuple[str, int]
    _listener: socket.socket = field(default_factory=lambda: socket.create_server(("127.0.0.1", 0)))
    _open: set[socket.socket] = field(default_factory=set)
    _sent: list[bytearray] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def requests(self) -> list[Heard]:
        """What has been asked so far, connection by connection."""
        return [heard for sent in self._sent for heard in _parsed(bytes(sent))]

    def to(self, path: str) -> list[Heard]:
        """The requests to one path."""
        return [heard for heard in self.requests() if heard.path == path]

    def accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(self.target)
                self._open |= {near, far}
                sent = bytearray()
                self._sent.append(sent)
                threading.Thread(target=_pump, args=(near, far, sent), daemon=True).start()
                threading.Thread(target=_pump, args=(far, near, None), daemon=True).start()

    def close(self) -> None:
        for one in (self._listener, *self._open):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()


@contextlib.contextmanager
def recording(url: str) -> Iterator[Recorder]:
    """Listen between a client of `Recorder.url` and the server at `url`."""
    parts = urlsplit(url)
    recorder = Recorder((parts.hostname or "", parts.port or 80))
    thread = threading.Thread(target=recorder.accept, daemon=True)
    thread.start()
    try:
        yield recorder
    finally:
        recorder.close()
        thread.join(60)


def _pump(source: socket.socket, sink: socket.socket, kept: bytearray | None) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            if kept is not None:
                kept += data
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)


def _parsed(data: bytes) -> Iterator[Heard]:
    while b"\r\n\r\n" in data:
        head, _, data = data.partition(b"\r\n\r\n")
        first, *lines = head.decode().split("\r\n")
        method, target, _ = first.split(" ")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        length = int(headers.get("content-length", "0"))
        body: Any = data[:length]
        if len(body) < length:
            return  # the rest is on its way
        data = data[length:]
        if body and headers.get("content-type", "").startswith("application/x-msgpack"):
            body = msgpack.unpackb(body, strict_map_key=False)
        parts = urlsplit(target)
        query = dict(parse_qsl(parts.query))
        yield Heard(method=method, path=parts.path, query=query, headers=headers, body=body)
