"""The mouse over rows and beside them: the wheel and the bar select, as keys do.

Rule: what is scrolled to is selected, or the next refresh would lead back to the selected row.
Reference: cli/tui.md; nymph/status-tui.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from textual.widget import Widget

if TYPE_CHECKING:
    from textual import events as ui
    from textual.message import Message
    from textual.scrollbar import ScrollDown, ScrollTo, ScrollUp

_WHEEL: Final = 3


class Pointed(Widget):
    """Put it before the widget that would scroll."""

    def move(self, rows: int) -> None:
        """Select another row, so many further down."""
        raise NotImplementedError

    def _scroll(self, top: int) -> None:
        """Show that line first, or the one next to it that can be."""
        raise NotImplementedError

    def _dragged(self) -> None:
        """The bar was moved: select what is seen."""
        raise NotImplementedError

    def on_mouse_scroll_down(self, event: ui.MouseScrollDown) -> None:
        _taken(event)
        self.move(_WHEEL)

    def on_mouse_scroll_up(self, event: ui.MouseScrollUp) -> None:
        _taken(event)
        self.move(-_WHEEL)

    def on_scroll_to(self, _: ScrollTo) -> None:
        self.call_after_refresh(self._dragged)

    def on_scroll_down(self, event: ScrollDown) -> None:
        """A click on the bar, below its thumb."""
        self._turn(event, 1)

    def on_scroll_up(self, event: ScrollUp) -> None:
        """The same above it."""
        self._turn(event, -1)

    def _turn(self, event: Message, pages: int) -> None:
        _taken(event)
        self._scroll(self.scroll_offset.y + pages * max(self.scrollable_content_region.height - 1, 1))
        self._dragged()


def _taken(event: Message) -> None:
    event.stop()
    event.prevent_default()
