"""What the machine itself costs: one sync of the disk, one exchange over loopback, one SQLite commit.

Figures of the tools stand beside these: a durable submit cannot be faster than the disk's sync.
"""

from __future__ import annotations

import os
import socket
import sqlite3
import statistics
import tempfile
import threading
import time
from pathlib import Path

from .given import Given

MESSAGE = b"x" * 256


def measure(given: Given) -> dict[str, float]:
    """`fsync_ms`, `loopback_ms` (256 bytes there and back, blocking sockets, two threads), `commit_s` (commits/s)."""
    with tempfile.TemporaryDirectory(dir=given.directory) as directory:
        return {
            "fsync_ms": _fsync_ms(Path(directory), given.count),
            "commit_s": _commits_s(Path(directory), given.count),
            "loopback_ms": _loopback_ms(given.count * 5),
        }


def _fsync_ms(directory: Path, count: int) -> float:
    took: list[float] = []
    page = b"\0" * 4096
    fd = os.open(directory / "sync", os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        for i in range(count):
            os.pwrite(fd, page, i * 4096)
            before = time.perf_counter()
            os.fdatasync(fd)
            took.append((time.perf_counter() - before) * 1e3)
    finally:
        os.close(fd)
    return statistics.median(took)


def _commits_s(directory: Path, count: int) -> float:
    conn = sqlite3.connect(directory / "commits.db", isolation_level=None)
    conn.execute("PRAGMA journal_mode=WAL")
    conn.execute("PRAGMA synchronous=FULL")
    conn.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, data BLOB)")
    before = time.perf_counter()
    for _ in range(count):
        conn.execute("BEGIN IMMEDIATE")
        conn.execute("INSERT INTO t (data) VALUES (?)", (MESSAGE,))
        conn.execute("COMMIT")
    took = time.perf_counter() - before
    conn.close()
    return count / took


def _loopback_ms(count: int) -> float:
    listener = socket.create_server(("127.0.0.1", 0))

    def echo() -> None:
        server, _ = listener.accept()
        with server:
            server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while data := server.recv(65536):
                server.sendall(data)

    thread = threading.Thread(target=echo, daemon=True)
    thread.start()
    took: list[float] = []
    with socket.create_connection(listener.getsockname()) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(count):
            before = time.perf_counter()
            client.sendall(MESSAGE)
            client.recv(65536)
            took.append((time.perf_counter() - before) * 1e3)
    thread.join(5)
    listener.close()
    return statistics.median(took)
