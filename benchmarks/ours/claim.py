"""What one claim costs in the plane, empty and beside many terminal rows. No sync is in it: the table's growth is the
question, not the disk.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from harness.given import Given
from harness.stats import must_be, percentile

from lakeshore.plane import claims, reports, submits
from lakeshore.plane.contract import Claimed, Report, Submission, Wish
from lakeshore.plane.plane import Plane

BATCH = 1000
CLAIMS = 300
WISH = Wish(ns="default", queues=("q",), worker="w", start=True)
_planes: list[Plane] = []


def prepare(given: Given) -> None:
    """Two planes: an empty one, and one with `count` terminal rows."""
    directory = Path(tempfile.mkdtemp(dir=given.directory))
    for name, rows in (("empty", 0), ("full", given.count)):
        (directory / name).mkdir()
        plane = Plane(str(directory / f"{name}.db"), files=directory / name, durability="none")
        for first in range(0, rows, BATCH):
            _submit(plane, [f"old-{i}" for i in range(first, first + BATCH)])
            _settle(plane, [_claim_one(plane) for _ in range(BATCH)])
        _planes.append(plane)


def measure(given: Given) -> dict[str, float]:
    """`claim_empty_us`, `claim_full_us` (p50 of a claim and its transaction), `claim_ratio`."""
    del given
    took: list[list[float]] = [[], []]
    for plane in _planes:
        _submit(plane, [f"new-{time.monotonic_ns()}-{i}" for i in range(CLAIMS)])
    taken: list[list[Claimed]] = [[], []]
    for _ in range(CLAIMS):  # in turn, so that both meet the same machine
        for i, plane in enumerate(_planes):
            before = time.perf_counter()
            taken[i].append(_claim_one(plane))
            took[i].append((time.perf_counter() - before) * 1e6)
    for plane, claimed in zip(_planes, taken, strict=True):
        _settle(plane, claimed)
    empty, full = (percentile(values, 0.5) for values in took)
    return {"claim_empty_us": empty, "claim_full_us": full, "claim_ratio": full / empty}


def _submit(plane: Plane, ids: list[str]) -> None:
    now = time.time()
    items = [Submission(ns="default", queue="q", id=id_, args=b"args", hash=b"h" * 32) for id_ in ids]
    plane.batch([lambda tx, item=item: submits.submit(tx, item, now) for item in items])


def _claim_one(plane: Plane) -> Claimed:
    found = plane.write(lambda tx: claims.claim(tx, WISH, time.time()))
    must_be(len(found), 1)
    return found[0]


def _settle(plane: Plane, claimed: list[Claimed]) -> None:
    now = time.time()
    ends = [Report(ns="default", id=c.id, outcome="succeeded", claim=c.claim, worker="w", result=b"r") for c in claimed]
    done = plane.batch([lambda tx, end=end: reports.settle(tx, end, now) for end in ends])
    must_be({item.result for item in done}, {"ok"})
