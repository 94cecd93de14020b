"""Which rows of a list are shown, in which order, and which one is selected.

Rules: a selected row stays selected while it is there, whatever comes before it; when it goes, the one that took its
place is. A filter is words, all of which a row must have; `state:failed` looks in one column. Sorting is stable, so
equal rows keep the server's order. Whether a row fits and what it is sorted by is known as long as it is the same one,
so that ten thousand of which some have changed cost what those do. Pure. Reference: cli/tui.md, "Keybindings".
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import compress, count, islice
from operator import is_not
from typing import Any, Final

from .items import Item
from .tabs import Tab

_GONE: Final = 256
"""More rows than that do not go at once, or all are looked at anew."""


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
        self._fitting: Sequence[Item] = ()
        """What the filter leaves, as the server has it."""
        self._keys: Sequence[Any] = ()
        """What each of these is sorted by."""

    @property
    def selected(self) -> Item | None:
        return self.shown[self.at] if self.shown else None

    @property
    def is_plain(self) -> bool:
        """Whether all is shown as the server has it."""
        return self.column is None and not self.filter

    def show(self, items: Sequence[Item]) -> None:
        """What there is now."""
        before, self.items, self.loaded = self.items, items, True
        self._fit(before)
        self._arrange()

    def look_for(self, words: str) -> None:
        """Show what has these words alone."""
        self.filter = words
        self._fit()
        self._arrange()

    def sort(self, column: int | None, *, descending: bool = False) -> None:
        """Sort by that column; None: as the server has it."""
        if column not in (self.column, None):
            by = self.tab.columns[column].by
            self._keys = [by(item.row) for item in self._fitting]
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
        selected = self.selected
        self.shown = self._sorted()
        place = None if selected is None else self.place_of(selected.id)
        self.at = place if place is not None else min(self.at, max(len(self.shown) - 1, 0))

    def _fit(self, before: Sequence[Item] = ()) -> None:
        """Look for what fits among the rows; `before`: the rows of which that was known."""
        items, words, tab = self.items, self.filter, self.tab
        head, gone, same = (0, 0, 0) if _passes_with_time(words, tab) else _alike(before, items)
        first = len(matching(before[:head], words, tab))
        last = first if not same else len(self._fitting) - len(matching(before[len(before) - gone :], words, tab))
        new = matching(items[: len(items) - same], words, tab)
        self._fitting = [*new, *self._fitting[first:last]]
        if self.column is not None:
            by = self.tab.columns[self.column].by
            self._keys = [*(by(item.row) for item in new), *self._keys[first:last]]

    def _sorted(self) -> Sequence[Item]:
        items = self._fitting
        if self.column is None:
            return items if not self.descending else items[::-1]
        order = sorted(range(len(items)), key=self._keys.__getitem__, reverse=self.descending)
        return list(map(items.__getitem__, order))


def _alike(old: Sequence[Item], new: Sequence[Item]) -> tuple[int, int, int]:
    """How many rows both have towards their end; before these the number of the others of the old ones, and how many of
    the old ones have gone from there: what is new comes first, and the oldest go.
    """
    ends = range(len(old), max(len(old) - _GONE, 0), -1)
    end = next((end for end in ends if old[end - 1] is new[-1]), None) if new else None
    if end is None:
        return len(old), 0, 0
    pairs = map(is_not, islice(reversed(old), len(old) - end, None), reversed(new))
    same = next(compress(count(), pairs), min(end, len(new)))
    return end - same, len(old) - end, same


def _passes_with_time(words: str, tab: Tab) -> bool:
    """Whether a row that fits may fit no more though nothing of it has changed."""
    ages = {column.title.lower() for column in tab.columns} - tab.places.keys()
    return any(colon and title in ages for title, colon, _ in map(_parted, words.lower().split()))


def _parted(word: str) -> tuple[str, str, str]:
    return word.partition(":")


def matching(items: Sequence[Item], words: str, tab: Tab) -> Sequence[Item]:
    """Those that have every one of the words."""
    if not words.strip():
        return items
    titles = {column.title.lower(): column for column in tab.columns}
    now = datetime.now(UTC)
    for word in words.lower().split():
        title, colon, rest = _parted(word)
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
