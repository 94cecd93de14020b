"""The newest invocations, of which a page at a time is read: what a fresh page makes of those that are held.

Rules: the order is the server's, newest first; an id is there once; a fresh page stands for all that lay between its
first and its last row, so that what was pruned from there is gone. Pure. Reference: get-started/jobs.md, "HTTP".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from .items import Item

MOST: Final = 10_000
PAGE: Final = 200


class Window:
    """At most `MOST` of them. `complete`: the oldest one that is held is the oldest that there is."""

    def __init__(self) -> None:
        self.items: list[Item] = []
        self.complete = False
        self._turn = 0

    @property
    def wants_more(self) -> bool:
        """Whether older ones are to be read."""
        return not self.complete and len(self.items) < MOST

    def put_newest(self, page: Sequence[Item], *, last: bool) -> bool:
        """The newest page; `last`: there is none after it. Whether it meets those held: else some lie between."""
        if not self.items:
            self.items, self.complete = list(page[:MOST]), last
            return True
        return self._put(0, page, last=last)

    def put_after(self, cursor: int, page: Sequence[Item], *, last: bool) -> bool:
        """The page that follows the row whose `seq` is `cursor`; nothing when that has gone. Whether it meets others,
        as above.
        """
        at = next((at for at, item in enumerate(self.items) if item.seq == cursor), None)
        return at is None or self._put(at + 1, page, last=last)

    def forget_after(self, cursor: int) -> None:
        """All that follows the row whose `seq` is `cursor`: it is too far away to be joined."""
        at = next((at for at, item in enumerate(self.items) if item.seq == cursor), None)
        if at is not None:
            self.items, self.complete = self.items[: at + 1], False

    def oldest_cursor(self) -> int | None:
        """To go on after the oldest one that is held."""
        return self.items[-1].seq if self.items else None

    def cursor_before(self, place: int) -> int | None:
        """To read the page again that has that place; None: it is the newest one."""
        for at in range(min(place, len(self.items)) - 1, -1, -1):
            if (seq := self.items[at].seq) is not None:
                return seq
        return None

    def next_turn(self) -> int | None:
        """Each page again in its turn: a cursor; None when there is but one page."""
        cursors = [item.seq for item in self.items if item.seq is not None]
        if not self.complete and cursors and cursors[-1] == self.oldest_cursor():
            cursors.pop()  # nothing is held after it
        if not cursors:
            return None
        self._turn = (self._turn + 1) % len(cursors)
        return cursors[self._turn]

    def _put(self, start: int, page: Sequence[Item], *, last: bool) -> bool:
        ids = {item.id for item in page}
        met = last or start >= len(self.items)
        end = len(self.items) - 1 if last else start - 1
        if not last:
            for at in range(start, len(self.items)):
                if self.items[at].id in ids:
                    end, met = at, True
        before = [item for item in self.items[:start] if item.id not in ids]
        after = [item for item in self.items[end + 1 :] if item.id not in ids]
        made = [*before, *page, *after]
        self.complete = (self.complete or last) and len(made) <= MOST
        self.items = made[:MOST]
        return met
