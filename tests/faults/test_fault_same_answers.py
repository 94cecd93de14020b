"""The same requests by http.client, by curl and by h11's client: the same answers, in a form that each accepts."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import h11
import msgpack
import pytest
from mutations import JSON, MSGPACK
from served import Served, new_id, one, running

from lakeshore import wire

CURL = shutil.which("curl")
VOLATILE = frozenset({"date", "etag"})
Answers = list[tuple[int, dict[str, str], bytes]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One request. `chunks`: a chunked body in these pieces; `expects`: it waits for 100 before the body."""

    method: str
    path: str
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None
    chunks: tuple[bytes, ...] | None = None
    expects: bool = False


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with running(tmp_path_factory.mktemp("same")) as served:
        yield served
        assert served.stop() == 0
        assert "Traceback" not in served.said()


def tidy(status: int, headers: Sequence[tuple[str, str]], body: bytes) -> tuple[int, dict[str, str], bytes]:
    kept = {name.lower(): value for name, value in headers if name.lower() not in VOLATILE}
    assert len(kept) == len([name for name, _value in headers if name.lower() not in VOLATILE]), headers
    return status, kept, body


def by_http_client(server: Served, asks: Sequence[Ask], _tmp: Path) -> Answers:
    """All on one connection."""
    answers = []
    with contextlib.closing(server.connection()) as connection:
        for ask in asks:
            headers = dict(ask.headers)
            if ask.chunks is not None:
                headers["Transfer-Encoding"] = "chunked"
                connection.request(ask.method, ask.path, iter(ask.chunks), headers, encode_chunked=True)
            else:
                if ask.expects:
                    headers["Expect"] = "100-continue"
                connection.request(ask.method, ask.path, ask.body, headers)
            answer = connection.getresponse()
            answers.append(tidy(answer.status, answer.getheaders(), answer.read()))
    return answers


def by_curl(server: Served, asks: Sequence[Ask], tmp: Path) -> Answers:
    """One curl for each: it reads its body from a file, and leaves the answer's head and body in two."""
    answers = []
    for ask in asks:
        head, body, sent = tmp / "head", tmp / "body", tmp / "sent"
        body.write_bytes(b"")
        command = [
            str(CURL),
            "-sS",
            "--noproxy",
            "*",
            "-m",
            "30",
            "-D",
            str(head),
            "-o",
            str(body),
            "--path-as-is",
            "-g",
        ]
        command += ["-I"] if ask.method == "HEAD" else ["-X", ask.method]
        for name, value in (*ask.headers, ("User-Agent", ""), ("Accept", "")):
            command += ["-H", f"{name}: {value}" if value else f"{name}:"]
        if ask.body is not None or ask.chunks is not None:
            sent.write_bytes(b"".join(ask.chunks) if ask.chunks is not None else ask.body or b"")
            command += ["--data-binary", f"@{sent}"]
            command += ["-H", "Expect: 100-continue" if ask.expects else "Expect:"]
            if ask.chunks is not None:
                command += ["-H", "Transfer-Encoding: chunked"]
            if "Content-Type" not in dict(ask.headers):
                command += ["-H", "Content-Type:"]
        subprocess.run([*command, server.url + ask.path], check=True, timeout=60)
        blocks = head.read_bytes().split(b"\r\n\r\n")
        lines = blocks[-2].decode("latin-1").split("\r\n")
        headers = [tuple(line.split(": ", 1)) for line in lines[1:]]
        raw = b"" if ask.method == "HEAD" else body.read_bytes()
        answers.append(tidy(int(lines[0].split(" ")[1]), headers, raw))  # type: ignore[arg-type]
    return answers


