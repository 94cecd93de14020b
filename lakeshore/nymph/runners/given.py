"""What a run_config says, read where it is used: each value is checked, and an error names its path.

Reference: api/configuration.md; nymph/daemons.md, "Runners".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

from ..workdir import WorkdirError

if TYPE_CHECKING:
    from .process import Run


def settings(run: Run, name: str) -> Mapping[str, Any]:
    """A table of the run_config. WorkdirError when it is none."""
    found = run.run_config.get(name)
    if found is None:
        return {}
    if not isinstance(found, Mapping):
        raise WorkdirError(f"run_config.{name} — a map (got {type(found).__name__})")
    return found


def words(value: Any, where: str) -> list[str]:
    """A list of strings. WorkdirError otherwise."""
    if value is None:
        return []
    if isinstance(value, str) or not isinstance(value, Sequence) or not all(isinstance(word, str) for word in value):
        raise WorkdirError(f"{where} — a list of strings (got {value!r:.60})")
    return list(value)


def word(value: Any, where: str) -> str:
    """A string or a number that fits into a line. WorkdirError otherwise."""
    if (
        isinstance(value, bool)
        or not isinstance(value, str | int | float)
        or not str(value).isprintable()
        or value == ""
    ):
        raise WorkdirError(f"{where} — text on one line or a number (got {value!r:.60})")
    return str(value)


def pairs(value: Any, where: str) -> dict[str, str]:
    """Names and values of an environment. WorkdirError otherwise."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise WorkdirError(f"{where} — names and values (got {type(value).__name__})")
    for name, said in value.items():
        if not isinstance(name, str) or not name or "=" in name or "\0" in f"{name}{said}":
            raise WorkdirError(f"{where} — {name!r} cannot be a variable")
    return {name: said if isinstance(said, str) else str(said) for name, said in value.items()}


@overload
def seconds(value: Any, where: str, otherwise: float) -> float: ...
@overload
def seconds(value: Any, where: str) -> float | None: ...
def seconds(value: Any, where: str, otherwise: float | None = None) -> float | None:
    """A time above 0. WorkdirError otherwise."""
    if value is None:
        return otherwise
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
        raise WorkdirError(f"{where} — seconds above 0 (got {value!r})")
    return float(value)
