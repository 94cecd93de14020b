"""State directories of released schemas, kept as text: databases as SQL, files as base64.

    python tests/faults/old_states.py tests/fixtures/schema-2     makes today's, once, before its schema is released

What is in one is written below; a test of the migration looks for exactly that. Times are in the year 2100, so that no
janitor forgets any of it.
"""

from __future__ import annotations

import base64
import json
import sqlite3
import sys
import tempfile
import zlib
from pathlib import Path

import msgpack
import trio

from lakeshore.plane import claims, frames, polls, reports, retention, submits
from lakeshore.plane.contract import Claimed, Held, Outcome, Poll, Report, Submission, Wish
from lakeshore.plane.plane import Plane
from lakeshore.server.records import Records

FIXTURES = Path(__file__).parents[1] / "fixtures"
NOW = 4102444800.0
DATABASES = {"lakeshore.db": "lakeshore.sql", "records.db": "records.sql"}
BIG = b"0123456789" * 7200
STATES = {
    "queued-1": "queued",
    "queued-2": "queued",
    "running": "running",
    "succeeded": "succeeded",
    "big": "succeeded",
    "failed": "failed",
    "killed": "killed",
}
"""Of namespace `default`, queue `q`; `big` has arguments and a result of 72,000 bytes. `purged` left a tombstone."""
FRAMES = ("zero", "one")
"""Of `running`, and of topic `news` of the same queue."""
SESSION = "01SESSION"


def make(state: Path) -> None:
    """Fill an empty directory as a server would have."""
    plane = Plane(str(state / "lakeshore.db"), files=state)

    def submit(id_: str, *, key: str | None = None, priority: float = 0.0, args: bytes = b"args") -> None:
        item = Submission(
            ns="default",
            queue="q",
            id=id_,
            args=plane.blobs.keep(id_, "args", args),
            hash=id_.encode(),
            key=key,
            priority=priority,
            function=msgpack.packb({"module": "m", "qualname": "f"}),
        )
        plane.write(lambda tx: submits.submit(tx, item, NOW))

    def take() -> Claimed:
        wish = Wish(ns="default", queues=("q",), worker="w", session=SESSION, start=True)
        (claimed,) = plane.write(lambda tx: claims.claim(tx, wish, NOW + 1))
        return claimed

    def run(id_: str, outcome: Outcome, result: bytes = b"result", *, args: bytes = b"args") -> None:
        submit(id_, args=args)
        claim = take().claim
        error = None if outcome == "succeeded" else msgpack.packb({"type": "ValueError", "message": "no"})
        given = plane.blobs.keep(id_, "result", result) if outcome == "succeeded" else b""
        report = Report(
            ns="default", id=id_, outcome=outcome, claim=claim, worker="w", result=given, error=error, last_seq=-1
        )
        plane.write(lambda tx: reports.settle(tx, report, NOW + 2))

    plane.write(lambda tx: polls.register(tx, "default", "w", SESSION, NOW, info=msgpack.packb({"host": "h"})))
    run("purged", "succeeded")
    plane.write(lambda tx: retention.purge(tx, before=NOW + 10, now=NOW + 10))
    run("succeeded", "succeeded")
    run("big", "succeeded", BIG, args=BIG)
    run("failed", "failed")
    submit("killed")
    plane.write(lambda tx: reports.cancel(tx, "default", "killed", NOW + 3, grace_s=1.0))
    submit("running", key="once")
    claim = take().claim
    for seq, text in enumerate(FRAMES):
        body = msgpack.packb(text)
        frame = frames.value_frame(seq, body)
        plane.write(
            lambda tx, seq=seq, frame=frame: frames.append(
                tx, "default", "running", frame, NOW + 4, claim=claim, seq=seq
            )
        )
        plane.write(lambda tx, body=body: frames.post(tx, "default", "q", "news", body, NOW + 4))
    held = Held(id="running", claim=claim, started=True)
    holding = Poll(ns="default", worker="w", session=SESSION, n=1, held=(held,))
    plane.write(lambda tx: polls.poll(tx, holding, NOW + 4))
    submit("queued-1", priority=2.0)
    submit("queued-2")
    plane.close()
    trio.run(_records, state)


async def _records(state: Path) -> None:
    records = Records(state / "records.db", now=lambda: NOW)
    await records.add_namespace("team", "org", actor="admin")
    await records.mint_token("team", "laptop", "submit", actor="admin")
    await records.put_worker("default", "w", machine_id="m", label="box", lanes=("q",), info="{}")
    records.close()


def pack(state: Path, fixture: Path) -> None:
    """Write a closed state directory down as text."""
    fixture.mkdir()
    for name, text in DATABASES.items():
        conn = sqlite3.connect(state / name)
        (version,) = conn.execute("PRAGMA user_version").fetchone()
        lines = [*conn.iterdump(), f"PRAGMA user_version = {version};"]
        (fixture / text).write_text("\n".join(lines) + "\n", "utf-8")
        conn.close()
    files = {
        path.relative_to(state).as_posix(): base64.b64encode(zlib.compress(path.read_bytes(), 9)).decode()
        for folder in ("journal", "blobs")
        for path in sorted((state / folder).rglob("*"))
        if path.is_file()
    }
    (fixture / "files.json").write_text(json.dumps(files, indent=1) + "\n", "utf-8")


def unpack(fixture: Path, state: Path) -> None:
    """Make the state directory again."""
    state.mkdir(mode=0o700, exist_ok=True)
    for name, text in DATABASES.items():
        conn = sqlite3.connect(state / name)
        conn.execute("PRAGMA auto_vacuum = INCREMENTAL")
        conn.executescript((fixture / text).read_text("utf-8"))
        conn.close()
    for name, content in json.loads((fixture / "files.json").read_text("utf-8")).items():
        path = state / name
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.write_bytes(zlib.decompress(base64.b64decode(content)))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        make(Path(directory))
        pack(Path(directory), Path(sys.argv[1]))
