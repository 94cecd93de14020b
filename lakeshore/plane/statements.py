"""Loads `statements.sql`: one attribute of `SQL` per `-- name:` heading. Values go in by name, or `in_order`."""

from __future__ import annotations

import functools
import pkgutil
import re
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

Values = dict[str, Any] | tuple[Any, ...]
"""Of a statement: by name, or by place."""

_VALUE = re.compile(r":(\w+)")
_HEADING = re.compile(r"^-- name: (\w+)$", re.MULTILINE)


def load() -> SimpleNamespace:
    """All statements by name, as text."""
    text = pkgutil.get_data(__package__, "statements.sql")
    if text is None:
        raise FileNotFoundError("lakeshore/plane/statements.sql is missing from this installation; reinstall lakeshore")
    parts = _HEADING.split(text.decode())[1:]
    return SimpleNamespace(**{name: body.strip() for name, body in zip(parts[::2], parts[1::2], strict=True)})


SQL = load()


def in_order(statement: str, names: str) -> str:
    """The statement with its values by place: SQLite binds a tuple in half the time of a map. `names` says their order,
    which is that of its text; one that is named twice is given twice. ValueError.
    """
    if _VALUE.findall(statement) != names.split():
        raise ValueError(f"the values of this statement are {' '.join(_VALUE.findall(statement))}: {statement}")
    return _VALUE.sub("?", statement)


def among(statement: str, those: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """(statement, values) where `:those` stands for all of these, of which there is one at least."""
    places = 1 << (len(those) - 1).bit_length()
    return _with_places(statement, places), (*those, *(those[0],) * (places - len(those)))


@functools.lru_cache(maxsize=256)
def _with_places(statement: str, places: int) -> str:
    """Their numbers are rounded up, so that few statements are prepared."""
    return statement.replace(":those", ",".join("?" * places))
