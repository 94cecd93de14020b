"""`ValueReader` reads what `reassemble` reads, however the bytes are split and however often they break off."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeshore import wire
from lakeshore.sdk.yields import Yields
from lakeshore.wire import Frame, FrameError, FrameKind, FrameWriter
from lakeshore.wire.errors import RemoteFailure
from lakeshore.wire.frames import ValueReader, error_frame, reassemble

values = st.lists(st.integers(0, 300) | st.none() | st.text(max_size=5) | st.binary(max_size=30), max_size=8)


def a_stream(said: list[Any], size: int) -> list[bytes]:
    """Bytes travel as runs of CHUNKs of `size`, everything else as one frame."""
    writer = FrameWriter(attempt=1)
    made: list[bytes] = []
    for value in said:
        made += writer.chunks(value, size) if isinstance(value, bytes) else [writer.value(value)]
    return [*made, writer.end()]


@pytest.mark.inventory("P-200", "P-201", "K-24")
@given(values, st.integers(1, 12), st.lists(st.tuples(st.integers(0, 10_000), st.booleans()), max_size=6))
def test_it_reads_what_reassemble_reads_split_and_broken_off_anywhere(
    said: list[Any], size: int, places: list[tuple[int, bool]]
) -> None:
    frames = a_stream(said, size)
    reader, got, at = ValueReader(), [], 0
    for place, breaks in sorted(places):
        data = b"".join(frames)
        end = max(at, place % (len(data) + 1))
        got += list(reader.feed(data[at:end]))
        at = end
        if breaks:
            reader.resume()
            at = sum(map(len, frames[: reader.seq + 1]))  # a server goes on after the last frame that was read
    got += list(reader.feed(b"".join(frames)[at:]))
    assert got == list(reassemble(map(Frame.from_bytes, frames))) == said
    assert (reader.seq, reader.ended) == (len(frames) - 1, True)


@pytest.mark.parametrize(
    "raw",
    [
        [0, -1, 1, None],
        [0, 1.0, 1, None],
        [False, 1, 1, None],
        [0.0, 1, 1, None],
        [0, True, 1, None],
        [0, 1, 1, []],
        [0, 1, 1],
        [9, 1, 1, None],
        {"a": 1},
        7,
    ],
)
def test_what_is_no_frame_is_refused_after_the_values_before_it(raw: Any) -> None:
    reader = ValueReader()
    stream = reader.feed(wire.pack([0, 0, "first", None]) + wire.pack(raw))
    assert next(stream) == "first"
    with pytest.raises(FrameError):
        next(stream)
    with pytest.raises(FrameError):
        list(reader.feed(wire.pack([0, 1, "later", None])))


def test_an_error_raises_what_the_producer_raised_and_nothing_after_the_end_is_read() -> None:
    with pytest.raises(RemoteFailure, match="KeyError: 'x'"):
        list(ValueReader().feed(error_frame(0, "KeyError", "'x'")))
    reader = ValueReader(4)
    assert list(reader.feed(FrameWriter(5).end("last") + FrameWriter(6).value(1))) == ["last"]
    assert (reader.seq, reader.ended) == (5, True)


@pytest.mark.inventory("K-23")
@pytest.mark.parametrize("first", [0, 120, 126, 127, 128, 250, 255, 256, 65_530, 65_535, 65_536, 2**32 - 3])
def test_what_was_yielded_is_the_result_whatever_the_width_of_its_numbers(first: int) -> None:
    said: list[Any] = [None, 1, "two", b"three", [4.5, (6, 7)], {"a": list(range(40))}, *range(140)]
    yields = Yields(first, attempt=300)
    for seq, value in enumerate(said, first):
        at, frame = yields.add(value)
        assert at == seq
        assert Frame.from_bytes(frame) == Frame(FrameKind.VALUE, seq, value, {"attempt": 300})
    assert wire.unpack(yields.packed(())) == said


def test_a_yield_that_does_not_travel_takes_no_number() -> None:
    yields = Yields(7, attempt=1)
    with pytest.raises(TypeError):
        yields.add(object())
    assert yields.add("next")[0] == 7
    assert msgpack.unpackb(yields.packed(())) == ["next"]