def by_h11(server: Served, asks: Sequence[Ask], _tmp: Path) -> Answers:
    """One connection, the strictest reader of answers that there is."""
    parts = urlsplit(server.url)
    answers: Answers = []
    with socket.create_connection((parts.hostname or "", parts.port or 0), timeout=60) as sock:
        connection = h11.Connection(h11.CLIENT)
        for ask in asks:
            headers = [("Host", parts.netloc), *ask.headers]
            if ask.chunks is not None:
                headers.append(("Transfer-Encoding", "chunked"))
            elif ask.body is not None or ask.method in ("POST", "PUT", "PATCH"):
                headers.append(("Content-Length", str(len(ask.body or b""))))
            if ask.expects:
                headers.append(("Expect", "100-continue"))
            sock.sendall(connection.send(h11.Request(method=ask.method, target=ask.path, headers=headers)) or b"")
            if ask.expects:
                informed = event_of(connection, sock)
                if not isinstance(informed, h11.InformationalResponse):  # refused before the body
                    answers.append(rest_of(connection, sock, informed))
                    assert connection.their_state in (h11.MUST_CLOSE, h11.CLOSED)
                    return answers
                assert informed.status_code == 100
            for piece in ask.chunks if ask.chunks is not None else (ask.body or b"",):
                sock.sendall(connection.send(h11.Data(data=piece)) or b"")
            sock.sendall(connection.send(h11.EndOfMessage()) or b"")
            answers.append(rest_of(connection, sock, event_of(connection, sock)))
            if connection.our_state is h11.MUST_CLOSE:
                break
            connection.start_next_cycle()
    return answers


def event_of(connection: h11.Connection, sock: socket.socket) -> Any:
    while (event := connection.next_event()) is h11.NEED_DATA:
        connection.receive_data(sock.recv(65536))
    return event


def rest_of(connection: h11.Connection, sock: socket.socket, head: Any) -> tuple[int, dict[str, str], bytes]:
    assert isinstance(head, h11.Response), head
    body = b""
    while isinstance(event := event_of(connection, sock), h11.Data):
        body += bytes(event.data)
    assert isinstance(event, h11.EndOfMessage), event
    headers = [(name.decode(), value.decode()) for name, value in head.headers]
    return tidy(head.status_code, headers, body)


Client = Callable[[Served, Sequence[Ask], Path], Answers]
CLIENTS: dict[str, Client] = {"http.client": by_http_client, "curl": by_curl, "h11": by_h11}


