"""The daemon's core before a real server: a shell of a hundred lines performs what it says, in threads."""

from __future__ import annotations

import queue
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from served import Served, running

from lakeshore.nymph.core import events, instructions
from lakeshore.nymph.core.settings import Settings
from lakeshore.nymph.recording import Recorder, replay

LEASE_S = 2.0


class Shell(threading.Thread):
    """Performs a core's instructions. A body is a wait for its `sleep`, or for a stop; its result is its arguments."""

    def __init__(self, server: Served, queue_name: str, **given: Any) -> None:
        super().__init__(daemon=True)
        self.server, self.offline = server, False
        self.log: list[str] = []
        name = f"box-{secrets.token_hex(4)}"
        self.hello = {
            "machine_id": name,
            "label": "",
            "tags": [],
            "capabilities": {"runners": ["process"]},
            "versions": {"daemon": "0.2.0", "protocol": "1"},
        }
        mine = Settings(
            worker_id=name,
            session=f"{time.time_ns():026d}",
            version="0.2.0",
            queue=queue_name,
            keep_alive_s=-1,
            **{"retry_min_s": 0.1, "grace_s": 5.0, **given},
        )
        self.recorder = Recorder(mine, self.log.append)
        self.hello["session"] = mine.session
        self.events: queue.Queue[Any] = queue.Queue()
        self.pool = ThreadPoolExecutor(32)
        self.stops: dict[tuple[str, int], threading.Event] = {}
        self.ran: list[tuple[str, int]] = []
        self.stopped_at: dict[tuple[str, int], float] = {}
        self.last: Any = None
        self.started = threading.Event()

    def run(self) -> None:
        timer: float | None = None
        event: Any = events.Booted()
        while self.last is None:
            for one in self.recorder.handle(event, time.monotonic()):
                if isinstance(one, instructions.SetTimer):
                    timer = one.at
                self.perform(one)
            if self.last is not None:
                break
            try:
                wait = None if timer is None else max(0.0, timer - time.monotonic())
                event = self.events.get(timeout=wait)
            except queue.Empty:
                timer, event = None, events.TimerFired()
        self.pool.shutdown(wait=False)

    def perform(self, one: Any) -> None:
        match one:
            case instructions.SendHello():
                self.ask("/v1/daemon/hello", self.hello, lambda a: events.HelloAnswered(answer=a), self.no_hello)
            case instructions.Poll():

                def answered(answer: Any, n: int = one.n) -> Any:
                    return events.PollAnswered(n=n, answer=answer, epoch=time.time())

                def failed(why: str, status: int | None, n: int = one.n) -> Any:
                    return events.PollFailed(n=n, rand=0.5, reason=why, status=status)

                self.ask("/v1/daemon/poll", dict(one.body), answered, failed)
            case instructions.SendAcks():

                def taken(answer: Any, batch: int = one.batch) -> Any:
                    return events.AcksAnswered(batch=batch, answers=answer["acks"])

                def not_taken(why: str, status: int | None, batch: int = one.batch) -> Any:
                    return events.AcksFailed(batch=batch, rand=0.5, reason=why, status=status)

                self.ask("/v1/daemon/ack", {"acks": list(one.items)}, taken, not_taken)
            case instructions.StartJob():
                pair = (one.invocation_id, one.claim)
                self.stops[pair] = threading.Event()
                self.pool.submit(self.work, pair, one.body)
            case instructions.StopJob():
                self.stopped_at[one.invocation_id, one.claim] = time.monotonic()
                self.stops[one.invocation_id, one.claim].set()
            case instructions.Exit():
                self.last = one

    def no_hello(self, why: str, status: int | None) -> Any:
        return events.HelloFailed(rand=0.5, reason=why, status=status)

    def ask(self, path: str, body: Any, good: Callable[[Any], Any], bad: Callable[[str, int | None], Any]) -> None:
        def do() -> None:
            if self.offline:
                self.events.put(bad("cut off", None))
                return
            answer = self.server.post(path, body)
            if self.offline:
                self.events.put(bad("cut off while it was under way", None))
            elif answer.status != 200:
                self.events.put(bad(answer.raw.decode(errors="replace"), answer.status))
            else:
                self.events.put(good(answer.body))

        self.pool.submit(do)

    def work(self, pair: tuple[str, int], body: Any) -> None:
        id_, claim = pair
        self.ran.append(pair)
        self.events.put(events.JobStarted(invocation_id=id_, claim=claim, epoch=time.time()))
        self.started.set()
        stopped = self.stops[pair].wait(body["run_config"].get("sleep", 0))
        ending = (
            {"state": "failed", "error": "stopped"}
            if stopped
            else {"state": "succeeded", "result_blob": body["args_blob"]}
        )
        self.events.put(events.JobEnded(invocation_id=id_, claim=claim, ending=ending))

    def leave(self) -> None:
        self.events.put(events.Signalled(name="SIGTERM"))
        self.join(60)
        assert self.last is not None, "it does not leave"


