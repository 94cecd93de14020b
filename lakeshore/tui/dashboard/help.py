"""The screen that `?` opens: every key."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from .chrome import help_table


class Help(ModalScreen[None]):
    """Closes by Esc, `?` or `q`."""

    DEFAULT_CSS = """
    Help { align: center middle; }
    Help > VerticalScroll {
        width: 116;
        max-width: 96%;
        height: auto;
        max-height: 92%;
        border: round $primary;
        border-title-color: $primary;
        padding: 0 2;
        background: $panel;
        scrollbar-size-vertical: 1;
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,question_mark,q", "dismiss", show=False)]

    def compose(self) -> ComposeResult:
        box = VerticalScroll(Static(help_table()))
        box.border_title, box.border_subtitle = "keys", "esc closes"
        yield box
