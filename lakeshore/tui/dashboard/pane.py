"""The pane of one row, over the list: it is scrolled, follows its row, and stays at its end where it was led there.

Reference: docs/guides/dashboard.md, "One row".
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from typing import Final

from rich.text import Text
from textual import events as ui
from textual.containers import VerticalScroll
from textual.widgets import Static

from .facts import Facts, told
from .history import History
from .items import Item
from .tabs import Tab

_DRAW_S: Final = 0.1
"""What is printed fast is drawn no oftener."""


class Pane(VerticalScroll, can_focus=False):
    """`open` it on an item, `put` what is known of that."""

    DEFAULT_CSS = """
    Pane {
        display: none;
        height: 1fr;
        scrollbar-size-vertical: 1;
        scrollbar-background: $surface;
        scrollbar-color: $panel;
    }
    Pane > Static { height: auto; }
    """

    def __init__(self, history: History, clock: Callable[[], datetime], *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._history, self._clock = history, clock
        self._body = Static()
        self._of: tuple[Tab, Item] | None = None
        self._facts = Facts()
        self._drawn = Text()
        self._waits = False

    def compose(self) -> list[Static]:
        return [self._body]

    @property
    def item(self) -> Item | None:
        """Whose it is; None while it is closed."""
        return None if self._of is None else self._of[1]

    def open(self, tab: Tab, item: Item) -> None:
        """Of another row."""
        self._of, self._facts = (tab, item), Facts()
        self.display = True
        self.scroll_home(animate=False)
        self.redraw()

    def close(self) -> None:
        """Go."""
        self._of = None
        self.display = False

    def put(self, facts: Facts) -> None:
        """What is known now."""
        if self._of is None:
            return
        self._facts = facts
        if facts.stats and not facts.gone and not facts.away:
            self._history.put(self._of[1].id, facts.stats, time.monotonic())
        if not self._waits:
            self._waits = True
            self.set_timer(_DRAW_S, self._draw_late)

    def redraw(self) -> None:
        """What has changed: times do, by themselves."""
        if self._of is None:
            return
        tab, item = self._of
        text = told(
            tab,
            item,
            self._facts,
            self._history,
            width=self.scrollable_content_region.width or self.app.size.width - 1,
            now=self._clock(),
            at=time.monotonic(),
        )
        if text != self._drawn or text.spans != self._drawn.spans:
            follows = self.max_scroll_y > 0 and self.scroll_y >= self.max_scroll_y
            self._drawn = text
            self._body.update(text)
            if follows:
                self.call_after_refresh(self.scroll_end, animate=False, immediate=True)

    def move(self, rows: int) -> None:
        """Scroll, so many further down."""
        self.scroll_to(y=self.scroll_y + rows, animate=False, immediate=True)

    @property
    def page(self) -> int:
        """Rows of a screen."""
        return max(self.scrollable_content_region.height - 1, 1)

    @property
    def length(self) -> int:
        """Rows of it all."""
        return int(self.virtual_size.height)

    def on_resize(self, _: ui.Resize) -> None:
        self.redraw()

    def _draw_late(self) -> None:
        self._waits = False
        self.redraw()
