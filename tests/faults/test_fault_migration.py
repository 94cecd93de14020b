"""A state directory of every released schema opens under today's code; one of a later schema is refused."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path

import msgpack
import pytest
import served
from old_states import BIG, FIXTURES, FRAMES, NOW, SESSION, STATES, make, unpack

from lakeshore.plane import claims, database, frames, migrations, reports, rows, submits
from lakeshore.plane.contract import BlobRef, Conflict, Purged, Report, Submission, UnfitPlane, Wish
from lakeshore.plane.plane import Plane
from lakeshore.plane.statements import SQL
from lakeshore.server.records import Records, store
from lakeshore.server.records.statements import SQL as RECORDS_SQL

RELEASED = sorted(path.name for path in FIXTURES.glob("schema-*"))
PARTS = (
    ("lakeshore.plane", SQL.schema, database.SCHEMA_VERSION, "lakeshore.db", "lakeshore.sql"),
    ("lakeshore.server.records", RECORDS_SQL.schema, store.SCHEMA_VERSION, "records.db", "records.sql"),
)


def _old(tmp_path: Path, name: str) -> Path:
    state = tmp_path / "state"
    unpack(FIXTURES / name, state)
    return state


def _shape(conn: sqlite3.Connection) -> dict[str, object]:
    """Tables by their columns, whatever their order; indexes by their text."""
    shape: dict[str, object] = {}
    for kind, name, text in conn.execute("SELECT type, name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'"):
        if kind == "table":
            columns = sorted(row[1:] for row in conn.execute(f"PRAGMA table_info({name})"))
            shape[name] = (columns, "WITHOUT ROWID" in text, "AUTOINCREMENT" in text)
        else:
            shape[name] = re.sub(r"\s+", " ", text)
    return shape


@pytest.mark.parametrize(("package", "schema", "version"), [part[:3] for part in PARTS])
def test_every_version_has_the_step_that_makes_it(package: str, schema: str, version: int) -> None:
    assert sorted(migrations.steps_of(package)) == list(range(2, version + 1))


@pytest.mark.parametrize("name", RELEASED)
@pytest.mark.parametrize(("package", "schema", "version", "file"), [part[:4] for part in PARTS])
def test_the_steps_lead_to_the_schema_of_a_new_file(
    tmp_path: Path, name: str, package: str, schema: str, version: int, file: str
) -> None:
    old = sqlite3.connect(_old(tmp_path, name) / file, isolation_level=None)
    new = sqlite3.connect(":memory:", isolation_level=None)
    for conn in (old, new):
        migrations.migrate(conn, file, package=package, schema=schema, version=version)
    assert _shape(old) == _shape(new)
    assert old.execute("PRAGMA user_version").fetchone() == (version,)
    assert old.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    old.close()
    new.close()


def test_todays_schema_is_kept_as_a_fixture() -> None:
    for _package, schema, version, _file, text in PARTS:
        kept = max(RELEASED)
        conn, new = sqlite3.connect(":memory:"), sqlite3.connect(":memory:")
        conn.executescript((FIXTURES / kept / text).read_text("utf-8"))
        new.executescript(schema)
        found = conn.execute("PRAGMA user_version").fetchone()[0]
        assert found < version or (found == version and _shape(conn) == _shape(new)), (
            f"the schema in {text} is not that of {kept}: a released one needs its fixture (old_states.py), "
            "a changed one a higher SCHEMA_VERSION and its step in migrations.sql"
        )
        conn.close()
        new.close()


@pytest.mark.inventory("K-16", "K-26")
@pytest.mark.parametrize("name", [*RELEASED, "today"])
def test_an_older_state_is_whole_after_its_migration(tmp_path: Path, name: str) -> None:
    if name == "today":
        make(tmp_path)
        state = tmp_path
    else:
        state = _old(tmp_path, name)
    plane = Plane(str(state / "lakeshore.db"), files=state)
    for id_, expected in STATES.items():
        row = rows.get(plane.rows, "default", id_)
        assert row is not None and row["state"] == expected
        assert row["function"] == {"module": "m", "qualname": "f"}
    assert rows.ended(plane.rows, "default", "purged").state == "purged"
    assert rows.ended(plane.rows, "default", "succeeded").result == b"result"
    big = rows.ended(plane.rows, "default", "big").result
    assert isinstance(big, BlobRef) and plane.blobs.get(big) == BIG
    assert len(rows.page(plane.rows, "default")) == len(STATES)
    for state_name in ("queued", "running", "succeeded", "failed", "killed"):
        wanted = sum(1 for value in STATES.values() if value == state_name)
        assert rows.count(plane.rows, "default", "q", state_name) == wanted
        assert len(rows.page(plane.rows, "default", states=(state_name,), queue="q")) == wanted
    running = rows.channel_of(plane.rows, "default", "running")
    assert running is not None
    topic = rows.topic_channel(plane.rows, "default", "q", "news")
    assert topic is not None
    for channel in (running[0], topic):
        found, _last = frames.read(plane.rows, plane.journal, channel, -1)
        assert [msgpack.unpackb(data)[2] for _seq, data, _final in found] == list(FRAMES)
    # It goes on: the holder settles, ids and keys are still taken, the queue is handed out in its order.
    report = Report(ns="default", id="running", outcome="succeeded", claim=1, worker="w", result=b"r", last_seq=1)
    assert plane.write(lambda tx: reports.settle(tx, report, NOW + 9)).result == "ok"
    for id_, wrong in (("failed", Conflict), ("purged", Purged)):
        again = Submission(ns="default", queue="q", id=id_, args=b"", hash=b"other")
        with pytest.raises(wrong):
            plane.write(lambda tx, again=again: submits.submit(tx, again, NOW))
    keyed = Submission(ns="default", queue="q", id="new", args=b"", hash=b"new", key="once")
    assert plane.write(lambda tx: submits.submit(tx, keyed, NOW)).existing
    wish = Wish(ns="default", queues=("q",), worker="w2", capacity=9, session=SESSION)
    taken = plane.write(lambda tx: claims.claim(tx, wish, NOW))
    assert [claimed.id for claimed in taken] == ["queued-1", "queued-2"]
    plane.close()
    records = Records(state / "records.db")
    assert [row.name for row in records.namespaces()] == ["default", "team"]
    assert [row.name for row in records.tokens("team")] == ["laptop"]
    assert records.worker("default", "w") is not None
    records.close()


@pytest.mark.parametrize("name", RELEASED)
def test_a_server_starts_on_an_older_state(tmp_path: Path, name: str) -> None:
    unpack(FIXTURES / name, tmp_path / "state")
    with served.running(tmp_path) as server:
        listed = server.get("/v1/namespaces/default/invocations").body["invocations"]
        assert {row["id"]: row["state"] for row in listed} == STATES
        ended = server.post("/v1/producer/await", {"invocation_id": "big", "timeout_s": 5})
        assert ended.body["state"] == "succeeded", ended.raw


@pytest.mark.parametrize("file", [part[3] for part in PARTS])
def test_a_later_schema_is_refused_with_what_to_do(tmp_path: Path, file: str) -> None:
    state = _old(tmp_path, max(RELEASED))
    conn = sqlite3.connect(state / file)
    conn.execute("PRAGMA user_version = 99")
    before = list(conn.iterdump())
    conn.close()
    code, said = served.refused(tmp_path)
    assert code == 1
    assert f"{file} was written by a newer Lakeshore (schema 99" in said
    assert "upgrade lakeshore" in said
    conn = sqlite3.connect(state / file)
    assert list(conn.iterdump()) == before
    assert conn.execute("PRAGMA user_version").fetchone() == (99,)
    conn.close()


def test_a_step_that_fails_changes_nothing(tmp_path: Path) -> None:
    state = _old(tmp_path, min(RELEASED))
    with pytest.MonkeyPatch.context() as patch:
        steps = {2: "ALTER TABLE invocation ADD COLUMN extra TEXT;", 3: "CREATE INDEX broken ON nowhere (x);"}
        patch.setattr(migrations, "steps_of", lambda package: steps)
        patch.setattr(database, "SCHEMA_VERSION", 3)
        with pytest.raises(UnfitPlane, match="nowhere"):
            Plane(str(state / "lakeshore.db"), files=state)
    conn = sqlite3.connect(state / "lakeshore.db")
    assert conn.execute("PRAGMA user_version").fetchone() == (1,)
    assert "extra" not in [row[1] for row in conn.execute("PRAGMA table_info(invocation)")]
    conn.close()
