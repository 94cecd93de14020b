"""A raw socket server that does exactly what a test's script says, and counts what reached it."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from lakeshore.net.target import Target, parse_target


class Served:
    """The server's end of one connection."""

    def __init__(self, sock: socket.socket, server: ScriptedServer, number: int) -> None:
        self.sock = sock
        self.server = server
        self.number = number
        self._buffer = b""

    def read_head(self) -> bytes:
        """A request's head, or b"" when the client has closed."""
        while b"\r\n\r\n" not in self._buffer:
            data = self.sock.recv(65536)
            if not data:
                return b""
            self._buffer += data
        head, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
        with self.server.lock:
            self.server.heads.append(head)
        return head

    def read_request(self) -> tuple[bytes, bytes] | None:
        """(head, body) of a request with a Content-Length or none; None when the client has closed."""
        head = self.read_head()
        if not head:
            return None
        length = 0
        for line in head.split(b"\r\n")[1:]:
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        while len(self._buffer) < length:
            data = self.sock.recv(65536)
            if not data:
                return None
            self._buffer += data
        body, self._buffer = self._buffer[:length], self._buffer[length:]
        return head, body

    def answer(self, body: bytes = b"ok", status: str = "200 OK", extra: bytes = b"") -> None:
        self.sock.sendall(b"HTTP/1.1 %b\r\n%bcontent-length: %d\r\n\r\n%b" % (status.encode(), extra, len(body), body))

    def echo_for_ever(self) -> None:
        while (request := self.read_request()) is not None:
            self.answer(request[1] or b"ok")

    def wait_for_close(self) -> None:
        """Return when the client has closed its end."""
        while self.sock.recv(65536):
            pass


class ScriptedServer:
    """`target` is where it listens, `connections` and `heads` what it has seen."""

    def __init__(self, script: Callable[[Served], None], context: ssl.SSLContext | None, host: str) -> None:
        self.script = script
        self.lock = threading.Lock()
        self.heads: list[bytes] = []
        self.connections = 0
        self.ended = 0
        self.open_now = 0
        self.most_open = 0
        self._socks: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._context = context
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, 0), family=family, backlog=200)
        self.port: int = self._listener.getsockname()[1]
        shown = f"[{host}]" if ":" in host else host
        self.url = f"{'https' if context else 'http'}://{shown}:{self.port}"
        self.target: Target = parse_target(self.url)
        self._acceptor = threading.Thread(target=self._accept, daemon=True)
        self._acceptor.start()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            with self.lock:
                self.connections += 1
                self.open_now += 1
                self.most_open = max(self.most_open, self.open_now)
                thread = threading.Thread(target=self._serve, args=(sock, self.connections), daemon=True)
                self._threads.append(thread)
                self._socks.append(sock)
            thread.start()

    def _serve(self, sock: socket.socket, number: int) -> None:
        try:
            if self._context is not None:
                sock = self._context.wrap_socket(sock, server_side=True)
                with self.lock:
                    self._socks.append(sock)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.script(Served(sock, self, number))
        except OSError:
            pass  # the client left, which many scripts are about
        finally:
            sock.close()
            with self.lock:
                self.open_now -= 1
                self.ended += 1

    def closed(self, count: int) -> None:
        """Wait until `count` connections have ended."""
        eventually(lambda: self.ended >= count)

    def stop(self) -> None:
        # shutdown wakes a thread that waits in accept; close alone does not
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._acceptor.join(60)
        for sock in self._socks:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive(), "a scripted connection did not end"


@contextmanager
def scripted(
    script: Callable[[Served], None], *, context: ssl.SSLContext | None = None, host: str = "127.0.0.1"
) -> Iterator[ScriptedServer]:
    server = ScriptedServer(script, context, host)
    try:
        yield server
    finally:
        server.stop()


def eventually(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    """Poll with a deadline, for what another process or thread is about to do."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "did not come true in time"
        time.sleep(0.002)