@pytest.fixture(scope="module")
def short_leases(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with running(tmp_path_factory.mktemp("short"), "--lease-s", str(LEASE_S)) as served:
        yield served


def submit(server: Served, to: str, **config: Any) -> str:
    id_ = secrets.token_hex(8)
    body = {"invocation_id": id_, "queue": to, "args_blob": id_.encode(), "run_config": config}
    assert server.post("/v1/producer/submit", body).status == 200
    return id_


def begun(server: Served, id_: str) -> None:
    """The server knows that it has begun: the poll that says so follows at once."""
    deadline = time.monotonic() + 60
    while server.post("/v1/producer/await", {"invocation_id": id_, "get": True}).body["invocation"]["attempt"] != 1:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def ended(server: Served, id_: str, timeout_s: float = 60.0) -> dict[str, Any]:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        answer = server.post("/v1/producer/await", {"invocation_id": id_, "timeout_s": 20}).body
        if answer["state"] != "pending":
            return dict(answer)
    raise AssertionError(f"{id_} does not end")


def check(shell: Shell) -> None:
    """It left by itself, and its run replays."""
    assert shell.last == instructions.Exit(code=0, why="SIGTERM")
    assert len(list(replay(shell.log))) == len(shell.log) - 1


@pytest.mark.inventory("N-192", "K-8")
def test_a_queue_is_drained_each_claim_begins_once_and_the_run_replays(server: Served) -> None:
    ids = [submit(server, "nymph-drain") for _ in range(40)]
    shell = Shell(server, "nymph-drain", max_invocations=3)
    shell.start()
    ids += [submit(server, "nymph-drain") for _ in range(20)]
    for id_ in ids:
        assert ended(server, id_) == {"state": "succeeded", "result_blob": id_.encode(), "error": None, "attempt": 1}
    shell.leave()
    check(shell)
    assert sorted(id_ for id_, _ in shell.ran) == sorted(ids)


@pytest.mark.inventory("N-378", "K-27")
def test_a_cancel_reaches_a_body_that_runs(server: Served) -> None:
    shell = Shell(server, "nymph-cancel", max_invocations=2)
    shell.start()
    id_ = submit(server, "nymph-cancel", sleep=30)
    assert shell.started.wait(60)
    begun(server, id_)
    assert server.post(f"/v1/producer/invocations/{id_}/cancel", {}).body["cancelling"] is True
    assert ended(server, id_)["state"] == "killed"
    shell.leave()
    check(shell)


@pytest.mark.inventory("K-11", "K-5")
def test_a_daemon_that_is_cut_off_has_stopped_before_another_one_begins(short_leases: Served) -> None:
    cut, other = Shell(short_leases, "nymph-cut"), Shell(short_leases, "nymph-cut")
    cut.start()
    id_ = submit(short_leases, "nymph-cut", sleep=1.5 * LEASE_S)
    assert cut.started.wait(60)
    begun(short_leases, id_)
    cut.offline = True
    other.start()
    assert other.started.wait(60)
    began = time.monotonic()
    (pair,) = cut.stopped_at
    assert cut.stopped_at[pair] < began
    cut.offline = False
    assert ended(short_leases, id_) == {"state": "succeeded", "result_blob": id_.encode(), "error": None, "attempt": 2}
    assert other.ran[0][1] > pair[1]
    for shell in (cut, other):
        shell.leave()
        check(shell)


def test_a_daemon_outlives_its_server_and_tells_what_ended_meanwhile(tmp_path: Path) -> None:
    with running(tmp_path) as first:
        shell = Shell(first, "nymph-restart", retry_max_s=0.2)
        shell.start()
        id_ = submit(first, "nymph-restart", sleep=1.0)
        assert shell.started.wait(60)
        shell.offline = True
        first.stop()
    with running(tmp_path) as second:
        shell.server = second
        while not any('"JobEnded"' in line for line in shell.log):
            time.sleep(0.02)
        shell.offline = False
        assert ended(second, id_)["state"] == "succeeded"
        shell.leave()
        check(shell)
