"""How many different asks a queue has room for, and what finding that out costs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lakeshore.plane.runs import MOST_RUNS, Room
from lakeshore.plane.statements import SQL


class Queued:
    """The asks of a queue's rows, and how often the index was looked into."""

    def __init__(self, *asks: str) -> None:
        self.asks = sorted(asks)
        self.looks = 0

    def __call__(self, statement: str, values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        self.looks += 1
        if statement == SQL.run_there:
            return [(1,)] if values["needs"] in self.asks else []
        assert statement == SQL.next_needs
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
