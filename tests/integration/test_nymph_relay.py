"""What a job on a daemon's host says, through a real keeper and a real server to whoever reads it."""

from __future__ import annotations

import base64
import os
import shutil
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import entry_bodies as bodies
import kept as k
import msgpack
import pytest
import trio
from ports import free_port
from served import MSGPACK, Served, new_id, running, start

import dreamlake.lakeshore as dls
from lakeshore import HttpDispatch
from lakeshore.net.errors import NetError
from lakeshore.net.target import parse_target
from lakeshore.net.trio_ import AsyncPool
from lakeshore.nymph import relay as relaying
from lakeshore.nymph.keeping.client import Kept
from lakeshore.nymph.relay import Followed, Relay
from lakeshore.nymph.runners.process import ProcessRunner, Run

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a keeper counts processes in /proc")
HERE = Path(__file__).parent
PYTHON = {"python": sys.executable, "env": {"PYTHONPATH": str(HERE)}}


class Refusal(Exception):
    def __init__(self, status: int | None, reason: str, body: Any = None) -> None:
        super().__init__(reason)
        self.status, self.body = status, body


class Line:
    """A daemon's way to a server; `sent` are the paths and bodies of what was taken."""

    def __init__(self, url: str, ns: str) -> None:
        self._pool = AsyncPool(parse_target(url))
        self._headers = [("content-type", MSGPACK), ("accept", MSGPACK), ("x-ls-namespace", ns)]
        self.sent: list[tuple[str, dict[str, Any]]] = []

    async def post(self, path: str, body: Any, *, timeout_s: float = 60.0) -> Any:
        try:
            answer = await self._pool.request(
                "POST", path, headers=self._headers, body=msgpack.packb(dict(body)), timeout=timeout_s
            )
        except NetError as error:
            raise Refusal(None, str(error)) from error
        told = msgpack.unpackb(answer.body)
        if answer.status != 200:
            raise Refusal(answer.status, str(told), told)
        self.sent.append((path, dict(body)))
        return told

    async def aclose(self) -> None:
        await self._pool.aclose()


class Daemon:
    """The parts of one: keeper, runner and relay, and a session that claims."""

    def __init__(self, server: Served, base: Path) -> None:
        self.server, self.base, self.root = server, base, base / "udf"
        self.ns, self.queue = f"ns-{new_id()}", "gpu"
        self.plane = HttpDispatch(server.url, namespace=self.ns)
        self.session, self.n = f"{time.time_ns():026d}", 0
        self.tails: list[bytes] = []
        self.runner: ProcessRunner
        self.relay: Relay
        self.line: Line

    @asynccontextmanager
    async def open(self, *, end: bool = True) -> AsyncIterator[Daemon]:
        self.line = Line(self.server.url, self.ns)
        async with k.keeper(self.base / "keeper", end=end) as keeper:
            self.keeper = keeper
            self.runner = ProcessRunner(keeper, self.root, {"PATH": os.environ["PATH"]}, grace_s=0.5)
            self.relay = Relay(self.line, keeper, self.root)
            try:
                yield self
            finally:
                await self.line.aclose()
                self.plane.close()

    async def poll(self, **more: Any) -> dict[str, Any]:
        self.n += 1
        body = {"worker_id": "box", "queue": self.queue, "session": self.session, "n": self.n, "timeout_s": 0, **more}
        answer: dict[str, Any] = await self.line.post("/v1/daemon/poll", body)
        return answer

    async def begun(self, function: Any, *arguments: Any) -> tuple[Kept, dict[str, Any]]:
        """Submit, claim, start."""
        await trio.to_thread.run_sync(lambda: function.submit(*arguments, _dispatch=self.plane, _queue=self.queue))
        answer = await self.poll()
        (body,) = [one["body"] for one in answer["commands"] if one["kind"] == "run"]
        run = Run(
            invocation_id=body["invocation_id"],
            args=body["args_blob"],
            run_config=PYTHON,
            claim=body["claim"],
            attempt=body["attempt"],
            first_seq=body["first_seq"],
        )
        return await self.runner.start(run), body

    async def settled(self, job: Kept, followed: Followed) -> dict[str, Any]:
        """Ack it; the answer to that."""
        outcome = await self.runner.ended(job)
        who = {"invocation_id": job.claim["invocation_id"], "claim": job.claim["claim"]}
        ending = {"error": None, **followed.ending(outcome.ending)}
        ending.pop("exit_code", None)
        answer = await self.line.post("/v1/daemon/ack", {"acks": [{**who, **ending}]})
        (told,) = answer["acks"]
        return dict(told)

    def posts(self, path: str) -> list[dict[str, Any]]:
        return [body for where, body in self.line.sent if where == path]

    def printed(self, id_: str, stream: str) -> bytes:
        answer = self.server.get(f"/v1/namespaces/{self.ns}/invocations/{id_}/logs?stream={stream}")
        return b"".join(base64.b64decode(part["bytes"]) for part in answer.body["parts"])

    def values(self, id_: str) -> list[Any]:
        return list(dls.SyncQueue(self.queue, dispatch=self.plane).stream(id_, timeout=20.0))


