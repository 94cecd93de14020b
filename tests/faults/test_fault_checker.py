"""The checker of histories sees each thing that can go wrong: a true history passes, a doctored one is named."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import msgpack
import pytest
from checker import Verdict, check
from final_state import StateDirectory
from history import History, Log

from lakeshore import wire
from lakeshore.plane.journal import Journal
from lakeshore.sdk.dispatch import Dispatch
from lakeshore.sdk.ids import new_id
from lakeshore.sdk.queues import SyncQueue

QUEUE, ME = "q", "hand"


@dataclass(slots=True)
class Scene:
    """A local plane on which something was done, by hand and written down; and its doctors' tools."""

    directory: Path
    ids: dict[str, str] = field(default_factory=dict)

    @property
    def database(self) -> Path:
        return self.directory / "plane.sqlite"

    @property
    def files(self) -> Path:
        return self.directory / "plane.sqlite.d"

    def verdict(self, forget: tuple[float, float] | None = None, *, ended: bool = True) -> Verdict:
        history = History.read(self.directory)
        if forget is not None:
            history.forget(*forget)
        with StateDirectory(self.files, self.database) as final:
            return check(history, final, ended=ended)

    def sql(self, statement: str, *names: str) -> None:
        conn = sqlite3.connect(self.database)
        with conn:
            changed = conn.execute(statement, tuple(self.ids.get(name, name) for name in names)).rowcount
        conn.close()
        assert changed > 0, "the doctor changed nothing"

    def one(self, query: str, *names: str) -> tuple[int, ...]:
        conn = sqlite3.connect(self.database)
        try:
            return tuple(conn.execute(query, tuple(self.ids.get(name, name) for name in names)).fetchone())
        finally:
            conn.close()

    def log(self) -> Log:
        return Log(self.directory, "doctor")

    def unsay(self, what: str, name: str) -> None:
        """Take lines out of what was written down."""
        path = self.directory / "said-hand"
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        kept = [said for said in lines if (said["what"], said["id"]) != (what, self.ids[name])]
        assert len(kept) < len(lines), "the doctor changed nothing"
        path.write_text("".join(json.dumps(said) + "\n" for said in kept))


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    scene = Scene(tmp_path)
    plane, log = Dispatch(scene.database), Log(tmp_path, "hand")
    try:
        for name, play in (("small", _small), ("large", _small), ("stream", _stream), ("bad", _bad), ("dead", _dead)):
            scene.ids[name] = inv = plane.submit(QUEUE, b"call", id=new_id())
            play(plane, log, inv, name)
    finally:
        plane.close()
    assert scene.verdict().faults == [], scene.verdict().report()
    return scene


def _small(plane: Dispatch, log: Log, inv: str, name: str) -> None:
    result = wire.pack(b"r" * (100_000 if name == "large" else 10))
    log.submitted(inv, result=result)
    job = plane.claim(QUEUE, ME)
    assert job is not None
    log.began(inv, job.claim)
    sent_at = time.monotonic()
    plane.ack(inv, ME, result=result, claim=job.claim)
    log.settled(inv, job.claim, "succeeded", sent_at=sent_at, result=result)
    log.told(inv, "succeeded", plane.result(inv))


def _stream(plane: Dispatch, log: Log, inv: str, name: str) -> None:
    """The first attempt fails after two yields of three, the second goes through."""
    log.submitted(inv, yields=[wire.pack(value) for value in (1, 2, 3)], executions=2)
    for attempt, values in ((1, (1, 2)), (2, (1, 2, 3))):
        job = plane.claim(QUEUE, ME)
        assert job is not None
        log.began(inv, job.claim)
        frames = wire.FrameWriter(job.first_seq, attempt=attempt)
        for seq, value in enumerate(values, job.first_seq):
            frame = frames.value(value)
            plane.journal_append(inv, seq, frame, claim=job.claim)
            log.appended(inv, job.claim, seq, frame)
        sent_at = time.monotonic()
        if attempt == 1:
            plane.nack(inv, ME, error=ValueError("once"), claim=job.claim)
            log.settled(inv, job.claim, "failed", sent_at=sent_at, final=False)
        else:
            plane.ack(inv, ME, result=b"", claim=job.claim, last_seq=seq)
            log.settled(inv, job.claim, "succeeded", sent_at=sent_at)
    for seq, frame in plane.journal_read(inv):
        log.read(inv, seq, frame)
    for index, value in enumerate(SyncQueue(QUEUE, dispatch=plane).stream(inv)):
        log.value(inv, index, wire.pack(value))


