"""A tab's rows on the screen: the lines that are seen are made, and no others, and of those the ones that changed.

Rules: a selected row stays where it is on the screen while others come and go above it; at the top, what is new pushes
it down. Hints stand after the cells; where they have no room their keys do. Reference: cli/tui.md; C-403, C-407.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Final

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual import events as ui
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widget import Widget

from ..lengths import cut, wrapped
from ..pointer import Pointed
from ..theme import FAINT, KEY, PLAIN, SELECTED, SELECTED_PLAIN, STATE_STYLES
from .actions import hints, keys_only, offered
from .columns import GAP, fitted, widths
from .drawn import Drawn
from .scroll_bar import Bar
from .tabs import NAMES, TABS

if TYPE_CHECKING:
    from textual.scrollbar import ScrollBar

    from .view import View

_MARGIN: Final = 1
"""Left of the first column."""
_STRIPS: Final = 512
"""Lines that are kept as they were drawn: a new row moves all that are below it."""
Line = tuple[str, tuple[str, ...], str, bool]
"""What a line shows: the row's id, its cells, its hint, and whether it is selected."""


class Listing(Pointed, Drawn, ScrollView, can_focus=False):
    """`show` gives it a view; `settle` after that has changed; `move` and the like are the keys. `moved` is called at
    once when another row is selected, so that what it makes is in the same picture.
    """

    DEFAULT_CSS = """
    Listing {
        height: 1fr;
        overflow-x: hidden;
        overflow-y: scroll;
        scrollbar-size-vertical: 1;
        scrollbar-background: $surface;
        scrollbar-color: $panel;
    }
    """

    class Opened(Message):
        """The row that was selected already is clicked."""

    def __init__(
        self,
        view: View,
        namespace: str,
        clock: Callable[[], datetime],
        moved: Callable[[], None],
        *,
        id: str | None = None,
    ) -> None:
        super().__init__(id=id)
        self.view, self._namespace, self._clock, self._moved = view, namespace, clock, moved
        self._tops: dict[str, int] = {}
        self._drawn: list[Line | None] = []
        self._strips: dict[tuple[str, int, Style, Line], Strip] = {}

    # -- what there is ---------------------------------------------------------------------------------------------

    def show(self, view: View) -> None:
        """Another tab's."""
        self._tops[self.view.tab.name] = self.scroll_offset.y
        self.view = view
        self._measure()
        self._scroll(self._tops.get(view.tab.name, 0))
        self.settle()

    def settle(self, before: int | None = None) -> None:
        """Draw what has changed. `before`: where the selected row was, which is to stay there on the screen."""
        self._measure()
        top = self.scroll_offset.y
        if before is not None and top > 0 and self.view.at != before:
            self._scroll(top + self.view.at - before)
        self._into_view()
        self.redraw()

    def redraw(self) -> None:
        """The lines of which anything has changed: ages do, by themselves."""
        now = self._clock()
        region = self.scrollable_content_region
        made = [self._line(y, now, region.width) for y in range(region.height)]
        if len(made) != len(self._drawn) or not self.view.shown:
            self.refresh()
        else:
            for y, (line, drawn) in enumerate(zip(made, self._drawn, strict=True)):
                if line != drawn:
                    self.refresh(Region(0, y, region.width, 1))
        self._drawn = made

    # -- moving ----------------------------------------------------------------------------------------------------

    @property
    def page(self) -> int:
        """Rows of a screen."""
        return max(self._height - 1, 1)

    @property
    def length(self) -> int:
        """Rows of it all."""
        return len(self.view.shown)

    def move(self, rows: int) -> None:
        """Select another row, so many further down."""
        self.view.move(rows)
        self._into_view()
        self.redraw()
        self._moved()

    def select(self, at: int) -> None:
        """Select that row."""
        self.move(at - self.view.at)

    @property
    def top(self) -> int:
        """The first row that is on the screen."""
        return int(self.scroll_offset.y)

    # -- Textual ---------------------------------------------------------------------------------------------------

    @property
    def vertical_scrollbar(self) -> ScrollBar:
        if self._vertical_scrollbar is None:
            bar = self._vertical_scrollbar = Bar(thickness=self.scrollbar_size_vertical)
            bar.display = False
            self.app._start_widget(self, bar)
        return self._vertical_scrollbar

    def on_resize(self) -> None:
        self.settle()

    def on_click(self, event: ui.Click) -> None:
        place = event.get_content_offset(self)
        if place is not None and place.y + self.top < len(self.view.shown):
            if place.y + self.top == self.view.at:
                self.post_message(self.Opened())
            else:
                self.select(place.y + self.top)

    def watch_scroll_y(self, old: float, new: float) -> None:
        super().watch_scroll_y(old, new)
        if round(old) != round(new):
            self._drawn = []

    def strip(self, y: int, width: int, base: Style) -> Strip:
        line = self._drawn[y] if y < len(self._drawn) else self._line(y, self._clock(), self._width)
        if line is None:
            return Strip([Segment(self._nothing(y), FAINT)]).adjust_cell_length(width).apply_style(base)
        key = (self.view.tab.name, width, base, line)
        if key not in self._strips:
            if len(self._strips) > _STRIPS:
                self._strips.clear()
            self._strips[key] = self._made(line, width, base)
        return self._strips[key]

    # -- within ----------------------------------------------------------------------------------------------------

    def _made(self, line: Line, width: int, base: Style) -> Strip:
        _, cells, hint, selected = line
        mark = (SELECTED_PLAIN if self.app.no_color else SELECTED) if selected else PLAIN
        columns, sizes = self.view.tab.columns, self._sizes()
        plain = base + mark
        segments, text = list[Segment](), " " * _MARGIN
        for column, size, cell in zip(columns, sizes, cells, strict=False):
            if column.state and (style := STATE_STYLES.get(cell)) is not None:
                segments += [Segment(text, plain), Segment(fitted(cell, size, column), base + style + mark)]
                text = " " * GAP
            else:
                text += fitted(cell, size, column) + " " * GAP
        segments += [Segment(text, plain), *_hint_segments(hint, base, mark)]
        return Strip(segments).adjust_cell_length(width, plain)

    def _line(self, y: int, now: datetime, width: int) -> Line | None:
        at = y + self.top
        if not 0 <= at < len(self.view.shown):
            return None
        item = self.view.shown[at]
        may = offered(self.view.tab.actions, item, self._namespace)
        room = width - _MARGIN - sum(size + GAP for size in sizes_of(self.view, width))
        hint = hints(may)
        if cell_len(hint) > room:
            hint = keys_only(may) if cell_len(keys_only(may)) <= room else ""
        return item.id, self.view.tab.cells(item, now), hint, at == self.view.at

    def _sizes(self) -> tuple[int, ...]:
        return sizes_of(self.view, self._width)

    def _nothing(self, y: int) -> str:
        if self.view.shown:
            return ""
        if not self.view.loaded:
            said = "loading…"
        elif self.view.items:
            said = f"nothing of {len(self.view.items):,} matches {self.view.filter!r}: [esc] shows them all"
        else:
            said = self.view.tab.empty
        lines = wrapped(said, self._width - 2 * _MARGIN)
        return " " * _MARGIN + lines[y] if y < len(lines) else ""

    def _measure(self) -> None:
        """How much there is to scroll through, without laying the screen out anew: nothing else depends on it."""
        size = Size(self._width, len(self.view.shown))
        if size != self.virtual_size:
            self.set_reactive(Widget.virtual_size, size)
            self._scroll_update(size)

    def _into_view(self) -> None:
        if self.view.shown and self._height:
            self._scroll(min(max(self.top, self.view.at - self._height + 1), self.view.at))

    @property
    def _height(self) -> int:
        return self.scrollable_content_region.height

    @property
    def _width(self) -> int:
        return self.scrollable_content_region.width

    def _scroll(self, top: int) -> None:
        most = max(len(self.view.shown) - self._height, 0)
        self.scroll_to(y=min(max(top, 0), most), animate=False, force=True, immediate=True)

    def _dragged(self) -> None:
        """The scroll bar was moved: the selection comes along."""
        if self.view.shown:
            self.view.at = min(max(self.view.at, self.top), min(self.top + self._height, len(self.view.shown)) - 1)
            self.redraw()
            self._moved()


