"""The worker protocol over the plane itself, in memory and in a file that is closed and opened again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lakeshore.plane import frames, polls, reports, retries, rows, submits
from lakeshore.plane.contract import Appended, Cancelled, Poll, PollAnswer, Report, Settled, Submission
from lakeshore.plane.plane import Plane
from lakeshore.testing.sessions import NS, SESSIONS


class DirectPolls:
    """`PollHarness` without a server: each verb in a transaction of its own, on a clock that the harness turns."""

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory
        self._clock = 1_000.0
        self.plane = self._open()

    def submit(self, inv_id: str, *, queue: str = "default", max_attempts: int = 3) -> None:
        item = Submission(ns=NS, queue=queue, id=inv_id, args=b"", hash=inv_id.encode(), max_attempts=max_attempts)
        self.plane.write(lambda tx: submits.submit(tx, item, self._now()))

    def register(self, worker: str, session: str) -> bool:
        return self.plane.write(lambda tx: polls.register(tx, NS, worker, session, self._now()))

    def adopt(self, worker: str, session: str, pairs: list[tuple[str, int]]) -> list[tuple[str, int]]:
        return self.plane.write(lambda tx: polls.adopt(tx, NS, worker, session, pairs))

    def poll(self, request: Poll) -> PollAnswer:
        return self.plane.write(lambda tx: polls.poll(tx, request, self._now()))

    def settle(self, report: Report) -> Settled:
        return self.plane.write(lambda tx: reports.settle(tx, report, self._now()))

    def append(self, inv_id: str, claim: int, seq: int) -> Appended:
        data = frames.value_frame(seq, b"\xc0")
        return self.plane.write(lambda tx: frames.append(tx, NS, inv_id, data, self._now(), claim=claim, seq=seq))

    def lose(self, inv_id: str, claim: int) -> None:
        self.plane.write(lambda tx: reports.lose(tx, NS, inv_id, claim, self._now()))

    def cancel(self, inv_id: str) -> Cancelled:
        return self.plane.write(lambda tx: reports.cancel(tx, NS, inv_id, self._now(), grace_s=60.0))

    def deadline(self, inv_id: str, claim: int) -> None:
        self.plane.write(lambda tx: reports.kill(tx, NS, inv_id, claim, self._now()))

    def retry(self, inv_id: str, claim: int) -> None:
        self.plane.write(lambda tx: retries.retry(tx, NS, inv_id, self._now(), claim=claim))

    def row(self, inv_id: str) -> dict[str, Any]:
        return rows.get(self.plane.rows, NS, inv_id) or {}

    def restart(self) -> None:
        if self._directory is not None:
            self.plane.close()
            self.plane = self._open()

    def _open(self) -> Plane:
        if self._directory is None:
            return Plane(":memory:", durability="none")
        return Plane(str(self._directory / "plane.sqlite"), files=self._directory)

    def _now(self) -> float:
        self._clock += 1.0
        return self._clock


@pytest.fixture(params=["memory", "file"])
def harness(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[DirectPolls]:
    made = DirectPolls(None if request.param == "memory" else tmp_path)
    yield made
    made.plane.close()


@pytest.mark.parametrize("case", [pytest.param(c, id=c.name, marks=pytest.mark.inventory(*c.ids)) for c in SESSIONS])
def test_polls_keep_the_contract(case, harness: DirectPolls) -> None:
    case(harness)
