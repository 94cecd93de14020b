"""What people do wrong with the SDK, or do not wait for: no id, no server, Ctrl-C; and `async for` over a call."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import served
import trio
from ports import free_port

from lakeshore import wire
from lakeshore.sdk import outage
from lakeshore.sdk.dispatch import Dispatch
from lakeshore.sdk.errors import DispatchError
from lakeshore.sdk.functions import udf
from lakeshore.sdk.http_dispatch import HttpDispatch
from lakeshore.sdk.queues import Queue, SyncQueue
from lakeshore.sdk.worker import run_worker

PATIENCE_S = 60.0
seen = threading.Event()


@udf(queue="slips")
async def letters(text: str) -> AsyncIterator[str]:
    for letter in text:
        yield letter
        assert seen.wait(PATIENCE_S)  # its first yield is read while it runs


@udf(queue="slips")
async def nobody_runs_this() -> None:
    return


@pytest.fixture(params=["file", "http"])
def plane(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    made: Any
    if request.param == "file":
        made = Dispatch(tmp_path / "dispatch.sqlite")
    else:
        made = HttpDispatch(request.getfixturevalue("server").url)
    yield made
    made.close()


@pytest.fixture
def name() -> str:
    return f"q-{served.new_id()}"


def on_asyncio(main: Callable[[], Any]) -> Any:
    return asyncio.run(main())


LOOPS = pytest.mark.parametrize("run", [on_asyncio, trio.run], ids=["asyncio", "trio"])


async def _submitting() -> str:
    return "an id"


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda: None, "got NoneType; `submit` returns it"),
        (lambda: 3, "got int"),
        (lambda: b"01M8", "got bytes"),
        (lambda: ["a", "b"], r"got list; give one at a time: \[q.result\(id\) for id in ids\]"),
        (_submitting, "got coroutine; await what submits"),
    ],
    ids=["none", "int", "bytes", "list", "coroutine"],
)
def test_what_is_no_id_is_refused_in_words_by_every_verb_of_every_plane(
    plane: Any, name: str, wrong: Callable[[], Any], said: str
) -> None:
    q, loop = SyncQueue(name, dispatch=plane), Queue(name, dispatch=plane)
    verbs: list[Callable[[Any], Any]] = [
        q.result,
        q.cancel,
        lambda id_: next(iter(q.stream(id_))),
        plane.get,
        plane.retry,
        plane.journal_trim,
        lambda id_: asyncio.run(loop.result(id_)),
        lambda id_: asyncio.run(loop.cancel(id_)),
        lambda id_: asyncio.run(anext(aiter(loop.stream(id_)))),  # type: ignore[arg-type]  # a coroutine it is
    ]
    for verb in verbs:
        with pytest.raises(TypeError, match=f"the id of an invocation is a str, {said}$"):
            verb(wrong())


def _submit(q: SyncQueue) -> None:
    q.submit(1)


def _submit_async(q: SyncQueue) -> None:
    asyncio.run(Queue(q.name, dispatch=q.plane).submit(1))


def _result(q: SyncQueue) -> None:
    q.result("some id", timeout=1.0)


def _result_async(q: SyncQueue) -> None:
    asyncio.run(Queue(q.name, dispatch=q.plane).result("some id", timeout=1.0))


@pytest.mark.parametrize("wait", [_submit, _submit_async, _result, _result_async])
def test_who_waits_for_a_server_that_is_not_there_is_told_once(
    wait: Callable[[SyncQueue], None],
    name: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(outage, "SAID_AFTER_S", 0.1)
    plane = HttpDispatch(f"http://127.0.0.1:{free_port()}", timeout=1.0)
    with caplog.at_level(logging.WARNING), pytest.raises((DispatchError, TimeoutError)):
        wait(SyncQueue(name, dispatch=plane))
    plane.close()
    said = [record.getMessage() for record in caplog.records if record.name == outage.__name__]
    assert len(said) == 1
    assert said[0].startswith("lakeshore: ")
    assert "cannot connect" in said[0]
    assert "; trying again " in said[0]


def test_a_short_outage_is_silent_and_each_long_one_is_told(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, error = outage.Outage(), OSError("nobody")
    for _ in range(2):
        one.goes_on("submitting", error, "for up to 30 s")
        one.goes_on("submitting", error, "for up to 30 s")
        one.over()
    assert not caplog.records
    monkeypatch.setattr(outage, "SAID_AFTER_S", 0.0)
    for _ in range(2):
        for _ in range(3):
            one.goes_on("submitting", error, "for up to 30 s")
        one.over()
    assert [record.getMessage() for record in caplog.records] == [
        "lakeshore: submitting: nobody; trying again for up to 30 s"
    ] * 2


@LOOPS
def test_what_an_async_generator_yields_on_a_queue_comes_live_in_an_async_for(
    plane: Any, name: str, run: Callable[[Callable[[], Any]], Any]
) -> None:
    seen.clear()
    worker = threading.Thread(target=_run_one, args=(name, plane))
    worker.start()

    async def main() -> list[str]:
        found = []
        async for letter in letters.remote("abc", _queue=name, _dispatch=plane, _timeout=PATIENCE_S):
            found.append(letter)
            seen.set()
        return found

    try:
        assert run(main) == ["a", "b", "c"]
    finally:
        seen.set()
        worker.join(PATIENCE_S)


@LOOPS
def test_the_same_call_awaited_is_the_list_of_the_yields(
    plane: Any, name: str, run: Callable[[Callable[[], Any]], Any]
) -> None:
    seen.set()
    worker = threading.Thread(target=_run_one, args=(name, plane))
    worker.start()

    async def main() -> Any:
        return await letters.remote("xyz", _queue=name, _dispatch=plane, _timeout=PATIENCE_S)

    assert run(main) == ["x", "y", "z"]
    worker.join(PATIENCE_S)


def test_a_call_of_an_async_generator_is_a_coroutine_for_asyncio(plane: Any, name: str) -> None:
    seen.set()
    worker = threading.Thread(target=_run_one, args=(name, plane))
    worker.start()
    call = letters.remote("z", _queue=name, _dispatch=plane, _timeout=PATIENCE_S)
    assert asyncio.run(call) == ["z"]
    worker.join(PATIENCE_S)


def _run_one(name: str, plane: Any) -> None:
    q = SyncQueue(name, dispatch=plane)
    deadline = time.monotonic() + PATIENCE_S
    while not q.count() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert run_worker(q, once=True) == 1


@pytest.mark.parametrize("verb", ["result", "call", "stream"])
def test_ctrl_c_in_a_wait_says_how_to_go_on(plane: Any, name: str, verb: str) -> None:
    q = SyncQueue(name, dispatch=plane)
    id_ = "" if verb == "call" else q.submit(1)
    waits: dict[str, Callable[[], Any]] = {
        "result": lambda: q.result(id_, timeout=PATIENCE_S),
        "call": lambda: q.call(1, timeout=PATIENCE_S),
        "stream": lambda: next(iter(q.stream(id_, timeout=PATIENCE_S))),
    }
    threading.Thread(target=_interrupt_in, args=(verb, q), daemon=True).start()
    with pytest.raises(KeyboardInterrupt) as caught:
        waits[verb]()
    (note,) = caught.value.__notes__
    again = f"stream({id_!r}, since=-1) reads on" if verb == "stream" else "result("
    assert f"dls.SyncQueue({name!r}).{again}" in note
    assert id_ in note
    assert q.count() == 1


def _interrupt_in(verb: str, q: SyncQueue) -> None:
    """SIGINT to the main thread, once it stands still below that verb of the queue, and the job is there."""
    main = threading.main_thread().ident
    assert main is not None
    deadline = time.monotonic() + PATIENCE_S
    while not q.count() and time.monotonic() < deadline:
        time.sleep(0.01)
    stood, looks = (0, 0), 0
    while time.monotonic() < deadline:
        frame = sys._current_frames()[main]
        stands = id(frame), frame.f_lasti
        looks, stood = (looks + 1 if stands == stood else 0), stands  # one caught while it dials leaves a socket behind
        files = []
        while frame is not None:
            files.append((frame.f_code.co_name, Path(frame.f_code.co_filename).name))
            frame = frame.f_back  # type: ignore[assignment]
        if looks >= 5 and (verb, "queues.py") in files and files[0][1] != "queues.py":
            os.kill(os.getpid(), signal.SIGINT)
            return
        time.sleep(0.01)


def test_a_call_whose_await_is_cancelled_says_how_to_go_on(plane: Any, name: str) -> None:
    q = SyncQueue(name, dispatch=plane)

    async def main() -> list[str]:
        call = nobody_runs_this.remote(_queue=name, _dispatch=plane, _timeout=PATIENCE_S)
        task = asyncio.create_task(call)
        while not await Queue(name, dispatch=plane).count():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        task.cancel()
        try:
            await task
        except asyncio.CancelledError as stopped:
            return list(stopped.__notes__)
        return []

    (note,) = asyncio.run(main())
    assert note.startswith(f"The wait ended, the call may go on: dls.SyncQueue({name!r}).result('")
    assert q.count() == 1


@udf(queue="slips")
def broken() -> None:
    raise ValueError("bad")


def _failed(plane: Any, name: str) -> None:
    worker = threading.Thread(target=_run_one, args=(name, plane))
    worker.start()
    try:
        broken.remote(_queue=name, _dispatch=plane, _timeout=PATIENCE_S, _run_config={"max_attempts": 1})
    finally:
        worker.join(PATIENCE_S)


def _timed_out(plane: Any, name: str) -> None:
    broken.remote(_queue=name, _dispatch=plane, _timeout=0.01)


def _refused(plane: Any, name: str) -> None:
    broken.remote(_queue=f"{name}\n", _dispatch=plane)


@pytest.mark.parametrize("wrong", ["", " ", "a\nb", "a/b", "..", "gpu*", "q" * 201])
def test_what_is_no_queues_name_is_refused_by_every_plane(plane: Any, wrong: str) -> None:
    with pytest.raises(DispatchError, match="queue: "):
        SyncQueue(wrong, dispatch=plane).submit(1)


@pytest.mark.parametrize("end", [_failed, _timed_out, _refused])
def test_an_error_that_a_call_ends_in_shows_no_line_of_ours(plane: Any, name: str, end: Callable[..., None]) -> None:
    with pytest.raises((DispatchError, TimeoutError)) as caught:
        end(plane, name)
    files = [Path(frame.filename) for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert [file.name for file in files if "sdk" in file.parts] == []
    assert "On the worker:" in "".join(getattr(caught.value, "__notes__", ())) or end is not _failed


@udf(queue="slips")
def taken(x: Any) -> Any:
    return x


async def _awaits_unknown(plane: Any) -> None:
    await Queue("slips", dispatch=plane).result("nosuchid")


async def _streams_unknown(plane: Any) -> None:
    async for _ in Queue("slips", dispatch=plane).stream("nosuchid"):
        pass


async def _awaits_object(plane: Any) -> None:
    await Queue("slips", dispatch=plane).call(object())


async def _awaits_in_vain(plane: Any) -> None:
    await nobody_runs_this.remote(_dispatch=plane, _timeout=0.05)


def _unreached(_plane: Any) -> None:
    SyncQueue("slips", dispatch=HttpDispatch(f"http://127.0.0.1:{free_port()}", timeout=0.05)).submit(1)


def _with_a_lock(plane: Any) -> None:
    held = threading.Lock()
    udf(lambda: held, queue="slips").submit(_dispatch=plane)


MISTAKES: dict[str, Callable[[Any], Any]] = {
    "unknown mode": lambda plane: taken(1, _mode="nosuchmode", _dispatch=plane),
    "no value of the codec": lambda plane: taken(object(), _dispatch=plane),
    "nor on a queue": lambda plane: SyncQueue("slips", dispatch=plane).submit(object()),
    "nor awaited": lambda plane: asyncio.run(_awaits_object(plane)),
    "captures a lock": _with_a_lock,
    "misspelt option": lambda plane: taken(1, _timeot=1, _dispatch=plane),
    "too many arguments": lambda plane: taken.submit(1, 2, _dispatch=plane),
    "unknown order": lambda plane: SyncQueue("slips", dispatch=plane, kind="lifo"),
    "unknown id": lambda plane: SyncQueue("slips", dispatch=plane).result("nosuchid"),
    "unknown id awaited": lambda plane: asyncio.run(_awaits_unknown(plane)),
    "unknown id streamed": lambda plane: list(SyncQueue("slips", dispatch=plane).stream("nosuchid")),
    "unknown id streamed, awaited": lambda plane: asyncio.run(_streams_unknown(plane)),
    "cancel of an unknown id": lambda plane: SyncQueue("slips", dispatch=plane).cancel("nosuchid"),
    "waited in vain": lambda plane: asyncio.run(_awaits_in_vain(plane)),
    "no server": _unreached,
}


@pytest.mark.filterwarnings("ignore:.*travels by value")
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_sentence_below_the_line_that_made_it(plane: Any, mistake: str) -> None:
    with pytest.raises(Exception) as caught:  # of many kinds
        MISTAKES[mistake](plane)
    shown = "".join(traceback.format_exception(caught.value))
    assert shown.count("Traceback (most recent call last)") == 1, shown
    assert not [line for line in shown.splitlines() if "/lakeshore/sdk/" in line], shown


class Odd:
    pass


def _refuses(_odd: Odd) -> bytes:
    raise KeyError("a defect of whoever wrote the codec")


def test_where_the_mistake_is_in_somebody_elses_code_its_line_is_shown(plane: Any, name: str) -> None:
    wire.register(wire.Codec(93, Odd, _refuses, lambda _: Odd()))
    with pytest.raises(KeyError) as caught:
        SyncQueue(name, dispatch=plane).submit(Odd())
    assert "_refuses" in [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
