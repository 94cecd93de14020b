"""Output that is sent while a command runs, to a real HTTP server that takes it, is away, or refuses it."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import kept as k
import msgpack
import pytest
import trio
from exec_host import Host
from http_peer import serving

from lakeshore.nymph import sink
from lakeshore.server.http import Request, Response

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts processes in /proc")
LOG = {"stdout_url": "/v1/daemon/exec/x/chunk", "stdin_url": None, "flush_ms": 20, "flush_bytes": 64 << 10}


class Listener:
    """Takes chunks with `status`; remembers those that it took, and how often it was asked."""

    def __init__(self) -> None:
        self.status = 200
        self.asked = 0
        self.heads: list[tuple[str, str | None, str | None, int]] = []
        self.streams: list[str] = []
        self.chunks: list[bytes] = []
        self.url = ""

    async def handle(self, request: Request) -> Response:
        data = await request.body(8 << 20)
        self.asked += 1
        if self.status == 200:
            head = (request.header("content-type"), request.header("authorization"))
            self.heads.append((request.path, *head, int(request.query["offset"])))
            self.streams.append(request.query.get("stream", "stdout"))
            self.chunks.append(data)
        return Response(status=self.status, body=msgpack.packb({}), headers=(("content-type", "application/msgpack"),))

    @property
    def heard(self) -> bytes:
        return b"".join(self.chunks)


@contextmanager
def listening() -> Iterator[Listener]:
    listener = Listener()
    with serving(listener.handle) as served:
        listener.url = f"http://127.0.0.1:{served.port}"
        yield listener


def run(tmp_path: Path, listener: Listener, command: str, *, log: Any = None, then: Any = None) -> dict[str, Any]:
    """The result of a command whose output is sent; `then` is awaited while it runs, and ends it by making `go`."""
    host = Host(tmp_path, listener.url)
    results: list[dict[str, Any]] = []

    async def main() -> None:
        async with host.open(), trio.open_nursery() as nursery:

            async def one() -> None:
                results.append(await host.result(command=command, log=log or LOG, env={"GO": str(tmp_path / "go")}))

            nursery.start_soon(one)
            if then is not None:
                await then()
            (tmp_path / "go").touch()

    k.run(main)
    (told,) = results
    assert told["stdout"] == told["stderr"] == b""  # N-162
    return told


WAIT = 'until [ -e "$GO" ]; do sleep 0.02; done'


@pytest.mark.inventory("N-159", "N-160", "N-162")
def test_what_a_command_prints_is_heard_while_it_runs_as_it_was_printed(tmp_path: Path) -> None:
    with listening() as listener:

        async def then() -> None:
            await k.until(lambda: listener.heard == b"one\ntwo\nthree\n")

        printed = "echo one; echo two >&2; echo three"
        told = run(tmp_path, listener, f"{printed}; {WAIT}; printf '\\xff\\x00'; exit 5", then=then)
        assert (told["exit_code"], told["error"]) == (5, None)
        assert listener.heard == b"one\ntwo\nthree\n\xff\x00"
        offset = 0
        for head, chunk in zip(listener.heads, listener.chunks, strict=True):
            assert head == ("/v1/daemon/exec/x/chunk", "application/octet-stream", "Bearer t", offset)
            offset += len(chunk)


@pytest.mark.inventory("N-415")
def test_stderr_is_in_the_same_stream_where_it_was_printed(tmp_path: Path) -> None:
    with listening() as listener:
        run(tmp_path, listener, "for n in $(seq 500); do echo o$n; echo e$n >&2; done")
        assert listener.heard == b"".join(b"o%d\ne%d\n" % (n, n) for n in range(1, 501))


def test_stderr_has_a_stream_of_its_own_where_the_server_names_one(tmp_path: Path) -> None:
    with listening() as listener:
        run(
            tmp_path,
            listener,
            "echo out; echo err >&2",
            log={**LOG, "stderr_url": f"{LOG['stdout_url']}?stream=stderr"},
        )
        assert sorted(zip(listener.streams, listener.chunks, strict=True)) == [
            ("stderr", b"err\n"),
            ("stdout", b"out\n"),
        ]


@pytest.mark.inventory("N-392")
def test_addresses_of_an_interactive_session_are_not_called(tmp_path: Path) -> None:
    with listening() as listener:
        log = {**LOG, "stdin_url": "/v1/daemon/exec/x/stdin", "control_url": f"{listener.url}/control"}
        told = run(tmp_path, listener, "cat; echo out", log=log)
        assert (told["exit_code"], listener.heard) == (0, b"out\n")
        assert {path for path, *_ in listener.heads} == {LOG["stdout_url"]}
        assert listener.asked == len(listener.heads)


@pytest.mark.inventory("N-158")
@pytest.mark.parametrize(
    ("log", "fewest", "most"),
    [
        ({"flush_ms": 60_000, "flush_bytes": 1 << 20}, 1, 1),
        ({"flush_ms": 60_000, "flush_bytes": 32 << 10}, 5, 7),
        ({"flush_ms": None, "flush_bytes": "?"}, 1, 4),
    ],
    ids=["it waits for either", "so many bytes", "what is not said has a sense"],
)
def test_flushes_are_as_large_as_they_are_wished(tmp_path: Path, log: dict[str, Any], fewest: int, most: int) -> None:
    with listening() as listener:
        told = run(tmp_path, listener, "head -c 200000 /dev/zero; exit 0", log={**LOG, **log})
        assert told["exit_code"] == 0
        assert listener.heard == bytes(200_000)
        assert fewest <= len(listener.chunks) <= most


@pytest.mark.inventory("N-161")
def test_what_was_not_taken_is_sent_again_and_the_command_does_not_hear_of_it(tmp_path: Path) -> None:
    with listening() as listener:
        listener.status = 503

        async def then() -> None:
            await k.until(lambda: listener.asked >= 2)
            assert listener.chunks == []
            listener.status = 200
            await k.until(lambda: listener.heard == b"kept\n")

        told = run(tmp_path, listener, f"echo kept; {WAIT}; echo more", then=then)
        assert (told["exit_code"], told["error"], listener.heard) == (0, None, b"kept\nmore\n")


@pytest.mark.inventory("N-416")
def test_while_nobody_takes_it_no_more_than_a_mebibyte_is_kept_and_what_is_missing_is_named(tmp_path: Path) -> None:
    with listening() as listener:
        listener.status = 503

        async def then() -> None:
            printed = tmp_path / "keeper/jobs/exec-x/stdout"
            await k.until(lambda: printed.exists() and printed.stat().st_size == 4_000_004)
            asked = listener.asked
            await k.until(lambda: listener.asked > asked + 1)
            listener.status = 200
            await k.until(lambda: listener.heard.endswith(b"end\n"))

        run(tmp_path, listener, f"head -c 4000000 /dev/zero; echo end; {WAIT}", then=then)
        kept = sink.BUFFER_MAX
        missing = b"\n[log truncated: %d bytes are missing here]\n" % (4_000_004 - kept)
        assert listener.heard == missing + bytes(kept - 4) + b"end\n"


def test_as_long_as_it_is_taken_nothing_is_missing_however_much_it_is(tmp_path: Path) -> None:
    with listening() as listener:
        run(tmp_path, listener, "head -c 6000000 /dev/zero; echo end")
        assert listener.heard == bytes(6_000_000) + b"end\n"


@pytest.mark.inventory("N-161")
@pytest.mark.parametrize("status", [404, 409, 413])
def test_a_refusal_ends_the_sending_and_not_the_command(tmp_path: Path, status: int) -> None:
    with listening() as listener:
        listener.status = status

        async def then() -> None:
            await k.until(lambda: listener.asked == 1)

        began = time.monotonic()
        told = run(tmp_path, listener, f"echo one; {WAIT}; echo two; exit 3", then=then)
        assert (told["exit_code"], told["error"], listener.asked) == (3, None, 1)
        assert time.monotonic() - began < sink.LAST_S


def test_a_server_that_stays_away_costs_a_command_that_has_ended_no_more_than_a_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink, "LAST_S", 0.3)
    with listening() as listener:
        listener.status = 503
        told = run(tmp_path, listener, "echo one; exit 3")
        assert (told["exit_code"], listener.chunks) == (3, [])
        assert listener.asked >= 2


@pytest.mark.inventory("N-163")
def test_a_sink_of_another_server_gets_nothing_of_ours(tmp_path: Path) -> None:
    with listening() as ours, listening() as other:
        run(
            tmp_path, ours, "echo one", log={**LOG, "stdout_url": f"{other.url}/chunk", "control_url": f"{other.url}/c"}
        )
        assert (other.asked, ours.heard, ours.heads[0][0]) == (0, b"one\n", "/chunk")
