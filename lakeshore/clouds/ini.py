"""INI files as AWS and Google Cloud write them: sections of `key = value`; what is indented belongs to the key above.

Comments begin a line with `#` or `;`. A file that is not there, or cannot be read, has no sections.
"""

from __future__ import annotations

import re
from pathlib import Path

_SECTION = re.compile(r"\[\s*(.+?)\s*\]")


def sections(path: Path) -> dict[str, dict[str, str]]:
    """By name, in the file's order; a section that comes twice is one."""
    found: dict[str, dict[str, str]] = {}
    inner: dict[str, str] | None = None
    for line in _lines(path):
        text = line.strip()
        if not text or text[0] in "#;":
            continue
        if named := _SECTION.match(text):
            inner = found.setdefault(named[1], {})
        elif inner is not None and "=" in text and not line[0].isspace():
            key, _equals, value = text.partition("=")
            inner[key.strip().lower()] = re.split(r"\s[#;]", value.strip(), maxsplit=1)[0].strip()
    return found


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text("utf-8", errors="replace").splitlines()
    except OSError:
        return []
