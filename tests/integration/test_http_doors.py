"""Listening sockets, TLS, and who is at the other end."""

from __future__ import annotations

import http.client
import json
import os
import socket
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from http_peer import PATIENCE, SOON, Peer, serving
from net_certs import certificate

from lakeshore.server.http import (
    Limits,
    ListenError,
    Request,
    Response,
    StreamResponse,
    TlsError,
    open_listeners,
    server_context,
)
from lakeshore.server.http.peer import uid_of_peer


async def echo(request: Request) -> Response | StreamResponse:
    if request.path == "/park":
        return Response(body=(await request.park(60)).encode())
    if request.path == "/stream":
        return StreamResponse(chunks=pieces())
    if request.path == "/who":
        info = request.connection
        return Response(body=json.dumps([info.listener, info.peer, info.local, info.tls, info.peer_uid]).encode())
    return Response(body=await request.body())


async def pieces() -> AsyncIterator[bytes]:
    for _ in range(50):
        yield bytes(100_000)


# --- listening ---------------------------------------------------------------------------------------------------


def test_a_taken_port_is_named_in_the_complaint() -> None:
    (listener,) = open_listeners("127.0.0.1", 0)
    port = listener.address[1]
    with listener.sock, pytest.raises(ListenError, match=f"127.0.0.1 port {port} is taken .* another port"):
        open_listeners("127.0.0.1", port)


@pytest.mark.parametrize(
    ("host", "complaint"), [("203.0.113.1", "not an address of this machine"), ("no.such.invalid", "cannot resolve")]
)
def test_an_address_that_is_not_ours_is_a_clear_complaint(host: str, complaint: str) -> None:
    with pytest.raises(ListenError, match=complaint):
        open_listeners(host, 0)


def test_a_port_just_freed_can_be_taken_again() -> None:
    with serving(echo) as served, served.connect() as peer:
        port = served.port
        peer.post("/", b"x")
        assert peer.answer().body == b"x"
    for listener in open_listeners("127.0.0.1", port):
        listener.sock.close()


def test_every_address_of_a_name_gets_the_same_port() -> None:
    listeners = open_listeners("localhost", 0)
    try:
        assert len({listener.address[1] for listener in listeners}) == 1
        assert listeners[0].url.startswith("http://")
    finally:
        for listener in listeners:
            listener.sock.close()


# --- who is there ------------------------------------------------------------------------------------------------


def test_a_request_knows_where_it_came_from() -> None:
    with serving(echo) as served, served.connect() as peer:
        peer.get("/who")
        listener, address, local, tls, uid = json.loads(peer.answer().body)
        assert (listener, tls) == ("main", False)
        assert address == list(peer.sock.getsockname())
        assert local == ["127.0.0.1", served.port]
        if sys.platform.startswith("linux"):
            assert uid == os.getuid()
        else:
            assert uid is None


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux lists the owners of sockets")
@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_another_users_client_is_known_by_its_uid_and_one_that_closed_already_is_unknown() -> None:
    source = (
        "import os, socket, sys\n"
        "os.setuid(65534)\n"
        "s = socket.socket()\n"
        "s.connect(('127.0.0.1', int(sys.argv[1])))\n"
        "print(*s.getsockname(), flush=True)\n"
        "sys.stdin.readline()\n"
        "s.close()\n"
        "print('closed', flush=True)\n"
        "sys.stdin.readline()\n"
    )
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(PATIENCE)
        local = server.getsockname()
        child = subprocess.Popen([sys.executable, "-c", source, str(local[1])], stdin=-1, stdout=-1, text=True)
        assert child.stdin is not None
        assert child.stdout is not None
        with child, server.accept()[0]:
            host, port = child.stdout.readline().split()
            assert uid_of_peer(peer=(host, int(port)), local=local) == 65534
            child.stdin.write("\n")
            child.stdin.flush()
            assert child.stdout.readline() == "closed\n"
            assert uid_of_peer(peer=(host, int(port)), local=local) is None


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux lists the owners of sockets")
def test_the_owner_is_found_over_ipv6_and_over_a_mapped_address() -> None:
    if not socket.has_ipv6:
        pytest.skip("this Python has no IPv6")
    server = socket.socket(socket.AF_INET6)
    with server:
        try:
            server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            server.bind(("::", 0))
        except OSError:
            pytest.skip("this machine has no IPv6")
        server.listen()
        port = server.getsockname()[1]
        for host in ("::1", "127.0.0.1"):
            with socket.create_connection((host, port)) as client:
                accepted, address = server.accept()
                with accepted:
                    local = accepted.getsockname()
                    assert uid_of_peer(peer=address[:2], local=local[:2]) == os.getuid(), client


def test_another_machines_peer_has_no_owner_here() -> None:
    assert uid_of_peer(peer=("192.0.2.1", 1), local=("127.0.0.1", 2)) is None
    assert uid_of_peer(peer=None, local=None) is None


