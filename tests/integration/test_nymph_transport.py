"""The daemon's line to its server: by a proxy, over TLS that nobody vouches for, and when a connection is lost."""

from __future__ import annotations

import contextlib
import re
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import kept as k
import msgpack
import pytest
from net_certs import certificate
from net_scripted import Served, scripted

from lakeshore.net.proxy import through_proxy
from lakeshore.net.target import Target
from lakeshore.nymph.identity import Identity, KeyFile
from lakeshore.nymph.transport import PATIENCE_S, Transport, TransportError

FOUND = msgpack.packb({"commands": []})
ANSWER = b"HTTP/1.1 200 OK\r\ncontent-type: application/x-msgpack\r\ncontent-length: %d\r\n\r\n" % len(FOUND) + FOUND


def answers(connection: Served) -> None:
    while connection.read_request() is not None:
        connection.sock.sendall(ANSWER)


def far(target: Target, name: str = "far.example") -> Target:
    """The same server, by a name that no resolver here knows: only a proxy leads there."""
    url = f"{target.scheme}://{name}:{target.port}"
    return Target(scheme=target.scheme, host=name, port=target.port, host_header=f"{name}:{target.port}", url=url)


class Proxy:
    """Passes bytes on to one server, whatever it is asked for; `heads` are what it was asked."""

    def __init__(self, to: int, *, refuses: bool = False) -> None:
        self.to, self.refuses, self.heads = to, refuses, list[bytes]()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://user:pass@127.0.0.1:{self.listener.getsockname()[1]}"
        self.threads = [threading.Thread(target=self.accept, daemon=True)]
        self.threads[0].start()

    def accept(self) -> None:
        while True:
            try:
                line, _ = self.listener.accept()
            except OSError:
                return
            self.threads.append(thread := threading.Thread(target=self.served, args=(line,), daemon=True))
            thread.start()

    def stop(self) -> None:
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.threads[0].join(60)
        self.listener.close()
        for thread in self.threads[1:]:
            thread.join(60)

    def served(self, line: socket.socket) -> None:
        with line, contextlib.suppress(OSError):
            self.serve(line)

    def serve(self, line: socket.socket) -> None:
        head = b""
        while b"\r\n\r\n" not in head:
            data = line.recv(65536)
            if not data:
                return
            head += data
        self.heads.append(head)
        if self.refuses:
            line.sendall(b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n")
            return
        with socket.create_connection(("127.0.0.1", self.to)) as server:
            if head.startswith(b"CONNECT "):
                line.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            else:
                server.sendall(head)
            back = threading.Thread(target=pump, args=(server, line), daemon=True)
            back.start()
            pump(line, server)
            back.join()


def pump(source: socket.socket, target: socket.socket) -> None:
    try:
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        return


@pytest.fixture
def proxies() -> Iterator[list[Proxy]]:
    made: list[Proxy] = []
    yield made
    for proxy in made:
        proxy.stop()


def asked(target: Target) -> object:
    told: list[object] = []

    async def main() -> None:
        transport = Transport(target, token="the-token")
        told.append(await transport.post("/v1/daemon/poll", {"n": 1}))
        told.append(await transport.post("/v1/daemon/poll", {"n": 2}))
        transport.close()

    k.run(main)
    assert told[0] == told[1]
    return told[0]


def refused(target: Target) -> TransportError:
    told: list[TransportError] = []

    async def main() -> None:
        transport = Transport(target, token=None)
        with pytest.raises(TransportError) as error:
            await transport.post("/v1/daemon/poll", {})
        transport.close()
        told.append(error.value)

    k.run(main)
    return told[0]


def test_a_plain_server_is_asked_for_by_its_whole_url(proxies: list[Proxy]) -> None:
    with scripted(answers) as server:
        proxies.append(proxy := Proxy(server.port))
        target = through_proxy(far(server.target), {"http_proxy": proxy.url})
        assert asked(target) == {"commands": []}
        assert proxy.heads[0].startswith(b"POST http://far.example:%d/v1/daemon/poll HTTP/1.1\r\n" % server.port)
        assert b"proxy-authorization: Basic dXNlcjpwYXNz\r\n" in proxy.heads[0]


def test_a_server_with_tls_is_reached_by_a_tunnel_and_the_proxy_sees_no_token(
    proxies: list[Proxy], tmp_path: Path
) -> None:
    ca_file, context = certificate(tmp_path)
    with scripted(answers, context=context) as server:
        proxies.append(proxy := Proxy(server.port))
        target = through_proxy(far(server.target, "localhost.example"), {"https_proxy": proxy.url})
        said = refused(target)
        assert said.status is None
        assert "not trusted" in said.reason
        unverified = Target(**{**{name: getattr(target, name) for name in Target.__slots__}, "verify": False})
        assert asked(unverified) == {"commands": []}
        assert ca_file.exists()
        assert all(head.startswith(b"CONNECT localhost.example:%d HTTP/1.1\r\n" % server.port) for head in proxy.heads)
        assert not any(b"the-token" in head for head in proxy.heads)


@pytest.mark.inventory("N-032")
def test_a_certificate_that_nobody_vouches_for_is_taken_only_where_that_is_said(tmp_path: Path) -> None:
    _, context = certificate(tmp_path)
    with scripted(answers, context=context) as server:
        assert "not trusted" in refused(server.target).reason
        unverified = Target(**{**{name: getattr(server.target, name) for name in Target.__slots__}, "verify": False})
        assert asked(unverified) == {"commands": []}


def test_a_proxy_that_gives_no_way_is_named_without_its_password(proxies: list[Proxy]) -> None:
    proxies.append(proxy := Proxy(1, refuses=True))
    target = Target(scheme="https", host="far.example", port=443, host_header="far.example", url="https://far.example")
    said = refused(through_proxy(target, {"https_proxy": proxy.url})).reason
    assert "gives no way there: it answered 'HTTP/1.1 403 Forbidden'" in said
    assert "pass" not in said.replace("passes", "")


def test_a_connection_that_was_closed_meanwhile_costs_nothing() -> None:
    def one_each(connection: Served) -> None:
        if connection.read_request() is not None:
            connection.sock.sendall(ANSWER)

    with scripted(one_each) as server:
        assert asked(server.target) == {"commands": []}
        assert server.connections == 2


@pytest.mark.inventory("N-247", "N-250", "N-252")
@pytest.mark.inventory("C-793")
def test_without_an_identity_a_request_has_the_documented_headers_and_no_others() -> None:
    with scripted(answers) as server:
        asked(server.target)
        lines = server.heads[0].decode().lower().split("\r\n")
    assert sorted(line.partition(":")[0] for line in lines[1:]) == [
        "accept",
        "authorization",
        "content-length",
        "content-type",
        "host",
    ]
    assert "accept: application/x-msgpack" in lines
    assert "content-type: application/x-msgpack" in lines
    assert "authorization: bearer the-token" in lines


def headers_of(sends: Callable[[Transport], Awaitable[object]], identity: Identity | None = None) -> dict[str, str]:
    """Of the one request that `sends` makes, by their lower-case names."""

    async def main() -> None:
        transport = Transport(server.target, token="the-token", identity=identity)
        await sends(transport)
        transport.close()

    with scripted(answers) as server:
        k.run(main)
        (head,) = server.heads
    lines = (line.partition(": ") for line in head.decode().split("\r\n")[1:])
    return {name.lower(): value for name, _, value in lines}


@pytest.mark.inventory("N-251", "C-1412")
def test_output_is_sent_as_raw_bytes_with_the_bearer() -> None:
    sent = headers_of(lambda transport: transport.post_bytes("/v1/daemon/exec/x/chunk", b"\xff", query={"offset": 0}))
    assert sent["content-type"] == "application/octet-stream"
    assert (sent["authorization"], sent["content-length"]) == ("Bearer the-token", "1")


@pytest.mark.inventory("N-428")
@pytest.mark.parametrize("path", ["/v1/daemon/exec/x/chunk?offset=0", "/v1/namespaces/default/payloads/presign"])
def test_with_a_key_those_requests_are_signed_too_that_nobody_has_to_verify(path: str, tmp_path: Path) -> None:
    files = KeyFile(tmp_path / "daemon.key")
    identity = Identity(files, server="https://control.example")
    identity.admitted(worker_id="w1", key_id=None, server_time=None, now=time.time())

    async def sends(transport: Transport) -> object:
        return await (transport.post_bytes(path, b"x") if "chunk" in path else transport.post(path, {"op": "get"}))

    sent = headers_of(sends, identity)
    files.close()
    assert sent["x-ls-key-id"] == identity.key_id
    assert {"x-ls-timestamp", "x-ls-nonce", "x-ls-signature"} <= set(sent)


@pytest.mark.inventory("N-248")
def test_a_server_that_takes_a_request_and_says_nothing_is_not_waited_for_for_ever() -> None:
    def silent(connection: Served) -> None:
        connection.read_request()
        connection.read_head()

    async def main() -> None:
        transport = Transport(server.target, token=None)
        with pytest.raises(TransportError) as error:
            await transport.post("/v1/daemon/ack", {}, timeout_s=0.2)
        assert error.value.status is None
        transport.close()

    assert PATIENCE_S == 120.0
    with scripted(silent) as server:
        k.run(main)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n<htm>", "cannot be read|not a map"),
        (b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n", "/v1/daemon/poll was answered 404"),
        (b"HTTP/1.1 302 Found\r\nlocation: http://x/\r\ncontent-length: 0\r\n\r\n", "was answered 302"),
    ],
)
def test_what_is_no_answer_of_a_server_of_ours_is_an_error_that_says_so(answer: bytes, said: str) -> None:
    def speaks(connection: Served) -> None:
        if connection.read_request() is not None:
            connection.sock.sendall(answer)

    with scripted(speaks) as server:
        assert re.search(said, refused(server.target).reason)
