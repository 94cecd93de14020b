"""A writing transaction of a shared file begins soon after another process's ends, and gives up with its words."""

from __future__ import annotations

import sqlite3
import threading
import time
from pathlib import Path

import pytest

from lakeshore.plane import database
from lakeshore.plane.database import begin, connect


@pytest.mark.inventory("K-33")
def test_whoever_finds_the_file_busy_begins_as_soon_as_it_is_free(tmp_path: Path) -> None:
    path = str(tmp_path / "plane.sqlite")
    holder, waiter = (connect(path, durability="none", shared=True) for _ in range(2))
    begin(holder, shared=True)
    freed_at: list[float] = []

    def free() -> None:
        freed_at.append(time.monotonic())
        holder.execute("COMMIT")

    timer = threading.Timer(0.3, free)
    timer.start()
    begin(waiter, shared=True)
    assert freed_at, "it began while another held the file"
    assert time.monotonic() - freed_at[0] < 1.0
    assert waiter.in_transaction
    waiter.execute("ROLLBACK")
    timer.join()
    holder.close()
    waiter.close()


@pytest.mark.inventory("K-33")
def test_a_file_that_stays_busy_is_given_up_and_other_statements_still_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "plane.sqlite")
    holder, waiter = (connect(path, durability="none", shared=True) for _ in range(2))
    begin(holder, shared=True)
    monkeypatch.setattr(database, "BUSY_S", 0.2)
    before = time.monotonic()
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        begin(waiter, shared=True)
    assert time.monotonic() - before >= 0.2
    assert waiter.execute("PRAGMA busy_timeout").fetchone() == (200,)
    holder.execute("COMMIT")
    holder.close()
    waiter.close()
