"""Widths and lengths of time, for a screen."""

from __future__ import annotations

from rich.cells import cell_len, set_cell_size


def cut(text: str, width: int) -> str:
    """At most `width` cells of it; what was cut ends in `…`."""
    if cell_len(text) <= width:
        return text
    return set_cell_size(text, width - 1).rstrip() + "…" if width > 0 else ""


def cut_middle(text: str, width: int) -> str:
    """As `cut`, for ids: their end tells more than their middle."""
    size = cell_len(text)
    if size <= width or width < 5 or size != len(text):
        return cut(text, width)
    end = (width - 1) // 2
    return f"{text[: width - 1 - end]}…{text[-end:]}"


def wrapped(text: str, width: int) -> list[str]:
    """Lines of at most `width` cells; broken at spaces where there are some. At least one."""
    lines: list[str] = []
    width = max(width, 1)
    for paragraph in text.split("\n"):
        rest = paragraph.expandtabs(4)
        while cell_len(rest) > width:
            taken = _taken(rest, width)
            space = rest.rfind(" ", 1, taken + 1)
            at = space if space > taken // 2 else taken
            lines.append(rest[:at].rstrip())
            rest = rest[at:].lstrip(" ") if at == space else rest[at:]
        lines.append(rest)
    return lines


def _taken(text: str, width: int) -> int:
    """How many characters of it fill `width` cells; at least one."""
    used = 0
    for number, character in enumerate(text):
        used += cell_len(character)
        if used > width:
            return max(number, 1)
    return len(text)


def length(seconds: float) -> str:
    """A length of time in its two largest units: `42s`, `3m 07s`, `2h 05m`, `4d 11h`; below ten seconds a decimal."""
    seconds = max(seconds, 0.0)
    if seconds < 10:
        return f"{seconds:.1f}s"
    whole = int(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m {whole % 60:02}s"
    if whole < 86400:
        return f"{whole // 3600}h {whole % 3600 // 60:02}m"
    return f"{whole // 86400}d {whole % 86400 // 3600:02}h"
