"""Large arguments and results between a daemon and a real server's blob store."""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import kept as k
import pytest
import trio
from served import Served, new_id, running

from lakeshore.net.target import parse_target
from lakeshore.nymph import payloads as module
from lakeshore.nymph.execs import PayloadError
from lakeshore.nymph.payloads import Payloads
from lakeshore.nymph.transport import Transport

MIB = 1 << 20
NS = "default"


def over(server: Served, main: Callable[[Payloads, Transport], Awaitable[None]]) -> None:
    async def limited() -> None:
        transport = Transport(parse_target(server.url), token=None, namespace=NS)
        try:
            await main(Payloads(transport), transport)
        finally:
            transport.close()

    k.run(limited)


@pytest.mark.inventory("N-165", "N-166", "N-169")
def test_what_is_stored_comes_back_by_its_key_alone_and_by_a_url(server: Served, tmp_path: Path) -> None:
    data = os.urandom(3 * MIB)

    async def main(payloads: Payloads, transport: Transport) -> None:
        ref = await payloads.store(data, new_id(), "args")
        assert ref == {"key": ref["key"], "size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        await payloads.fetch(ref, tmp_path / "by-key")
        signed = await transport.post(f"/v1/namespaces/{NS}/payloads/presign", {"op": "get", "key": ref["key"]})
        await payloads.fetch({"key": ref["key"], "url": signed["url"]}, tmp_path / "by-url")
        assert (tmp_path / "by-key").read_bytes() == (tmp_path / "by-url").read_bytes() == data
        assert (tmp_path / "by-key").stat().st_mode & 0o777 == 0o600

    over(server, main)


@pytest.mark.inventory("N-168")
def test_what_arrives_is_what_was_stored_or_nothing(server: Served, tmp_path: Path) -> None:
    async def main(payloads: Payloads, _transport: Transport) -> None:
        ref = await payloads.store(b"x" * MIB, new_id(), "args")
        for change, said in (
            ({"sha256": "0" * 64}, f"payload corrupt: sha256 mismatch (expected {'0' * 64}, got {ref['sha256']})"),
            ({"size": 7}, f"payload corrupt: {MIB} bytes came, 7 were stored"),
            ({"size": 101 * MIB}, f"a payload of {101 * MIB} bytes: the limit is {100 * MIB} (100 MiB)"),
            ({"key": None}, "payload_ref names no key"),
            ({"key": f"payloads/{NS}/{new_id()}/args"}, "the payload cannot be had: "),
        ):
            with pytest.raises(PayloadError) as caught:
                await payloads.fetch({**ref, **change}, tmp_path / "target")
            assert str(caught.value).startswith(said)
            assert os.listdir(tmp_path) == []

    over(server, main)


@pytest.mark.inventory("N-167")
def test_only_a_large_result_travels_beside_its_ack(server: Served) -> None:
    async def main(payloads: Payloads, _transport: Transport) -> None:
        small = {"state": "succeeded", "result_blob": bytes(256 << 10), "exit_code": 0}
        assert await payloads.beside(small, new_id()) == small
        told = await payloads.beside({**small, "result_blob": bytes((256 << 10) + 1), "last_seq": 3}, new_id())
        ref = told.pop("result_ref")
        assert told == {"state": "succeeded", "exit_code": 0, "last_seq": 3}
        assert ref["size"] == (256 << 10) + 1
        too_large = await payloads.beside({**small, "result_blob": bytes(100 * MIB + 1), "last_seq": 3}, new_id())
        assert (too_large["state"], too_large["error"]["type"]) == ("failed", "PayloadError")
        assert "result_blob" not in too_large
        assert "last_seq" not in too_large

    over(server, main)


def test_a_refusal_is_the_end_and_an_absence_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FETCH_S", 1.5)
    with running(tmp_path / "server", env={"LAKESHORE_ADMIN_TOKEN": secrets.token_hex()}) as server:

        async def main(payloads: Payloads, _transport: Transport) -> None:
            with pytest.raises(PayloadError, match="the result was not taken: "):
                await payloads.store(b"x", new_id(), "result")
            server.stop()
            with pytest.raises(PayloadError, match=r"did not arrive within 1\.5 s: .*connect"):
                await payloads.fetch({"key": "payloads/x"}, tmp_path / "target")
            with trio.move_on_after(0.5) as scope:
                await payloads.store(b"x", new_id(), "result")
            assert scope.cancelled_caught

        over(server, main)


def test_a_url_of_another_server_gets_no_credential(server: Served, tmp_path: Path) -> None:
    seen: list[bytes] = []

    async def elsewhere(stream: trio.SocketStream) -> None:
        seen.append(bytes(await stream.receive_some(65536)))
        await stream.send_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")

    async def limited() -> None:
        async with trio.open_nursery() as nursery:
            listeners: list[Any] = await nursery.start(trio.serve_tcp, elsewhere, 0)
            port = listeners[0].socket.getsockname()[1]
            transport = Transport(parse_target(server.url), token="secret-token")
            await Payloads(transport).fetch({"key": "k", "url": f"http://127.0.0.1:{port}/b?sig=1"}, tmp_path / "t")
            transport.close()
            nursery.cancel_scope.cancel()

    k.run(limited)
    assert (tmp_path / "t").read_bytes() == b"hi"
    assert b"secret-token" not in seen[0]
    assert b"authorization" not in seen[0].lower()
