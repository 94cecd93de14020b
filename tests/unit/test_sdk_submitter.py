"""Submits of many threads share requests, and nobody waits for one that is not its own."""

from __future__ import annotations

import queue
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from lakeshore.net.errors import ConnectFailed, NetError
from lakeshore.sdk.limits import OutOfTime
from lakeshore.sdk.submitter import Submitter
from lakeshore.sdk.watcher import Watcher

PATIENCE_S = 20.0


class Requests:
    """The wire: each request waits here until the test answers it."""

    def __init__(self) -> None:
        self.arrived: queue.Queue[tuple[list[str], threading.Event]] = queue.Queue()

    def send(self, body: dict[str, Any], until: float) -> Mapping[str, Any]:
        del until
        many = body.get("invocations")
        answered = threading.Event()
        ids = [item["invocation_id"] for item in ([body] if many is None else many)]
        self.arrived.put((ids, answered))
        assert answered.wait(PATIENCE_S)
        results = [{"status": 200, "id": id_} for id_ in ids]
        return results[0] if many is None else {"results": results}

    def next(self) -> tuple[list[str], threading.Event]:
        return self.arrived.get(timeout=PATIENCE_S)


@pytest.fixture
def requests() -> Requests:
    return Requests()


@pytest.fixture
def submitter(requests: Requests) -> Submitter:
    return Submitter(requests.send, once, Watcher(lambda _body, _s, _until: {}))


def once(send: Callable[[], Any], what: str, /, *, until: float) -> Any:
    """Nothing is sent again here."""
    del what, until
    return send()


def start(submitter: Submitter, names: list[str], answered: list[str]) -> list[threading.Thread]:
    def submit(name: str) -> None:
        answered.append(submitter.submit({"invocation_id": name})["id"])

    threads = [threading.Thread(target=submit, args=(name,), daemon=True) for name in names]
    for thread in threads:
        thread.start()
    return threads


