"""The statements themselves: no transition without its guard (K-2, K-3, K-5)."""

from __future__ import annotations

import re
import sqlite3
from itertools import pairwise

import pytest

from lakeshore.plane import listing
from lakeshore.plane.contract import STATES
from lakeshore.plane.statements import SQL
from lakeshore.wire.states import INVOCATION

STATEMENTS = {name: text for name, text in vars(SQL).items() if name != "schema"}
UPDATES = {n: t for n, t in STATEMENTS.items() if re.match(r"\s*UPDATE\s+invocation\b", t)}
GUARD = re.compile(r"\bstate\s*(=|IN)\s*('(\w+)'|\([^)]*\))")


def _guard(text: str) -> set[str]:
    found = GUARD.search(text.split("WHERE", 1)[1])
    assert found is not None
    return set(re.findall(r"'(\w+)'", found.group(2)))


def _target(text: str) -> str | None:
    found = re.search(r"\bSET\b.*?\bstate\s*=\s*('(\w+)'|:state)", text.split("WHERE", 1)[0], re.DOTALL)
    return None if found is None else (found.group(2) or ":state")


@pytest.mark.inventory("K-2")
def test_there_are_updates_to_look_at() -> None:
    assert {"claim_if_queued", "settle_if_claimed", "retry_if_ended", "kill_if_queued"} <= set(UPDATES)


@pytest.mark.inventory("K-2", "P-282")
@pytest.mark.parametrize("name", sorted(UPDATES))
def test_every_update_of_a_row_is_guarded_by_its_state(name: str) -> None:
    assert GUARD.search(UPDATES[name].split("WHERE", 1)[1]), f"{name} moves a row whatever its state is"


@pytest.mark.inventory("K-2", "K-5")
@pytest.mark.parametrize("name", sorted(n for n, t in UPDATES.items() if "running" in _guard(t)))
def test_every_update_of_a_running_row_is_guarded_by_its_claim(name: str) -> None:
    assert re.search(r"\bclaim\s*=\s*:claim\b", UPDATES[name].split("WHERE", 1)[1])


@pytest.mark.inventory("K-2")
@pytest.mark.parametrize("name", sorted(UPDATES))
def test_every_transition_is_an_edge_of_the_state_machine(name: str) -> None:
    to = _target(UPDATES[name])
    if to is None:
        return
    edges = {(from_, target) for (from_, _event), target in INVOCATION.transitions.items()}
    ends = INVOCATION.terminal if to == ":state" else {to}
    for from_ in _guard(UPDATES[name]):
        for end in ends:
            assert (from_, end) in edges, f"{name} goes from {from_} to {end}, which is no edge"


@pytest.mark.inventory("K-2", "K-6")
def test_only_a_retry_lowers_what_only_rises() -> None:
    for name, text in UPDATES.items():
        sets = text.split("WHERE", 1)[0]
        for column in ("claim", "seq"):
            changed = re.findall(rf"(?<![\w]){column}\s*=\s*([^,\n]+)", sets)
            assert all(value.strip() == f"{column} + 1" for value in changed), f"{name} sets {column} to {changed}"
        if re.search(r"\battempt\s*=\s*0\b", sets):
            assert name == "retry_if_ended"


@pytest.mark.inventory("K-2")
def test_rows_are_deleted_by_the_purge_alone() -> None:
    assert [n for n, t in STATEMENTS.items() if re.search(r"DELETE\s+FROM\s+invocation\b", t)] == ["drop_row"]
    assert "finished_at < :before" in SQL.expired_rows


@pytest.mark.inventory("K-3")
def test_nothing_is_ordered_by_id() -> None:
    for name, text in STATEMENTS.items():
        for order in re.findall(r"ORDER BY ([^)]*?)(?:LIMIT|RETURNING|$)", text, re.DOTALL):
            assert not re.search(r"\bid\b", order), name


@pytest.mark.inventory("K-3", "P-459")
@pytest.mark.parametrize(
    "name", ["claim_oldest", "next_oldest", "next_priority", "newest_at", "oldest_at", "priority_levels"]
)
@pytest.mark.inventory("S-738")
def test_choosing_the_next_job_reads_the_index_of_queued_rows_and_sorts_nothing(name: str) -> None:
    conn = sqlite3.connect(":memory:")
    conn.executescript(SQL.schema)
    plan = [row[3] for row in conn.execute(f"EXPLAIN QUERY PLAN {STATEMENTS[name]}", _nulls(STATEMENTS[name]))]
    conn.close()
    assert any("invocation_queued" in step for step in plan), plan
    assert not any("TEMP B-TREE" in step for step in plan), plan


LOOKED_THROUGH = {
    "running": "what runs, by its own index: as much as workers hold",
    "holders": "as above",
    "running_of_holder": "as above",
    "queues_that_hold": "once a start: a row per queue",
    "tallies": "a row per queue and state",
    "queued_counts": "the index of what is queued, once, when a server opens its plane",
    "last_seq": "SQLite's own table, of two rows",
    "segments_in_use": "every frame, in a thread, at most once a sweep",
    "ids_beginning": "ten thousand names of the index of ids at most, for a person's question",
    "listed": "the head of a page, which `listing` completes",
    "listed_names": "as above: `rows` completes it with the numbers of rows",
}
"""Statements that look at every row of something, and why they may."""


def _nulls(text: str) -> dict[str, None] | list[None]:
    """A NULL for each parameter, by name or by place."""
    return dict.fromkeys(re.findall(r":(\w+)", text)) or [None] * text.count("?")


def _scans(text: str) -> list[str]:
    conn = sqlite3.connect(":memory:")
    conn.executescript(SQL.schema)
    plan = [row[3] for row in conn.execute(f"EXPLAIN QUERY PLAN {text}", _nulls(text))]
    conn.close()
    return [step for step in plan if step.startswith("SCAN") and step != "SCAN CONSTANT ROW"]


@pytest.mark.inventory("K-3")
@pytest.mark.parametrize("name", sorted(STATEMENTS))
def test_no_statement_looks_at_every_row_but_those_that_say_why(name: str) -> None:
    assert bool(_scans(STATEMENTS[name])) == (name in LOOKED_THROUGH), _scans(STATEMENTS[name])


@pytest.mark.inventory("K-3")
@pytest.mark.parametrize("by_worker", [False, True])
@pytest.mark.parametrize("by_queue", [False, True])
@pytest.mark.parametrize("levels", [0, 1, 3])
def test_a_page_of_rows_walks_indexes_and_sorts_at_most_what_runs(by_queue: bool, by_worker: bool, levels: int) -> None:
    for wanted in (STATES, ("succeeded",), ("failed", "timeout"), ("running",)):
        text = listing.statement(wanted, by_queue=by_queue, by_worker=by_worker, levels=levels)
        assert text is not None
        assert not _scans(text)
        conn = sqlite3.connect(":memory:")
        conn.executescript(SQL.schema)
        plan = [r[3] for r in conn.execute(f"EXPLAIN QUERY PLAN {text}", dict.fromkeys(re.findall(r":(\w+)", text)))]
        conn.close()
        for before, step in pairwise(plan):
            assert "TEMP B-TREE" not in step or "invocation_running" in before, plan


@pytest.mark.inventory("K-2")
def test_every_statement_is_valid_sql() -> None:
    conn = sqlite3.connect(":memory:")
    conn.executescript(SQL.schema)
    for name, text in STATEMENTS.items():
        try:
            conn.execute(f"EXPLAIN {text}", _nulls(text))
        except sqlite3.Error as exc:
            raise AssertionError(f"{name}: {exc}") from exc
    conn.close()
