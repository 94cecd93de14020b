"""Lines of text of a given width: facts in columns, headings, nested values. Pure; for the detail pane."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from rich.cells import cell_len
from rich.style import Style
from rich.text import Text

from ..lengths import cut, wrapped
from ..theme import FAINT, PLAIN, STRONG, drawable
from .columns import NONE

MARGIN: Final = 1
_LABEL: Final = 12
_LONGEST: Final = 28
"""Cells of a label that others still stand beside."""
_DEEPEST: Final = 6
_SIZES: Final = ("B", "KiB", "MiB", "GiB", "TiB")


class Sheet:
    """Write to it from the top; `text` is the whole. Texts of others are made drawable."""

    def __init__(self, width: int) -> None:
        self.width = max(width - 2 * MARGIN, 20)
        self._lines: list[Text] = []

    @property
    def text(self) -> Text:
        return Text("\n", no_wrap=True).join(self._lines)

    def title(self, name: str, state: str = "", style: Style = PLAIN) -> None:
        """The first line: what it is, and how it is."""
        room = self.width - cell_len(state) - 2
        line = self._line().append(cut(drawable(name), max(room, 8)), STRONG).append("  ")
        self._lines.append(line.append(drawable(state), style))

    def head(self, name: str, more: str = "") -> None:
        """A section begins."""
        self._lines.append(Text(""))
        line = self._line().append(name.upper(), FAINT + Style(bold=True))
        self._lines.append(line.append(f"  {drawable(more)}" if more else "", FAINT))

    def fact(self, label: str, value: Any, style: Style = PLAIN, more: str = "") -> None:
        """`label  value  more`; a long value goes on below itself."""
        said = NONE if value in (None, "", [], {}) else str(value)
        for number, part in enumerate(wrapped(drawable(said), self.width - _LABEL)):
            line = self._line().append(f"{cut(label, _LABEL - 1) if not number else '':<{_LABEL}}", FAINT)
            self._lines.append(line.append(part, FAINT if said == NONE else style))
        if more:
            room = self.width - _LABEL - cell_len(self._lines[-1].plain) + MARGIN + _LABEL - 2
            self._lines[-1].append(f"  {cut(drawable(more), max(room, 0))}", FAINT)

    def nested(self, value: Any, depth: int = 0) -> None:
        """A map's pairs, a list's values, what is within them further in."""
        pairs = list(value.items() if isinstance(value, Mapping) else (("-", inner) for inner in value))
        longest = min(max((cell_len(drawable(str(label))) for label, _ in pairs), default=0) + 1, _LONGEST)
        column = longest if not isinstance(value, Mapping) else max(longest, _LABEL - 2 * depth)
        for label, inner in pairs:
            if isinstance(inner, Mapping | list) and inner and depth < _DEEPEST:
                if (said := _in_a_line(inner)) and (label == "-" or isinstance(inner, list)):
                    self._pair(depth, str(label), said, column)
                    continue
                self._pair(depth, str(label), "", column)
                self.nested(inner, depth + 1)
            else:
                self._pair(depth, str(label), NONE if inner is None else str(inner), column)

    def line(self, said: str, style: Style = PLAIN, *, wraps: bool = True) -> None:
        """As it is."""
        said = drawable(said)
        for part in wrapped(said, self.width) if wraps else [cut(said, self.width)]:
            self._lines.append(self._line().append(part, style))

    def row(self, *cells: tuple[str, int, Style]) -> None:
        """Texts in columns: (text, cells, style)."""
        line = self._line()
        for said, size, style in cells:
            short = cut(drawable(said), size)
            line.append(short, style).append(" " * (size - cell_len(short) + 2))
        line.truncate(self.width + MARGIN)
        self._lines.append(line)

    def _pair(self, depth: int, label: str, said: str, column: int) -> None:
        label = drawable(label)
        start, column = "  " * depth, max(column, cell_len(label) + 1)
        room = max(self.width - cell_len(start) - column, 8)
        for number, part in enumerate(wrapped(drawable(said), room)):
            line = self._line().append(start)
            line.append(" " * column if number else label + " " * (column - cell_len(label)), FAINT)
            self._lines.append(line.append(part, FAINT if part == NONE else PLAIN))

    def _line(self) -> Text:
        return Text(" " * MARGIN, no_wrap=True, overflow="crop")


def _in_a_line(value: Any) -> str:
    """What holds nothing but plain values; else nothing."""
    inner = list(value.values()) if isinstance(value, Mapping) else value
    if not all(isinstance(one, str | int | float) for one in inner):
        return ""
    return (
        ", ".join(f"{name} {one}" for name, one in value.items())
        if isinstance(value, Mapping)
        else ", ".join(map(str, value))
    )


def size(count: Any) -> str:
    """`812 B`, `1.4 MiB`; `—` for none."""
    if not isinstance(count, int):
        return NONE
    value, unit = float(count), 0
    while value >= 1024 and unit < len(_SIZES) - 1:
        value, unit = value / 1024, unit + 1
    return f"{count:,} B" if not unit else f"{value:.1f} {_SIZES[unit]}"