def until(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def waits(submitter: Submitter, count: int) -> Callable[[], bool]:
    return lambda: len(submitter._waiting) == count


@pytest.mark.inventory("K-30")
def test_who_is_answered_goes_on_while_the_next_request_is_under_way(submitter: Submitter, requests: Requests) -> None:
    answered: list[str] = []
    threads = start(submitter, ["first"], answered)
    _ids, first = requests.next()
    second = [f"second-{n}" for n in range(12)]
    threads += start(submitter, second, answered)
    until(waits(submitter, 12))
    first.set()
    ids, together = requests.next()
    assert sorted(ids) == sorted(second)
    third = [f"third-{n}" for n in range(12)]
    threads += start(submitter, third, answered)
    until(waits(submitter, 12))
    together.set()
    ids, last = requests.next()
    assert sorted(ids) == sorted(third)
    until(lambda: sorted(answered) == sorted(["first", *second]))
    last.set()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert sorted(answered) == sorted(["first", *second, *third])
    assert start_alone(submitter, requests) == ["alone"]


def start_alone(submitter: Submitter, requests: Requests) -> list[str]:
    """Nothing is left behind: a later one is sent at once."""
    answered: list[str] = []
    (thread,) = start(submitter, ["alone"], answered)
    ids, event = requests.next()
    assert ids == ["alone"]
    event.set()
    thread.join(PATIENCE_S)
    return answered


def test_an_interrupted_thread_leaves_no_turn_behind_that_others_wait_for(
    submitter: Submitter, requests: Requests
) -> None:
    answered: list[str] = []
    threads = start(submitter, ["first"], answered)
    _ids, first = requests.next()

    def others() -> None:
        until(waits(submitter, 1))  # the one of this test's thread, which is to be the next to send
        threads.extend(start(submitter, ["later-1", "later-2"], answered))
        until(waits(submitter, 3))
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    helper = threading.Thread(target=others, daemon=True)
    helper.start()
    with pytest.raises(KeyboardInterrupt):
        submitter.submit({"invocation_id": "interrupted"})
    helper.join(PATIENCE_S)
    first.set()
    ids, second = requests.next()
    assert sorted(ids) == ["later-1", "later-2"]
    second.set()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert sorted(answered) == ["first", "later-1", "later-2"]
    assert start_alone(submitter, requests) == ["alone"]


def test_behind_a_slow_server_threads_that_submit_again_and_again_share_its_answers() -> None:
    """Half of them are on their way while the other half comes back: a request carries half of the threads."""
    threads_count, each, requests = 16, 12, []

    def slowly(body: dict[str, Any], _until: float) -> Mapping[str, Any]:
        many = body.get("invocations", [body])
        requests.append(len(many))
        time.sleep(0.01)
        results = [{"status": 200, "id": item["invocation_id"]} for item in many]
        return {"results": results} if "invocations" in body else results[0]

    submitter = Submitter(slowly, once, Watcher(lambda _body, _s, _until: {}))

    def loop(k: int) -> None:
        for n in range(each):
            assert submitter.submit({"invocation_id": f"{k}-{n}"})["id"] == f"{k}-{n}"

    threads = [threading.Thread(target=loop, args=(k,)) for k in range(threads_count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert sum(requests) == threads_count * each
    assert len(requests) <= threads_count * each / 4, requests


def test_who_is_out_of_time_while_it_sends_leaves_the_others_to_the_next_and_is_in_no_later_try() -> None:
    tried: list[list[str]] = []
    up = threading.Event()
    down = ConnectFailed("nobody", url="http://127.0.0.1:1")
    together = threading.Barrier(3)

    def send(body: dict[str, Any], _until: float) -> Mapping[str, Any]:
        many = body.get("invocations", [body])
        tried.append([item["invocation_id"] for item in many])
        if not up.is_set():
            if len(tried) == 1:
                together.wait(PATIENCE_S)
                until(lambda: len(submitter._waiting) == 2)
            raise down
        results = [{"status": 200, "id": item["invocation_id"]} for item in many]
        return {"results": results} if "invocations" in body else results[0]

    def again(send: Callable[[], Any], _what: str, /, *, until: float) -> Any:
        while True:
            try:
                return send()
            except NetError as error:
                if time.monotonic() >= until:
                    raise OutOfTime(error, sent=False) from None
                time.sleep(0.001)

    submitter = Submitter(send, again, Watcher(lambda _body, _s, _until: {}))
    answered: list[str] = []
    late: list[OutOfTime] = []

    def submit(name: str, limit_s: float) -> None:
        try:
            answered.append(submitter.submit({"invocation_id": name}, time.monotonic() + limit_s)["id"])
        except OutOfTime as error:
            late.append(error)

    def follow(name: str, limit_s: float) -> None:
        together.wait(PATIENCE_S)
        submit(name, limit_s)

    cast = (("leads", 0.2), ("gives up", 0.3), ("stays", PATIENCE_S))
    threads = [threading.Thread(target=submit if n == 0 else follow, args=cast[n], daemon=True) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads[:2]:
        thread.join(PATIENCE_S)
    up.set()
    threads[2].join(PATIENCE_S)
    assert (answered, [error.error for error in late], [error.sent for error in late]) == (
        ["stays"],
        [down] * 2,
        [False] * 2,
    )
    assert tried[0] == ["leads"]
    assert tried[-1] == ["stays"]
    assert submitter.submit({"invocation_id": "later"})["id"] == "later"


def test_who_is_out_of_time_just_as_a_batch_is_made_up_breaks_nothing(submitter: Submitter, requests: Requests) -> None:
    class Row(deque[Any]):
        """Where one alone is left in it, whoever looks at it is slower than that one's time."""

        def __bool__(self) -> bool:
            there = len(self) > 0
            if len(self) == 1 and self[0].body["invocation_id"] == "late":
                late.join(0.4)
            return there

    def give_up() -> None:
        with pytest.raises(OutOfTime):
            submitter.submit({"invocation_id": "late"}, time.monotonic() + 0.1)

    answered: list[str] = []
    late = threading.Thread(target=give_up, daemon=True)
    threads = start(submitter, ["first"], answered)
    _ids, first = requests.next()
    threads += start(submitter, ["second"], answered)
    until(waits(submitter, 1))
    submitter._waiting = Row(submitter._waiting)
    late.start()
    until(lambda: len(submitter._waiting) == 2 or not late.is_alive())
    first.set()
    _ids, second = requests.next()
    second.set()
    for thread in [*threads, late]:
        thread.join(PATIENCE_S)
    assert answered == ["first", "second"]
