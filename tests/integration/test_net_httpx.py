"""Our pools under stock httpx clients."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import httpx
import pytest
import trio
from net_scripted import Served, scripted

from lakeshore.net.httpx_transport import AsyncHttpxTransport, HttpxTransport


def routes(served: Served) -> None:
    while (head := served.read_head()) != b"":
        served._buffer = head + b"\r\n\r\n" + served._buffer
        if b"chunked" in head:
            served._buffer = served._buffer.partition(b"\r\n\r\n")[2]
            while not served._buffer.endswith(b"0\r\n\r\n"):
                served._buffer += served.sock.recv(65536)
            body, served._buffer = served._buffer, b""
            served.answer(body)
            continue
        request = served.read_request()
        assert request is not None
        if b" /moved" in head:
            served.answer(b"", "307 Temporary Redirect", b"location: /there\r\n")
        elif b" /die" in head:
            served.sock.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf")
            return
        elif b" /hang" in head:
            served.wait_for_close()
            return
        elif b" /not-http" in head:
            served.sock.sendall(b"SSH-2.0-x\r\n")
            return
        else:
            served.answer(request[1] or head.split(b"\r\n")[0], extra=b"x-one: a\r\nx-one: b\r\n")


def test_a_client_of_httpx_works_on_our_connections() -> None:
    def pieces() -> Iterator[bytes]:
        yield b"ab"
        yield b"c"

    with scripted(routes) as server, httpx.Client(transport=HttpxTransport(), base_url=server.url) as client:
        assert client.get("/a?b=c%20d").text == "GET /a?b=c%20d HTTP/1.1"
        answer = client.post("/e", json={"x": 1})
        assert answer.json() == {"x": 1}
        assert answer.headers.get_list("x-one") == ["a", "b"]
        assert client.post("/moved", content=b"kept", follow_redirects=True).content == b"kept"
        assert client.put("/c", content=pieces()).content == b"2\r\nab\r\n1\r\nc\r\n0\r\n\r\n"
        with client.stream("POST", "/s", content=b"y" * 300_000) as streamed:
            assert sum(map(len, streamed.iter_bytes())) == 300_000
        assert server.connections == 1
        with pytest.raises(httpx.ReadError):
            client.get("/die")
        with pytest.raises(httpx.ReadTimeout):
            client.get("/hang", timeout=0.05)
        with pytest.raises(httpx.RemoteProtocolError):
            client.get("/not-http")
    with httpx.Client(transport=HttpxTransport()) as client:
        with pytest.raises(httpx.ConnectError):
            client.get(server.url)
        with pytest.raises(httpx.UnsupportedProtocol):
            client.get("ftp://x/")


def test_it_can_be_mounted_for_one_base_url() -> None:
    with scripted(routes) as server, httpx.Client(mounts={server.url: HttpxTransport()}) as client:
        assert client.get(server.url + "/m").status_code == 200


@pytest.mark.parametrize("run", ["asyncio", "trio"])
def test_an_async_client_of_httpx_works_on_our_connections(run: str) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield b"ab"
        yield b"c"

    async def main() -> None:
        async with httpx.AsyncClient(transport=AsyncHttpxTransport(), base_url=server.url) as client:
            assert (await client.post("/e", json={"x": 1})).json() == {"x": 1}
            assert (await client.put("/c", content=pieces())).content == b"2\r\nab\r\n1\r\nc\r\n0\r\n\r\n"
            async with client.stream("POST", "/s", content=b"y" * 300_000) as streamed:
                assert sum([len(piece) async for piece in streamed.aiter_bytes()]) == 300_000
            with pytest.raises(httpx.ReadError):
                await client.get("/die")
            with pytest.raises(httpx.ReadTimeout):
                await client.get("/hang", timeout=0.05)

    with scripted(routes) as server:
        if run == "asyncio":
            asyncio.run(main())
        else:
            trio.run(main)
