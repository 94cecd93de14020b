"""Very many clients, and clients that take no answer: everybody else is served, and when they leave nothing remains."""

from __future__ import annotations

import contextlib
import random
import resource
import select
import socket
import struct
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

import msgpack
import pytest
import vitals
from mutations import MSGPACK
from served import Served, new_id, one, running

from lakeshore import wire

POLLS = 2000
CONNECTIONS = 10_000
SLOWEST_S = 0.5
"""What a small request may take beside a crowd, of the server's own processor time: nobody else disturbs that."""


@pytest.fixture(scope="module")
def files() -> None:
    """As many open files as a crowd needs."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = POLLS + 200
    if hard < needed:
        pytest.skip(f"needs {needed} open files, and this machine's hard limit is {hard} (ulimit -Hn)")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, needed), hard))


@pytest.fixture
def server(tmp_path_factory: pytest.TempPathFactory, files: None) -> Iterator[Served]:
    with running(tmp_path_factory.mktemp("crowd")) as served:
        yield served
        assert served.stop() == 0
        assert "Traceback" not in served.said()


def address(server: Served) -> tuple[str, int]:
    parts = urlsplit(server.url)
    return parts.hostname or "", parts.port or 0


def posted(path: str, body: object, *lines: str) -> bytes:
    data = msgpack.packb(body)
    head = [f"POST {path} HTTP/1.1", "Host: localhost", f"Content-Type: {MSGPACK}", *lines]
    return "\r\n".join([*head, f"Content-Length: {len(data)}", "", ""]).encode() + bytes(data)


def until(condition: object, patience_s: float = 60.0) -> None:
    deadline = time.monotonic() + patience_s
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline, "it never came to that"
        time.sleep(0.02)


def held(server: Served) -> float:
    return vitals.gauges(server)["lakeshore_parked_polls"]


def first_answers(peers: list[socket.socket], count: int, patience_s: float = 60.0) -> dict[socket.socket, bytes]:
    """The answers of the first `count` that get one."""
    found: dict[socket.socket, bytes] = {}
    by_fd = {peer.fileno(): peer for peer in peers}
    with contextlib.closing(select.epoll()) as poll:
        for fd in by_fd:
            poll.register(fd, select.EPOLLIN)
        deadline = time.monotonic() + patience_s
        while len(found) < count:
            assert time.monotonic() < deadline, f"{len(found)} of {count} were answered"
            for fd, _event in poll.poll(1.0):
                found[by_fd[fd]] = by_fd[fd].recv(65536)
                poll.unregister(fd)
    return found


@pytest.mark.inventory("K-9")
def test_two_thousand_held_polls_get_one_job_each_and_leave_nothing_when_they_go(server: Served) -> None:
    """The figures (memory, share of a core, the last one's wait) are a row of benchmarks/run.py: `--rows held`."""
    before, memory = vitals.gauges(server), vitals.memory_kib(server)
    peers = [socket.create_connection(address(server), timeout=60) for _ in range(POLLS)]
    for number, peer in enumerate(peers):
        poll = {"worker_id": f"w{number}", "queue": "crowd", "session": "s", "n": 1, "timeout_s": 60}
        peer.sendall(posted("/v1/daemon/poll", poll))
    until(lambda: held(server) == POLLS)
    grown = (vitals.memory_kib(server) - memory) / 1024
    began = vitals.cpu_s(server)
    assert server.post("/v1/producer/submit", one()).status == 200
    assert vitals.cpu_s(server) - began < SLOWEST_S

    calls = [one(queue="crowd") for _ in range(POLLS // 2)]
    began = time.monotonic()
    assert server.post("/v1/producer/submit", {"invocations": calls}).status == 200
    told = first_answers(peers, len(calls))
    took = time.monotonic() - began
    jobs = [
        command["body"]["invocation_id"]
        for answer in told.values()
        for command in msgpack.unpackb(answer.partition(b"\r\n\r\n")[2])["commands"]
    ]
    assert sorted(jobs) == sorted(call["invocation_id"] for call in calls)
    print(f"{POLLS} polls: {grown:.1f} MiB; {len(calls)} jobs to as many workers: {took * 1e3:.0f} ms")
    assert grown < 60
    assert held(server) == POLLS - len(calls)
    for peer in peers:
        peer.close()
    vitals.until_as_before(server, before)


def test_ten_thousand_connections_in_turn_leave_no_files_no_threads_and_no_memory(server: Served) -> None:
    """Four kinds: a request and a close, a close without a word, half a head, a reset."""

    def visit(kind: int) -> None:
        peer = socket.create_connection(address(server), timeout=60)
        try:
            if kind == 0:
                peer.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                assert peer.recv(4096).startswith(b"HTTP/1.1 200")
            elif kind == 2:
                peer.sendall(b"POST /v1/producer/submit HTTP/1.1\r\nHost: local")
            elif kind == 3:
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        finally:
            peer.close()

    before = vitals.gauges(server)
    for number in range(CONNECTIONS // 5):
        visit(number % 4)
    sizes = vitals.memory_kib(server), vitals.open_files(server), vitals.threads(server)
    for number in range(CONNECTIONS - CONNECTIONS // 5):
        visit(number % 4)
    vitals.until_as_before(server, before)
    memory, open_files, threads = vitals.memory_kib(server), vitals.open_files(server), vitals.threads(server)
    assert memory - sizes[0] < 4096, (memory, sizes)
    assert open_files - sizes[1] <= 2, (open_files, sizes)
    assert threads <= sizes[2] + 1, (threads, sizes)


def small_ears(server: Served) -> socket.socket:
    """A connection that takes little of an answer at a time."""
    peer = socket.socket()
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    peer.settimeout(60)
    peer.connect(address(server))
    return peer


def test_clients_that_stop_in_the_middle_cost_others_nothing_and_the_server_little(server: Served) -> None:
    """Readers of a large blob and of a stream that take nothing, uploads that stall, heads that do not end."""
    blob = b"\xa5" * 8_000_000
    presign = "/v1/namespaces/default/payloads/presign"
    put = server.post(presign, {"op": "put", "size": len(blob), "jobId": new_id(), "kind": "args"}).body
    assert server.raw("PUT", put["url"], blob).status == 201
    url = server.post(presign, {"op": "get", "key": put["key"]}).body["url"]
    call = one()
    server.post("/v1/producer/submit", call)
    poll = {"worker_id": "w", "queue": call["queue"], "session": "s", "n": 1, "timeout_s": 0}
    (command,) = server.post("/v1/daemon/poll", poll).body["commands"]
    frames = wire.FrameWriter(0)
    chunk = {"invocation_id": call["invocation_id"], "claim": command["body"]["claim"], "worker_id": "w"}
    for seq in range(16):
        said = server.post("/v1/daemon/result-chunk", {**chunk, "seq": seq, "bytes": frames.value(b"f" * 200_000)})
        assert said.status == 200, said.body
    stream = f"/v1/producer/invocations/{call['invocation_id']}/result/stream"
    said_what = {
        "a blob, not read": f"GET {url} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode(),
        "a stream, not read": f"GET {stream} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode(),
        "a stalled upload": f"PUT {put['url']} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 8000000\r\n\r\n".encode(),
        "a stalled submit": posted("/v1/producer/submit", {"args_blob": blob[:250_000]})[:-9],
        "a stalled chunk": b"POST /v1/producer/submit HTTP/1.1\r\nHost: localhost\r\n"
        b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nff\r\n{",
        "half a head": b"POST /v1/producer/submit HTTP/1.1\r\nHost: localhost\r\nX: " + b"y" * 20_000,
        "pipelined, not read": b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n" * 400,
    }
    before, memory = vitals.gauges(server), vitals.memory_kib(server)
    peers = []
    for _ in range(25):
        for raw in said_what.values():
            peer = small_ears(server)
            peer.sendall(raw)
            peers.append(peer)
    until(lambda: vitals.gauges(server)["lakeshore_http_connections"] == 1 + len(peers))
    slowest = 0.0
    for _ in range(40):
        began = vitals.cpu_s(server)
        assert server.post("/v1/producer/submit", one()).status == 200
        slowest = max(slowest, vitals.cpu_s(server) - began)
    grown = (vitals.memory_kib(server) - memory) / 1024
    print(f"{len(peers)} that stopped: {grown:.1f} MiB, the slowest submit beside them {slowest * 1e3:.0f} ms")
    assert slowest < SLOWEST_S
    assert grown < 128, "more than a small buffer for each of them"
    for peer in peers:
        peer.close()
    vitals.until_as_before(server, before)


def test_a_refused_upload_is_answered_at_its_head_and_never_read(server: Served) -> None:
    """Nothing of the body is sent: the answer needs none of it. A client that sends on all the same is cut off."""
    presign = {"op": "put", "size": 9, "jobId": new_id(), "kind": "args"}
    url = server.post("/v1/namespaces/default/payloads/presign", presign).body["url"]
    length, chunked = "Content-Length: 99999999999", "Transfer-Encoding: chunked"
    huge = b"fffffffffff\r\n"
    submit = ("POST /v1/producer/submit HTTP/1.1", f"Content-Type: {MSGPACK}")
    for lines, start, status in (
        ((*submit, length), b"", 413),
        ((*submit, chunked), huge, 413),
        ((*submit, chunked), b"2\r\n\x81\xa1\r\n" + huge + b"x", 413),
        (("POST /v1/daemon/ack HTTP/1.1", f"Content-Type: {MSGPACK}", chunked), huge, 413),
        ((f"PUT {url} HTTP/1.1", length), b"", 422),
        ((f"PUT {url} HTTP/1.1", chunked), huge, 413),
        ((f"PUT {url[:-1]}x HTTP/1.1", length), b"", 403),
        (("POST /nowhere HTTP/1.1", length), b"", 404),
    ):
        with socket.create_connection(address(server), timeout=60) as peer:
            peer.sendall("\r\n".join([*lines, "Host: localhost", "", ""]).encode() + start)
            assert peer.recv(65536).split(b" ", 2)[1] == str(status).encode(), lines
            if lines[0].startswith("POST /nowhere"):
                with pytest.raises(ConnectionError):
                    while True:
                        peer.sendall(b"\0" * 100_000)
                        time.sleep(0.05)
    assert vitals.memory_kib(server) < 150 * 1024


@pytest.mark.parametrize(
    ("path", "status"), [("/v1/producer/submit", b"400"), ("/v1/namespaces/default/payloads", b"200")]
)
def test_a_body_of_tiny_chunks_takes_no_more_memory_than_its_bytes(server: Served, path: str, status: bytes) -> None:
    before, total = vitals.peak_kib(server), 1_000_000
    with socket.create_connection(address(server), timeout=60) as peer:
        peer.sendall(
            b"POST %b HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n" % path.encode()
        )
        part = b"".join(b"2\r\n%b\r\n" % random.randbytes(2) for _ in range(10_000))
        for _ in range(total // 20_000):
            peer.sendall(part)
        peer.sendall(b"0\r\n\r\n")
        assert peer.recv(65536).startswith(b"HTTP/1.1 " + status)
    grown = (vitals.peak_kib(server) - before) / 1024
    print(f"{grown:.1f} MiB at most for {total / 2**20:.1f} MiB in pieces of two bytes")
    assert grown < 12
