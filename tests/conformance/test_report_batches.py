"""A batch of reports is what its items are one by one, whichever way it takes into the plane (K-2, K-5, K-18)."""

from __future__ import annotations

import random
from typing import Any

import pytest

from lakeshore.plane import claims, frames, reports, rows, submits
from lakeshore.plane.contract import Report, Submission, Wish
from lakeshore.plane.plane import Plane
from lakeshore.plane.statements import SQL

IDS = [f"id{n}" for n in range(30)]


def prepared(rng: random.Random) -> Plane:
    """Rows of two queues and namespaces: queued, running, started, cancelled, with frames, ended."""
    plane = Plane(":memory:")
    items = [
        Submission(ns=rng.choice(["default", "default", "other"]), queue=rng.choice("ab"), id=id_, args=b"", hash=b"h")
        for id_ in IDS
    ]
    plane.write(lambda tx: submits.submit_many(tx, items, 1.0))
    for ns, queue in (("default", "a"), ("default", "b"), ("other", "a")):
        wish = Wish(ns=ns, queues=(queue,), worker="w", session="s", capacity=8, start=rng.random() < 0.5)
        for run in plane.write(lambda tx, wish=wish: claims.claim(tx, wish, 2.0)):
            if rng.random() < 0.2:
                plane.write(lambda tx, run=run: frames.append(tx, run.ns, run.id, b"f", 2.0, seq=0, claim=run.claim))
            if rng.random() < 0.2:
                plane.write(lambda tx, run=run: reports.cancel(tx, run.ns, run.id, 2.0, grace_s=9.0))
            if rng.random() < 0.2:
                report = Report(ns=run.ns, id=run.id, claim=run.claim, worker="w", outcome="succeeded", result=b"old")
                plane.write(lambda tx, report=report: reports.settle(tx, report, 2.0))
    return plane


def some_report(rng: random.Random) -> Report:
    return Report(
        ns=rng.choice(["default", "default", "default", "other"]),
        id=rng.choice([*IDS, "never"]),
        claim=rng.choice([1, 1, 1, 1, 2, None]),
        worker=rng.choice(["w", "w", "v"]),
        outcome=rng.choice(["succeeded", "succeeded", "succeeded", "failed"]),
        result=b"r%d" % rng.randrange(9),
        error=reports.CANCELLED,
        retry=rng.random() < 0.5,
        last_seq=rng.choice([None, None, None, 0, 3]),
    )


def what_is_there(plane: Plane) -> list[Any]:
    stored = "SELECT i.*, r.data FROM invocation i LEFT JOIN result r USING (seq) ORDER BY seq"
    return [plane.rows(stored, {}), sorted(plane.rows(SQL.tallies, {}))]


@pytest.mark.inventory("K-2", "K-5", "K-18")
@pytest.mark.parametrize("seed", range(40))
def test_a_batch_answers_and_stores_what_its_reports_do_alone(seed: int) -> None:
    apart, together = prepared(random.Random(seed)), prepared(random.Random(seed))
    assert what_is_there(apart) == what_is_there(together)
    rng = random.Random(seed)
    try:
        for size in (1, 3, 12, 25):
            batch = [some_report(rng) for _ in range(size)]
            if seed % 2:  # each row once, as workers report
                batch = list({report.id: report for report in batch}.values())
            alone = [apart.write(lambda tx, report=report: reports.settle(tx, report, 3.0)) for report in batch]
            assert together.write(lambda tx, batch=batch: reports.settle_many(tx, batch, 3.0)) == alone
            assert what_is_there(together) == what_is_there(apart)
        assert sum(rows.count(apart.rows, "default", queue, "succeeded") for queue in "ab") > 0, "nothing succeeded"
    finally:
        apart.close()
        together.close()
