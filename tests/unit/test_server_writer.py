"""When a commit counts as slow, and leaves the loop; and who goes with whom in one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing
from typing import Any

import pytest
import trio
import trio.testing

from lakeshore.plane.contract import PlaneError
from lakeshore.plane.plane import Plane
from lakeshore.plane.transaction import Transaction
from lakeshore.server.writer import PATIENCE_S, SLOW_COMMIT_S, STALL_S, Writer, slow_from_s


@pytest.mark.inventory("K-30")
@pytest.mark.parametrize(
    ("hop_s", "slow_s"), [(0.00001, SLOW_COMMIT_S), (0.0002, 0.0008), (0.002, STALL_S), (0.5, STALL_S)]
)
def test_a_commit_of_milliseconds_leaves_the_loop_however_busy_the_start_was(hop_s: float, slow_s: float) -> None:
    assert slow_from_s(hop_s) == pytest.approx(slow_s)


class Noted:
    """A plane, and what each of its batches wrote, in order."""

    def __init__(self, plane: Plane) -> None:
        self._plane = plane
        self.commit_s = 0.0
        self.batches: list[list[str]] = []
        self.failure: Exception | None = None

    def batch(self, verbs: Sequence[Callable[[Transaction], Any]]) -> list[Any]:
        if self.failure is not None:
            raise self.failure
        answers = self._plane.batch(verbs)
        self.batches.append([said for said in answers if said is not None])
        return answers


def written(main: Callable[[Writer[Transaction], Noted], Awaitable[None]]) -> list[list[str]]:
    """What each batch wrote while `main` ran, on a clock that jumps to whatever is waited for."""

    async def run() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(writer.run)
            await writer.write(lambda _tx: None)  # it is at work: before, it is in a thread for a moment
            noted.batches.clear()
            await main(writer, noted)
            nursery.cancel_scope.cancel()

    with closing(Plane(":memory:", durability="none")) as plane:
        noted = Noted(plane)
        writer: Writer[Transaction] = Writer(noted)
        trio.run(run, clock=trio.testing.MockClock(autojump_threshold=0.01))
    return noted.batches


async def patient(writer: Writer[Transaction], word: str = "patient") -> None:
    assert await writer.write(lambda _tx: word, patient=True) == word


def test_a_patient_write_goes_behind_the_next_one_in_its_commit() -> None:
    async def main(writer: Writer[Transaction], _noted: Noted) -> None:
        began = trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(patient, writer)
            await trio.testing.wait_all_tasks_blocked()
            assert await writer.write(lambda _tx: "urgent") == "urgent"
        assert trio.current_time() - began < PATIENCE_S

    assert written(main) == [["urgent", "patient"]]


def test_patient_writes_go_together_when_the_time_of_the_first_is_over() -> None:
    async def main(writer: Writer[Transaction], _noted: Noted) -> None:
        began = trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(patient, writer, "first")
            await trio.sleep(PATIENCE_S / 2)
            nursery.start_soon(patient, writer, "second")
        assert trio.current_time() - began == pytest.approx(PATIENCE_S)

    assert written(main) == [["first", "second"]]


def test_who_begins_to_wait_has_patient_writes_committed_at_once() -> None:
    async def main(writer: Writer[Transaction], _noted: Noted) -> None:
        began = trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(patient, writer)
            await trio.testing.wait_all_tasks_blocked()
            writer.hurry()
        assert trio.current_time() - began < PATIENCE_S

    assert written(main) == [["patient"]]


def test_a_patient_write_is_committed_though_its_asker_goes() -> None:
    async def main(writer: Writer[Transaction], noted: Noted) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(patient, writer)
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        await trio.testing.wait_all_tasks_blocked()
        assert noted.batches == [["patient"]]

    written(main)


def test_a_patient_write_hears_that_the_plane_has_stopped() -> None:
    async def main(writer: Writer[Transaction], noted: Noted) -> None:
        noted.failure = OSError("the disk is gone")
        with pytest.raises(PlaneError, match="the disk is gone"):
            await patient(writer)

    with pytest.RaisesGroup(pytest.RaisesExc(OSError, match="the disk is gone")):
        written(main)
