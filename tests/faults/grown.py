"""A plane as years of work leave it: many ended rows and many queued ones, written by SQL and not by running them.

Realistic in what matters to an index: random ids, three busy queues and a rare one, two namespaces, four workers, all
four ends, every ended row with its arguments, result and END frame. Made once per schema and size below a directory
that is shared by the processes of a test run, then copied.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import sqlite3
import struct
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

import msgpack

from lakeshore.plane.journal import SEGMENT_BYTES
from lakeshore.plane.plane import Plane
from lakeshore.plane.statements import SQL
from lakeshore.wire.frames import end_frame

DAY = 86400.0
FUNCTION = msgpack.packb({"module": "pipeline.steps", "qualname": "transform", "version": "2024.1"})
QUEUES = ("gpu", "cpu", "etl", "rare")
_HEAD = struct.Struct("<IIqIq")
_COVERED = struct.Struct("<qIq")

# One in 5,000 rows is of namespace `small`, one in 1,000 of queue `rare`; 94 % succeed.
_ENDED = """
WITH RECURSIVE n (k) AS (SELECT 1 UNION ALL SELECT k + 1 FROM n WHERE k < :rows)
INSERT INTO invocation (seq, id, ns, queue, state, priority, hash, function, run_config, code, root, max_attempts,
                        claim, attempt, started, worker, last_frame, settled_claim, settled_as, error, submitted_at,
                        claimed_at, started_at, finished_at)
SELECT k, printf('%024x', k * 7919 % :rows * 104729 + 11), CASE WHEN k % 5000 = 7 THEN 'small' ELSE 'default' END,
       CASE WHEN k % 1000 = 13 THEN 'rare' WHEN k % 3 = 0 THEN 'gpu' WHEN k % 3 = 1 THEN 'cpu' ELSE 'etl' END,
       CASE WHEN k % 100 < 94 THEN 'succeeded' WHEN k % 100 < 97 THEN 'failed' WHEN k % 100 < 99 THEN 'killed'
            ELSE 'timeout' END,
       0.0, randomblob(32), :function, X'80', X'80', printf('%024x', k), 3, 1, 1, 1, printf('host-%d/worker', k % 4), 0,
       1, 'succeeded', CASE WHEN k % 100 < 94 THEN NULL ELSE :error END, :first + :step * k, :first + :step * k + 0.1,
       :first + :step * k + 0.1, :first + :step * k + 1
FROM n
"""
_QUEUED = """
WITH RECURSIVE n (k) AS (SELECT 1 UNION ALL SELECT k + 1 FROM n WHERE k < :rows)
INSERT INTO invocation (id, ns, queue, state, priority, hash, function, run_config, code, root, max_attempts,
                        submitted_at)
SELECT printf('f%023x', k * 7919 % :rows), 'default', CASE WHEN k % 2 THEN 'gpu' ELSE 'cpu' END, 'queued', k % 3,
       randomblob(32), :function, X'80', X'80', printf('f%023x', k), 3, :now
FROM n
"""


def grown(shared: Path, directory: Path, *, ended: int, queued: int, days: float = 6.0) -> Path:
    """A state directory of its own in `directory/state`; the newest row has just ended, the oldest `days` ago."""
    key = hashlib.sha256(f"{SQL.schema}{Path(__file__).read_text()}{ended}/{queued}/{days}".encode()).hexdigest()[:16]
    shared.mkdir(parents=True, exist_ok=True)
    made = shared / f"grown-{key}"
    with (shared / f"grown-{key}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            partial = made.with_suffix(".part")
            shutil.rmtree(partial, ignore_errors=True)
            _make(partial, ended, queued, days)
            partial.rename(made)
    state = directory / "state"
    shutil.copytree(made, state)
    return state


def _make(state: Path, ended: int, queued: int, days: float) -> None:
    state.mkdir(mode=0o700)
    Plane(str(state / "lakeshore.db"), files=state).close()
    now = time.time()
    conn = sqlite3.connect(state / "lakeshore.db", isolation_level=None)
    conn.execute("PRAGMA synchronous = OFF")
    conn.execute("PRAGMA cache_size = -200000")
    with _without_indexes(conn):
        conn.execute("BEGIN")
        error = msgpack.packb({"type": "ValueError", "message": "x" * 60})
        span = days * DAY
        conn.execute(
            _ENDED,
            {"rows": ended, "function": FUNCTION, "error": error, "first": now - span, "step": (span - 5) / ended},
        )
        conn.execute(_QUEUED, {"rows": queued, "function": FUNCTION, "now": now})
        conn.execute("INSERT INTO args (seq, data, size) SELECT seq, randomblob(90), 90 FROM invocation")
        conn.execute(
            "INSERT INTO result (seq, data, size) SELECT seq, randomblob(20), 20 FROM invocation "
            "WHERE state = 'succeeded'"
        )
        _write_ends(conn, state / "journal", ended)
        conn.execute("INSERT INTO queue (ns, name, created_at) SELECT DISTINCT ns, queue, 0 FROM invocation")
        conn.execute(
            "INSERT INTO tally (ns, queue, state, n) SELECT ns, queue, state, COUNT(*) FROM invocation "
            "GROUP BY ns, queue, state"
        )
        conn.execute("COMMIT")
    conn.close()


@contextlib.contextmanager
def _without_indexes(conn: sqlite3.Connection) -> Iterator[None]:
    """Each is built once at the end, from sorted rows."""
    found = conn.execute("SELECT name, sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL").fetchall()
    for name, _text in found:
        conn.execute(f"DROP INDEX {name}")
    yield
    for _name, text in found:
        conn.execute(text)


def _write_ends(conn: sqlite3.Connection, journal: Path, ended: int) -> None:
    """The END frame of every ended row, as the journal writes it."""
    data = end_frame(0)
    segment, offset = 1, 0
    size = _HEAD.size + len(data)
    rows: list[tuple[int, int, int, int, int, int, int]] = []
    parts: list[bytes] = []
    for channel in range(1, ended + 1):
        crc = zlib.crc32(data, zlib.crc32(_COVERED.pack(channel, 1, 0)))
        parts.append(_HEAD.pack(len(data), crc, channel, 1, 0) + data)
        rows.append((channel, 0, 1, segment, offset, len(data), 1))
        offset += size
        if offset >= SEGMENT_BYTES // 2048 or channel == ended:
            with os.fdopen(os.open(journal / f"{segment:010d}.frames", os.O_WRONLY | os.O_CREAT, 0o600), "wb") as file:
                file.writelines(parts)
            conn.executemany("INSERT INTO frame VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
            segment, offset, rows, parts = segment + 1, 0, [], []
