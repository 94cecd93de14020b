"""Topics: named streams of a queue, written by anybody, numbered by the plane (K-25)."""

from __future__ import annotations

import threading
from itertools import islice

import msgpack

from ...sdk.errors import DispatchError
from .base import Frame, FrameKind, Harness, Verbs, case, refused


def _bodies(plane: Verbs, name: str, since: int = -1, queue: str = "q") -> list[object]:
    frames = [Frame.from_bytes(data) for _seq, data in plane.topic_read(queue, name, since=since, timeout=10)]
    assert frames[-1].kind is FrameKind.END
    return [frame.body for frame in frames[:-1]]


def _post(plane: Verbs, name: str, body: object, queue: str = "q") -> int:
    return plane.topic_post(queue, name, msgpack.packb(body))


@case("K-25")
def posts_are_read_in_order_until_the_end(h: Harness) -> None:
    dp, other = h.plane(), h.another()
    assert [_post(dp, "t", n) for n in range(3)] == [0, 1, 2]
    assert _post(other, "t", {"n": 3}) == 3
    assert dp.topic_post("q", "t", b"", final=True) == 4
    assert _bodies(other, "t") == [0, 1, 2, {"n": 3}]
    assert _bodies(dp, "t", since=1) == [2, {"n": 3}]


@case("K-25")
def topics_are_apart_by_name_and_queue(h: Harness) -> None:
    dp = h.plane()
    for queue, name in (("q", "a"), ("q", "b"), ("p", "a")):
        assert _post(dp, name, f"{queue}/{name}", queue) == 0
        dp.topic_post(queue, name, b"", final=True)
    assert _bodies(dp, "b") == ["q/b"]
    assert _bodies(dp, "a", queue="p") == ["p/a"]


@case("K-25")
def silence_is_a_timeout_and_the_reader_resumes(h: Harness) -> None:
    dp = h.plane()
    _post(dp, "t", "one")
    with refused(TimeoutError):
        list(dp.topic_read("q", "t", timeout=0.05))
    with refused(TimeoutError):
        list(dp.topic_read("q", "nobody-posted-here", timeout=0.05))
    _post(dp, "t", "two")
    seqs = [seq for seq, _ in islice(dp.topic_read("q", "t", since=0, timeout=5), 1)]
    assert seqs == [1]


@case("K-25")
def a_reader_may_come_before_the_first_post(h: Harness) -> None:
    dp, reader = h.plane(), h.another()
    got: list[object] = []
    thread = threading.Thread(target=lambda: got.extend(reader.topic_read("q", "t", timeout=20)))
    thread.start()
    _post(dp, "t", "first")
    dp.topic_post("q", "t", b"", final=True)
    thread.join(30)
    assert len(got) == 2


@case("K-25")
def many_writers_get_numbers_without_a_hole(h: Harness) -> None:
    handles = [h.plane(), h.another()]
    seqs: list[int] = []

    def write(k: int) -> None:
        for n in range(10):
            seqs.append(_post(handles[k % 2], "t", n))  # noqa: PERF401  # several threads share the list

    threads = [threading.Thread(target=write, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(seqs) == list(range(40))


@case("K-25", "P-248")
def nothing_is_posted_after_the_end(h: Harness) -> None:
    dp = h.plane()
    _post(dp, "t", 1)
    dp.topic_post("q", "t", b"", final=True)
    for final in (False, True):
        with refused(DispatchError, says="has ended"):
            dp.topic_post("q", "t", msgpack.packb(2), final=final)
    assert _bodies(dp, "t") == [1]
