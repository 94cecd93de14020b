"""`--env K=V` and its like, which are repeatable."""

from __future__ import annotations

from collections.abc import Iterable

import click


def pairs_of(pairs: Iterable[str], flag: str = "--env") -> dict[str, str]:
    """The pairs, the later of two winning. click.BadParameter for what is not K=V."""
    found: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{name!r} is not K=V", param_hint=f"'{flag}'")
        found[name] = value
    return found
