"""A widget that is lines and nothing else: what Textual does with borders, padding and opacity is left out.

Rule: a line that is as it was is the same strip, so that whatever is made of it is made once.
Reference: benchmarks/README.md, "The dashboard".
"""

from __future__ import annotations

from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget


class Drawn(Widget):
    """`strip` says what a line is."""

    def strip(self, y: int, width: int, base: Style) -> Strip:
        """That line of the widget, so many cells wide; `base` is what lies below it."""
        raise NotImplementedError

    def render_lines(self, crop: Region) -> list[Strip]:
        width, base = self.region.width, self.rich_style
        strips = [self.strip(y, width, base) for y in crop.line_range]
        background = self.background_colors[1]
        for one in self.get_line_filters():
            strips = [strip.apply_filter(one, background) for strip in strips]
        left, right = crop.column_span
        return strips if (left, right) == (0, width) else [strip.crop(left, right) for strip in strips]

    def render_line(self, y: int) -> Strip:
        return self.strip(y, self.region.width, self.rich_style)


class Line(Drawn, can_focus=False):
    """One line of text, which `say` replaces without laying anything out."""

    DEFAULT_CSS = "Line { height: 1; }"

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._text = Text()
        self._made: tuple[int, Style, Strip] | None = None

    def say(self, text: Text) -> None:
        """Show that; nothing is drawn where it is there already."""
        old = self._text
        if (text.plain, text.spans, text.style) != (old.plain, old.spans, old.style):
            self._text, self._made = text, None
            self.refresh()

    def strip(self, y: int, width: int, base: Style) -> Strip:
        if self._made is None or self._made[:2] != (width, base):
            text = self._text.copy()
            text.truncate(width, overflow=text.overflow or "crop")
            text.end = ""
            segments = [one for one in text.render(self.app.console) if one.text]
            strip = Strip(segments or [Segment("")]).adjust_cell_length(width).apply_style(base)
            self._made = (width, base, strip)
        return self._made[2]
