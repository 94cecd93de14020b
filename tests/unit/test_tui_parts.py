"""The parts of screens that need none: widths, rows, asking again and again, what a status page may answer."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from lakeshore.client.introspection import Event, Look, Status, event_of, status_of
from lakeshore.tui import event_rows
from lakeshore.tui.lengths import cut, cut_middle, length, wrapped
from lakeshore.tui.poller import Poller
from lakeshore.tui.status_text import fields
from lakeshore.tui.theme import drawable

TEXT = st.text(alphabet="ab 日本é—", max_size=60)


@given(text=TEXT, width=st.integers(2, 40))
def test_what_is_cut_fits_and_what_fits_is_not_cut(text: str, width: int) -> None:
    for shorten in (cut, cut_middle):
        shown = shorten(text, width)
        assert cell_len(shown) <= width
        assert (shown == text) == (cell_len(text) <= width)


@given(text=TEXT, width=st.integers(2, 40))
def test_wrapped_lines_fit_and_hold_every_letter_in_its_order(text: str, width: int) -> None:
    lines = wrapped(text, width)
    assert all(cell_len(line) <= width for line in lines)
    assert "".join("".join(lines).split()) == "".join(text.split())


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-1, "0.0s"),
        (0.04, "0.0s"),
        (9.96, "10.0s"),
        (42.7, "42s"),
        (187, "3m 07s"),
        (7500, "2h 05m"),
        (385_000, "4d 10h"),
    ],
)
def test_a_length_of_time_is_told_in_two_units(seconds: float, words: str) -> None:
    assert length(seconds) == words


@given(message=TEXT, target=TEXT, width=st.integers(36, 200), selected=st.booleans(), opened=st.booleans())
def test_a_row_and_what_is_open_below_it_are_never_wider_than_the_log(
    message: str, target: str, width: int, selected: bool, opened: bool
) -> None:
    event = Event(
        ts=0.0, level="WARN", target=target, message=message, fields=((target or "x", message * 3), ("b", "1\n2"))
    )
    room = event_rows.target_width([event], width)
    lines = [event_rows.row(event, width=width, target=room, selected=selected, opened=opened)]
    lines += event_rows.opened(event, width=width, target=room)
    assert max(sum(cell_len(segment.text) for segment in line) for line in lines) <= width


def test_equal_events_are_told_apart_and_keep_their_names_when_others_come() -> None:
    same = Event(ts=1.0, level="INFO", target="a", message="b")
    other = Event(ts=2.0, level="INFO", target="a", message="b")
    assert event_rows.keyed([same, same, other]) == [(same, 0), (same, 1), (other, 0)]


@pytest.mark.parametrize(
    ("raw", "shown"), [("a\nb", "a⏎b"), ("\x1b[2J", "\\x1b[2J"), ("\x9b1m", "\\x9b1m"), ("日", "日")]
)
def test_control_characters_are_drawn_and_not_obeyed(raw: str, shown: str) -> None:
    assert drawable(raw) == shown


# --- the answers of a page that may be anybody


@pytest.mark.inventory("N-271", "N-289")
def test_the_documented_status_and_event_are_read() -> None:
    body = json.loads(
        '{"version":"0.1.4","worker_id":"65f","queue":"default","run_state":"polling","backoff_s":0.0,'
        '"last_poll_ok_ts":1750000000.5,"uptime_s":42.7,"inflight":{"count":1,"last_exec_id":"01J"}}'
    )
    assert status_of(body) == Status(
        version="0.1.4",
        worker_id="65f",
        queue="default",
        run_state="polling",
        backoff_s=0.0,
        last_poll_ok_ts=1750000000.5,
        uptime_s=42.7,
        inflight=1,
        last_exec_id="01J",
    )
    row = {"ts": 1.5, "level": "WARN", "target": "nymph::drain", "message": "poll failed", "fields": {"reason": "r"}}
    assert event_of(row) == Event(
        ts=1.5, level="WARN", target="nymph::drain", message="poll failed", fields=(("reason", "r"),)
    )


@given(
    body=st.dictionaries(
        st.sampled_from([*Status.__slots__, "fields", "level", "ts"]),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
            max_leaves=5,
        ),
    )
)
def test_whatever_is_answered_is_read_and_can_be_drawn(body: dict[str, Any]) -> None:
    event = event_of(body)
    fields(Look(status=status_of(body), events=(event,)), width=80, now=0.0, stale=False)
    event_rows.row(event, width=60, target=10, selected=True, opened=False)


# --- asking again and again


class No(Exception):
    pass


def test_a_failure_stands_beside_the_last_good_answer_and_goes_with_the_next_one() -> None:
    async def main() -> None:
        outcomes: list[Any] = [1, No("gone"), 2]
        seen = []
        done = asyncio.Event()

        async def ask() -> int:
            outcome = outcomes.pop(0)
            if isinstance(outcome, Exception):
                raise outcome
            return int(outcome)

        def changed() -> None:
            seen.append((poller.last, poller.failure))
            if not outcomes:
                done.set()

        poller: Poller[int] = Poller(ask, interval=0.0, expected=No, changed=changed)
        task = asyncio.create_task(poller.run())
        await asyncio.wait_for(done.wait(), 30)
        task.cancel()
        assert seen == [(1, None), (1, "gone"), (2, None)]

    asyncio.run(main())


def test_an_answer_that_comes_in_a_pause_changes_nothing_and_the_end_of_the_pause_asks_at_once() -> None:
    async def main() -> None:
        asked: list[asyncio.Future[int]] = []
        again = asyncio.Event()
        changes = []

        async def ask() -> int:
            asked.append(asyncio.get_running_loop().create_future())
            again.set()
            return await asked[-1]

        poller: Poller[int] = Poller(ask, interval=3600, expected=No, changed=lambda: changes.append(poller.last))
        task = asyncio.create_task(poller.run())
        await asyncio.wait_for(again.wait(), 30)
        poller.toggle()
        asked[0].set_result(1)
        for _ in range(5):
            await asyncio.sleep(0)
        assert (changes, poller.last, len(asked)) == ([], None, 1)
        again.clear()
        poller.toggle()
        await asyncio.wait_for(again.wait(), 30)
        asked[1].set_result(2)
        for _ in range(5):
            await asyncio.sleep(0)
        assert changes == [2]
        poller.toggle()
        again.clear()
        poller.toggle()  # in the hour between two questions
        await asyncio.wait_for(again.wait(), 30)
        task.cancel()

    asyncio.run(main())