def on(server: Served, base: Path, main: Callable[[Daemon], Any], *, end: bool = True) -> None:
    async def limited() -> None:
        async with Daemon(server, base).open(end=end) as daemon:
            await main(daemon)

    k.run(limited)


@pytest.mark.inventory("N-401", "P-354", "N-377")
def test_yields_and_lines_are_there_while_the_body_runs_and_the_ack_names_the_last(
    server: Served, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"

    async def main(daemon: Daemon) -> None:
        job, body = await daemon.begun(bodies.counted, 10, str(gate))
        id_ = body["invocation_id"]
        found: list[Followed] = []

        async def follow() -> None:
            found.append(await daemon.relay.follow(job, daemon.tails.append))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(follow)
            await k.until(lambda: len(daemon.posts(relaying.RESULT_CHUNK)) > 0 and len(daemon.tails) > 0)
            await k.until(lambda: b"line 4\n" in (daemon.printed(id_, "stdout")))
            stream = dls.SyncQueue(daemon.queue, dispatch=daemon.plane).stream(id_, timeout=20.0)
            first = await trio.to_thread.run_sync(lambda: [next(stream) for _ in range(5)])
            assert first == [0, 1, 2, 3, 4]
            assert not found
            gate.touch()
            rest = trio.to_thread.run_sync(lambda: list(stream))
        assert found == [Followed(last_seq=9)]
        assert daemon.tails[-1] == b"".join(b"line %d\n" % i for i in range(10))
        assert daemon.printed(id_, "stdout") == daemon.tails[-1]
        assert (await daemon.settled(job, found[0]))["result"] == "ok"
        assert await rest == [5, 6, 7, 8, 9]
        assert daemon.posts(relaying.RESULT_CHUNK)[0]["seq"] == 0
        await daemon.runner.release(job, keep=False)
        assert os.listdir(daemon.root) == []

    on(server, tmp_path, main)


def test_a_stream_without_a_yield_is_a_stream_and_a_plain_body_is_none(server: Served, tmp_path: Path) -> None:
    async def main(daemon: Daemon) -> None:
        for function, arguments, last in ((bodies.counted, (0,), -1), (bodies.pair, (1, 2), None)):
            job, body = await daemon.begun(function, *arguments)
            followed = await daemon.relay.follow(job)
            assert followed == Followed(last_seq=last)
            assert (await daemon.settled(job, followed))["result"] == "ok"
            if last is not None:
                assert daemon.values(body["invocation_id"]) == []

    on(server, tmp_path, main)


def test_a_fast_stream_arrives_whole_in_runs_and_its_files_go_as_it_is_taken(server: Served, tmp_path: Path) -> None:
    async def main(daemon: Daemon) -> None:
        count, size = 60, 256 << 10
        job, body = await daemon.begun(bodies.heavy, count, size)
        followed = await daemon.relay.follow(job)
        assert followed == Followed(last_seq=count - 1)
        left = sorted((daemon.root / body["invocation_id"] / "frames").iterdir())
        assert len(left) == 1
        assert left[0].stat().st_size < 5 << 20
        assert (await daemon.settled(job, followed))["result"] == "ok"
        got = await trio.to_thread.run_sync(daemon.values, body["invocation_id"])
        assert [int.from_bytes(value[:4], "big") for value in got] == list(range(count))

    on(server, tmp_path, main)


def test_a_body_waits_while_nobody_takes_what_it_yields_and_goes_on_then(server: Served, tmp_path: Path) -> None:
    async def main(daemon: Daemon) -> None:
        count, size = 27, 4 << 20
        job, body = await daemon.begun(bodies.heavy, count, size)
        frames = daemon.root / body["invocation_id"] / "frames"

        def bytes_there() -> int:
            return sum(path.stat().st_size for path in frames.iterdir()) if frames.exists() else 0

        await k.until(lambda: bytes_there() >= 64 << 20)
        await trio.sleep(0.3)
        assert bytes_there() < (64 << 20) + 3 * size
        assert k.alive(job.pid)
        followed = await daemon.relay.follow(job)
        assert followed == Followed(last_seq=count - 1)
        assert (await daemon.settled(job, followed))["result"] == "ok"

    on(server, tmp_path, main)


def test_a_new_daemon_goes_on_where_the_files_stand(server: Served, tmp_path: Path) -> None:
    gate = tmp_path / "gate"

    async def main(daemon: Daemon) -> None:
        job, body = await daemon.begun(bodies.counted, 8, str(gate))
        with trio.move_on_after(60) as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(daemon.relay.follow, job)
                await k.until(lambda: sum(1 for _ in daemon.posts(relaying.RESULT_CHUNK)) > 0)
                nursery.cancel_scope.cancel()
        assert not scope.cancelled_caught
        gate.touch()
        second = Relay(daemon.line, daemon.keeper, daemon.root)
        (found,) = [one for one in await daemon.keeper.jobs() if one.id == job.id]
        followed = await second.follow(found, daemon.tails.append)
        assert followed == Followed(last_seq=7)
        assert (await daemon.settled(found, followed))["result"] == "ok"
        assert await trio.to_thread.run_sync(daemon.values, body["invocation_id"]) == list(range(8))
        assert daemon.printed(body["invocation_id"], "stdout") == b"".join(b"line %d\n" % i for i in range(8))

    on(server, tmp_path, main)


def test_after_a_gap_the_frames_are_sent_again_from_where_they_are_expected(server: Served, tmp_path: Path) -> None:
    async def main(daemon: Daemon) -> None:
        job, body = await daemon.begun(bodies.counted, 6)
        await daemon.keeper.wait(job.id)
        told = await daemon.settled(job, Followed(last_seq=5))
        assert (told["result"], told["expected"]) == ("gap", 0)
        assert await daemon.relay.resend(job, 0)
        assert (await daemon.settled(job, Followed(last_seq=5)))["result"] == "ok"
        assert await trio.to_thread.run_sync(daemon.values, body["invocation_id"]) == list(range(6))
        shutil.rmtree(daemon.root / body["invocation_id"] / "frames")
        assert not await daemon.relay.resend(job, 0)

    on(server, tmp_path, main)


def test_a_claim_that_is_somebody_elses_gets_nothing_more(server: Served, tmp_path: Path) -> None:
    gate = tmp_path / "gate"

    async def main(daemon: Daemon) -> None:
        job, _ = await daemon.begun(bodies.counted, 4, str(gate))
        await daemon.poll()  # it does not list the claim: that gives it back
        gate.touch()
        followed = await daemon.relay.follow(job)
        assert followed.refused is not None
        assert daemon.posts(relaying.RESULT_CHUNK) == daemon.posts(relaying.LOG_CHUNK) == []
        assert followed.ending({"state": "succeeded", "result_blob": b"", "exit_code": 0}) == {
            "state": "failed",
            "exit_code": 0,
            "error": {"type": "DispatchError", "message": f"what it yielded was not taken: {followed.refused}"},
        }

    on(server, tmp_path, main)


@pytest.mark.parametrize("body", ["forged", "linked"])
def test_what_is_no_frame_fails_the_job_and_no_link_is_followed(server: Served, tmp_path: Path, body: str) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"\x94\x00\x01\xa6secret\xc0")

    async def main(daemon: Daemon) -> None:
        arguments = [str(secret)] if body == "linked" else []
        job, _ = await daemon.begun(getattr(bodies, body), *arguments)
        await daemon.keeper.wait(job.id)
        followed = await daemon.relay.follow(job)
        told = await daemon.settled(job, followed)
        assert told["result"] == "ok"
        assert b"secret" not in b"".join(post["frames"] for post in daemon.posts(relaying.RESULT_CHUNK))
        assert followed.refused is not None
        assert body == "linked" or "what is among the frames is none" in followed.refused

    on(server, tmp_path, main)


def test_a_server_that_is_away_gets_the_rest_when_it_is_back(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    port = free_port()
    with running(tmp_path / "server", "--port", str(port)) as server:

        async def main(daemon: Daemon) -> None:
            job, body = await daemon.begun(bodies.counted, 6, str(gate))
            id_ = body["invocation_id"]
            found: list[Followed] = []

            async def follow() -> None:
                found.append(await daemon.relay.follow(job))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(follow)
                await k.until(lambda: len(daemon.posts(relaying.RESULT_CHUNK)) > 0)
                server.stop(signal.SIGKILL)
                gate.touch()
                await daemon.keeper.wait(job.id)
                again = await trio.to_thread.run_sync(lambda: start(tmp_path / "server", "--port", str(port)))
            try:
                assert found == [Followed(last_seq=5)]
                assert (await daemon.settled(job, found[0]))["result"] == "ok"
                assert await trio.to_thread.run_sync(daemon.values, id_) == list(range(6))
                assert daemon.printed(id_, "stdout") == b"".join(b"line %d\n" % i for i in range(6))
            finally:
                again.stop(signal.SIGKILL)

        on(server, tmp_path, main)
