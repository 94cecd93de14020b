"""A server that answers every request with the same bytes, whatever was asked."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lakeshore.server.openapi import document
from lakeshore.server.routes.table import TABLE

ROOT = Path(__file__).resolve().parents[2]
_LENGTH = re.compile(rb"(?im)^content-length: *(\d+)\r$")


def answered_names() -> tuple[list[str], list[str], list[str]]:
    """The names in our answers that our commands read: all, those of lists, those of objects."""
    every: dict[str, str] = {}

    def walk(schema: Any) -> None:
        if isinstance(schema, dict):
            properties = schema.get("properties")
            for name, inner in properties.items() if isinstance(properties, dict) else ():
                every[name] = every.get(name, "") + str(inner)
            for inner in schema.values():
                walk(inner)
        elif isinstance(schema, list):
            for inner in schema:
                walk(inner)

    walk(document(TABLE, "1"))
    sources = "".join(
        path.read_text("utf-8") for name in ("cli", "client") for path in (ROOT / "lakeshore" / name).rglob("*.py")
    )
    read = [name for name in sorted(every) if f'"{name}"' in sources or f"'{name}'" in sources]
    lists = [name for name in read if "'array'" in every[name]]
    return (
        read,
        lists,
        [name for name in read if name not in lists and ("$ref" in every[name] or "'object'" in every[name])],
    )


def http(body: bytes, status: str = "200 OK", kind: str = "application/json", more: str = "", short: int = 0) -> bytes:
    """An answer; `short` bytes of its body are missing."""
    head = f"HTTP/1.1 {status}\r\ncontent-type: {kind}\r\n{more}content-length: {len(body) + short}\r\n\r\n"
    return head.encode() + body


def told(value: Any) -> bytes:
    """An answer that is this JSON."""
    return http(json.dumps(value).encode())


class LyingServer:
    """`says` is what it answers; `asked` are the first lines of the requests."""

    def __init__(self) -> None:
        self.says = b""
        self.asked: list[str] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"

    def serve(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _answer(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError), connection.makefile("rb") as lines:
            while line := lines.readline():
                self.asked.append(line.decode("latin-1").strip())
                head = b""
                while (field := lines.readline()) not in (b"\r\n", b""):
                    head += field
                length = _LENGTH.search(head)
                lines.read(int(length[1]) if length else 0)
                connection.sendall(self.says)
                if b"connection: close" in self.says:
                    return


@contextlib.contextmanager
def lying() -> Iterator[LyingServer]:
    server = LyingServer()
    thread = threading.Thread(target=server.serve)
    thread.start()
    try:
        yield server
    finally:
        server.close()
        thread.join()
