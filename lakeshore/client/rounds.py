"""Work that a server does some of with each answer, and is asked for again until nothing is left.

Rule: an honest server comes nearer to its end. One whose answers stand still, or that is never through, is left alone
with an error: nobody asks for ever.
"""

from __future__ import annotations

from typing import Any, Final

from .errors import NotLakeshore

STILL: Final = 5
"""Answers in a row that may come no nearer: the server was busy with somebody else's, or waited for a backup."""
MOST: Final = 10_000
"""Answers altogether. Each stands for up to some seconds of work, so these are hours of it."""


class Rounds:
    """The answers to one piece of work, which is `what` in a sentence."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._asked = self._still = 0
        self._least: int | None = None

    def left(self, n: Any) -> None:
        """So much is left, it says. NotLakeshore when that has not become less for too long."""
        whole = n if type(n) is int else None
        nearer = whole is not None and (self._least is None or whole < self._least)
        if nearer:
            self._least = whole
        self.did(nearer)

    def did(self, some: bool) -> None:
        """There is more to do, it says, and whether it has done some. NotLakeshore when it has not for too long."""
        self._asked += 1
        self._still = 0 if some else self._still + 1
        if self._still == STILL or self._asked == MOST:
            said = (
                f"{STILL} answers in a row came no nearer" if self._still == STILL else f"{MOST:,} answers were not all"
            )
            raise NotLakeshore(
                f"{self._what} does not end: {said}",
                status=200,
                hint="look into the server's log; typed again, the command goes on where it was",
            )
