"""The log on the screen: a filter, a selected row, rows that are open, and following what is new.

Rules: the filter is applied to what is there, nothing is asked for; a row stays selected and open while the daemon
still has its event, and stays where it is on the screen when older ones go; to move by hand ends following, to come to
the last row begins it. Reference: nymph/status-tui.md, "Keybindings"; N-316…N-322.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rich.segment import Segment
from textual import events as ui
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.strip import Strip

from . import event_rows
from .pointer import Pointed
from .theme import FAINT, SELECTED, SELECTED_PLAIN

if TYPE_CHECKING:
    from lakeshore.client.introspection import Event

    from .event_rows import Key

DEFAULT_LEVEL: Final = "INFO"


class EventLog(Pointed, ScrollView, can_focus=False):
    """`show` gives it what there is; `level`, `follow`, `move` and `toggle` are the keys."""

    DEFAULT_CSS = """
    EventLog {
        height: 1fr;
        overflow-x: hidden;
        overflow-y: auto;
        scrollbar-size-vertical: 1;
    }
    """

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.level = DEFAULT_LEVEL
        self.following = True
        self.frozen = False
        self._capacity: int | None = None
        self._events: list[Key] = []
        self._shown: list[Key] = []
        self._at = 0
        self._open: set[Key] = set()
        self._starts: list[int] = []
        self._lines: list[tuple[int, list[Segment] | None]] = []
        self._target = 0

    # -- what there is ---------------------------------------------------------------------------------------------

    def show(self, events: tuple[Event, ...], capacity: int | None) -> None:
        """All that the daemon has now, oldest first."""
        self._capacity = capacity
        if [event for event, _ in self._events] != list(events):
            self._events = event_rows.keyed(events)
            self._open &= set(self._events)
            self._rebuild()
        self._say()

    def filter(self, level: str) -> None:
        """Show what is at least of this level."""
        self.level = level
        self._rebuild()

    def freeze(self, frozen: bool) -> None:
        """Say that nothing is asked for."""
        self.frozen = frozen
        self._say()

    # -- moving ----------------------------------------------------------------------------------------------------

    def toggle_follow(self) -> None:
        """Go to the newest and stay there; or stay put."""
        self.following = not self.following
        self._rebuild()

    def move(self, rows: int) -> None:
        """Select another row, so many further down."""
        if not self._shown:
            return
        first, last = self._block()
        top, height = self.scroll_offset.y, self._height
        if (rows > 0 and last >= top + height) or (rows < 0 and first < top):  # an open row longer than the screen
            self._scroll(min(max(top + rows, first), max(last - height + 1, first)))
        else:
            self._at = min(max(self._at + rows, 0), len(self._shown) - 1)
            self._into_view()
        self._moved()

    def select(self, at: int) -> None:
        """Select this row, counted from the oldest."""
        if self._shown:
            self._at = at
            self._into_view()
            self._moved()

    def select_end(self, *, newest: bool) -> None:
        """Select the newest row and show its end; or the oldest."""
        if self._shown:
            self._at = len(self._shown) - 1 if newest else 0
            self._scroll(len(self._lines) if newest else 0)
            self._moved()

    def move_pages(self, pages: int) -> None:
        """Select a row one screen away."""
        self.move(pages * max(self._height - 1, 1))

    def toggle(self) -> None:
        """Open or close the selected row."""
        if self._shown:
            self._open ^= {self._shown[self._at]}
            self._rebuild()

    # -- Textual ---------------------------------------------------------------------------------------------------

    def on_resize(self) -> None:
        self._rebuild()

    def on_click(self, event: ui.Click) -> None:
        place = event.get_content_offset(self)
        if place is not None:
            line = place.y + self.scroll_offset.y
            if line < len(self._lines):
                self.select(self._lines[line][0])

    def render_line(self, y: int) -> Strip:
        width = self.scrollable_content_region.width
        line = y + self.scroll_offset.y
        if line >= len(self._lines):
            text = self._nothing() if y == 0 and not self._lines else ""
            return Strip([Segment(text[:width], FAINT)]).adjust_cell_length(width).apply_style(self.rich_style)
        at, more = self._lines[line]
        event = self._shown[at][0]
        selected = at == self._at
        segments = more
        if segments is None:
            opened = self._shown[at] in self._open
            segments = event_rows.row(event, width=width, target=self._target, selected=selected, opened=opened)
        if selected and more is None:
            mark = SELECTED_PLAIN if self.app.no_color else SELECTED
            strip = Strip(event_rows.styled(segments, mark)).adjust_cell_length(width, mark)
        else:
            strip = Strip(segments).adjust_cell_length(width)
        return strip.apply_style(self.rich_style)

    # -- within ----------------------------------------------------------------------------------------------------

    def _rebuild(self) -> None:
        """From the events to lines, with the selected one where it was."""
        before = self._shown[self._at] if self._shown else None
        offset = self._starts[self._at] - self.scroll_offset.y if self._shown else 0
        self._shown = event_rows.shown(self._events, self.level)
        self._at = self._place_of(before)
        self._lay_out()
        if self.following:
            self._at = max(len(self._shown) - 1, 0)
        elif self._shown:
            self._scroll(self._starts[self._at] - offset)
        self._into_view()
        self.refresh()
        self._say()

    def _place_of(self, key: Key | None) -> int:
        """Where it is now; else the one that was said next after it."""
        if key is None or not self._shown:
            return max(len(self._shown) - 1, 0)
        try:
            return self._shown.index(key)
        except ValueError:
            later = (at for at, (event, _) in enumerate(self._shown) if event.ts >= key[0].ts)
            return next(later, len(self._shown) - 1)

    def _lay_out(self) -> None:
        width = self.scrollable_content_region.width
        self._target = event_rows.target_width((event for event, _ in self._shown), width)
        self._starts, self._lines = [], []
        for at, key in enumerate(self._shown):
            self._starts.append(len(self._lines))
            self._lines.append((at, None))
            if key in self._open:
                opened = event_rows.opened(key[0], width=width, target=self._target)
                self._lines += [(at, line) for line in opened]
        self.virtual_size = Size(width, len(self._lines))

    def _into_view(self) -> None:
        """Scroll as little as shows the selected row with its opened part; a screen of it, where it is longer."""
        if not self._shown or not self._height:
            return
        first, last = self._block()
        highest, lowest = sorted((first, last - self._height + 1))
        self._scroll(min(max(self.scroll_offset.y, highest), lowest))

    def _block(self) -> tuple[int, int]:
        """The first and the last line of the selected row and what is open below it."""
        after = self._starts[self._at + 1] if self._at + 1 < len(self._starts) else len(self._lines)
        return self._starts[self._at], after - 1

    @property
    def _height(self) -> int:
        return self.scrollable_content_region.height

    def _scroll(self, top: int) -> None:
        self.scroll_to(y=min(top, max(len(self._lines) - self._height, 0)), animate=False, force=True, immediate=True)

    def _dragged(self) -> None:
        """The scroll bar was moved: the selection comes along."""
        if self._lines:
            top = self.scroll_offset.y
            bottom = min(top + self._height, len(self._lines)) - 1
            self._at = min(max(self._at, self._lines[top][0]), self._lines[bottom][0])
            self._moved()

    def _moved(self) -> None:
        """To be at the end is to follow."""
        bottom = self.scroll_offset.y + self._height >= len(self._lines)
        self.following = bottom and self._at == len(self._shown) - 1
        self.refresh()
        self._say()

    def _say(self) -> None:
        capacity = "—" if self._capacity is None else self._capacity
        mode = "⏵follow" if self.following else "⏸manual"
        self.border_title = "  ".join(
            [
                "events",
                f"{self.level.lower()}+" if self.level != "ERROR" else "error",
                f"{len(self._shown)}/{capacity}",
                mode,
                *(["⏸ PAUSED"] if self.frozen else []),
            ]
        )

    def _nothing(self) -> str:
        if self._events:
            return f"nothing of this level: {len(self._events)} below it; [d]ebug or [t]race shows them"
        if self._capacity == 0:
            return "the daemon keeps no events: [log] event_buffer is 0"
        return "no events yet"