def _bad(plane: Dispatch, log: Log, inv: str, name: str) -> None:
    log.submitted(inv, may={"failed": ["ValueError"]})
    job = plane.claim(QUEUE, ME)
    assert job is not None
    log.began(inv, job.claim)
    sent_at = time.monotonic()
    plane.nack(inv, ME, error=ValueError("on purpose"), retry=False, claim=job.claim)
    log.settled(inv, job.claim, "failed", sent_at=sent_at)
    log.told(inv, "failed")


def _dead(plane: Dispatch, log: Log, inv: str, name: str) -> None:
    log.submitted(inv)
    log.cancelling(inv)
    assert plane.cancel(inv)
    log.cancelled(inv)


# -- what doctors do


def _rewrite(scene: Scene, seq: int, claim: int, frame: bytes) -> None:
    """A whole record, with a good checksum, in the place of a frame."""
    (channel,) = scene.one("SELECT seq FROM invocation WHERE id = ?", "stream")
    journal = Journal(scene.files / "journal", sync=False)
    where = journal.append(channel, claim, seq, frame)
    journal.close()
    scene.sql(
        f"UPDATE frame SET segment = {where.segment}, offset = {where.offset}, length = {where.length}, "
        f"claim = {claim} WHERE channel = {channel} AND seq = {seq}"
    )


def _flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def _blob(scene: Scene) -> Path:
    (path,) = (scene.files / "blobs").rglob("*.result")
    return path


def _segment(scene: Scene) -> Path:
    return next(path for path in sorted((scene.files / "journal").glob("*.frames")) if path.stat().st_size)


def _later_began(scene: Scene) -> None:
    """As if a newer claim had been handed out and begun before the older one reported."""
    scene.unsay("settled", "small")
    scene.log().began(scene.ids["small"], 2)
    scene.log().settled(scene.ids["small"], 1, "succeeded", sent_at=time.monotonic())


ROW = "UPDATE invocation SET {} WHERE id = ?"
FRAMES = "DELETE FROM frame WHERE channel = (SELECT seq FROM invocation WHERE id = ?) AND seq = {}"
OF = "(SELECT seq FROM invocation WHERE id = ?)"

DOCTORED: dict[str, tuple[str, str, Callable[[Scene], object]]] = {
    "a row is gone": ("lost row", "small", lambda s: s.sql("DELETE FROM invocation WHERE id = ?", "small")),
    "a row runs": ("not ended", "small", lambda s: s.sql(ROW.format("state = 'running'"), "small")),
    "more attempts than claims": ("unknown claim", "small", lambda s: s.sql(ROW.format("attempt = 9"), "small")),
    "nobody began it": ("never started", "large", lambda s: s.unsay("began", "large")),
    "no reason": ("unexplained", "bad", lambda s: s.sql(ROW.format("error = NULL"), "bad")),
    "another reason": (
        "unexplained",
        "bad",
        lambda s: s.sql(ROW.format(f"error = x'{msgpack.packb({'type': 'KeyError'}).hex()}'"), "bad"),
    ),
    "nobody cancelled it": ("unexplained", "dead", lambda s: s.unsay("cancelling", "dead")),
    "the killed one succeeded": ("another ending", "dead", lambda s: s.sql(ROW.format("state = 'succeeded'"), "dead")),
    "an acknowledged success is none": (
        "another ending",
        "small",
        lambda s: s.sql(ROW.format("state = 'failed'"), "small"),
    ),
    "told another end": ("another ending", "bad", lambda s: s.log().told(s.ids["bad"], "succeeded")),
    "two endings told": (
        "another ending",
        "small",
        lambda s: s.log().settled(s.ids["small"], 1, "failed", sent_at=time.monotonic()),
    ),
    "a settlement after a newer claim began": ("late settlement", "small", _later_began),
    "an older claim settled": ("late settlement", "small", lambda s: s.sql(ROW.format("claim = 2"), "small")),
    "a claim that was never given": ("unknown claim", "small", lambda s: s.log().began(s.ids["small"], 5)),
    "a result is gone": ("missing result", "small", lambda s: s.sql(f"DELETE FROM result WHERE seq = {OF}", "small")),
    "a result is another": (
        "altered result",
        "small",
        lambda s: s.sql(f"UPDATE result SET data = x'00', size = 1 WHERE seq = {OF}", "small"),
    ),
    "a result is short": (
        "damaged",
        "small",
        lambda s: s.sql(f"UPDATE result SET data = x'' WHERE seq = {OF}", "small"),
    ),
    "a result's file is gone": ("damaged", "large", lambda s: _blob(s).unlink()),
    "a result's file is altered": ("damaged", "large", lambda s: _flip(_blob(s), 50_000)),
    "a frame is gone": ("missing frame", "stream", lambda s: s.sql(FRAMES.format(1), "stream")),
    "the end is gone": ("missing frame", "stream", lambda s: s.sql(FRAMES.format(5), "stream")),
    "a frame is another": (
        "altered frame",
        "stream",
        lambda s: _rewrite(s, 1, 1, wire.FrameWriter(1, attempt=1).value(7)),
    ),
    "a frame's bytes are turned": ("damaged", "stream", lambda s: _flip(_segment(s), 40)),
    "a frame of an older claim": (
        "late frame",
        "stream",
        lambda s: _rewrite(s, 3, 1, wire.FrameWriter(3, attempt=2).value(2)),
    ),
    "a frame read as another": (
        "altered frame",
        "stream",
        lambda s: s.log().read(s.ids["stream"], 2, wire.FrameWriter(2).end()),
    ),
    "a frame read that is not there": (
        "missing frame",
        "stream",
        lambda s: s.log().read(s.ids["stream"], 9, wire.FrameWriter(9).end()),
    ),
    "a value read as another": ("altered frame", "stream", lambda s: s.log().value(s.ids["stream"], 3, wire.pack(3))),
    "a value read that is not there": (
        "missing frame",
        "stream",
        lambda s: s.log().value(s.ids["stream"], 5, wire.pack(3)),
    ),
    "a frame acknowledged to another claim": (
        "altered frame",
        "stream",
        lambda s: s.log().appended(s.ids["stream"], 2, 0, wire.FrameWriter(0, attempt=1).value(1)),
    ),
    "a count is off": ("counts", "default/q/failed", lambda s: s.sql("UPDATE tally SET n = 2 WHERE state = 'failed'")),
}


