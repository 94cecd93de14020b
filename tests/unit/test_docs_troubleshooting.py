"""Whoever looks for the words of a message in docs/guides/troubleshooting.md finds words that the program says."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "guides" / "troubleshooting.md"
FILLED_IN = re.compile(r"…|'[^']*'|\d[\d.]* s\b|\d[\d.]*s\b|TypeName|: |; ")

PYTHONS_OWN = "No module named"


def _literals() -> str:
    """Every text of the source; what an f-string puts in is a NUL."""
    found = []
    for file in (ROOT / "lakeshore").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.JoinedStr):
                found.append("".join(str(p.value) if isinstance(p, ast.Constant) else "\0" for p in node.values))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
    return "\n".join(found)


def _quoted() -> list[str]:
    bold = re.findall(r"(?<!\S)\*\*(.+?)\*\*", PAGE.read_text())
    return [quoted for part in bold for quoted in re.findall(r"`([^`]+)`", part)]


@pytest.fixture(scope="module")
def literals() -> str:
    return _literals()


@pytest.mark.parametrize("quoted", _quoted())
def test_a_message_that_the_page_explains_is_one_that_is_said(quoted: str, literals: str) -> None:
    for words in FILLED_IN.split(quoted):
        assert words.strip() in literals + PYTHONS_OWN, f"{words!r} is said nowhere"


def test_the_page_explains_messages() -> None:
    assert len(_quoted()) > 20
