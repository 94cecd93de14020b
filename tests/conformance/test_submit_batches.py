"""A batch of submits is what its items are one by one, whichever way it takes into the plane (K-16, K-18)."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from lakeshore.plane import claims, rows, submits
from lakeshore.plane.contract import Refused, Submission, Submitted, Wish
from lakeshore.plane.plane import Plane
from lakeshore.plane.statements import SQL


@contextmanager
def memory_plane() -> Iterator[Plane]:
    plane = Plane(":memory:")
    try:
        yield plane
    finally:
        plane.close()


def told(answer: Any) -> Any:
    return (answer.id, answer.queue, answer.existing) if isinstance(answer, Submitted) else type(answer)


def one_by_one(plane: Plane, items: list[Submission]) -> list[Any]:
    answers: list[Any] = []
    for item in items:
        try:
            answers.append(plane.write(lambda tx, item=item: submits.submit(tx, item, 1.0)))
        except Refused as refused:
            answers.append(refused)
    return answers


def what_is_there(plane: Plane, ids: list[str]) -> list[Any]:
    found = [rows.get(plane.rows, "default", id_) for id_ in ids]
    kept = ("id", "queue", "state", "key", "parent", "root", "priority", "hash")
    return [None if row is None else [row[name] for name in kept] for row in found]


def some_item(rng: random.Random) -> Submission:
    id_ = f"id{rng.randrange(60)}"
    return Submission(
        ns=rng.choice(["default", "default", "default", "other"]),
        queue=rng.choice(["a", "a", "b", "drained", "full"]),
        id=id_,
        args=b"x",
        hash=rng.choice([id_.encode(), id_.encode(), b"another"]),
        key=rng.choice([None, None, "k1", "k2"]),
        parent=rng.choice([None, None, "id1", "elsewhere"]),
    )


@pytest.mark.inventory("K-16", "K-18")
@pytest.mark.parametrize("seed", range(40))
def test_a_batch_answers_and_stores_what_its_items_do_alone(seed: int) -> None:
    rng = random.Random(seed)
    batches = [[some_item(rng) for _ in range(rng.choice([1, 3, 4, 9, 20]))] for _ in range(3)]
    with memory_plane() as apart, memory_plane() as together:
        for plane in (apart, together):
            for name, state, depth in (("drained", "draining", None), ("full", "active", 1)):
                plane.conn.execute(
                    "INSERT INTO queue (ns, name, state, max_depth, created_at) VALUES ('default', ?, ?, ?, 0)",
                    (name, state, depth),
                )
            if seed % 2:
                plane.conn.execute(
                    "INSERT INTO tombstone (id, ns, hash, purged_at) VALUES ('id7', 'default', 'id7', 0)"
                )
        for items in batches:
            expected = one_by_one(apart, items)
            got = together.write(lambda tx, items=items: submits.submit_many(tx, items, 1.0))
            assert [told(answer) for answer in got] == [told(answer) for answer in expected]
        ids = [f"id{n}" for n in range(60)]
        assert what_is_there(together, ids) == what_is_there(apart, ids)
        assert sorted(together.rows(SQL.tallies, {})) == sorted(apart.rows(SQL.tallies, {}))
        stored = "SELECT COUNT(*) FROM args WHERE seq IN (SELECT seq FROM invocation)"
        assert together.rows(stored, {}) == together.rows("SELECT COUNT(*) FROM invocation", {})


@pytest.mark.inventory("K-3", "K-18")
def test_a_batch_is_claimed_in_its_order() -> None:

    with memory_plane() as plane:
        items = [Submission(ns="default", queue="q", id=f"i{n}", args=b"", hash=b"h") for n in range(30)]
        for start in (0, 10, 20):
            plane.write(lambda tx, start=start: submits.submit_many(tx, items[start : start + 10], 1.0))
        wish = Wish(ns="default", queues=("q",), worker="w", capacity=7)
        taken: list[str] = []
        while runs := plane.write(lambda tx: claims.claim(tx, wish, 2.0)):
            taken += [run.id for run in runs]
        assert taken == [item.id for item in items]
