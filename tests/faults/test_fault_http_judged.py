"""The server reads bytes as h11 does or refuses them: there is no request that it sees and h11 does not.

Realistic requests, changed at random, in random pieces, several on a connection. `HEADS_SEED` is the seed (printed with
a failure), `HEADS` how many heads and `STREAMS` how many connections: raise them after a change to the parser
(`HEADS=400000 STREAMS=40000` takes some minutes).
"""

from __future__ import annotations

import json
import os
import random
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
import trio
from http_heads import REAL, changed, changed_body, chunked, pieces
from http_judge import Heard, Verdict, body_of, head_of, is_stricter, judged, unclear_chunks
from trio.testing import wait_all_tasks_blocked

from lakeshore.server.http import HttpError, HttpServer, Limits, Request, Response, open_listeners
from lakeshore.server.http.chunked import ChunkReader, MalformedChunks
from lakeshore.server.http.head import END, HeadParser
from lakeshore.server.http.messages import Head

SEED = os.environ.get("HEADS_SEED", "1")
HEADS = int(os.environ.get("HEADS", "12000"))
STREAMS = int(os.environ.get("STREAMS", "900"))
SHARES = 3


def _only_head(raw: bytes) -> bytes | None:
    """What the parser is given of a connection's bytes: up to the empty line, without empty lines before it."""
    while raw.startswith(b"\r\n"):
        raw = raw[2:]
    end = raw.find(END)
    return None if end < 0 else raw[: end + len(END)]


