"""Nonces are taken once while they count, also by the next server, and then leave nothing behind."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
import trio

from lakeshore.plane.contract import PlaneError
from lakeshore.server.records import Records


class Clock:
    """Unix seconds, as the test says."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def stored(path: Path) -> int:
    with closing(sqlite3.connect(path)) as conn, conn:
        (count,) = conn.execute("SELECT COUNT(*) FROM nonce").fetchone()
    return int(count)


@pytest.mark.inventory("S-482", "S-815")
@pytest.mark.inventory("S-020", "S-759")
def test_a_nonce_counts_until_its_time_over_a_restart_and_is_forgotten_after_it(tmp_path: Path) -> None:
    clock, path = Clock(), tmp_path / "records.db"

    async def main() -> None:
        records = Records(path, now=clock)
        assert await records.nonces.take("w", "n", clock.now + 600)
        assert not await records.nonces.take("w", "n", clock.now + 600)
        assert await records.nonces.take("v", "n", clock.now + 600)  # another worker's is another nonce
        clock.now += 600
        assert not await records.nonces.take("w", "n", clock.now + 600)  # the very last moment
        records.close()
        again = Records(path, now=clock)
        assert not await again.nonces.take("w", "n", clock.now + 600)
        await again.nonces.sweep()
        assert stored(path) == 2
        clock.now += 0.001
        await again.nonces.sweep()
        assert (len(again.nonces), stored(path)) == (0, 0)
        assert await again.nonces.take("w", "n", clock.now + 600)
        again.close()
        clock.now += 601
        last = Records(path, now=clock)
        assert (len(last.nonces), stored(path)) == (0, 1)
        await last.nonces.sweep()
        assert stored(path) == 0
        last.close()

    trio.run(main)


@pytest.mark.inventory("S-481")
def test_of_many_requests_with_one_nonce_at_once_one_is_let_in(tmp_path: Path) -> None:
    async def main() -> None:
        records, said = Records(tmp_path / "records.db", now=Clock()), []

        async def take() -> None:
            said.append(await records.nonces.take("w", "n", 1600.0))

        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(take)
        assert sorted(said) == [False] * 19 + [True]
        records.close()

    trio.run(main)


def test_a_nonce_that_could_not_be_stored_may_come_again(tmp_path: Path) -> None:
    async def main() -> None:
        records = Records(tmp_path / "records.db", now=Clock())
        with closing(sqlite3.connect(tmp_path / "records.db")) as conn, conn:
            conn.execute("CREATE TRIGGER full BEFORE INSERT ON nonce BEGIN SELECT RAISE(ABORT, 'no room'); END")
        with pytest.raises(PlaneError, match="no room"):
            await records.nonces.take("w", "n", 1600.0)
        with closing(sqlite3.connect(tmp_path / "records.db")) as conn, conn:
            conn.execute("DROP TRIGGER full")
        assert await records.nonces.take("w", "n", 1600.0)
        records.close()

    trio.run(main)
