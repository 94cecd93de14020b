"""A column as data, and how wide each is.

Rule: widths follow from the terminal's width and from nothing that is shown, so that a refresh moves nothing. What a
narrow terminal has no room for is left out, from the last column on. Pure. Reference: cli/tui.md, "The four panes".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from rich.cells import cell_len, set_cell_size

from ..lengths import cut, cut_middle

Row = Mapping[str, Any]
NONE: Final = "—"
GAP: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """`cell(row, now)` is what is shown, `by(row)` what is sorted by: texts or numbers, of one kind. `least` and `most`
    are cells. `state`: coloured by what it says. `end`: a long one keeps its end.
    """

    title: str
    cell: Callable[[Row, datetime], str]
    by: Callable[[Row], Any]
    least: int
    most: int
    right: bool = False
    state: bool = False
    end: bool = False


def widths(columns: Sequence[Column], room: int) -> tuple[int, ...]:
    """A width for each column that there is room for; all together with their gaps at most `room`, if one fits."""
    shown = len(columns)
    while shown > 1 and _whole([one.least for one in columns[:shown]]) > room:
        shown -= 1
    made = [one.least for one in columns[:shown]]
    spare = max(room - _whole(made), 0)
    wished = [one.most - one.least for one in columns[:shown]]
    if spare >= sum(wished):
        return tuple(one.most for one in columns[:shown])
    for at, wish in enumerate(wished):
        share = spare * wish // sum(wished[at:]) if wish else 0
        made[at] += share
        spare -= share
    return tuple(made)


def _whole(made: Sequence[int]) -> int:
    return sum(made) + GAP * (len(made) - 1)


def fitted(text: str, width: int, column: Column) -> str:
    """Exactly `width` cells of it."""
    short = (cut_middle if column.end else cut)(text, width)
    if column.right:
        return " " * (width - cell_len(short)) + short
    return set_cell_size(short, width)