def conversation(server: Served) -> list[Ask]:
    """What is asked, in order; every answer follows from what was asked before in it."""
    queue, inv = f"q-{new_id()}", new_id()
    call = {"invocation_id": inv, "queue": queue, "args_blob": ""}
    packed, posted = msgpack.packb(one(queue=queue)), json.dumps(call).encode()
    presign = {"op": "put", "size": 300_000, "jobId": new_id(), "kind": "args"}
    granted = server.post("/v1/namespaces/default/payloads/presign", presign).body
    blob = bytes(range(250)) * 1200
    got = granted["url"]
    streamed = one()
    server.post("/v1/producer/submit", streamed)
    poll = {"worker_id": f"w-{new_id()}", "queue": streamed["queue"], "session": "s", "n": 1, "timeout_s": 0}
    (command,) = server.post("/v1/daemon/poll", poll).body["commands"]
    said = {
        "invocation_id": streamed["invocation_id"],
        "claim": command["body"]["claim"],
        "worker_id": poll["worker_id"],
    }
    frames = wire.FrameWriter(0)
    for seq in range(3):
        chunk = {**said, "worker_id": poll["worker_id"], "seq": seq, "bytes": frames.value(b"f" * 20_000)}
        assert server.post("/v1/daemon/result-chunk", chunk).status == 200
    ended = server.post("/v1/daemon/ack", {**said, "state": "succeeded", "result_blob": b"r", "last_seq": 2}).body
    assert ended["result"] == "ok", ended
    as_json, as_msgpack = (("Content-Type", JSON),), (("Content-Type", MSGPACK),)
    return [
        Ask(method="GET", path="/healthz"),
        Ask(method="HEAD", path="/healthz"),
        Ask(method="GET", path="/readyz", headers=(("Accept", MSGPACK),)),
        Ask(method="POST", path="/v1/producer/submit", headers=as_json, body=posted),
        Ask(method="POST", path="/v1/producer/submit", headers=as_json, body=posted),
        Ask(method="POST", path="/v1/producer/submit", headers=as_msgpack, chunks=(packed[:3], packed[3:])),
        Ask(method="POST", path="/v1/producer/submit", headers=as_msgpack, body=b"\xc1"),
        Ask(method="POST", path="/v1/producer/submit", headers=(("Content-Type", "a/b"),), body=posted),
        Ask(method="GET", path=f"/v1/producer/queues/{queue}/count"),
        Ask(method="HEAD", path=f"/v1/producer/queues/{queue}/count"),
        Ask(method="DELETE", path=f"/v1/namespaces/default/invocations/{inv}"),
        Ask(method="DELETE", path=f"/v1/namespaces/default/invocations/{inv}"),
        Ask(method="PATCH", path="/v1/producer/submit", headers=as_json, body=b"{}"),
        Ask(method="OPTIONS", path="/v1/producer/submit"),
        Ask(method="GET", path="/no/such%20route?x=%ff"),
        Ask(method="GET", path="/v1/producer/queues/%ff/count"),
        Ask(method="GET", path="/v1/namespaces/default/invocations?limit=0"),
        Ask(method="PUT", path=got, headers=as_msgpack, body=blob, expects=True),
        Ask(method="PUT", path=got, chunks=(blob[:70_000], blob[70_000:])),
        Ask(method="GET", path=f"/v1/producer/invocations/{streamed['invocation_id']}/result/stream"),
        Ask(method="POST", path=f"/v1/producer/invocations/{inv}/cancel", headers=as_json, body=b""),
        Ask(method="POST", path="/v1/producer/await", headers=as_json, body=b'{"invocation_id":"none","timeout_s":0}'),
        Ask(method="GET", path="/healthz", headers=(("Connection", "close"),)),
    ]


def test_three_clients_get_the_same_answers(server: Served, tmp_path: Path) -> None:
    if CURL is None:
        pytest.skip("no curl: install the Debian package curl")
    everything: dict[str, tuple[list[Ask], Answers]] = {}
    for name, client in CLIENTS.items():
        asks = conversation(server)
        everything[name] = asks, client(server, asks, tmp_path)
    asks, expected = everything["h11"]
    assert len(expected) == len(asks)
    statuses = [status for status, _headers, _body in expected]
    assert {200, 201, 400, 404, 405, 409, 415, 422} <= set(statuses), statuses
    for name, (own, answers) in everything.items():
        assert len(answers) == len(expected), name
        for ask, (status, headers, body), (status_then, headers_then, body_then) in zip(
            own, answers, expected, strict=True
        ):
            what = (name, ask.method, ask.path)
            assert status == status_then, what
            assert shape(body) == shape(body_then), what
            assert headers == headers_then, what


def shape(body: bytes) -> bytes:
    """A body without what is each conversation's own: ids, times, hashes."""
    return re.sub(rb"20[0-9T:.-]{21}Z|[0-9a-f]{24,}", lambda found: b"x" * len(found.group()), body)


@pytest.mark.parametrize("name", ["curl", "h11"])
def test_an_upload_that_is_too_large_is_refused_to_each_before_it_is_sent(
    server: Served, tmp_path: Path, name: str
) -> None:
    """Each announces and asks first (Expect): none of them is told to go on."""
    if name == "curl" and CURL is None:
        pytest.skip("no curl: install the Debian package curl")
    huge = Ask(
        method="POST",
        path="/v1/producer/submit",
        headers=(("Content-Type", MSGPACK),),
        body=b"\0" * 33 * 2**20,
        expects=True,
    )
    ((status, headers, body),) = CLIENTS[name](server, [huge], tmp_path)
    assert status == 413
    assert headers["connection"] == "close"
    assert "presign" in msgpack.unpackb(body)["hint"]
