"""The parts of the dashboard that need no screen and no server."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from lakeshore.cli.main import main
from lakeshore.tui.dashboard import chrome
from lakeshore.tui.dashboard.actions import hints, offered
from lakeshore.tui.dashboard.columns import GAP, widths
from lakeshore.tui.dashboard.items import Item
from lakeshore.tui.dashboard.tabs import INVOCATIONS, QUEUES, STORAGE, TABS, WORKERS, Tab
from lakeshore.tui.dashboard.tally import Tally
from lakeshore.tui.dashboard.view import View
from lakeshore.tui.dashboard.window import Window
from lakeshore.tui.theme import drawable

NOW = datetime(2026, 1, 1, tzinfo=UTC)
WORKER = {"id": "w", "machineId": "0123456789abcdef", "state": "active", "namespace": "default"}


def hint(tab: Tab, **row: Any) -> str:
    return hints([one for one in offered(tab.actions, tab.item(row), "default") if not one.everywhere])


@pytest.mark.parametrize(
    ("tab", "row", "said"),
    [
        pytest.param(WORKERS, {"state": "active"}, "[k]ill [h]ibernate r[e]set", marks=pytest.mark.inventory("C-417")),
        pytest.param(
            WORKERS,
            {"state": "stale", "providerName": "ec2"},
            "[k]ill [t]erminate [h]ibernate r[e]set",
            marks=pytest.mark.inventory("C-416", "C-420"),
        ),
        pytest.param(WORKERS, {"state": "gone"}, "[r]emove", marks=pytest.mark.inventory("C-419", "C-421")),
        pytest.param(
            WORKERS,
            {"state": "active", "hostStatus": "terminated", "providerName": "ec2"},
            "[r]emove",
            marks=pytest.mark.inventory("C-419"),
        ),
        pytest.param(
            QUEUES,
            {"name": "q", "state": "active"},
            "[d]rain [a]rchive [r]emove",
            marks=pytest.mark.inventory("C-422"),
        ),
        pytest.param(
            QUEUES,
            {"name": "q", "state": "draining"},
            "[a]rchive [u]narchive [r]emove",
            marks=pytest.mark.inventory("C-423", "C-424"),
        ),
        pytest.param(
            QUEUES, {"name": "q", "state": "archived"}, "[u]narchive [r]emove", marks=pytest.mark.inventory("C-424")
        ),
        (QUEUES, {"name": "q", "state": "paused"}, "[a]rchive [r]emove"),
        (QUEUES, {"name": "q", "state": "active", "namespace": "a-sibling"}, ""),
        (QUEUES, {"name": "default", "state": "active"}, "[d]rain"),
        (INVOCATIONS, {"state": "queued"}, "[k]ill"),
        (INVOCATIONS, {"state": "running"}, "[k]ill"),
        (INVOCATIONS, {"state": "failed"}, ""),
        pytest.param(STORAGE, {"name": "s"}, "[r]emove", marks=pytest.mark.inventory("C-428")),
    ],
)
def test_a_row_offers_what_may_be_done_to_it(tab: Tab, row: dict[str, Any], said: str) -> None:
    assert hint(tab, **row) == said


def test_no_two_actions_of_a_tab_have_one_key_and_none_has_one_of_the_dashboards() -> None:
    for tab in TABS:
        keys = [action.key for action in tab.actions]
        assert len(set(keys)) == len(keys) and not set(keys) & set("q1234")
        assert all(action.hint.count(f"[{action.key}]") == 1 for action in tab.actions)
        assert set(tab.fullest) <= set(keys)


@pytest.mark.inventory("C-397", "C-398", "C-399")
@pytest.mark.inventory("C-402")
def test_cells_fall_back_to_what_there_is() -> None:
    seen = (NOW - timedelta(seconds=42)).isoformat()
    row = {**WORKER, "lastSeenAt": seen, "queues": ["a", "b"], "capabilities": {"versions": {"daemon": "0.2.0"}}}
    assert WORKERS.cells(WORKERS.item(row), NOW) == ("0123456789ab", "active", "—", "a,b", "0.2.0", "42s")
    assert WORKERS.cells(WORKERS.item({**row, "label": "box", "capabilities": None}), NOW)[::4] == ("box", "—")
    kept = {"namespace": "ns", "name": "s", "kind": "s3-prefix", "config": {"bucket": "b", "prefix": "p/q"}}
    assert STORAGE.cells(STORAGE.item(kept), NOW) == ("ns/s", "s3-prefix", "s3://b/p/q", "—")
    assert STORAGE.cells(STORAGE.item({**kept, "config": {"bucket": "b"}}), NOW)[2] == "s3://b"


@given(
    row=st.dictionaries(
        st.sampled_from(
            ["id", "state", "label", "name", "queues", "runners", "capabilities", "config", "elasticity", "memberCount"]
        ),
        st.none() | st.integers() | st.text(max_size=5) | st.lists(st.integers(), max_size=2) | st.just({"kind": 1}),
    )
)
@settings(max_examples=40)
def test_whatever_a_server_tells_is_cells_without_controls(row: dict[str, Any]) -> None:
    for tab in TABS:
        item = tab.item(row)
        assert all(cell and drawable(cell) == cell for cell in tab.cells(item, NOW))
        offered(tab.actions, item, "default")
        view = View(tab)
        view.show([item, item])
        for _ in range(len(tab.columns) + 1):
            view.sort_next(1)


@given(width=st.integers(10, 300))
@pytest.mark.inventory("C-403")
def test_columns_have_the_widths_that_the_terminal_has_room_for(width: int) -> None:
    for tab in TABS:
        made = widths(tab.columns, width)
        assert sum(made) + GAP * (len(made) - 1) <= max(width, tab.columns[0].least)
        assert all(column.least <= size <= column.most for column, size in zip(tab.columns, made, strict=False))


def items(ids: list[int], *, seq: bool = False) -> list[Item]:
    made = [Item(id=str(id_), name=str(id_), row={}, said="") for id_ in ids]
    return [*made[:-1], Item(id=made[-1].id, name="", row={}, said="", seq=ids[-1])] if made and seq else made


@given(there=st.sets(st.integers(0, 40), min_size=1), held=st.sets(st.integers(0, 40)), size=st.integers(1, 9))
def test_pages_read_one_after_the_other_are_what_there_is(there: set[int], held: set[int], size: int) -> None:
    window = Window()
    if held:
        window.put_newest(items(sorted(held, reverse=True), seq=True), last=False)
    rows = sorted(there, reverse=True)
    cursor: int | None = None
    while True:
        left = [row for row in rows if cursor is None or row < cursor]
        page, last = left[:size], len(left) <= size
        if cursor is None:
            window.put_newest(items(page, seq=not last), last=last)
        else:
            window.put_after(cursor, items(page, seq=not last), last=last)
        ids = [item.id for item in window.items]
        assert len(ids) == len(set(ids))
        if last:
            break
        cursor = page[-1]
    assert [int(item.id) for item in window.items] == rows and window.complete


def test_what_came_meanwhile_is_joined_to_what_is_held_or_that_is_forgotten() -> None:
    window = Window()
    assert window.put_newest(items(range(20, 10, -1), seq=True), last=False)
    assert not window.put_newest(items(range(40, 30, -1), seq=True), last=False)
    assert not window.put_after(31, items(range(30, 22, -1), seq=True), last=False)
    assert window.put_after(23, items(range(22, 14, -1), seq=True), last=False)
    assert [int(item.id) for item in window.items] == list(range(40, 10, -1))
    assert not window.put_newest(items(range(90, 80, -1), seq=True), last=False)
    window.forget_after(81)
    assert [int(item.id) for item in window.items] == list(range(90, 80, -1)) and window.wants_more


def test_a_selected_row_stays_selected_wherever_it_is_and_its_place_is_taken_when_it_goes() -> None:
    view = View(INVOCATIONS)
    view.show(items([5, 4, 3]))
    view.move(1)
    view.show(items([9, 8, 5, 4, 3]))
    assert view.selected is not None and (view.selected.id, view.at) == ("4", 3)
    view.show(items([9, 8, 5, 3]))
    assert view.selected is not None and view.selected.id == "3"
    view.show([])
    assert view.selected is None


def call(at: int, state: str) -> Item:
    return INVOCATIONS.item(
        {"id": str(at), "state": state, "queue": f"q{at % 3}", "submittedAt": "2026-01-01T00:00:00Z"}
    )


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("change"), st.dictionaries(st.integers(0, 9), st.sampled_from(["queued", "failed", ""]))),
        st.tuples(st.just("filter"), st.sampled_from(["", "q1", "state:failed", "queue:q2 queued", "submit:d 1"])),
        st.tuples(st.just("sort"), st.sampled_from([None, 0, 1, 3, 5])),
        st.tuples(st.just("turn"), st.none()),
    ),
    max_size=12,
)


@given(steps=STEPS)
def test_rows_that_change_little_by_little_are_shown_as_if_they_were_looked_at_for_the_first_time(
    steps: list[tuple[str, Any]],
) -> None:
    view, held = View(INVOCATIONS), dict[int, Item]()
    for what, value in steps:
        if what == "change":  # "": it goes
            held = {at: one for at, one in held.items() if value.get(at) != ""}
            held |= {at: call(at, state) for at, state in value.items() if state}
            view.show([held[at] for at in sorted(held, reverse=True)])
        elif what == "filter":
            view.look_for(value)
        elif what == "sort":
            view.sort(value)
        else:
            view.sort(view.column, descending=not view.descending)
        fresh = View(INVOCATIONS)
        fresh.look_for(view.filter)
        fresh.sort(view.column, descending=view.descending)
        fresh.show([held[at] for at in sorted(held, reverse=True)])
        assert [one.id for one in view.shown] == [one.id for one in fresh.shown]


def test_rates_are_of_the_last_minute() -> None:
    tally = Tally()
    assert tally.count("queued") is None and tally.per_s("queued") == 0
    for at, queued in ((0.0, 1000), (30.0, 0), (90.0, 120)):
        tally.put({"queued": queued}, at)
    assert (tally.count("queued"), tally.per_s("queued")) == (120, 2.0)


@given(width=st.integers(20, 250), url=st.text(max_size=60))
def test_what_stands_around_a_list_fits_the_terminal(width: int, url: str) -> None:
    tally = Tally()
    tally.put({"queued": 10**6, "running": 12, "failed": 3}, 0.0)
    assert cell_len(chrome.legend(width).plain) <= width
    assert cell_len(chrome.server_line(url, {"authMode": "open"}, tally, max(width, 60)).plain) <= max(width, 60)


@pytest.mark.parametrize("name", ["tui", "dashboard", "top"])
@pytest.mark.inventory("C-386", "C-390")
@pytest.mark.inventory("C-884", "C-1409")
def test_without_a_terminal_every_name_of_it_exits_2_and_says_which_commands_do_without(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([name]) == 2
    said = capsys.readouterr().err
    for command in ("daemon list", "queues ls", "jobs list", "storage list"):
        assert f"`lakeshore {command}`" in said
