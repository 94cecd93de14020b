"""Frames: self-delimiting, split anywhere, and never mistaken for finished."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from itertools import pairwise
from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakeshore import wire
from lakeshore.wire import Frame, FrameError, FrameKind, FrameReader, FrameWriter
from lakeshore.wire.errors import RemoteFailure
from lakeshore.wire.frames import end_frame, error_frame, peek, reassemble

bodies = st.recursive(
    st.none() | st.integers(0, 2**64 - 1) | st.text() | st.binary(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(), inner, max_size=3)
    ),
    max_leaves=8,
)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(p % (len(data) + 1) for p in places), len(data)]
    return [data[a:b] for a, b in pairwise(edges)]


def drain(stream: Generator[Any, None, Frame | None]) -> tuple[list[Any], Frame | None]:
    out = []
    while True:
        try:
            out.append(next(stream))
        except StopIteration as stop:
            return out, stop.value


def frames(chunks: Iterable[bytes]) -> list[Frame]:
    return list(FrameReader(chunks))


@pytest.mark.inventory("P-197", "P-198", "P-515")
@pytest.mark.inventory("S-679")
def test_a_frame_is_an_array_of_four() -> None:
    assert msgpack.unpackb(Frame(FrameKind.VALUE, 3, "x", {"attempt": 1}).to_bytes()) == [0, 3, "x", {"attempt": 1}]
    assert [kind.name for kind in FrameKind] == ["VALUE", "CHUNK", "BEGIN", "END", "ERROR"]
    assert [int(kind) for kind in FrameKind] == [0, 1, 2, 3, 4]


@pytest.mark.inventory("P-199")
@pytest.mark.inventory("S-679", "S-680")
def test_only_end_and_error_are_terminal() -> None:
    assert [kind for kind in FrameKind if kind.terminal] == [FrameKind.END, FrameKind.ERROR]


@settings(deadline=None)
@given(
    st.sampled_from(FrameKind),
    st.integers(0, 2**63),
    bodies,
    st.none() | st.dictionaries(st.text(), bodies, max_size=2),
)
def test_a_frame_comes_back_the_same(kind: FrameKind, seq: int, body: Any, meta: dict[str, Any] | None) -> None:
    frame = Frame(kind, seq, b"slice" if kind is FrameKind.CHUNK else body, meta)
    assert Frame.from_bytes(frame.to_bytes()) == frame
    assert peek(frame.to_bytes()) == (kind, seq)


@pytest.mark.inventory("P-200")
def test_an_array_rides_in_a_value() -> None:
    body = Frame.from_bytes(FrameWriter().value({"x": np.arange(3)})).body
    assert (body["x"] == np.arange(3)).all()


@pytest.mark.inventory("P-205", "P-437")
@settings(deadline=None)
@given(st.lists(bodies, max_size=6), st.lists(st.integers(0, 10_000), max_size=12))
def test_a_stream_split_anywhere_reads_the_same(values: list[Any], places: list[int]) -> None:
    writer = FrameWriter()
    sent = [writer.value(v) for v in values] + list(writer.chunks(b"0123456789", 3)) + [writer.end()]
    reader = FrameReader()
    got = [frame for part in cut(b"".join(sent), places) for frame in reader.feed(part)]
    assert got == [Frame.from_bytes(data) for data in sent]
    assert [frame.seq for frame in got] == list(range(len(sent)))
    assert not reader.pending


def test_byte_by_byte_through_the_iterable_form() -> None:
    writer = FrameWriter(7)
    data = writer.value("a") + writer.end()
    assert [f.seq for f in FrameReader(data[i : i + 1] for i in range(len(data)))] == [7, 8]


def test_frames_that_were_not_taken_come_with_the_next_feed() -> None:
    writer = FrameWriter()
    reader = FrameReader()
    reader.feed(writer.value(0) + writer.value(1))
    assert next(reader.feed(writer.value(2))).body == 0
    assert [f.body for f in reader.feed(b"")] == [1, 2]


def test_a_cut_stream_is_pending_not_finished() -> None:
    data = FrameWriter().value("abc")
    reader = FrameReader()
    assert list(reader.feed(data + data[:2])) == [Frame(FrameKind.VALUE, 0, "abc")]
    assert reader.pending


@given(st.binary(max_size=100), st.lists(st.integers(0, 100), max_size=3))
@settings(max_examples=300, deadline=None)
def test_garbage_raises_nothing_but_frame_error(data: bytes, places: list[int]) -> None:
    reader = FrameReader()
    try:
        for part in cut(data, places):
            list(reader.feed(part))
    except FrameError:
        with pytest.raises(FrameError):
            list(reader.feed(FrameWriter().end()))
    for read in (Frame.from_bytes, peek):
        try:
            read(data)
        except FrameError as exc:
            assert str(exc)


@pytest.mark.parametrize(
    "bad",
    [
        *(1, [], [0, 0, None], [5, 0, None, None], [-1, 0, None, None], [True, 0, None, None], [0, -1, None, None]),
        *([0, "0", None, None], [0, True, None, None], [1, 0, "text", None], [0, 0, None, [1]], [0, 0, None, None, 0]),
    ],
)
def test_what_is_no_frame_is_refused(bad: object) -> None:
    for read in (Frame.from_bytes, lambda data: frames([data])):
        with pytest.raises(FrameError):
            read(wire.pack(bad))


def test_two_frames_are_not_one() -> None:
    with pytest.raises(FrameError):
        Frame.from_bytes(end_frame(0) + end_frame(1))


def test_a_frame_above_the_limit_is_refused_and_many_small_ones_are_not() -> None:
    writer = FrameWriter()
    small = b"".join(writer.value("x" * 100) for _ in range(5000))
    assert len(list(FrameReader(max_buffer=4096).feed(small))) == 5000
    with pytest.raises(FrameError, match="more than 4096 bytes"):
        list(FrameReader(max_buffer=4096).feed(writer.value("x" * 10_000)))


def test_a_hostile_header_allocates_nothing() -> None:
    for data in (b"\xdd\xff\xff\xff\xff", b"\x94\xdd\xff\xff\xff\xff", b"\x94\x00\xdf\xff\xff\xff\xff"):
        with pytest.raises(FrameError):
            peek(data)


def test_a_broken_frame_does_not_take_the_ones_before_it_along() -> None:
    reader = FrameReader()
    got = reader.feed(FrameWriter().value(1) + b"\xc1")
    assert next(got).body == 1
    with pytest.raises(FrameError):
        next(got)


@pytest.mark.inventory("P-203")
def test_the_cheap_helpers_make_the_same_bytes_as_the_writer() -> None:
    assert end_frame(4) == FrameWriter(4).end()
    assert error_frame(4, "ValueError", "no") == FrameWriter(4).error("ValueError", "no")
    assert Frame.from_bytes(error_frame(4, "ValueError", "no")).meta == {"type": "ValueError", "message": "no"}


@pytest.mark.inventory("K-23")
@pytest.mark.inventory("S-680")
def test_a_writer_goes_on_where_it_is_told_and_marks_its_attempt() -> None:
    writer = FrameWriter(12, attempt=2)
    first, last = Frame.from_bytes(writer.value(1)), Frame.from_bytes(writer.end())
    assert (first.seq, first.meta, last.seq) == (12, {"attempt": 2}, 13)
    with pytest.raises(TypeError):
        writer.value(object())
    assert writer.next_seq == 14, "a value that does not travel takes no seq"


@pytest.mark.inventory("P-201", "P-202", "P-206")
@settings(deadline=None)
@given(st.lists(st.integers(0, 9) | st.binary(max_size=40), max_size=6), st.integers(1, 16))
def test_runs_come_back_as_one_value_each(values: list[int | bytes], size: int) -> None:
    writer = FrameWriter()
    data = b"".join(
        b"".join(writer.chunks(v, size, content_type="image/png")) if isinstance(v, bytes) else writer.value(v)
        for v in values
    )
    got, last = drain(reassemble(FrameReader([data, writer.end()])))
    assert got == values
    assert last is not None
    assert last.kind is FrameKind.END
    got, last = drain(reassemble(FrameReader([data])))
    assert (got, last) == (values, None), "a cut stream says so"


@pytest.mark.inventory("S-680")
def test_the_begin_of_a_run_tells_its_size_and_type() -> None:
    begin = Frame.from_bytes(next(FrameWriter().chunks(b"12345", 2, content_type="text/plain")))
    assert (begin.kind, begin.meta) == (FrameKind.BEGIN, {"total": 5, "content_type": "text/plain"})


def test_a_run_without_total_ends_at_the_next_frame() -> None:
    run = [Frame(FrameKind.BEGIN, 0), Frame(FrameKind.CHUNK, 1, b"a"), Frame(FrameKind.CHUNK, 2, b"b")]
    assert drain(reassemble([*run, Frame(FrameKind.END, 3)]))[0] == [b"ab"]
    assert drain(reassemble([*run, Frame(FrameKind.VALUE, 3, 1)]))[0] == [b"ab", 1]
    assert drain(reassemble(run))[0] == [], "whether it was complete is not known"


@pytest.mark.inventory("S-680")
def test_an_error_frame_raises_what_the_producer_raised() -> None:
    writer = FrameWriter()
    stream = reassemble(FrameReader([writer.value(1), writer.error("KeyError", "'x'")]))
    assert next(stream) == 1
    with pytest.raises(RemoteFailure, match="KeyError: 'x'") as raised:
        next(stream)
    assert (raised.value.type, raised.value.message) == ("KeyError", "'x'")


def test_the_body_of_an_end_is_the_last_value() -> None:
    writer = FrameWriter()
    assert drain(reassemble(FrameReader([writer.value(1), writer.end({"done": 20})])))[0] == [1, {"done": 20}]


def test_runs_that_do_not_fit_are_refused() -> None:
    begin = Frame(FrameKind.BEGIN, 0, None, {"total": 2})
    chunk = Frame(FrameKind.CHUNK, 1, b"a")
    for bad in (
        [chunk],
        [begin, chunk, Frame(FrameKind.END, 2)],
        [begin, chunk, Frame(FrameKind.VALUE, 2, 1)],
        [begin, Frame(FrameKind.CHUNK, 1, b"abc")],
        [Frame(FrameKind.BEGIN, 0, None, {"total": -1})],
    ):
        with pytest.raises(FrameError):
            drain(reassemble(bad))


@pytest.mark.inventory("K-23")
def test_a_run_that_a_newer_attempt_replaces_is_dropped() -> None:
    old, new = FrameWriter(attempt=1), FrameWriter(2, attempt=2)
    died = list(old.chunks(b"abcd", 2))[:2]
    whole = list(new.chunks(b"abcd", 2))
    assert drain(reassemble(FrameReader([*died, *whole, end_frame(new.next_seq)])))[0] == [b"abcd"]
    assert drain(reassemble(FrameReader([*died, end_frame(2)])))[0] == [], "the plane writes END without an attempt"
