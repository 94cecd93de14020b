"""What was probably meant by a word that is none of those that are known."""

from __future__ import annotations

from collections.abc import Iterable

import click

_MOST = 3


def near(word: str, known: Iterable[str], *, closeness: float = 0.5) -> list[str]:
    """Up to three of them, the nearest first: what a slip of the fingers makes of them, else what looks alike."""
    import difflib  # wall: only a mistake pays for it

    names = list(known)
    slips = sorted((_slips(word, name), name) for name in names)
    found = [name for count, name in slips if count <= (1 if len(word) < 5 else 2)]
    return found[:_MOST] or difflib.get_close_matches(word, names, n=_MOST, cutoff=closeness)


def meant(word: str, known: Iterable[str], *, closeness: float = 0.5) -> str:
    """` (did you mean 'list'?)`; nothing where none is near."""
    return or_(near(word, known, closeness=closeness))


def or_(names: list[str]) -> str:
    """The same for those that are meant already."""
    return f" (did you mean {' or '.join(map(repr, names))}?)" if names else ""


def no_such_option(word: str) -> click.NoSuchOption:
    """For a command that sorts its words itself, as click says it of the others."""
    ctx = click.get_current_context()
    known = [spelt for param in ctx.command.params for spelt in param.opts if spelt.startswith("--")]
    return click.NoSuchOption(word, possibilities=near(word, known), ctx=ctx)


def _slips(word: str, name: str) -> int:
    """How many letters were left out, put in, changed, or changed about with their neighbour."""
    before: list[int] = []
    row = list(range(len(name) + 1))
    for at, letter in enumerate(word):
        older, before, row = before, row, [at + 1]
        for to, other in enumerate(name):
            cost = min(before[to] + (letter != other), before[to + 1] + 1, row[to] + 1)
            if at and to and letter == name[to - 1] and word[at - 1] == other:
                cost = min(cost, older[to - 1] + 1)
            row.append(cost)
    return row[-1]
