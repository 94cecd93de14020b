"""A proxy on loopback that cuts a connection after a number of bytes, in either direction."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

NEVER = 1 << 60


@dataclass(slots=True)
class Cutter:
    """`up` and `down` bytes pass of each connection, then it is reset at both ends; after `most` cuts all passes.

    Change them at any time.
    """

    target: tuple[str, int]
    up: int = NEVER
    down: int = NEVER
    most: int = NEVER
    cuts: int = 0
    _listener: socket.socket = field(default_factory=lambda: socket.create_server(("127.0.0.1", 0)))
    _open: set[socket.socket] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def accept(self) -> None:
        """Until the listener is closed."""
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(self.target)
                with self._lock:
                    self._open |= {near, far}
                for source, sink, name in ((near, far, "up"), (far, near, "down")):
                    threading.Thread(target=self._carry, args=(source, sink, name), daemon=True).start()

    def _carry(self, source: socket.socket, sink: socket.socket, name: str) -> None:
        passed = 0
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                left = (getattr(self, name) if self.cuts < self.most else NEVER) - passed
                sink.sendall(data[: max(left, 0)])
                passed += len(data)
                if len(data) > left:
                    with self._lock:
                        self.cuts += 1
                    break
        self._reset(source, sink)

    def _reset(self, *ends: socket.socket) -> None:
        for end in ends:
            with contextlib.suppress(OSError):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                end.shutdown(socket.SHUT_RDWR)  # ends a recv of the other direction
            end.close()
            with self._lock:
                self._open.discard(end)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._reset(*list(self._open))


@contextlib.contextmanager
def cutting(host: str, port: int) -> Iterator[Cutter]:
    """A cutter in front of an address; nothing is cut yet."""
    cutter = Cutter((host, port))
    thread = threading.Thread(target=cutter.accept, daemon=True)
    thread.start()
    try:
        yield cutter
    finally:
        cutter.close()
        thread.join(60)
