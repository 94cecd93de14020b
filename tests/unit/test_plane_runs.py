"""How many different asks a queue has room for, who is counted, and what finding that out costs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any

import pytest

from lakeshore.plane import claims, delays, reports, retries, submits
from lakeshore.plane.contract import QueueFull, Submission, Submitted, Wish
from lakeshore.plane.plane import Plane
from lakeshore.plane.runs import MOST_RUNS, Room, runs_of
from lakeshore.plane.statements import SQL


class Queued:
    """The asks of a queue's rows, and how often the index was looked into."""

    def __init__(self, *asks: str) -> None:
        self.asks = sorted(asks)
        self.looks = 0

    def __call__(self, statement: str, values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        self.looks += 1
        if statement == SQL.ask_there:
            return [(1,)] if values["needs"] in self.asks else []
        assert statement == SQL.next_ask
        return [(min((ask for ask in self.asks if ask > values["after"]), default=None),)]


def test_what_asks_for_nothing_costs_no_look_and_what_others_ask_one() -> None:
    rows = Queued("gpu")
    room = Room(rows)
    assert all(room.has("ns", "q", None) for _ in range(9))
    assert rows.looks == 0
    assert all(room.has("ns", "q", "gpu") for _ in range(9))
    assert rows.looks == 1


def test_a_batch_counts_the_runs_of_a_queue_once_however_many_it_is_refused() -> None:
    there = [f"a{n:03}" for n in range(MOST_RUNS - 3)]
    rows = Queued(*there)
    room = Room(rows)
    granted = [room.has("ns", "q", f"b{n}") for n in range(1000)]
    assert granted == [True] * 2 + [False] * 998, "what asks for nothing is a run, too"
    assert rows.looks <= 1000 + MOST_RUNS
    assert room.has("ns", "q", "b1") and room.has("ns", "q", there[0]) and not room.has("ns", "q", "b2")
    assert room.has("ns", "another", "b2")


NOW, DUE = 1000.0, 2000.0


def item(
    id_: str, ask: str | None, due: float | None = None, *, queue: str = "q", nonce: str | None = None
) -> Submission:
    needs = None if ask is None else json.dumps({"runners": [], "tags": [ask]}, separators=(",", ":"))
    return Submission(ns="ns", queue=queue, id=id_, args=b"a", hash=b"h" * 32, needs=needs, due=due, retry_nonce=nonce)


@pytest.fixture
def plane() -> Iterator[Plane]:
    with closing(Plane(":memory:", durability="none")) as plane:
        yield plane


def submit(plane: Plane, new: Submission) -> Submitted:
    return plane.write(lambda tx: submits.submit(tx, new, NOW))


def fill(plane: Plane, name: str, due: float | None = None, n: int = MOST_RUNS - 1) -> None:
    done = plane.write(
        lambda tx: submits.submit_many(tx, [item(f"{name}{k}", f"{name}{k}", due) for k in range(n)], NOW)
    )
    assert all(isinstance(one, Submitted) for one in done)


@pytest.mark.parametrize("due", [None, DUE])
@pytest.mark.parametrize("others", [None, DUE])
def test_what_waits_for_an_instant_counts_like_what_is_queued(
    plane: Plane, due: float | None, others: float | None
) -> None:
    fill(plane, "a", others)
    with pytest.raises(QueueFull, match=f"asks? {MOST_RUNS} different things"):
        submit(plane, item("new", "new", due))
    submit(plane, item("same", "a7", due))
    submit(plane, item("nothing", None, due))
    submit(plane, item("elsewhere", "new", due, queue="another"))
    while plane.write(lambda tx: delays.promote(tx, DUE)):
        pass
    assert sum(1 for _ in runs_of(plane.rows, "ns", "q")) <= MOST_RUNS, "however they came, no claim seeks more often"


def test_an_ask_that_is_both_queued_and_for_later_counts_once(plane: Plane) -> None:
    fill(plane, "a", n=300)
    for k in range(300):
        submit(plane, item(f"later{k}", f"a{k}", DUE))
    fill(plane, "b", DUE, n=MOST_RUNS - 301)
    with pytest.raises(QueueFull):
        submit(plane, item("new", "new", DUE))


def test_a_batch_for_later_is_refused_one_by_one(plane: Plane) -> None:
    items = [item(f"i{k}", f"a{k}", DUE) for k in range(MOST_RUNS + 2)]
    done = plane.write(lambda tx: submits.submit_many(tx, items, NOW))
    assert [isinstance(one, QueueFull) for one in done] == [False] * (MOST_RUNS - 1) + [True] * 3


def test_a_cancelled_one_for_later_makes_room(plane: Plane) -> None:
    fill(plane, "a", DUE)
    plane.write(lambda tx: reports.cancel(tx, "ns", "a0", NOW))
    submit(plane, item("new", "new", DUE))


def test_a_retry_asks_for_room_too_by_hand_and_by_a_submit(plane: Plane) -> None:
    submit(plane, item("old", "old", None))
    plane.write(lambda tx: reports.cancel(tx, "ns", "old", NOW))
    fill(plane, "a")
    with pytest.raises(QueueFull):
        plane.write(lambda tx: retries.retry(tx, "ns", "old", NOW))
    with pytest.raises(QueueFull):
        submit(plane, item("old", "old", nonce="n"))
    assert submit(plane, item("old", "old")).again, "who only asks what became of it is told"
    assert plane.write(lambda tx: claims.claim(tx, Wish(ns="ns", queues=("q",), worker="w"), NOW))
    assert plane.write(lambda tx: retries.retry(tx, "ns", "old", NOW)) == "q"


def test_the_row_knows_by_index_what_is_asked() -> None:
    with closing(Plane(":memory:", durability="none")) as plane:
        for statement in (SQL.next_ask, SQL.ask_there):
            values = {"ns": "ns", "queue": "q", "needs": "a", "after": ""}
            plan = " ".join(str(row[3]) for row in plane.rows(f"EXPLAIN QUERY PLAN {statement}", values))
            assert "invocation_queued (ns=? AND queue=? AND needs" in plan
            assert "invocation_delayed_needs (ns=? AND queue=? AND needs" in plan