def _heads(share: int) -> Iterator[bytes]:
    rng = random.Random(f"{SEED} heads {share}")
    real = list(REAL.values())
    for number in range(HEADS // SHARES):
        raw = real[number % len(real)] if number < len(real) else changed(rng.choice(real), rng)
        head = _only_head(raw)
        if head is not None:
            yield head


def heard(head: Head, length: int | None) -> Heard:
    """A head as ours understood it, in the judge's words."""
    return Heard(head.method, head.target, head.version, dict(head.headers), length)


@pytest.mark.parametrize("share", range(SHARES))
def test_a_head_means_what_h11_says_or_is_refused_and_the_second_time_as_well(share: int) -> None:
    parse = HeadParser(Limits())
    outcomes: Counter[str] = Counter()
    for raw in _heads(share):
        judge, first = head_of(raw), None
        for _time in range(2):  # the parser has a memory
            try:
                head, length = parse(raw)
            except HttpError as error:
                outcome = f"{error.status} {error.error}"
                assert error.status in (400, 414, 417, 431, 501), (SEED, raw, outcome)
                if judge is not None:
                    assert is_stricter(error.error, raw, judge), (SEED, raw, outcome, judge)
                    outcome = f"stricter: {outcome[:60]}"
                else:
                    outcome = "both refuse"
            else:
                outcome = "the same"
                assert judge is not None, (SEED, raw, "h11 refuses this head")
                assert heard(head, length) == judge, (SEED, raw)
                local = (head.path + "?" + head.query_string).rstrip("?")
                assert local == head.target.rstrip("?") or head.target.lower().startswith("http"), (SEED, raw)
            assert first in (None, outcome), (SEED, raw, first, outcome)
            first = outcome
        outcomes[first or ""] += 1
    print(SEED, outcomes)
    assert outcomes["the same"] > HEADS // SHARES // 10, outcomes
    assert outcomes["both refuse"] > HEADS // SHARES // 10, outcomes


@pytest.mark.parametrize("name", REAL)
def test_a_request_of_a_real_client_is_not_refused(name: str) -> None:
    raw = _only_head(REAL[name])
    assert raw is not None
    assert heard(*HeadParser(Limits())(raw)) == head_of(raw)


def test_heads_that_differ_in_nothing_but_their_length_are_told_apart() -> None:
    parse = HeadParser(Limits())
    for name, raw in REAL.items():
        head = _only_head(raw) or b""
        for digits in (
            b"3",
            b"0",
            b"70",
            b"",
            b"0003",
            b"9" * 12,
            b"9" * 13,
            b"9" * 20,
            b"9" * 25,
            b"-1",
            b"\xb2",
            b"3",
        ):
            other = re.sub(rb"(?i)(content-length: )\d+", rb"\g<1>" + digits, head)
            judge = head_of(other)
            try:
                assert heard(*parse(other)) == judge, (name, digits)
            except HttpError:
                assert judge is None, (name, digits)


def _chunked(rng: random.Random) -> bytes:
    parts = [rng.randbytes(rng.choice((1, 1, 2, 15, 16, 300))) for _ in range(rng.randrange(5))]
    extension = rng.choice((b"", b"", b";a=b", b';x="\t\xe9;y"', b";", b" ", b"\t"))
    trailers = rng.choice((b"", b"", b"A: b\r\n", b"Host: y\r\n", b"Y: z\t\r\nX:\r\n", b"A: b\r\n c\r\n"))
    return chunked(*parts, extension=extension, trailers=trailers) + rng.choice((b"", b"GET / HTTP/1.1\r\n", b"\r\n"))


def _read_chunks(parts: list[bytes]) -> tuple[bytes, bytes] | str:
    reader, body = ChunkReader(), b""
    try:
        for number, part in enumerate(parts):
            reader.feed(part)
            while (piece := reader.next_piece()) is not None:
                body += piece
            if reader.ended:
                return body, reader.rest + b"".join(parts[number + 1 :])
    except MalformedChunks as error:
        return str(error)
    return "more"


@pytest.mark.parametrize("share", range(SHARES))
def test_a_chunked_body_means_what_h11_says_or_is_refused(share: int) -> None:
    rng = random.Random(f"{SEED} chunks {share}")
    outcomes: Counter[str] = Counter()
    for number in range(HEADS // SHARES):
        right = _chunked(rng)
        raw = changed_body(right, rng) if number % 4 else right
        ours, judge = _read_chunks(pieces(raw, rng)), body_of(raw)
        what = (SEED, raw, ours, judge)
        if isinstance(ours, tuple):
            assert ours == judge, what
        elif ours == "more":
            assert judge is None, what
        elif judge is not None:
            assert unclear_chunks(raw), what
        outcomes["the same" if isinstance(ours, tuple) else ours] += 1
    print(SEED, outcomes)
    assert outcomes["the same"] > HEADS // SHARES // 5, outcomes
    assert outcomes["the same"] < HEADS // SHARES, outcomes


class Ear:
    """A server in this very loop that writes down what it understood, and a client of bytes for it."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.heard: list[Heard] = []

    async def say(self, parts: list[bytes]) -> bytes:
        """Send each part when the last one was read, end the sending side, and read the rest of the connection."""
        self.heard.clear()
        stream = await trio.open_tcp_stream("127.0.0.1", self.port)
        async with stream:
            try:
                for part in parts:
                    await stream.send_all(part)
                    await wait_all_tasks_blocked()
                await stream.send_eof()
            except trio.BrokenResourceError:
                pass  # it has refused and closed
            answer = b""
            try:
                with trio.fail_after(60):
                    async for data in stream:
                        answer += data
            except trio.BrokenResourceError:
                pass  # closed over bytes that nobody would read
            return answer


@asynccontextmanager
async def listening() -> AsyncIterator[Ear]:
    async def listen(request: Request) -> Response:
        body = await request.body()
        ear.heard.append(heard(request.head, request.content_length))
        ear.heard[-1].body = body
        return Response(body=b"ok")

    server, listeners = HttpServer(listen), open_listeners("127.0.0.1", 0)
    ear = Ear(listeners[0].address[1])
    async with trio.open_nursery() as nursery:
        await nursery.start(server.serve, listeners)
        yield ear
        with trio.fail_after(60):
            while server.open_connections:  # noqa: ASYNC110 - it has no event for that; nothing is left behind
                await trio.sleep(0.01)
        nursery.cancel_scope.cancel()


def compare(ear: Ear, verdict: Verdict, raw: bytes, answer: bytes) -> str:
    """Hold what the server did against the judge's reading; in a word, how it went."""
    what = (SEED, raw, ear.heard, verdict)
    count = len(ear.heard)
    assert ear.heard == verdict.requests[:count], what
    refusal = _last_refusal(answer)
    if count < len(verdict.requests):
        assert refusal is not None, ("a request got no answer", *what)
        rest = raw if count == 0 else raw[raw.find(END) :]
        assert is_stricter(refusal, rest, verdict.requests[count]), (refusal, *what)
        return "stricter"
    if verdict.refused:
        # h11 also refuses a beginning that ours waits to see more of
        assert refusal is not None or END not in verdict.rest, ("garbage got no answer", *what)
        return "both refuse"
    assert refusal is None or END in verdict.rest or b"\n" in verdict.rest, (refusal, *what)
    return "the same"


def _last_refusal(answer: bytes) -> str | None:
    at = answer.rfind(b"HTTP/1.1 4")
    at = answer.rfind(b"HTTP/1.1 501") if at < 0 else at
    if at < 0:
        return None
    head, _, body = answer[at:].partition(END)
    if not body:
        return "malformed chunked body"  # an answer to HEAD has no words, and only a body is refused that late
    assert b"connection: close" in head.lower(), answer
    return str(json.loads(body)["error"])


@pytest.mark.parametrize("share", range(SHARES))
def test_a_connection_holds_the_requests_that_h11_finds_in_it_however_its_bytes_arrive(share: int) -> None:
    rng = random.Random(f"{SEED} streams {share}")
    real = list(REAL.values())
    outcomes: Counter[str] = Counter()

    async def converse() -> None:
        async with listening() as ear:
            for number in range(STREAMS // SHARES):
                said = [rng.choice(real) for _ in range(rng.choice((1, 2, 2, 3)))]
                if number % 8:
                    at = rng.randrange(len(said))
                    said[at] = changed(said[at], rng)
                raw = b"".join(said)
                verdict = judged(raw)
                answer = await ear.say(pieces(raw, rng))
                outcome = compare(ear, verdict, raw, answer)
                outcomes[outcome] += 1
                assert number % 8 or outcome == "the same", (SEED, raw, ear.heard, verdict)

    trio.run(converse)
    print(SEED, outcomes)
    assert all(outcomes[kind] > STREAMS // SHARES // 30 for kind in ("the same", "both refuse", "stricter")), outcomes
