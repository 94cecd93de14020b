"""Characters that a terminal obeys instead of showing them: controls, marks of direction, separators of lines, tags.

Rule: what others chose (a server, a worker, a tool, a file) is shown with these written out, and JSON has them escaped,
so that it is the same document. What joins the parts of a letter or of an emoji is left alone.
The expressions are compiled when a text has something for them, which hardly any has.
"""

from __future__ import annotations

import re
from typing import Final

_BEYOND: Final = (
    "\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb\U000e0000-\U000e007f"
)
"""Besides the controls of ASCII."""
_IN_LINES: Final = f"[\x00-\x08\x0b-\x1f{_BEYOND}]"
_IN_A_LINE: Final = f"[\x00-\x1f{_BEYOND}]"
_IN_JSON: Final = f"[{_BEYOND}]"
_DRAWN: Final = {"\n": "⏎", "\t": " "}


def in_lines(text: str) -> str:
    """Text that may have lines and tabs."""
    return text if text.isprintable() else re.sub(_IN_LINES, _written, text)


def in_a_line(text: str) -> str:
    """Text on one line: `⏎` for a new one."""
    return (
        text if text.isprintable() else re.sub(_IN_A_LINE, lambda one: _DRAWN.get(one.group()) or _written(one), text)
    )


def in_json(text: str) -> str:
    """A JSON document, or a part of one, with more characters escaped."""
    return text if text.isascii() and "\x7f" not in text else re.sub(_IN_JSON, _as_json, text)


def in_yaml(text: str) -> str:
    """A YAML document whose texts with such characters are between double quotes, with these escaped."""
    return text if text.isascii() and "\x7f" not in text else re.sub(_IN_JSON, _written, text)


def _written(found: re.Match[str]) -> str:
    number = ord(found.group())
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


def _as_json(found: re.Match[str]) -> str:
    number = ord(found.group())
    if number < 0x10000:
        return f"\\u{number:04x}"
    return f"\\u{0xD7C0 + (number >> 10):04x}\\u{0xDC00 + (number & 0x3FF):04x}"
