"""Writes of the records that come together share a commit; each answers for itself."""

from __future__ import annotations

import sqlite3

import pytest
import trio

from lakeshore.plane.contract import PlaneError
from lakeshore.server.records.commits import Commits

ADD = "INSERT INTO thing (id) VALUES (:id)"


@pytest.fixture
def conn(tmp_path: object) -> sqlite3.Connection:
    conn = sqlite3.connect(f"{tmp_path}/records.db", isolation_level=None, check_same_thread=False)
    conn.execute("CREATE TABLE thing (id INTEGER PRIMARY KEY)")
    return conn


def ids(conn: sqlite3.Connection) -> list[int]:
    return [id_ for (id_,) in conn.execute("SELECT id FROM thing ORDER BY id")]


def test_writes_that_wait_share_a_commit_and_are_told_of_in_their_order(conn: sqlite3.Connection) -> None:
    commits, told = Commits(conn), list[int]()

    async def add(id_: int) -> None:
        await commits.write([(ADD, {"id": id_})], lambda: told.append(id_))
        assert id_ in told and id_ in ids(conn)

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            for id_ in range(100):
                nursery.start_soon(add, id_)

    trio.run(main)
    assert ids(conn) == sorted(told) == list(range(100))
    assert commits.writes == 100 and commits.commits <= 3
    conn.close()


def test_a_write_that_is_refused_takes_no_other_with_it(conn: sqlite3.Connection) -> None:
    commits, refused, told = Commits(conn), list[int](), list[int]()

    async def add(id_: int) -> None:
        try:
            await commits.write([(ADD, {"id": id_ + 1000}), (ADD, {"id": id_ % 7})], lambda: told.append(id_))
        except PlaneError:
            refused.append(id_)

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            for id_ in range(14):
                nursery.start_soon(add, id_)

    trio.run(main)
    assert len(told) == len(refused) == 7
    assert ids(conn) == sorted([*range(7), *(id_ + 1000 for id_ in told)])
    conn.close()


def test_who_is_cancelled_before_its_turn_has_written_nothing(conn: sqlite3.Connection) -> None:
    commits = Commits(conn)

    async def hold(release: trio.Event, *, task_status: trio.TaskStatus[None]) -> None:
        async with commits._lock:
            task_status.started()
            await release.wait()

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            release = trio.Event()
            await nursery.start(hold, release)
            with trio.move_on_after(0.01):
                await commits.write([(ADD, {"id": 1})])
            release.set()
        await commits.write([(ADD, {"id": 2})])

    trio.run(main)
    assert ids(conn) == [2]
    conn.close()
