"""The blocking shell over real sockets."""

from __future__ import annotations

import http.server
import io
import os
import signal
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from net_certs import certificate
from net_scripted import Served, eventually, scripted

from lakeshore.net.blocking import BlockingConnection, BlockingPool
from lakeshore.net.errors import ConnectFailed, ConnectionLost, ProtocolViolation, Timeout, TlsError
from lakeshore.net.target import parse_target


def test_requests_on_one_connection_reuse_it() -> None:
    with scripted(Served.echo_for_ever) as server, BlockingConnection(server.target) as connection:
        for n in range(20):
            answer = connection.request("POST", "/v1/x", headers={"x-n": str(n)}, body=b"%d" % n)
            assert (answer.status, answer.body) == (200, b"%d" % n)
        assert server.connections == 1
        assert server.heads[0].startswith(b"POST /v1/x HTTP/1.1\r\nhost: 127.0.0.1:")


def test_a_server_with_a_name_is_reached_where_no_thread_can_be_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a function that `atexit` calls, from Python 3.12 on."""
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name == "lakeshore-resolver":
            raise RuntimeError("can't create new thread at interpreter shutdown")
        start(thread)

    with scripted(Served.echo_for_ever) as server:
        target = parse_target(server.target.url.replace("127.0.0.1", "localhost"))
        with monkeypatch.context() as patch, BlockingConnection(target) as connection:
            patch.setattr(threading.Thread, "start", refuse)
            assert connection.request("POST", "/v1/x", headers={"x-n": "1"}, body=b"1").status == 200


def test_the_standard_librarys_server_is_understood(tmp_path: Path) -> None:
    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args: object) -> None:
            super().__init__(*args, directory=str(tmp_path))  # type: ignore[arg-type]

        def log_message(self, format: str, *args: object) -> None:
            pass

    (tmp_path / "file.txt").write_bytes(b"x" * 100_000)
    for version in ("HTTP/1.0", "HTTP/1.1"):
        Handler.protocol_version = version
        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
            thread = threading.Thread(target=server.serve_forever, args=(0.01,))
            thread.start()
            try:
                with BlockingPool(parse_target(f"http://127.0.0.1:{server.server_address[1]}")) as pool:
                    for _ in range(3):
                        answer = pool.request("GET", "/file.txt")
                        assert (answer.status, len(answer.body)) == (200, 100_000)
                        assert answer.headers["Content-Type"] == "text/plain"
                    assert pool.request("GET", "/none").status == 404
                    assert pool.request("HEAD", "/file.txt").body == b""
                    assert pool.request("POST", "/file.txt", body=b"x").status == 501
            finally:
                server.shutdown()
                thread.join()


def close_after_first(served: Served) -> None:
    served.read_request()
    served.answer(b"first")
    if served.number > 1:
        served.echo_for_ever()


def test_a_kept_connection_that_the_server_closed_is_replaced_unnoticed() -> None:
    with scripted(close_after_first) as server, BlockingConnection(server.target) as connection:
        connection.request("POST", "/", body=b"1")
        server.closed(1)
        assert connection.request("POST", "/", body=b"2").body == b"first"
        assert server.connections == 2


def test_a_file_body_is_sent_again_from_its_start_on_a_new_connection() -> None:
    def script(served: Served) -> None:
        request = served.read_request()
        served.answer(request[1] if request else b"")

    with scripted(script) as server, BlockingConnection(server.target) as connection:
        connection.request("POST", "/", body=b"1")
        server.closed(1)
        file = io.BytesIO(b"skipped" + b"y" * 300_000)
        file.seek(7)
        assert connection.request("PUT", "/", body=file, content_length=300_000).body == b"y" * 300_000


def test_a_reused_connection_that_ends_within_an_answer_is_not_retried() -> None:
    def script(served: Served) -> None:
        served.read_request()
        served.answer()
        served.read_request()
        served.sock.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf")

    with scripted(script) as server, BlockingConnection(server.target) as connection:
        connection.request("POST", "/")
        with pytest.raises(ConnectionLost) as caught:
            connection.request("POST", "/")
        assert caught.value.received_anything
        assert server.connections == 1


def test_without_retry_stale_a_request_is_sent_at_most_once() -> None:
    def script(served: Served) -> None:
        served.read_request()
        served.answer()
        served.read_request()

    with scripted(script) as server, BlockingConnection(server.target) as connection:
        connection.request("POST", "/")
        with pytest.raises(ConnectionLost) as caught:
            connection.request("POST", "/", retry_stale=False)
        assert caught.value.sent_anything
        assert len(server.heads) == 2


def test_a_new_connection_that_ends_without_an_answer_is_lost_and_not_retried() -> None:
    with scripted(lambda served: served.read_request() and None) as server, BlockingConnection(server.target) as c:
        with pytest.raises(ConnectionLost, match="without answering"):
            c.request("POST", "/v1/x")
        assert server.connections == 1


def test_nobody_listening_is_a_failed_connection_with_nothing_sent() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(ConnectFailed, match="cannot connect") as caught:
        BlockingConnection(parse_target(f"http://127.0.0.1:{port}")).request("GET", "/x")
    assert not caught.value.sent_anything
    with pytest.raises(ConnectFailed):
        BlockingConnection(parse_target("http://no-such-host.invalid")).request("GET", "/x")


def test_a_server_that_does_not_answer_is_a_timeout_and_its_connection_is_not_used_again() -> None:
    def script(served: Served) -> None:
        served.read_request()
        if served.number == 1:
            served.wait_for_close()
        else:
            served.answer()

    with scripted(script) as server, BlockingConnection(server.target) as connection:
        with pytest.raises(Timeout, match=r"did not answer within 0.05 s"):
            connection.request("POST", "/", timeout=0.05)
        assert connection.request("POST", "/").status == 200
        assert server.connections == 2


def test_the_time_of_a_request_counts_in_all_and_of_a_stream_per_wait() -> None:
    tick = threading.Event()

    def script(served: Served) -> None:
        served.read_request()
        served.sock.sendall(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        for _ in range(12):
            tick.wait(0.15)
            served.sock.sendall(b"1\r\nx\r\n")
        served.sock.sendall(b"0\r\n\r\n")

    with scripted(script) as server:
        with pytest.raises(Timeout):
            BlockingConnection(server.target).request("GET", "/", timeout=1.2)
        with BlockingConnection(server.target) as c, c.stream("GET", "/", timeout=1.2) as answer:
            assert b"".join(answer) == b"x" * 12


def test_a_chunked_stream_arrives_piece_by_piece_and_its_connection_is_kept() -> None:
    go = threading.Event()

    def script(served: Served) -> None:
        served.read_request()
        served.sock.sendall(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\none\r\n")
        go.wait(60)
        served.sock.sendall(b"3\r\ntwo\r\n0\r\n\r\n")
        served.echo_for_ever()

    with scripted(script) as server, BlockingPool(server.target) as pool:
        with pool.stream("GET", "/s") as answer:
            assert answer.status == 200
            assert next(answer) == b"one"
            go.set()
            assert list(answer) == [b"two"]
        assert pool.idle == 1
        assert pool.request("POST", "/", body=b"again").body == b"again"
        assert server.connections == 1


def test_a_stream_left_early_closes_its_connection() -> None:
    def script(served: Served) -> None:
        served.read_request()
        served.sock.sendall(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\none\r\n")
        served.wait_for_close()

    with scripted(script) as server, BlockingPool(server.target) as pool:
        with pool.stream("GET", "/s") as answer:
            assert next(answer) == b"one"
        server.closed(1)
        assert pool.idle == 0


def test_a_truncated_stream_is_a_lost_connection() -> None:
    def script(served: Served) -> None:
        served.read_request()
        served.sock.sendall(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\none\r\n")

    with scripted(script) as server, BlockingConnection(server.target) as c, c.stream("GET", "/s") as answer:
        assert next(answer) == b"one"
        with pytest.raises(ConnectionLost):
            next(answer)


def test_a_huge_head_is_refused() -> None:
    def script(served: Served) -> None:
        served.read_request()
        served.sock.sendall(b"HTTP/1.1 200 OK\r\n")
        while True:
            served.sock.sendall(b"x-filler: " + b"a" * 8000 + b"\r\n")

    with scripted(script) as server, pytest.raises(ProtocolViolation, match="too large"):
        BlockingConnection(server.target).request("GET", "/")


def test_a_body_beyond_its_bound_is_refused_and_can_be_streamed_to_a_file(tmp_path: Path) -> None:
    big = os.urandom(3_000_000)

    def script(served: Served) -> None:
        while served.read_request():
            served.answer(big)

    with scripted(script) as server, BlockingPool(server.target) as pool:
        with pytest.raises(ProtocolViolation, match="larger than"):
            pool.request("GET", "/", max_body=1_000_000)
        with pool.stream("GET", "/") as answer, pytest.raises(ProtocolViolation):
            answer.read(max_body=1_000_000)
        with pool.stream("GET", "/") as answer, (tmp_path / "blob").open("wb") as file:
            assert answer.save_to(file) == len(big)
        assert (tmp_path / "blob").read_bytes() == big


@pytest.mark.parametrize("kind", ["bytes", "file", "known", "chunked"])
def test_a_large_body_is_uploaded_whole(kind: str) -> None:
    big = os.urandom(2_500_000)

    def script(served: Served) -> None:
        head = served.read_head()
        if b"chunked" not in head:
            served._buffer = head + b"\r\n\r\n" + served._buffer
            request = served.read_request()
            assert request is not None
            served.answer(b"same" if request[1] == big else b"other")
            return
        got = served._buffer
        while not got.endswith(b"\r\n0\r\n\r\n"):
            got += served.sock.recv(65536)
        body = b""
        while (size := int(got.partition(b"\r\n")[0], 16)) > 0:
            got = got.partition(b"\r\n")[2]
            body, got = body + got[:size], got[size + 2 :]
        served.answer(b"same" if body == big else b"other")

    pieces = [big[i : i + 99_999] for i in range(0, len(big), 99_999)]
    with scripted(script) as server, BlockingConnection(server.target) as c:
        if kind == "bytes":
            answer = c.request("PUT", "/b", body=big)
        elif kind == "file":
            answer = c.request("PUT", "/b", body=io.BytesIO(big), content_length=len(big))
        elif kind == "known":
            answer = c.request("PUT", "/b", body=iter(pieces), content_length=len(big))
        else:
            answer = c.request("PUT", "/b", body=iter([*pieces, b""]))
        assert answer.body == b"same"


@pytest.mark.parametrize("length", [5, 7])
def test_a_body_of_another_length_than_announced_is_an_error_and_closes_the_connection(length: int) -> None:
    with scripted(Served.echo_for_ever) as server, BlockingConnection(server.target) as c:
        with pytest.raises(ValueError, match="content_length"):
            c.request("PUT", "/", body=iter([b"abc", b"def"]), content_length=length)
        server.closed(1)


def test_a_refusal_that_comes_before_the_upload_ends_is_the_answer() -> None:
    def script(served: Served) -> None:
        served.read_request()
        served.answer(b"warm")
        served.read_head()
        served.answer(b"too large", "413 Content Too Large")
        served.server.gate.wait(60)  # type: ignore[attr-defined]

    with scripted(script) as server, BlockingConnection(server.target) as c:
        server.gate = threading.Event()  # type: ignore[attr-defined]
        c.request("GET", "/")
        answer = c.request("PUT", "/", body=b"x" * 50_000_000, timeout=60)
        server.gate.set()  # type: ignore[attr-defined]
        assert (answer.status, answer.body) == (413, b"too large")
        assert not c.connected


def test_an_answer_that_forbids_reuse_is_followed_by_a_new_connection() -> None:
    def script(served: Served) -> None:
        while served.read_request():
            served.answer(extra=b"connection: close\r\n")

    with scripted(script) as server, BlockingPool(server.target) as pool:
        for _ in range(3):
            assert pool.request("GET", "/").body == b"ok"
        assert (server.connections, pool.idle) == (3, 0)


def test_threads_share_a_pool_without_mixing_answers() -> None:
    with scripted(Served.echo_for_ever) as server, BlockingPool(server.target, max_idle=4) as pool:

        def work(n: int) -> bool:
            return all(pool.request("POST", "/", body=b"%d-%d" % (n, i)).body == b"%d-%d" % (n, i) for i in range(30))

        with ThreadPoolExecutor(16) as threads:
            assert all(threads.map(work, range(16)))
        assert pool.idle <= 4
        assert server.most_open <= 16 + 4


def test_a_connection_in_use_refuses_a_second_request() -> None:
    def script(served: Served) -> None:
        served.read_request()
        served.sock.sendall(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\none\r\n")
        served.wait_for_close()

    with scripted(script) as server:
        c = BlockingConnection(server.target)
        with c.stream("GET", "/"), pytest.raises(RuntimeError, match="in use"):
            c.request("GET", "/")


def test_a_closed_pool_says_so() -> None:
    pool = BlockingPool(parse_target("http://127.0.0.1:1"))
    pool.close()
    with pytest.raises(RuntimeError, match="closed"):
        pool.request("GET", "/")


def test_ipv6_is_spoken() -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6 loopback")
    with scripted(Served.echo_for_ever, host="::1") as server, BlockingConnection(server.target) as c:
        assert c.request("GET", "/").status == 200
        assert b"host: [::1]:" in server.heads[0]


FORKING = """
import os, sys
from lakeshore.net.blocking import BlockingPool
from lakeshore.net.target import parse_target
pool = BlockingPool(parse_target(sys.argv[1]))
pool.request("POST", "/", body=b"parent")
held = pool.stream("GET", "/held")
pid = os.fork()
if pid == 0:
    assert pool.request("POST", "/", body=b"child").body == b"child"
    try:
        list(held)
    except Exception as error:
        os._exit(0 if "parent process" in str(error) else 3)
    os._exit(4)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
