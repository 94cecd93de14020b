"""Which rows of a list are shown, in which order, and which one is selected.

Rules: a selected row stays selected while it is there, whatever comes before it; when it goes, the one that took its
place is. A filter is words, all of which a row must have; `state:failed` looks in one column. Sorting is stable, so
equal rows keep the server's order. Pure. Reference: cli/tui.md, "Keybindings".
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from .items import Item
from .tabs import Tab


class View:
    """One tab's list. `shown` are its rows; `at` is the selected one's place among them, 0 where there is none."""

    def __init__(self, tab: Tab) -> None:
        self.tab = tab
        self.items: Sequence[Item] = ()
        self.shown: Sequence[Item] = ()
        self.filter = ""
        self.column: int | None = None
        """What it is sorted by; None: as the server has it."""
        self.descending = False
        self.at = 0
        self.loaded = False

    @property
    def selected(self) -> Item | None:
        return self.shown[self.at] if self.shown else None

    @property
    def is_plain(self) -> bool:
        """Whether all is shown as the server has it."""
        return self.column is None and not self.filter

    def show(self, items: Sequence[Item]) -> None:
        """What there is now."""
        self.items, self.loaded = items, True
        self._arrange()

    def look_for(self, words: str) -> None:
        """Show what has these words alone."""
        self.filter = words
        self._arrange()

    def sort(self, column: int | None, *, descending: bool = False) -> None:
        """Sort by that column; None: as the server has it."""
        self.column, self.descending = column, descending
        self._arrange()

    def sort_next(self, step: int) -> None:
        """By the next column; after the last one as the server has it."""
        places = [None, *range(len(self.tab.columns))]
        self.sort(places[(places.index(self.column) + step) % len(places)])

    def move(self, rows: int) -> None:
        """Select another row, so many further down."""
        self.at = min(max(self.at + rows, 0), max(len(self.shown) - 1, 0))

    def place_of(self, id_: str) -> int | None:
        """Where the row of that id is shown."""
        return next((at for at, item in enumerate(self.shown) if item.id == id_), None)

    def _arrange(self) -> None:
        before = self.selected
        self.shown = self._sorted(matching(self.items, self.filter, self.tab))
        place = None if before is None else self.place_of(before.id)
        self.at = place if place is not None else min(self.at, max(len(self.shown) - 1, 0))

    def _sorted(self, items: Sequence[Item]) -> Sequence[Item]:
        if self.column is None:
            return items if not self.descending else items[::-1]
        by = self.tab.columns[self.column].by
        return sorted(items, key=lambda item: by(item.row), reverse=self.descending)


def matching(items: Sequence[Item], words: str, tab: Tab) -> Sequence[Item]:
    """Those that have every one of the words."""
    if not words.strip():
        return items
    titles = {column.title.lower(): column for column in tab.columns}
    now = datetime.now(UTC)
    for word in words.lower().split():
        title, colon, rest = word.partition(":")
        if colon and title in titles:
            place = tab.places.get(title)
            if place is None:  # an age
                cell = titles[title].cell
                items = [item for item in items if rest in cell(item.row, now).lower()]
            else:
                items = [item for item in items if rest in item.said and rest in item.said.split("\0")[place]]
        else:
            items = [item for item in items if word in item.said]
    return items