class Head(Widget, can_focus=False):
    """The titles of the columns; a click sorts by one."""

    DEFAULT_CSS = "Head { height: 1; }"

    class Chosen(Message):
        """That column was clicked."""

        def __init__(self, column: int) -> None:
            super().__init__()
            self.column = column

    def __init__(self, view: View, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.view = view

    def show(self, view: View) -> None:
        """Another tab's; or the same one, sorted anew."""
        self.view = view
        self.refresh()

    def render_line(self, y: int) -> Strip:
        bold = FAINT + Style(bold=True)
        segments = [Segment(" " * _MARGIN, bold)]
        for at, (column, size) in enumerate(zip(self.view.tab.columns, self._sizes(), strict=False)):
            title, style = column.title, bold
            if at == self.view.column:
                title, style = cut(title, size - 1) + ("▼" if self.view.descending else "▲"), KEY
            segments += [Segment(fitted(title, size, column), style), Segment(" " * GAP, bold)]
        return Strip(segments).adjust_cell_length(self.size.width).apply_style(self.rich_style)

    def on_click(self, event: ui.Click) -> None:
        left = _MARGIN
        for at, size in enumerate(self._sizes()):
            if left <= event.x < left + size:
                self.post_message(self.Chosen(at))
            left += size + GAP

    def _sizes(self) -> tuple[int, ...]:
        return sizes_of(self.view, self.size.width - 1)  # beside the scroll bar of the rows below


def sizes_of(view: View, width: int) -> tuple[int, ...]:
    """The widths of its columns: hints have room for their keys at least, and whole where the columns are wide."""
    return _sizes_of(view.tab.name, width)


@functools.lru_cache(maxsize=64)
def _sizes_of(name: str, width: int) -> tuple[int, ...]:
    tab = TABS[NAMES.index(name)]
    columns = tab.columns
    most = [one for one in tab.actions if one.key in tab.fullest]
    least = _MARGIN + sum(column.least + GAP for column in columns)
    room = cell_len(hints(most) if width - cell_len(hints(most)) >= least else keys_only(most))
    return widths(columns, width - _MARGIN - GAP - room)


@functools.lru_cache(maxsize=128)
def _hint_segments(hint: str, base: Style, mark: Style) -> tuple[Segment, ...]:
    """Keys stand out of their words."""
    faint, strong = base + FAINT + mark, base + KEY + mark
    segments, words = list[Segment](), ""
    while hint:
        before, bracket, rest = hint.partition("[")
        key, close, hint = rest.partition("]")
        segments += [Segment(words + before + bracket, faint), Segment(key, strong)]
        words = close
    return (*segments, Segment(words, faint)) if words else tuple(segments)
