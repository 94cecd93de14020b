"""The worker protocol over HTTP: real sockets, a real server on a thread; the harness makes its lease sweeps happen."""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgpack
import pytest
import trio

from lakeshore.net.blocking import BlockingConnection
from lakeshore.net.target import parse_target
from lakeshore.plane.contract import (
    Appended,
    Cancelled,
    Gap,
    IllegalTransition,
    NotHeld,
    Poll,
    PollAnswer,
    Report,
    Settled,
    Superseded,
)
from lakeshore.sdk.http_wire import headers
from lakeshore.server import serve as serving
from lakeshore.server.dispatcher import Dispatcher
from lakeshore.testing.sessions import NS, SESSIONS


class ServerThread:
    """`serve` on a thread of its own; `call` runs something on its loop."""

    def __init__(self, state_dir: Path) -> None:
        self._ready = threading.Event()
        self.dispatcher: Dispatcher
        self._options = serving.ServeOptions(port=0, state_dir=state_dir, reserve_bytes=0)
        self._thread = threading.Thread(target=lambda: trio.run(self._run), name="server")
        self._thread.start()
        assert self._ready.wait(30)
        self.connection = BlockingConnection(parse_target(self.url))

    async def _run(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        with trio.CancelScope() as self._scope:
            await serving.serve(self._options, environ={}, ready=self._up, handle_signals=False, started=self._started)

    def _started(self, dispatcher: Dispatcher) -> None:
        self.dispatcher = dispatcher

    def _up(self, url: str) -> None:
        self.url = url
        self._ready.set()

    def call(self, async_call: Callable[..., Any], *args: Any) -> Any:
        return trio.from_thread.run(async_call, *args, trio_token=self._token)

    def stop(self) -> None:
        self.connection.close()
        self._token.run_sync_soon(self._scope.cancel)
        self._thread.join(30)
        assert not self._thread.is_alive()


class HttpPolls:
    """`PollHarness` over the documented routes; what only time does (leases, deadlines) is asked of the dispatcher."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._server = ServerThread(directory)
        self._dispatcher = self._server.dispatcher

    def close(self) -> None:
        self._server.stop()

    def submit(self, inv_id: str, *, queue: str = "default", max_attempts: int = 3) -> None:
        run_config = {"max_attempts": max_attempts}
        body = {"invocation_id": inv_id, "queue": queue, "args_blob": b"", "run_config": run_config}
        self._post("/v1/producer/submit", body)

    def register(self, worker: str, session: str) -> bool:
        try:
            self._server.call(self._dispatcher.hello, NS, worker, session, (), None)
        except Superseded:
            return False
        return True

    def adopt(self, worker: str, session: str, pairs: list[tuple[str, int]]) -> list[tuple[str, int]]:
        lost: list[tuple[str, int]] = self._server.call(self._dispatcher.hello, NS, worker, session, pairs, None)
        return lost

    def poll(self, request: Poll) -> PollAnswer:
        wish = request.wish
        body: dict[str, Any] = {
            "worker_id": request.worker,
            "queue": "default" if wish is None else wish.queues[0],
            "timeout_s": 0,
            "session": request.session,
            "n": request.n,
            "held": [[pair.id, pair.claim, pair.started] for pair in request.held],
            "acks": [_ack(report) for report in request.reports],
            "capacity": 0 if wish is None else wish.capacity,
        }
        status, answer = self._ask("POST", "/v1/daemon/poll", body)
        if status == 409:
            raise Superseded(answer["error"])
        assert status == 200, answer
        commands = answer["commands"]
        return PollAnswer(
            settled=[_settled(said) for said in answer["acks"]],
            lost=[tuple(pair) for pair in answer["lost"]],
            cancel=[(c["body"]["invocation_id"], c["body"]["claim"]) for c in commands if c["kind"] == "cancel"],
            runs=[_Run(c["body"]) for c in commands if c["kind"] == "run"],
            fenced=answer.get("status") == 410,
        )

    def settle(self, report: Report) -> Settled:
        return _settled(self._post("/v1/daemon/ack", {"acks": [_ack(report)]})["acks"][0])

    def append(self, inv_id: str, claim: int, seq: int) -> Appended:
        frame = msgpack.packb([0, seq, None, None])
        body = {"invocation_id": inv_id, "seq": seq, "bytes": frame, "claim": claim}
        status, answer = self._ask("POST", "/v1/daemon/result-chunk", body)
        if status == 409 and answer["error"] == "gap":
            raise Gap(inv_id, answer["expected"], seq)
        if status == 409:
            raise NotHeld(answer["error"])
        return Appended(seq=answer["seq"], duplicate=bool(answer.get("duplicate")))

    def lose(self, inv_id: str, claim: int) -> None:
        lease = self._dispatcher.leases.holder(inv_id)
        if lease is not None and lease.claim == claim:
            self._server.call(self._dispatcher._lose, lease, math.inf)

    def cancel(self, inv_id: str) -> Cancelled:
        done: Cancelled = self._server.call(self._dispatcher.cancel, NS, inv_id)
        return done

    def deadline(self, inv_id: str, claim: int) -> None:
        kill = functools.partial(self._dispatcher._kill, NS, inv_id, claim)
        self._server.call(self._dispatcher.writer.write, kill)

    def retry(self, inv_id: str, claim: int) -> None:
        status, answer = self._ask("POST", f"/v1/namespaces/{NS}/invocations/{inv_id}/retry", {"claim": claim})
        if status == 409:
            raise IllegalTransition(answer["error"])
        assert status == 200, answer

    def row(self, inv_id: str) -> dict[str, Any]:
        body = {"invocation_id": inv_id, "timeout_s": 0, "get": True}
        return self._post("/v1/producer/await", body)["invocation"] or {}

    def restart(self) -> None:
        self._server.stop()
        self._server = ServerThread(self._directory)
        self._dispatcher = self._server.dispatcher

    def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        status, answer = self._ask("POST", path, body)
        assert status == 200, answer
        return answer

    def _ask(self, method: str, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        answer = self._server.connection.request(method, path, headers=headers(None, NS), body=msgpack.packb(body))
        return answer.status, msgpack.unpackb(answer.body)


class _Run:
    """A run command, with the names of `contract.Claimed`."""

    def __init__(self, body: dict[str, Any]) -> None:
        self.id, self.claim, self.attempt = body["invocation_id"], body["claim"], body["attempt"]
        self.first_seq, self.queue = body["first_seq"], body["queue"]


def _ack(report: Report) -> dict[str, Any]:
    said: dict[str, Any] = {"invocation_id": report.id, "state": report.outcome, "retry": report.retry}
    if report.outcome != "succeeded":
        said["error"] = {"message": "", **(msgpack.unpackb(report.error) if report.error else {"type": "Error"})}
    fence = {
        "claim": report.claim,
        "worker_id": report.worker,
        "retries": report.retries,
        "last_seq": report.last_seq,
    }
    return said | {name: value for name, value in fence.items() if value is not None}


def _settled(said: dict[str, Any]) -> Settled:
    return Settled(
        id=said["invocation_id"],
        claim=said.get("claim"),
        result=said["result"],
        state=said.get("state"),
        expected=said.get("expected"),
    )


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[HttpPolls]:
    made = HttpPolls(tmp_path / "state")
    yield made
    made.close()


@pytest.mark.parametrize("case", [pytest.param(c, id=c.name, marks=pytest.mark.inventory(*c.ids)) for c in SESSIONS])
def test_polls_over_http_keep_the_contract(case: Callable[[HttpPolls], None], harness: HttpPolls) -> None:
    case(harness)