@pytest.mark.inventory("K-2", "K-5")
@pytest.mark.parametrize("how", DOCTORED)
def test_a_doctored_history_is_named_for_what_was_done_to_it(scene: Scene, how: str) -> None:
    what, name, doctor = DOCTORED[how]
    doctor(scene)
    verdict = scene.verdict()
    assert (what, scene.ids.get(name, name)) in {(fault.what, fault.id) for fault in verdict.faults}, verdict.report()
    with pytest.raises(AssertionError, match=what):
        verdict.must_hold()


def test_a_row_that_is_listed_twice_is_named(scene: Scene) -> None:
    class Twice(StateDirectory):
        def rows(self):  # type: ignore[no-untyped-def]  # a doctored source
            return super().rows() * 2

    with Twice(scene.files, scene.database) as final:
        assert {"two rows", "counts"} == check(History.read(scene.directory), final).named()


def test_executions_that_nobody_needed_are_counted_and_are_no_fault(scene: Scene) -> None:
    scene.log().began(scene.ids["stream"], 2)
    scene.log().began(scene.ids["stream"], 2)
    verdict = scene.verdict()
    assert verdict.faults == []
    assert verdict.again == {scene.ids["stream"]: 2}
    assert f"2 of them again, of 1 calls ({scene.ids['stream']} +2)" in verdict.report()


def test_what_was_acknowledged_after_a_copy_was_begun_is_not_demanded_of_it(scene: Scene) -> None:
    began_at = time.monotonic()
    scene.log().submitted(new_id())
    assert scene.verdict().named() == {"lost row"}
    assert scene.verdict((began_at, float("inf"))).faults == []


def test_a_copy_whose_rows_still_run_is_checked_for_all_the_rest(scene: Scene) -> None:
    plane = Dispatch(scene.database)
    scene.log().submitted(plane.submit(QUEUE, b"call", id=new_id()))
    plane.close()
    assert scene.verdict().named() == {"not ended"}
    assert scene.verdict(ended=False).faults == []


def test_a_line_that_was_cut_is_not_believed_and_spoils_no_other(scene: Scene) -> None:
    with (scene.directory / "said-hand").open("ab") as said:
        said.write(b'{"what":"submitted","id":"01')
    Log(scene.directory, "hand").refused(scene.ids["small"], "busy")
    history = History.read(scene.directory)
    assert (history.torn, history.refused) == (1, {"busy": 1})
    assert len(history.calls) == 5


def test_a_history_that_nobody_wrote_is_no_history(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nobody wrote"):
        History.read(tmp_path)
