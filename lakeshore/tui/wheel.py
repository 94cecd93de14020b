"""The mouse wheel over rows: it selects, as the arrow keys do. Reference: cli/tui.md; nymph/status-tui.md."""

from __future__ import annotations

from typing import Final

from textual import events as ui
from textual.widget import Widget

_ROWS: Final = 3


class Wheeled(Widget):
    """`move` is what a notch of the wheel does; put it before the widget that would scroll."""

    def move(self, rows: int) -> None:
        """Select another row, so many further down."""
        raise NotImplementedError

    def on_mouse_scroll_down(self, event: ui.MouseScrollDown) -> None:
        self._turned(event, _ROWS)

    def on_mouse_scroll_up(self, event: ui.MouseScrollUp) -> None:
        self._turned(event, -_ROWS)

    def _turned(self, event: ui.MouseEvent, rows: int) -> None:
        event.stop()
        event.prevent_default()
        self.move(rows)
