"""What pages print, line by line."""

from __future__ import annotations

import re

_HOLES = {"<id>": r"[0-9A-HJKMNP-TV-Z]{26}", "<s>": r"\d+\.\d+", "<more>": ".*"}


def matches(wanted: str, got: str) -> bool:
    """Whether a line is what was expected, <id>, <s> and <more> being holes."""
    pattern = re.escape(wanted)
    for hole, meaning in _HOLES.items():
        pattern = pattern.replace(re.escape(hole), meaning)
    return re.fullmatch(pattern, got) is not None
