"""Thousands of idle workers on one server: what their held polls cost, and how fast work reaches all of them at once.

The workers are bare sockets in this one process: what is measured is the server's. Memory is the server's growth over
its own idle state. The share of a core is taken twice: while nothing happens, and over a whole poll's time, in which
every worker asks once more, as real ones do. The wake is from the sending of one submit with a job for each worker to
the last worker's having its job, so a commit and all the claims are in it.
"""

from __future__ import annotations

import contextlib
import http.client
import resource
import secrets
import select
import socket
import time
from typing import Any
from urllib.parse import urlsplit

import msgpack
from harness import procfs
from harness.given import Given

SPARE_FILES = 64
QUIET_S = 3.0
ROUND_S = 20.0  # a worker's own poll; the server holds none for longer
PATIENCE_S = 30.0
HELD = "lakeshore_parked_polls"
_idle: dict[str, float] = {}


class Workers:
    """`count` of them on `url`, each with a connection."""

    def __init__(self, url: str, count: int, queue: str) -> None:
        self._address = (urlsplit(url).hostname or "", urlsplit(url).port or 0)
        self._queue = queue
        self._n = 0
        self._names: dict[int, str] = {}
        self._socks: dict[int, socket.socket] = {}
        self._poll = select.epoll()
        for number in range(count):
            sock = socket.create_connection(self._address, timeout=PATIENCE_S)
            self._socks[sock.fileno()] = sock
            self._names[sock.fileno()] = f"w-{number}-{secrets.token_hex(4)}"
            self._poll.register(sock, select.EPOLLIN)

    def ask(self) -> None:
        """All poll."""
        self._n += 1
        for fd in self._socks:
            self._ask(fd)

    def _ask(self, fd: int) -> None:
        body = {"worker_id": self._names[fd], "queue": self._queue, "session": "s", "n": self._n, "timeout_s": ROUND_S}
        self._socks[fd].sendall(_request("/v1/daemon/poll", body))

    def answers(self) -> list[bytes]:
        """Wait until every one has its answer."""
        left = set(self._socks)
        found: list[bytes] = []
        deadline = time.monotonic() + PATIENCE_S
        while left:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{len(left)} workers were not answered")
            for fd, _event in self._poll.poll(1.0, len(self._socks)):
                data = self._socks[fd].recv(65536)
                if not data.startswith(b"HTTP/1.1 200"):
                    raise ConnectionError(f"a poll was answered {data[:200]!r}")
                found.append(data)
                left.discard(fd)
        return found

    def stay(self, for_s: float) -> None:
        """Poll again whenever a poll is answered."""
        self._n += 1
        until = time.monotonic() + for_s
        while (rest := until - time.monotonic()) > 0:
            for fd, _event in self._poll.poll(rest):
                self._socks[fd].recv(65536)
                self._ask(fd)

    def close(self) -> None:
        """All leave."""
        for sock in self._socks.values():
            sock.close()
        self._poll.close()


def prepare(given: Given) -> None:
    """Enough files for all the sockets; the server's idle state, after its first requests."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = given.count + SPARE_FILES
    if soft < needed:
        if hard < needed:
            raise SystemExit(f"{needed} open files are needed and the hard limit is {hard}: raise it (ulimit -Hn)")
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
    for _ in range(20):
        _say(
            given.url,
            "/v1/producer/submit",
            {"invocation_id": secrets.token_hex(8), "queue": "nobody", "args_blob": b""},
        )
    time.sleep(1.0)
    _idle["pss_mib"] = procfs.pss_mib([given.extra["pid"]])


def measure(given: Given) -> dict[str, float]:
    """`held_mib` above idle, `held_cpu_percent`, `held_round_cpu_percent`, `held_wake_ms`, `held_wake_cpu_ms`."""
    pid, queue = given.extra["pid"], f"held-{secrets.token_hex(4)}"
    workers = Workers(given.url, given.count, queue)
    with contextlib.closing(workers):
        workers.ask()
        _until_held(given.url, given.count)
        time.sleep(0.5)
        quiet = _cpu_percent(pid, lambda: time.sleep(QUIET_S))
        # in the first repetition only: later there are old jobs in the server's caches, and arenas to reuse
        memory = {"held_mib": procfs.pss_mib([pid]) - _idle.pop("pss_mib")} if _idle else {}
        round_ = _cpu_percent(pid, lambda: workers.stay(ROUND_S + QUIET_S))
        _until_held(given.url, given.count)
        calls = [{"invocation_id": secrets.token_hex(8), "queue": queue, "args_blob": b"x"} for _ in range(given.count)]
        raw = _request("/v1/producer/submit", {"invocations": calls})
        with socket.create_connection((urlsplit(given.url).hostname or "", urlsplit(given.url).port or 0)) as producer:
            used, before = procfs.cpu_s([pid]), time.perf_counter()
            producer.sendall(raw)
            answers = workers.answers()
            woken, used = time.perf_counter() - before, procfs.cpu_s([pid]) - used
        jobs = {command["body"]["invocation_id"] for answer in answers for command in _body(answer)["commands"]}
        if len(jobs) != given.count:
            raise AssertionError(f"{given.count} workers got {len(jobs)} different jobs")
    return {
        "held_cpu_percent": quiet,
        "held_round_cpu_percent": round_,
        "held_wake_ms": woken * 1e3,
        "held_wake_cpu_ms": used * 1e3,
        **memory,
    }


def _cpu_percent(pid: int, during: Any) -> float:
    before, at = procfs.cpu_s([pid]), time.monotonic()
    during()
    return (procfs.cpu_s([pid]) - before) / (time.monotonic() - at) * 100


def _until_held(url: str, count: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while _gauge(url) < count:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{_gauge(url):.0f} of {count} polls are held")
        time.sleep(0.05)


def _gauge(url: str) -> float:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=PATIENCE_S)
    with contextlib.closing(connection):
        connection.request("GET", "/metrics")
        lines = connection.getresponse().read().decode().splitlines()
    return next(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(f"{HELD} "))


def _request(path: str, body: dict[str, Any]) -> bytes:
    data = msgpack.packb(body)
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/x-msgpack\r\n"
    return f"{head}content-length: {len(data)}\r\n\r\n".encode() + bytes(data)


def _body(answer: bytes) -> dict[str, Any]:
    body: dict[str, Any] = msgpack.unpackb(answer.partition(b"\r\n\r\n")[2])
    return body


def _say(url: str, path: str, body: dict[str, Any]) -> None:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=PATIENCE_S)
    with contextlib.closing(connection):
        connection.request("POST", path, msgpack.packb(body), {"Content-Type": "application/x-msgpack"})
        answer = connection.getresponse()
        if answer.status != 200:
            raise ConnectionError(f"{path} was answered {answer.status}: {answer.read()[:200]!r}")
