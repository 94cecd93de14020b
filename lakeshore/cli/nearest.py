"""What was probably meant by a word that is none of those that are known."""

from __future__ import annotations

from collections.abc import Iterable


def meant(word: str, known: Iterable[str], *, closeness: float = 0.5) -> str:
    """` (did you mean 'list'?)`, with up to three of them; nothing where none is near."""
    import difflib  # wall: only a mistake pays for it

    return or_(difflib.get_close_matches(word, list(known), n=3, cutoff=closeness))


def or_(names: list[str]) -> str:
    """The same for those that are meant already."""
    return f" (did you mean {' or '.join(map(repr, names))}?)" if names else ""
