"""The worker loop in this process, over a plane in memory and one in a file."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import pickle
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
import worker_bodies as bodies

from lakeshore import wire
from lakeshore.sdk.dispatch import Dispatch
from lakeshore.sdk.errors import InvocationFailed
from lakeshore.sdk.functions import Thunk, udf
from lakeshore.sdk.queues import Queue, SyncQueue
from lakeshore.sdk.worker import run_worker
from lakeshore.sdk.worker_async import arun_worker


@pytest.fixture(params=["memory", "file"])
def plane(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Dispatch]:
    plane = Dispatch(":memory:" if request.param == "memory" else tmp_path / "d.sqlite", durability="process")
    yield plane
    plane.close()


@pytest.fixture
def q(plane: Dispatch) -> SyncQueue:
    return SyncQueue("work", dispatch=plane)


def submit(q: SyncQueue, function: Any, *args: Any, **options: Any) -> str:
    return str(function.submit(*args, _queue=q.name, _dispatch=q.plane, **options))


def times(n: int) -> Callable[[], bool]:
    calls = itertools.count()
    return lambda: next(calls) >= n


def error_of(q: SyncQueue, inv: str, state: str = "failed") -> dict[str, Any]:
    with pytest.raises(InvocationFailed) as caught:
        q.result(inv)
    assert caught.value.state == state
    assert caught.value.error is not None
    return caught.value.error


def test_a_failure_that_nobody_catches_shows_what_happened_on_the_worker(q: SyncQueue) -> None:
    inv = submit(q, bodies.add, 1, "one", _run_config={"max_attempts": 1})
    run_worker(q, once=True)
    with pytest.raises(InvocationFailed) as caught:
        q.result(inv)
    for error in (caught.value, pickle.loads(pickle.dumps(caught.value))):
        shown = "".join(traceback.format_exception(error))
        assert "On the worker:\nTraceback" in shown
        assert bodies.__file__ in shown.partition("On the worker:")[2]
        assert str(error) == f"invocation {inv} failed: TypeError: unsupported operand type(s) for +: 'int' and 'str'"


@pytest.mark.inventory("P-321", "P-753")
def test_once_runs_one_job_and_says_whether_there_was_one(q: SyncQueue) -> None:
    assert run_worker(q, once=True) == 0
    first, second = submit(q, bodies.add, 1, 2), submit(q, bodies.add, 3, 4)
    assert run_worker(q, once=True) == 1
    assert q.result(first) == 3
    assert q.count() == 1
    assert run_worker(q, once=True) == 1
    assert q.result(second) == 7


@pytest.mark.inventory("P-753")
def test_once_waits_for_a_job_as_long_as_it_is_told_to(q: SyncQueue) -> None:
    started = time.monotonic()
    assert run_worker(q, once=True, wait=0.2) == 0
    assert time.monotonic() - started >= 0.2
    later = threading.Timer(0.1, lambda: submit(q, bodies.add, 1, 1))
    later.start()
    assert run_worker(q, once=True, wait=30.0) == 1
    later.join()


@pytest.mark.inventory("P-324", "P-325")
def test_stop_is_asked_between_jobs_and_while_idle(q: SyncQueue) -> None:
    for i in range(5):
        submit(q, bodies.add, i, i)
    assert run_worker(q, stop=times(3)) == 3
    assert q.count() == 2
    assert run_worker(q, stop=times(4), poll=0.01) == 2


@pytest.mark.inventory("P-752", "P-332")
def test_both_queue_classes_are_taken_and_nothing_else(plane: Dispatch) -> None:
    q = Queue("work", dispatch=plane)
    inv = submit(q.sync, bodies.add, 1, 2)
    assert run_worker(q, once=True) == 1
    assert q.sync.result(inv) == 3
    with pytest.raises(TypeError, match="takes a Queue or a SyncQueue, got str"):
        run_worker("work")
    with pytest.raises(ValueError, match="unknown runtime policy"):
        run_worker(q, runtime_policy="loose")


@pytest.mark.inventory("P-322")
def test_keys_land_below_the_workers_root(q: SyncQueue, tmp_path: Path) -> None:
    inv = submit(q, bodies.write_key, "hello")
    run_worker(q, once=True, root=tmp_path)
    assert q.result(inv) == "out.txt"
    assert (tmp_path / "out.txt").read_text() == "hello"


@pytest.mark.inventory("P-323")
def test_a_registry_entry_runs_instead_of_the_import(q: SyncQueue) -> None:
    inv = submit(q, bodies.add, 1, 2)
    run_worker(q, once=True, registry={"add": lambda a, b: a * 100 + b})
    assert q.result(inv) == 102


@pytest.mark.inventory("P-329", "P-331", "P-330")
@pytest.mark.parametrize("function", [bodies.count, bodies.acount])
def test_generators_stream_and_return_their_yields(q: SyncQueue, function: Any) -> None:
    inv = submit(q, function, 3)
    run_worker(q, once=True)
    frames = [wire.Frame.from_bytes(data) for _seq, data in q.plane.journal_read(inv, timeout=5)]
    assert [frame.kind.name for frame in frames] == ["VALUE", "VALUE", "VALUE", "END"]
    assert q.result(inv) == [0, 1, 2]


@pytest.mark.inventory("P-326", "K-23", "P-707")
def test_a_failed_stream_runs_again_and_its_frames_go_on(q: SyncQueue, tmp_path: Path) -> None:
    inv = submit(q, bodies.fails_until, str(tmp_path / "runs"), 2)
    assert run_worker(q, stop=times(2)) == 2
    frames = [wire.Frame.from_bytes(data) for _seq, data in q.plane.journal_read(inv, timeout=5)]
    assert [(f.kind.name, f.body, (f.meta or {}).get("attempt")) for f in frames[:3]] == [
        ("VALUE", 1, 1),
        ("VALUE", 2, 2),
        ("VALUE", -2, 2),
    ]
    assert frames[3].kind.name == "END"
    assert [f.seq for f in frames] == [0, 1, 2, 3]
    assert q.result(inv) == [2, -2]


@pytest.mark.inventory("P-326", "P-328")
def test_a_body_that_keeps_failing_fails_after_its_retries(q: SyncQueue, tmp_path: Path) -> None:
    for retries in (0, 1):
        runs = tmp_path / f"runs{retries}"
        inv = submit(q, bodies.fails_until, str(runs), 9)
        assert run_worker(q, stop=times(retries + 2), retries=retries, poll=0.01) == retries + 1
        told = error_of(q, inv)
        assert (told["type"], told["message"]) == ("ValueError", f"run {retries + 1}")
        assert "worker_bodies.py" in told["traceback"]
        last = [wire.Frame.from_bytes(data) for _seq, data in q.plane.journal_read(inv, timeout=5)][-1]
        assert (last.kind.name, (last.meta or {})["type"]) == ("ERROR", "ValueError")


@pytest.mark.inventory("P-708")
def test_a_raw_payload_is_failed_at_once(q: SyncQueue) -> None:
    inv = q.submit({"url": "x"})
    assert run_worker(q, once=True) == 1
    assert error_of(q, inv)["type"] == "WorkerError"


@pytest.mark.inventory("K-36", "P-345")
def test_a_function_by_value_runs_on_this_machines_planes_unless_refused(q: SyncQueue) -> None:
    factor = 3
    inv = q.submit(Thunk(lambda x: x * factor, (5,), {}))
    run_worker(q, once=True)
    assert q.result(inv) == 15
    refused = q.submit(Thunk(lambda x: x * factor, (5,), {}))
    assert run_worker(q, allow_pickled=False, stop=times(2), poll=0.01) == 1
    assert "--allow-pickled" in error_of(q, refused)["message"]


@pytest.mark.inventory("K-35")
def test_the_time_limit_of_a_submit_ends_its_body(q: SyncQueue) -> None:
    inv = submit(q, bodies.sleeps, 600, _run_config={"timeout_s": 0.1})
    after = submit(q, bodies.add, 1, 2)
    assert run_worker(q, stop=times(2)) == 2
    assert error_of(q, inv, "timeout")["type"] == "Timeout"
    assert q.result(after) == 3


@pytest.mark.inventory("P-747")
def test_what_a_body_submits_is_a_child_of_its_invocation(q: SyncQueue) -> None:
    def outer(plane: Any) -> Any:
        return lambda x: bodies.add.submit(x, x, _queue="inner", _dispatch=plane)

    inv = submit(q, bodies.child, 4)
    run_worker(q, once=True, registry={"child": outer(q.plane)})
    inner = q.result(inv)
    row = q.plane.get(inner)
    assert row is not None
    assert inv in row.values()


@pytest.mark.parametrize(
    ("function", "args", "kind"),
    [
        (bodies.exits, (), "SystemExit"),
        (bodies.recurses, (), "RecursionError"),
        (bodies.unpackable, (), "TypeError"),
    ],
)
def test_poison_fails_its_own_job_only(q: SyncQueue, function: Any, args: tuple[Any, ...], kind: str) -> None:
    poisoned, after = submit(q, function, *args), submit(q, bodies.add, 1, 2)
    run_worker(q, stop=lambda: q.count() + q.count("running") == 0)
    assert error_of(q, poisoned)["type"] == kind
    assert q.result(after) == 3


@pytest.mark.inventory("P-335")
def test_workers_in_threads_share_a_queue_and_run_each_job_once(q: SyncQueue) -> None:
    ran: list[int] = []
    started = threading.Barrier(2, timeout=60)

    def body(i: int) -> int:
        if i < 2:
            started.wait()  # both workers are at it
        ran.append(i)
        return i

    ids = [submit(q, udf(bodies.add), i, 0) for i in range(40)]
    registry = {"add": lambda a, b: body(a)}
    workers = [
        threading.Thread(target=run_worker, args=(q,), kwargs={"registry": registry, "stop": lambda: len(ran) == 40})
        for _ in range(2)
    ]
    for worker in workers:
        worker.start()
    assert [q.result(inv) for inv in ids] == list(range(40))
    for worker in workers:
        worker.join(60)
    assert sorted(ran) == list(range(40))


# -- arun_worker


@pytest.mark.inventory("P-752")
def test_arun_worker_runs_under_asyncio(plane: Dispatch) -> None:
    q = Queue("work", dispatch=plane)
    inv = submit(q.sync, bodies.add, 1, 2)

    async def main() -> int:
        return await arun_worker(q, once=True)

    assert asyncio.run(main()) == 1
    assert q.sync.result(inv) == 3


@pytest.mark.inventory("P-752")
def test_arun_worker_runs_under_trio(plane: Dispatch) -> None:
    q = Queue("work", dispatch=plane)
    inv = submit(q.sync, bodies.add, 1, 2)

    async def main() -> int:
        return await arun_worker(q, once=True)

    assert trio.run(main) == 1
    assert q.sync.result(inv) == 3


@pytest.mark.inventory("P-752")
@pytest.mark.parametrize("loop", ["asyncio", "trio"])
def test_cancelling_arun_worker_lets_the_running_job_finish_and_takes_no_other(q: SyncQueue, loop: str) -> None:
    started, go = threading.Event(), threading.Event()

    def body(a: int, b: int) -> int:
        started.set()
        assert go.wait(60)
        return a + b

    first, second = submit(q, bodies.add, 1, 2), submit(q, bodies.add, 3, 4)
    registry = {"add": body}

    async def with_asyncio() -> None:
        task = asyncio.create_task(arun_worker(q, registry=registry))
        assert await asyncio.to_thread(started.wait, 30)
        task.cancel()
        for _ in range(5):  # the cancellation arrives
            await asyncio.sleep(0)
        go.set()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        assert task.cancelled()

    async def with_trio() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: arun_worker(q, registry=registry))
            assert await trio.to_thread.run_sync(started.wait, 30)
            nursery.cancel_scope.cancel()
            with trio.CancelScope(shield=True):
                await trio.testing.wait_all_tasks_blocked()  # the cancellation has arrived
            go.set()

    if loop == "asyncio":
        asyncio.run(with_asyncio())
    else:
        trio.run(with_trio)
    assert q.result(first, timeout=0) == 3
    assert q.plane.get(second)["state"] == "queued"


def test_errors_of_the_worker_reach_the_awaiting_task(plane: Dispatch) -> None:
    async def main() -> None:
        await arun_worker(Queue("work", dispatch=plane), stop=lambda: 1 / 0)

    with pytest.raises(ZeroDivisionError):
        asyncio.run(main())
