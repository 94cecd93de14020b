"""Loads the `statements.sql` of a package of the server: one attribute per `-- name:` heading."""

from __future__ import annotations

import pkgutil
import re
from types import SimpleNamespace

_HEADING = re.compile(r"^-- name: (\w+)$", re.MULTILINE)


def load(package: str) -> SimpleNamespace:
    """All statements of a package by name, as text."""
    text = pkgutil.get_data(package, "statements.sql")
    if text is None:
        raise FileNotFoundError(f"statements.sql of {package} is missing from this installation; reinstall lakeshore")
    parts = _HEADING.split(text.decode())[1:]
    return SimpleNamespace(**{name: body.strip() for name, body in zip(parts[::2], parts[1::2], strict=True)})


SQL = load(__package__)
