"""How many columns of a terminal a text takes, and a text that takes no more than so many.

Without `rich`, which costs a command more than its request.
"""

from __future__ import annotations

import unicodedata

ELLIPSIS = "…"
_WIDE = "WF"
_NOTHING = ("Mn", "Me", "Cf")


def cells(text: str) -> int:
    """The columns that `text` takes: two for a wide character, none for one that joins another."""
    return len(text) if text.isascii() else sum(map(_cells, text))


def shortened(text: str, size: int, mark: str = ELLIPSIS) -> str:
    """`text` in `size` columns at most, `mark` in the place of what was cut away."""
    if cells(text) <= size:
        return text
    if size < 1:
        return ""
    kept, left = [], size - len(mark)
    for character in text:
        left -= _cells(character)
        if left < 0:
            break
        kept.append(character)
    return ("".join(kept).rstrip() + mark)[:size]


def _cells(character: str) -> int:
    if character.isascii():
        return 1
    if unicodedata.category(character) in _NOTHING:
        return 0
    return 2 if unicodedata.east_asian_width(character) in _WIDE else 1
