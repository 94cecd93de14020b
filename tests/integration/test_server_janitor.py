"""What ended long ago is forgotten, with its files; what is young stays."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import msgpack
import pytest
import trio

from lakeshore.plane import claims, frames, reports, rows, submits
from lakeshore.plane.contract import Purged, Report, Submission, Wish
from lakeshore.plane.plane import Plane
from lakeshore.server.dispatcher import Dispatcher
from lakeshore.server.forgetting import GRACE_S
from lakeshore.server.janitor import Janitor
from lakeshore.server.records import Records
from lakeshore.server.records.events import EventRow

DAY = 86400.0


@pytest.mark.inventory("S-739")
def test_events_go_after_a_month(tmp_path: Path) -> None:
    now = time.time()

    async def kept() -> list[Any]:
        records = Records(tmp_path / "records.db")
        told = [
            EventRow(ns="default", kind="queue.state", at=now - days * DAY, payload={"d": days}) for days in (31, 29, 0)
        ]
        await records.events.add(told)
        await records.events.forget_old(now)
        found = await records.events.page("default")
        records.close()
        return [row.payload["d"] for row in found]

    assert trio.run(kept) == [0, 29]


@pytest.mark.inventory("K-16", "K-26", "K-22")
def test_old_rows_leave_a_tombstone_and_no_file(tmp_path: Path) -> None:
    plane = Plane(str(tmp_path / "plane.db"), files=tmp_path)
    dispatcher = Dispatcher(plane, reserve_bytes=0)
    now = time.time()
    big = os.urandom(100_000)

    def run(id_: str, ended_at: float) -> None:
        args = plane.blobs.keep(id_, "args", big)
        item = Submission(ns="default", queue="q", id=id_, args=args, hash=id_.encode())
        plane.write(lambda tx: submits.submit(tx, item, ended_at))
        wish = Wish(ns="default", queues=("q",), worker="w")
        (claimed,) = plane.write(lambda tx: claims.claim(tx, wish, ended_at))
        frame = frames.value_frame(0, msgpack.packb(1))
        plane.write(lambda tx: frames.append(tx, "default", id_, frame, ended_at, claim=claimed.claim, seq=0))
        result = plane.blobs.keep(id_, "result", big)
        report = Report(ns="default", id=id_, outcome="succeeded", claim=claimed.claim, result=result, last_seq=0)
        plane.write(lambda tx: reports.settle(tx, report, ended_at))

    def files() -> list[str]:
        return sorted(p.name.split(".")[0] for p in (tmp_path / "blobs").rglob("*") if p.is_file())

    run("old", now - 40 * DAY)
    run("young", now - 20 * DAY)
    for path in (tmp_path / "blobs").rglob("*.*"):
        os.utime(path, (now - 20 * DAY, now - 20 * DAY))
    orphan = tmp_path / "blobs" / "orphan"
    orphan.write_bytes(b"nobody points here")
    os.utime(orphan, (now - 2 * GRACE_S, now - 2 * GRACE_S))

    async def sweep() -> int:
        async with trio.open_nursery() as nursery:
            await nursery.start(dispatcher.run)
            janitor = Janitor(dispatcher, keep_s=30 * DAY)
            gone = await janitor.sweep(now)
            janitor.close()
            nursery.cancel_scope.cancel()
        return gone

    assert files() == ["old", "old", "orphan", "young", "young"]
    assert trio.run(sweep) == 1
    assert files() == ["young", "young"]
    assert rows.ended(plane.rows, "default", "old").state == "purged"
    assert rows.ended(plane.rows, "default", "young").terminal
    again = Submission(ns="default", queue="q", id="old", args=b"", hash=b"old")
    with pytest.raises(Purged):
        plane.write(lambda tx: submits.submit(tx, again, now))
    dispatcher.close()
    plane.close()
