"""Loads `statements.sql`: one attribute of `SQL` per `-- name:` heading."""

from __future__ import annotations

import pkgutil
import re
from types import SimpleNamespace

_HEADING = re.compile(r"^-- name: (\w+)$", re.MULTILINE)


def load() -> SimpleNamespace:
    """All statements by name, as text."""
    text = pkgutil.get_data(__package__, "statements.sql")
    if text is None:
        raise FileNotFoundError(
            "lakeshore/server/records/statements.sql is missing from this installation; reinstall lakeshore"
        )
    parts = _HEADING.split(text.decode())[1:]
    return SimpleNamespace(**{name: body.strip() for name, body in zip(parts[::2], parts[1::2], strict=True)})


SQL = load()
