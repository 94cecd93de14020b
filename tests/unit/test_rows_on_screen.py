"""Rows on a screen without a server: the wheel, the bar beside them, and when garbage is looked for."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import weakref
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from textual import events as ui
from textual.app import App, ComposeResult

from lakeshore.client.introspection import Event
from lakeshore.tui.dashboard.listing import Listing
from lakeshore.tui.dashboard.tabs import QUEUES
from lakeshore.tui.dashboard.view import View
from lakeshore.tui.event_log import EventLog
from lakeshore.tui.garbage import EVERY_S, QUIET_S, Quiet

SIZE = (80, 20)
ROWS = 100


class Rows(App[None]):
    """One list over the whole screen; `told` has the selected place whenever that is told."""

    def __init__(self) -> None:
        super().__init__()
        self.view, self.told = View(QUEUES), list[int]()
        self.list = Listing(self.view, "default", lambda: datetime.now(UTC), lambda: self.told.append(self.view.at))

    def compose(self) -> ComposeResult:
        yield self.list

    def on_mount(self) -> None:
        self.view.show([QUEUES.item({"name": f"queue-{at:03}", "state": "active"}) for at in range(ROWS)])


class Log(App[None]):
    """The log of a daemon, at its newest event."""

    def __init__(self) -> None:
        super().__init__()
        self.log_ = EventLog()

    def compose(self) -> ComposeResult:
        yield self.log_

    def on_mount(self) -> None:
        events = [Event(ts=float(at), level="INFO", target="t", message=f"event {at}") for at in range(ROWS)]
        self.log_.show(tuple(events), ROWS)


def notch(kind: type[ui.MouseScrollUp | ui.MouseScrollDown]) -> ui.MouseEvent:
    return kind(None, 1, 1, 0, 0, 0, False, False, False)


def test_the_wheel_selects_as_the_arrow_keys_do_in_every_list() -> None:
    async def main() -> None:
        rows = Rows()
        async with rows.run_test(size=SIZE) as pilot:
            rows.list.settle()
            for kind, at in ((ui.MouseScrollDown, 3), (ui.MouseScrollDown, 6), (ui.MouseScrollUp, 3)):
                rows.list.post_message(notch(kind))
                await pilot.pause()
                assert (rows.view.at, rows.told[-1]) == (at, at)
            assert rows.list.top == 0  # the list itself does not scroll beside it
        log = Log()
        async with log.run_test(size=SIZE) as pilot:
            for kind, at in ((ui.MouseScrollUp, 96), (ui.MouseScrollUp, 93), (ui.MouseScrollDown, 96)):
                log.log_.post_message(notch(kind))
                await pilot.pause()
                assert log.log_._at == at

    asyncio.run(main())


def test_what_a_move_makes_is_there_before_the_next_picture() -> None:
    async def main() -> None:
        rows = Rows()
        async with rows.run_test(size=SIZE):
            rows.list.settle()
            rows.list.move(5)
            assert rows.told == [5]

    asyncio.run(main())


def test_the_bar_beside_a_list_looks_and_answers_to_the_mouse_as_textuals_does() -> None:
    async def main() -> None:
        rows = Rows()
        async with rows.run_test(size=SIZE) as pilot:
            rows.list.settle()
            bar = rows.list.vertical_scrollbar
            for at in (0, 7, 40, 71, ROWS):
                rows.list.select(at)
                await pilot.pause()
                strips = [bar.render_line(y) for y in range(bar.region.height)]
                bar._render_content()
                textuals = bar._render_cache.lines
                assert [strip.text for strip in strips] == [strip.text for strip in textuals]
                for ours, theirs in zip(strips, textuals, strict=True):
                    mine, style = ours._segments[0].style, theirs._segments[0].style
                    assert mine is not None and style is not None
                    assert (mine.reverse or False, mine.meta) == (style.reverse or False, style.meta)
                    seen = "color" if ours.text.strip() or mine.reverse else "bgcolor"
                    assert getattr(mine, seen) == getattr(style, seen)
            assert rows.list.top == ROWS - SIZE[1]
            for line, top in ((1, 61), (SIZE[1] - 1, 80)):  # above the thumb, below it
                await pilot.click(bar, offset=(0, line))
                await pilot.pause()
                assert (rows.list.top, rows.view.at) == (top, 80)

    asyncio.run(main())


@pytest.fixture
def no_collection() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


class Ring:
    """Garbage that counting does not find."""

    def __init__(self) -> None:
        self.own = self


@pytest.mark.usefixtures("no_collection")
def test_garbage_is_looked_for_now_and_then_while_nobody_presses_a_key() -> None:
    quiet, ring = Quiet(0.0), Ring()
    left = weakref.ref(ring)
    del ring
    quiet.pressed_at = EVERY_S - QUIET_S / 2
    assert not quiet.look(EVERY_S) and left() is not None
    assert quiet.look(EVERY_S + QUIET_S) and left() is None
    assert not quiet.look(2 * EVERY_S)
    assert quiet.look(2 * EVERY_S + QUIET_S)


def test_what_is_there_at_the_first_picture_is_not_looked_through_again() -> None:
    code = (
        "import gc; gc.disable(); from lakeshore.tui import garbage; kept = [[] for _ in range(1000)]; garbage.spare();"
        "print(gc.isenabled(), gc.get_freeze_count() > 1000, gc.get_threshold()[2] > 10_000)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout.split() == ["True"] * 3
