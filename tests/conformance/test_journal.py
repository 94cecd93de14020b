"""Segment files: whatever a disk does to some bytes is detected, and costs the neighbours nothing (K-26, K-32)."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakeshore.plane import journal as journal_module
from lakeshore.plane.journal import FrameDamaged, Journal, Location

HEAD = 28
SIZES = st.one_of(st.integers(0, 40), st.sampled_from([255, 256, 4095, 4096, 65535, 65536]), st.integers(0, 20_000))
RECORDS = st.lists(
    st.tuples(st.integers(-5, 50), st.integers(0, 2**32 - 1), st.integers(0, 2**40), SIZES), min_size=1, max_size=12
)
Written = list[tuple[int, int, int, bytes, Location]]


def _write(directory: Path, records: list[tuple[int, int, int, int]]) -> Written:
    journal = Journal(directory / "journal", sync=False)
    written = []
    for n, (channel, claim, seq, size) in enumerate(records):
        data = bytes((n * 31 + k) % 251 for k in range(size))
        written.append((channel, claim, seq, data, journal.append(channel, claim, seq, data)))
    journal.sync()
    journal.close()
    return written


def _readable(directory: Path, written: Written) -> list[bool]:
    """Which records come back; none may come back changed."""
    journal, found = Journal(directory / "journal", sync=False), []
    for channel, claim, seq, data, where in written:
        try:
            assert journal.read(channel, claim, seq, where) == data, "damaged bytes were served"
            found.append(True)
        except FrameDamaged as exc:
            assert f"frame {seq} of channel {channel}" in str(exc)
            found.append(False)
    assert journal.damaged == found.count(False)
    journal.close()
    return found


def _segment(directory: Path, written: Written) -> Path:
    return directory / "journal" / f"{written[0][4].segment:010d}.frames"


@pytest.mark.inventory("K-26")
@settings(max_examples=60, deadline=None)
@given(records=RECORDS)
def test_what_was_written_is_read_also_after_reopening(records: list[tuple[int, int, int, int]]) -> None:
    with tempfile.TemporaryDirectory() as name:
        written = _write(Path(name), records)
        assert all(_readable(Path(name), written))


@pytest.mark.inventory("K-26", "K-32")
@settings(max_examples=150, deadline=None)
@given(records=RECORDS, at=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_a_flipped_bit_costs_exactly_its_record(records: list[tuple[int, int, int, int]], at: float, bit: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        written = _write(Path(name), records)
        segment = _segment(Path(name), written)
        raw = bytearray(segment.read_bytes())
        place = int(at * len(raw))
        raw[place] ^= 1 << bit
        segment.write_bytes(raw)
        hit = [w.offset <= place < w.offset + HEAD + w.length for *_, w in written]
        assert hit.count(True) == 1
        assert _readable(Path(name), written) == [not h for h in hit]


@pytest.mark.inventory("K-26", "K-32")
@settings(max_examples=80, deadline=None)
@given(records=RECORDS, at=st.floats(0, 1))
def test_a_truncated_segment_costs_only_its_tail(records: list[tuple[int, int, int, int]], at: float) -> None:
    with tempfile.TemporaryDirectory() as name:
        written = _write(Path(name), records)
        segment = _segment(Path(name), written)
        size = int(at * segment.stat().st_size)
        with open(segment, "r+b") as file:
            file.truncate(size)
        assert _readable(Path(name), written) == [w.offset + HEAD + w.length <= size for *_, w in written]


@pytest.mark.inventory("K-26", "K-32")
@settings(max_examples=60, deadline=None)
@given(records=RECORDS, at=st.floats(0, 1), junk=st.binary(min_size=1, max_size=600))
def test_a_lost_page_costs_only_what_it_held(records: list[tuple[int, int, int, int]], at: float, junk: bytes) -> None:
    with tempfile.TemporaryDirectory() as name:
        written = _write(Path(name), records)
        segment = _segment(Path(name), written)
        raw = bytearray(segment.read_bytes())
        start = int(at * len(raw))
        before = bytes(raw)
        raw[start : start + len(junk)] = junk[: max(0, len(raw) - start)]
        segment.write_bytes(raw)
        spans = [(w.offset, w.offset + HEAD + w.length) for *_, w in written]
        assert _readable(Path(name), written) == [before[a:b] == bytes(raw[a:b]) for a, b in spans]


@pytest.mark.inventory("K-26")
def test_a_record_is_served_to_its_owner_alone(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal", sync=False)
    where = journal.append(7, 3, 11, b"data")
    assert journal.read(7, 3, 11, where) == b"data"
    for channel, claim, seq in ((8, 3, 11), (7, 4, 11), (7, 3, 12)):
        with pytest.raises(FrameDamaged, match="another frame"):
            journal.read(channel, claim, seq, where)
    with pytest.raises(FrameDamaged):
        journal.read(7, 3, 11, Location(segment=where.segment, offset=where.offset + 1, length=where.length))
    with pytest.raises(FrameDamaged):
        journal.read(7, 3, 11, Location(segment=999, offset=0, length=4))
    journal.close()


@pytest.mark.inventory("K-26")
def test_segments_roll_and_each_process_has_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_module, "SEGMENT_BYTES", 1000)
    one, two = Journal(tmp_path / "journal"), Journal(tmp_path / "journal")
    places = []
    for seq in range(30):
        for channel, journal in ((1, one), (2, two)):
            data = bytes([seq]) * 100
            places.append((channel, seq, data, journal.append(channel, 1, seq, data)))
            journal.sync()
    of = {channel: {where.segment for c, _s, _d, where in places if c == channel} for channel in (1, 2)}
    assert len(of[1]) > 1
    assert not of[1] & of[2]
    for channel, seq, data, where in places:
        for journal in (one, two):
            assert journal.read(channel, 1, seq, where) == data
    one.close()
    two.close()