assert b"".join(held) == b"ok"
for n in range(3):
    assert pool.request("POST", "/", body=b"parent again").body == b"parent again"
print(pool.idle)
"""


@pytest.mark.inventory("K-33")
def test_after_a_fork_parent_and_child_never_share_a_connection() -> None:
    def script(served: Served) -> None:
        while request := served.read_request():
            if b"/held" in request[0]:
                served.sock.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n")
                child_seen.wait(60)
                served.sock.sendall(b"ok")
            else:
                if request[1] == b"child":
                    child_seen.set()
                    child_on.append(served.number)
                served.answer(request[1])

    child_seen, child_on = threading.Event(), []
    with scripted(script) as server:
        done = subprocess.run([sys.executable, "-c", FORKING, server.url], capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stdout, done.stderr) == (0, "1\n", "")
        assert server.connections == 2
        assert child_on == [2]


INTERRUPTED = """
import sys
from lakeshore.net.blocking import BlockingPool
from lakeshore.net.target import parse_target
pool = BlockingPool(parse_target(sys.argv[1]))
try:
    pool.request("POST", "/hang", timeout=None)
except KeyboardInterrupt:
    print(pool.request("POST", "/", body=b"after").body.decode())
"""


def test_ctrl_c_ends_a_wait_and_the_next_request_gets_its_own_answer() -> None:
    waiting = threading.Event()

    def script(served: Served) -> None:
        while request := served.read_request():
            if b"/hang" in request[0]:
                waiting.set()
                served.wait_for_close()
                return
            served.answer(request[1])

    with scripted(script) as server:
        process = subprocess.Popen(
            [sys.executable, "-c", INTERRUPTED, server.url], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert waiting.wait(60)
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=60) == ("after\n", "")


def test_tls_needs_a_trusted_certificate_and_speaks_with_one(tmp_path: Path) -> None:
    cert, context = certificate(tmp_path)
    with scripted(Served.echo_for_ever, context=context, host="127.0.0.1") as server:
        with pytest.raises(TlsError, match="LAKESHORE_CA_FILE") as caught:
            BlockingConnection(server.target).request("GET", "/")
        assert not caught.value.sent_anything
        trusted = parse_target(server.url, ca_file=str(cert))
        with BlockingPool(trusted) as pool:
            for n in range(3):
                assert pool.request("POST", "/", body=b"%d" % n).body == b"%d" % n
            assert pool.request("PUT", "/", body=b"z" * 1_000_000).body == b"z" * 1_000_000
            with BlockingConnection(trusted) as fresh:
                assert fresh.request("PUT", "/", body=b"z" * 1_000_000, timeout=60).body == b"z" * 1_000_000
        assert server.connections == 3


def test_the_certificate_file_may_come_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cert, context = certificate(tmp_path)
    monkeypatch.setenv("LAKESHORE_CA_FILE", str(cert))
    with scripted(Served.echo_for_ever, context=context) as server, BlockingConnection(server.target) as c:
        assert c.request("GET", "/").status == 200
        monkeypatch.setenv("LAKESHORE_CA_FILE", str(tmp_path / "none.pem"))
        with pytest.raises(TlsError, match=r"none\.pem"):
            BlockingConnection(server.target).request("GET", "/")


def test_https_to_a_plain_http_port_is_a_tls_error() -> None:
    def script(served: Served) -> None:
        served.sock.recv(65536)
        served.sock.sendall(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")

    with scripted(script) as server, pytest.raises(TlsError):
        BlockingConnection(parse_target(f"https://127.0.0.1:{server.port}")).request("GET", "/")


def test_a_pool_does_not_use_a_connection_with_bytes_that_nobody_asked_for() -> None:
    poisoned = threading.Event()

    def script(served: Served) -> None:
        served.read_request()
        served.answer(b"good")
        if served.number == 1:
            served.sock.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil")
            poisoned.set()
            served.wait_for_close()

    with scripted(script) as server, BlockingPool(server.target) as pool:
        assert pool.request("GET", "/").body == b"good"
        assert poisoned.wait(60)
        eventually(lambda: pool.idle == 0 or pool._idle[0].stale())
        assert pool.request("GET", "/").body == b"good"


def test_another_thread_can_interrupt_a_wait() -> None:
    waiting = threading.Event()

    def script(served: Served) -> None:
        served.read_request()
        served.answer()
        served.read_request()
        waiting.set()
        served.wait_for_close()

    with scripted(script) as server, BlockingConnection(server.target) as connection, ThreadPoolExecutor(1) as thread:
        connection.request("POST", "/")
        blocked = thread.submit(connection.request, "POST", "/", timeout=None)
        assert waiting.wait(60)
        connection.interrupt()
        with pytest.raises(ConnectionLost):
            blocked.result(60)
        assert server.connections == 1
        connection.close()


def test_an_error_of_the_callers_file_is_raised_as_it_is() -> None:
    class Broken(io.RawIOBase):
        def read(self, size: int = -1) -> bytes:
            raise OSError(5, "disk on fire")

    with scripted(Served.echo_for_ever) as server, BlockingConnection(server.target) as connection:
        with pytest.raises(OSError, match="disk on fire"):
            connection.request("PUT", "/", body=Broken(), content_length=10)
        server.closed(1)


@pytest.mark.parametrize("timeout", [0, -1])
def test_no_time_left_is_a_failed_connection_or_a_timeout(timeout: float) -> None:
    with scripted(Served.echo_for_ever) as server, BlockingConnection(server.target) as connection:
        with pytest.raises(ConnectFailed):
            connection.request("GET", "/", timeout=timeout)
        connection.request("GET", "/")
        with pytest.raises(Timeout):
            connection.request("GET", "/", timeout=timeout)
        with pytest.raises((Timeout, ConnectFailed)), connection.stream("GET", "/", timeout=timeout) as answer:
            next(answer)