# --- TLS ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def cert(tmp_path: Path) -> Path:
    return certificate(tmp_path)[0]


def context_of(cert: Path) -> ssl.SSLContext:
    return server_context(cert, cert.with_name("key.pem"))


def trusting(cert: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(cert))


def test_tls_carries_requests_uploads_and_streams(cert: Path) -> None:
    with serving(echo, tls=context_of(cert)) as served:
        client = http.client.HTTPSConnection("127.0.0.1", served.port, context=trusting(cert), timeout=PATIENCE)
        data = os.urandom(3_000_000)
        for body in (b"abc", data):
            client.request("POST", "/", body=body)
            assert client.getresponse().read() == body
        client.request("POST", "/", body=iter([data]), encode_chunked=True, headers={"Transfer-Encoding": "chunked"})
        assert client.getresponse().read() == data
        client.request("GET", "/stream")
        assert len(client.getresponse().read()) == 5_000_000
        client.request("GET", "/who")
        assert json.loads(client.getresponse().read())[3] is True
        assert served.server.open_connections == 1
        client.close()


def test_a_tls_connection_that_ends_says_so(cert: Path) -> None:
    with serving(echo, tls=context_of(cert)) as served:
        raw = socket.create_connection(("127.0.0.1", served.port), timeout=PATIENCE)
        with Peer(trusting(cert).wrap_socket(raw, server_hostname="127.0.0.1", suppress_ragged_eofs=False)) as peer:
            peer.send(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
            assert peer.answer().closes
            assert peer.rest() == b""  # a connection cut without the closing alert would raise


def test_a_tls_client_that_leaves_while_parked_is_noticed(cert: Path) -> None:
    with serving(echo, tls=context_of(cert), timers=SOON) as served:
        raw = socket.create_connection(("127.0.0.1", served.port), timeout=PATIENCE)
        peer = Peer(trusting(cert).wrap_socket(raw, server_hostname="127.0.0.1"))
        peer.get("/park")
        served.until(lambda: served.server.parked_requests == 1)
        peer.sock.close()
        served.until(lambda: served.server.open_connections == 0)


def test_a_tls_drain_answers_the_parked_and_closes_the_idle(cert: Path) -> None:
    with serving(echo, tls=context_of(cert)) as served:
        peers = []
        for _ in range(2):
            raw = socket.create_connection(("127.0.0.1", served.port), timeout=PATIENCE)
            peers.append(Peer(trusting(cert).wrap_socket(raw, server_hostname="127.0.0.1")))
        peers[0].get("/park")
        peers[1].post("/", b"x")
        assert peers[1].answer().body == b"x"
        served.until(lambda: served.server.parked_requests == 1)
        served.call(served.server.drain, PATIENCE)
        assert peers[0].answer().body == b"draining"
        for peer in peers:
            assert peer.rest() == b""
            peer.sock.close()


@pytest.mark.parametrize("sent", [b"", b"\x16\x03\x01\x02\x00\x01\x00"], ids=["silent", "half a hello"])
def test_a_handshake_that_does_not_end_is_let_go(cert: Path, sent: bytes) -> None:
    with serving(echo, tls=context_of(cert), timers=replace(SOON, handshake=0.5)) as served, served.connect() as peer:
        peer.send(sent)
        assert peer.rest() == b""
        served.until(lambda: served.server.open_connections == 0)


def test_a_drain_does_not_wait_for_a_handshake(cert: Path) -> None:
    with serving(echo, tls=context_of(cert)) as served, served.connect() as peer:
        served.until(lambda: served.server.open_connections == 1)
        served.call(served.server.drain, PATIENCE)
        assert peer.rest() == b""


def test_peers_that_fail_the_handshake_do_no_harm(cert: Path) -> None:
    with serving(echo, tls=context_of(cert), limits=Limits(max_connections=5)) as served:
        for sent in (b"GET / HTTP/1.1\r\nhost: x\r\n\r\n", b"\x16\x03\x01", b""):
            with served.connect() as peer:
                peer.send(sent)
                if sent.startswith(b"GET"):
                    peer.rest()
        untrusting = http.client.HTTPSConnection("127.0.0.1", served.port, timeout=PATIENCE)
        with pytest.raises(ssl.SSLCertVerificationError):
            untrusting.request("GET", "/")
        untrusting.close()
        client = http.client.HTTPSConnection("127.0.0.1", served.port, context=trusting(cert), timeout=PATIENCE)
        client.request("POST", "/", body=b"fine")
        assert client.getresponse().read() == b"fine"
        client.close()


def test_a_certificate_that_cannot_be_used_is_a_clear_complaint(cert: Path, tmp_path: Path) -> None:
    with pytest.raises(TlsError, match="does not exist"):
        server_context(tmp_path / "none.pem")
    with pytest.raises(TlsError, match="cannot use the certificate"):
        server_context(cert, cert)
