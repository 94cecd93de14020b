"""Docstrings as Markdown. Their references to rows and pages are for who maintains the code."""

from __future__ import annotations

import inspect
import re
from typing import Any

_ROWS = re.compile(r" \((?:CONTRACT )?[SNPCK]-\d+(?:(?:, |…| and )[SNPCK]?-?\d+)*\)")
_REFERENCE = re.compile(r"\s*(?:^|(?<=\s))(?:Reference|Shapes|Rules): .*\Z", re.S | re.M)


def doc_of(thing: Any) -> str:
    """The docstring of a thing, its indented parts as code blocks; empty without one of its own."""
    said = inspect.getdoc(thing) or ""
    if said.startswith("Initialize self."):
        return ""
    return readable(said)


def readable(said: str) -> str:
    """A docstring's text without its references to rows and pages."""
    text = _ROWS.sub("", _REFERENCE.sub("", said))
    return re.sub(r"(?:^    .*\n?(?:^\s*\n(?=    ))?)+", _fenced, text + "\n", flags=re.M).strip()


def one_line(said: str) -> str:
    """Its first paragraph in one line, for a table."""
    return " ".join(readable(said).split("\n\n")[0].split()).replace("|", "\\|")


def _fenced(found: re.Match[str]) -> str:
    return f"\n```text\n{inspect.cleandoc(found[0])}\n```\n"
