"""The bar beside a list: Textual's, with its lines kept as they were drawn.

Rule: it looks and answers to the mouse as Textual's does. Reference: benchmarks/README.md, "The dashboard".
"""

from __future__ import annotations

from typing import Any

from rich.style import Style
from textual.scrollbar import ScrollBar, ScrollBarRender
from textual.strip import Strip

from .drawn import Drawn


class Bar(Drawn, ScrollBar):
    """A vertical one."""

    def __init__(self, *, thickness: int) -> None:
        super().__init__(vertical=True, name="vertical", thickness=thickness)
        self._of: tuple[Any, ...] = ()
        self._lines: list[Strip] = []
        self._strips: dict[tuple[str, Style | None], Strip] = {}

    def strip(self, y: int, width: int, base: Style) -> Strip:
        bar, size = self.render(), self.region.height
        assert isinstance(bar, ScrollBarRender) and isinstance(bar.style, Style)
        of = (size, width, bar.virtual_size, bar.window_size, bar.position, bar.style)
        if of != self._of:
            self._of, self._lines = of, self._drawn(bar, bar.style, size)
        return self._lines[y]

    def _drawn(self, bar: ScrollBarRender, style: Style, size: int) -> list[Strip]:
        assert style.color is not None and style.bgcolor is not None
        told = bar.render_bar(
            size=size,
            virtual_size=bar.virtual_size,
            window_size=bar.window_size,
            position=bar.position,
            thickness=bar.thickness,
            back_color=style.bgcolor,
            bar_color=style.color,
        )
        lines = []
        for segment in told.segments:
            key = (segment.text, segment.style)
            if key not in self._strips:
                self._strips[key] = Strip([segment])
            lines.append(self._strips[key])
        return lines
