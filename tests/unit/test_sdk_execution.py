"""One job, run to its ending: whatever its body does, there is an ending and the process is as it was."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lakeshore import wire
from lakeshore.sdk.ambient import ambient_plane
from lakeshore.sdk.context import current, run
from lakeshore.sdk.dispatch import Claimed
from lakeshore.sdk.execution import Setup, execute
from lakeshore.sdk.functions import UDF, udf
from lakeshore.sdk.interrupts import Interrupter
from lakeshore.sdk.sources import Ending


class Sink:
    def __init__(self) -> None:
        self.frames: list[tuple[int, wire.Frame]] = []
        self.flushed = 0

    def put(self, seq: int, frame: bytes) -> None:
        self.frames.append((seq, wire.Frame.from_bytes(frame)))

    def flush(self) -> None:
        self.flushed = len(self.frames)


Run = Callable[..., Ending]


@pytest.fixture
def sink() -> Sink:
    return Sink()


@pytest.fixture
def interrupter() -> Iterator[Interrupter]:
    with Interrupter(grace_s=0.2) as interrupter:
        yield interrupter


@pytest.fixture
def run_job(sink: Sink, interrupter: Interrupter, tmp_path: Path) -> Run:
    def run_job(
        body: Any,
        *args: Any,
        attempt: int = 1,
        first_seq: int = 0,
        timeout_s: float | None = None,
        prefix: str = "",
        raw: bytes | None = None,
        fn: dict[str, Any] | None = None,
        **setup: Any,
    ) -> Ending:
        described = fn or {"kind": "ref", "module": "m", "qualname": "body", "src_hash": None}
        envelope = wire.Envelope.build(id="inv", fn=described, args=args, prefix=prefix).to_bytes()
        work = Claimed("inv", envelope if raw is None else raw, attempt, "q", 1, first_seq, timeout_s)
        options = {"root": tmp_path, "registry": {"body": body}, **setup}
        interrupter.start(timeout_s)
        return execute(work, lambda _work: sink, Setup(**options), interrupter)

    return run_job


def value(ending: Ending) -> Any:
    assert ending.outcome == "succeeded", ending.error
    return wire.unpack(ending.result)


def error(ending: Ending, outcome: str = "failed") -> dict[str, Any]:
    assert ending.outcome == outcome
    assert ending.error is not None
    return ending.error


@pytest.mark.inventory("P-327", "P-323", "P-747")
def test_a_body_runs_in_the_envelopes_prefix_the_workers_root_and_its_own_invocation(
    run_job: Run, tmp_path: Path
) -> None:
    plane = object()

    def body(name: str) -> list[Any]:
        run.write(f"{name}.txt").write_text("x")
        context = current()
        assert (context.root, context.prefix, context.invocation_id) == (tmp_path, "a/b", "inv")
        assert ambient_plane() is plane
        return [f"{name}.txt"]

    assert value(run_job(body, "out", prefix="a/b", plane=plane)) == ["out.txt"]
    assert (tmp_path / "a/b/out.txt").read_text() == "x"
    assert ambient_plane() is None
    assert current().invocation_id is None


@pytest.mark.inventory("P-327")
def test_a_key_that_was_written_and_not_returned_fails_the_job(run_job: Run) -> None:
    def body() -> None:
        run.write("out.txt").write_text("x")

    told = error(run_job(body))
    assert told["type"] == "KeyError_"
    assert "did not return their keys" in told["message"]


@pytest.mark.inventory("P-329", "K-23", "P-706")
def test_each_yield_is_a_frame_that_continues_the_seq_and_names_the_attempt(run_job: Run, sink: Sink) -> None:
    def body(n: int) -> Iterator[Any]:
        item: dict[str, int] = {}
        for i in range(n):
            item["i"] = i
            yield item

    ending = run_job(body, 3, first_seq=5, attempt=2)
    assert [(seq, frame.seq, frame.body, frame.meta) for seq, frame in sink.frames] == [
        (5 + i, 5 + i, {"i": i}, {"attempt": 2}) for i in range(3)
    ]
    assert value(ending) == [{"i": 0}, {"i": 1}, {"i": 2}]
    assert ending.last_seq == 7
    assert sink.flushed == 3


@pytest.mark.inventory("P-329")
@pytest.mark.parametrize("seq", [0, 127, 128, 300, 70_000])
def test_the_result_of_a_stream_is_made_of_what_was_yielded_whatever_the_seq(run_job: Run, seq: int) -> None:
    def body() -> Iterator[Any]:
        yield from (None, (1, "x"), b"\x00" * 1000, [], 2**63)

    assert value(run_job(body, first_seq=seq)) == [None, (1, "x"), b"\x00" * 1000, [], 2**63]


@pytest.mark.inventory("P-706")
def test_a_key_stream_returns_its_concatenated_manifest(run_job: Run) -> None:
    def body() -> Iterator[Any]:
        for name in ("a", "b"):
            run.write(name).write_text(name)
            yield {name: name}

    assert value(run_job(body)) == {"a": "a", "b": "b"}


def test_a_stream_without_a_yield_ends_before_its_first_seq(run_job: Run, sink: Sink) -> None:
    def body() -> Iterator[int]:
        yield from ()

    ending = run_job(body, first_seq=4)
    assert (value(ending), ending.last_seq, sink.frames) == ([], 3, [])


def test_a_plain_body_is_no_stream(run_job: Run) -> None:
    assert run_job(lambda: 1).last_seq is None


@pytest.mark.inventory("P-330")
def test_async_and_async_generator_bodies_run_on_a_loop_of_their_own(run_job: Run, sink: Sink) -> None:
    loops = []

    async def plain(x: int) -> int:
        loops.append(asyncio.get_running_loop())
        await asyncio.sleep(0)
        return x + 1

    async def stream(n: int) -> Any:
        for i in range(n):
            await asyncio.sleep(0)
            yield i

    assert value(run_job(plain, 1)) == 2
    assert value(run_job(plain, 2)) == 3
    assert loops[0] is not loops[1]
    assert all(loop.is_closed() for loop in loops)
    assert value(run_job(stream, 3)) == [0, 1, 2]
    assert [frame.body for _seq, frame in sink.frames] == [0, 1, 2]


# -- failures


class _Liar(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no")


def _recurse() -> None:
    _recurse()


def _exit() -> None:
    sys.exit(3)


def _raise(error: BaseException) -> Callable[[], None]:
    def body() -> None:
        raise error

    return body


async def _cancel() -> None:
    raise asyncio.CancelledError


@pytest.mark.inventory("P-328")
@pytest.mark.parametrize(
    ("body", "kind", "message"),
    [
        (_raise(ValueError("bad")), "ValueError", "bad"),
        (_raise(_Liar()), "_Liar", "(its message cannot be shown: __str__ raised RuntimeError)"),
        (_exit, "SystemExit", "the body called sys.exit(3)"),
        (_raise(KeyboardInterrupt()), "KeyboardInterrupt", ""),
        (_raise(GeneratorExit()), "GeneratorExit", ""),
        (_raise(MemoryError()), "MemoryError", ""),
        (_raise(StopIteration(1)), "StopIteration", "1"),
        (_raise(ValueError("a\udcffb")), "ValueError", "a\\udcffb"),
        (_recurse, "RecursionError", "maximum recursion depth exceeded"),
        (_cancel, "CancelledError", ""),
    ],
)
def test_whatever_a_body_raises_is_its_own_failure(
    run_job: Run, body: Callable[[], Any], kind: str, message: str
) -> None:
    ending = run_job(body)
    told = error(ending)
    assert (told["type"], told["message"]) == (kind, message)
    assert ending.retry
    assert wire.pack(told)


def test_the_traceback_begins_at_the_users_own_code(run_job: Run) -> None:
    async def body() -> None:
        _raise(ValueError("bad"))()

    trace = error(run_job(body))["traceback"]
    assert trace.splitlines()[1].startswith(f'  File "{__file__}"')
    assert "asyncio" not in trace.split("ValueError")[0]
    assert "sdk/execution.py" not in trace


def test_a_huge_message_is_cut(run_job: Run) -> None:
    told = error(run_job(_raise(ValueError("x" * 1_000_000))))
    assert len(told["message"]) < 40_000
    assert len(told["traceback"]) < 80_000
    assert "characters left out" in told["message"]


def test_a_call_with_the_wrong_arguments_fails_the_job(run_job: Run) -> None:
    told = error(run_job(lambda x: x))
    assert told["type"] == "TypeError"


class Opaque:
    pass


def _yields_opaque() -> Iterator[Any]:
    yield 1
    yield Opaque()


@pytest.mark.parametrize(("body", "what"), [(lambda: Opaque(), "result"), (_yields_opaque, "yield")])
def test_a_value_that_does_not_travel_fails_and_names_the_way_out(
    run_job: Run, body: Callable[[], Any], what: str
) -> None:
    ending = run_job(body)
    told = error(ending)
    assert told["type"] == "TypeError"
    assert f"the {what} of" in told["message"]
    assert "wire.register" in told["message"]
    assert not ending.retry


def test_a_failed_stream_says_how_far_it_came(run_job: Run) -> None:
    def body() -> Iterator[int]:
        yield 1
        raise ValueError("late")

    ending = run_job(body, first_seq=2)
    assert error(ending)["message"] == "late"
    assert ending.last_seq == 2


# -- refusals, which no attempt would change


@pytest.mark.inventory("P-708", "P-729")
@pytest.mark.parametrize("raw", [wire.pack({"a": 1}), wire.pack(1), b"", b"\xc1garbage"])
def test_a_raw_payload_fails_for_good_and_says_what_run_worker_runs(run_job: Run, raw: bytes) -> None:
    ending = run_job(None, raw=raw)
    told = error(ending)
    assert told["type"] == "WorkerError"
    assert "@udf" in told["message"]
    assert not ending.retry


@pytest.mark.inventory("P-333", "K-36")
@pytest.mark.parametrize(
    ("fn", "kind", "message"),
    [
        (
            {"kind": "ref", "module": "no_such_module_x", "qualname": "f", "src_hash": None},
            "WorkerError",
            "cannot import",
        ),
        ({"kind": "ref", "module": "os", "qualname": "system", "src_hash": None}, "TransportError", "runs only UDFs"),
        (
            {"kind": "pickle", "blob": b"", "hash": None, "qualname": "f"},
            "TransportError",
            "refuses pickled functions",
        ),
        ({"kind": "magic"}, "TransportError", "unknown function kind"),
    ],
)
def test_a_function_that_this_worker_refuses_is_not_tried_again(
    run_job: Run, fn: dict[str, Any], kind: str, message: str
) -> None:
    ending = run_job(None, fn=fn, registry=None)
    told = error(ending)
    assert told["type"] == kind
    assert message in told["message"]
    assert not ending.retry


def test_a_prefix_that_leaves_the_root_is_refused(run_job: Run) -> None:
    ending = run_job(lambda: 1, prefix="../../etc")
    assert error(ending)["type"] == "KeyError_"
    assert not ending.retry


# -- what a body leaves behind


@pytest.mark.parametrize("kind", ["sync", "gen"])
def test_the_working_directory_and_signal_handlers_and_loop_policy_are_put_back(
    run_job: Run, tmp_path: Path, kind: str
) -> None:
    here, handler, policy = os.getcwd(), signal.getsignal(signal.SIGTERM), asyncio.get_event_loop_policy()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()

    def spoil() -> None:
        os.chdir(elsewhere)
        elsewhere.rmdir()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        asyncio.set_event_loop_policy(asyncio.DefaultEventLoopPolicy())

    def stream() -> Iterator[int]:
        spoil()
        yield 1

    run_job(spoil if kind == "sync" else stream)
    assert os.getcwd() == here
    assert signal.getsignal(signal.SIGTERM) is handler
    assert asyncio.get_event_loop_policy() is policy


# -- stopping


def _swallow() -> str:
    while True:
        try:
            time.sleep(30)
        except BaseException:
            return "swallowed"


@pytest.mark.inventory("K-35")
@pytest.mark.parametrize("where", ["main", "thread"])
def test_a_body_ends_at_its_time_limit(run_job: Run, where: str) -> None:
    cleaned = []

    def spin() -> None:
        try:
            while True:
                pass
        finally:
            cleaned.append(1)

    def sleep() -> None:
        try:
            time.sleep(30)
        finally:
            cleaned.append(1)

    ending = run_job(sleep, timeout_s=0.05) if where == "main" else _in_a_thread(spin, timeout_s=0.05)
    assert error(ending, "timeout")["type"] == "Timeout"
    assert "timeout_s=0.05" in error(ending, "timeout")["message"]
    assert cleaned
    assert not ending.retry


def _in_a_thread(body: Callable[[], Any], timeout_s: float) -> Ending:
    found: list[Ending] = []

    def target() -> None:
        described = {"kind": "ref", "module": "m", "qualname": "body", "src_hash": None}
        work = Claimed("inv", wire.Envelope.build(id="inv", fn=described).to_bytes(), 1, "q", 1, 0, timeout_s=timeout_s)
        with Interrupter() as interrupter:
            interrupter.start(timeout_s)
            found.append(
                execute(work, lambda _work: Sink(), Setup(root=Path.cwd(), registry={"body": body}), interrupter)
            )

    thread = threading.Thread(target=target)
    thread.start()
    thread.join(20)
    return found[0]


@pytest.mark.inventory("K-35")
@pytest.mark.parametrize("kind", ["async", "asyncgen", "gen"])
def test_every_kind_of_body_ends_at_its_time_limit(run_job: Run, kind: str) -> None:
    async def plain() -> None:
        await asyncio.sleep(30)

    async def stream() -> Any:
        yield 1
        await asyncio.sleep(30)

    def gen() -> Iterator[int]:
        yield 1
        time.sleep(30)

    body: Any = {"async": plain, "asyncgen": stream, "gen": gen}[kind]
    ending = run_job(body, timeout_s=0.1)
    assert error(ending, "timeout")
    assert ending.last_seq == (None if kind == "async" else 0)


@pytest.mark.inventory("K-35")
def test_a_body_that_swallows_its_time_limit_has_still_timed_out(run_job: Run) -> None:
    assert error(run_job(_swallow, timeout_s=0.05), "timeout")


@pytest.mark.inventory("K-27", "K-11")
def test_a_cancelled_body_is_killed_and_one_that_finishes_all_the_same_has_won(
    run_job: Run, interrupter: Interrupter
) -> None:
    def cancelled() -> None:
        interrupter.interrupt_current("cancelled on request")
        time.sleep(30)

    def stubborn() -> str:
        interrupter.interrupt_current("cancelled on request")
        return _swallow()

    told = error(run_job(cancelled), "killed")
    assert told == {"type": "Cancelled", "message": "cancelled on request"}
    assert value(run_job(stubborn)) == "swallowed"


def test_a_stop_that_comes_late_hits_no_other_body(run_job: Run, interrupter: Interrupter) -> None:
    earlier = interrupter.start()
    interrupter.finish()

    def body() -> int:
        looked = threading.Event()
        interrupter.interrupt(earlier, "late")
        interrupter.soon(looked.set)
        assert looked.wait(10)
        return 1

    assert value(run_job(body)) == 1


def test_a_worker_that_must_go_gives_its_job_back(run_job: Run, interrupter: Interrupter) -> None:
    def body() -> None:
        interrupter.interrupt_current("worker")
        time.sleep(30)

    ending = run_job(body)
    assert error(ending)["type"] == "WorkerInterrupted"
    assert ending.retry


def test_a_body_that_will_not_end_is_stopped_twice_and_then_reported_as_stuck() -> None:
    stuck = threading.Event()
    interruptions = []
    with Interrupter(grace_s=0.05, on_stuck=lambda why: stuck.set()) as interrupter:
        interrupter.start(0.01)
        while not stuck.is_set():
            try:
                stuck.wait(10)
            except KeyboardInterrupt:
                interruptions.append(1)
        interrupter.finish()
    assert 1 <= len(interruptions) <= 3
    assert stuck.is_set()


def test_a_signal_that_ends_no_sleep_is_sent_again_long_before_the_grace_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent: list[float] = []

    def comes_before_the_sleep(thread_id: int, number: int) -> None:  # its handler runs, and the sleep begins after it
        sent.append(time.monotonic())
        if len(sent) > 2:
            kill(thread_id, number)

    kill = signal.pthread_kill
    monkeypatch.setattr(signal, "pthread_kill", comes_before_the_sleep)
    began = time.monotonic()
    with Interrupter(grace_s=30) as interrupter:
        interrupter.start()
        interrupter.interrupt_current("cancelled")
        with pytest.raises(KeyboardInterrupt):
            time.sleep(30)
        interrupter.finish()
    assert time.monotonic() - began < 15
    assert len(sent) == 3


def test_a_body_that_was_stopped_is_left_to_its_own_end_for_the_whole_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[int] = []
    kill = signal.pthread_kill
    monkeypatch.setattr(signal, "pthread_kill", lambda *how: (sent.append(1), kill(*how)))
    with Interrupter(grace_s=30) as interrupter:
        interrupter.start()
        interrupter.interrupt_current("cancelled")
        with pytest.raises(KeyboardInterrupt):
            time.sleep(30)
        until_then = len(sent)  # on a busy machine it was not seen at once, and sent again
        time.sleep(0.5)  # what a `finally` of it does
        interrupter.finish()
    assert len(sent) == until_then


def test_nothing_is_raised_inside_a_shielded_call(interrupter: Interrupter) -> None:
    finished = []

    def put() -> None:
        looked = threading.Event()
        interrupter.interrupt_current("cancelled")
        interrupter.soon(looked.set)
        assert looked.wait(10)
        finished.extend(1 for _ in range(1000))

    interrupter.start()
    with pytest.raises(KeyboardInterrupt):
        interrupter.shielded(put)
    interrupter.finish()
    assert len(finished) == 1000


def test_a_forked_child_that_leaves_its_body_does_not_become_a_second_worker(run_job: Run) -> None:
    # In a fresh interpreter: this one has threads.
    import subprocess

    script = """
import os
from lakeshore import wire
from lakeshore.sdk.dispatch import Claimed
from lakeshore.sdk.execution import Setup, execute
from lakeshore.sdk.interrupts import Interrupter
from pathlib import Path
def body():
    child = os.fork()
    if child == 0:
        return "child"
    assert os.waitpid(child, 0)[1] == 0
    return "parent"
fn = {"kind": "ref", "module": "m", "qualname": "body", "src_hash": None}
work = Claimed("inv", wire.Envelope.build(id="inv", fn=fn).to_bytes(), 1, "q", 1)
with Interrupter() as interrupter:
    interrupter.start()
    ending = execute(work, None, Setup(root=Path.cwd(), registry={"body": body}), interrupter)
print(wire.unpack(ending.result))
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, cwd=Path(__file__).parents[2]
    )
    assert done.stdout == "parent\n", done.stderr


def test_a_udf_runs_as_itself(run_job: Run) -> None:
    function: UDF[..., Any] = udf(lambda x: x * 2)
    assert value(run_job(function, 4)) == 8
