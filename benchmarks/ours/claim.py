"""What one claim costs in the plane, empty and beside many terminal rows. No sync is in it: the table's growth is the
question, not the disk.
"""

from __future__ import annotations

import sqlite3
import tempfile
import time
from pathlib import Path

from harness.given import Given
from harness.stats import must_be, percentile

from lakeshore.plane import claims, reports, submits
from lakeshore.plane.contract import Claimed, Report, Submission, Wish
from lakeshore.plane.plane import Plane

CLAIMS = 300
WISH = Wish(ns="default", queues=("q",), worker="w", start=True)
_planes: list[Plane] = []


def prepare(given: Given) -> None:
    """Two planes: an empty one, and one with `count` terminal rows."""
    directory = Path(tempfile.mkdtemp(dir=given.directory))
    for name, rows in (("empty", 0), ("full", given.count)):
        (directory / name).mkdir()
        plane = Plane(str(directory / f"{name}.db"), files=directory / name, durability="none")
        if rows:
            _submit(plane, ["old"])
            _settle(plane, [_claim_one(plane)])
            _multiply(plane.conn, rows)
        _planes.append(plane)


def _multiply(conn: sqlite3.Connection, rows: int) -> None:
    """Copies of the one row there is, with random-looking ids; its indexes are built at the end, from sorted rows."""
    indexes = conn.execute("SELECT name, sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL").fetchall()
    columns = {
        table: [row[1] for row in conn.execute(f"PRAGMA table_info({table})") if row[1] not in ("seq", "id")]
        for table in ("invocation", "args", "result")
    }
    conn.execute("BEGIN")
    for name, _text in indexes:
        conn.execute(f"DROP INDEX {name}")
    for table, names in columns.items():
        named = ", ".join(names)
        id_, as_ = ("id, ", "printf('%024x', k * 7919 % :rows * 104729), ") if table == "invocation" else ("", "")
        conn.execute(
            f"WITH RECURSIVE n (k) AS (SELECT 1 UNION ALL SELECT k + 1 FROM n WHERE k < :rows) "
            f"INSERT INTO {table} (seq, {id_}{named}) SELECT 1 + k, {as_}{named} FROM n, {table} WHERE seq = 1",
            {"rows": rows},
        )
    for _name, text in indexes:
        conn.execute(text)
    conn.execute("UPDATE tally SET n = n + ? WHERE state = 'succeeded'", (rows,))
    conn.execute("COMMIT")
    conn.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    must_be(conn.execute("SELECT COUNT(*) FROM invocation").fetchone()[0], rows + 1)


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
