"""Colours, and what of others may be drawn.

Rule: colour says nothing that the text does not say as well: with NO_COLOR the selected row is reversed, and levels
and states are words.
"""

from __future__ import annotations

from typing import Final

from rich.style import Style
from textual.theme import Theme

from lakeshore.client.steering import in_a_line

THEME: Final = Theme(
    name="lakeshore",
    primary="#5fafd7",
    secondary="#87afaf",
    accent="#5fd7d7",
    foreground="#d0d4d8",
    background="#10161c",
    surface="#10161c",
    panel="#1c2731",
    success="#87d787",
    warning="#e5c07b",
    error="#ff6c6b",
    dark=True,
)
PLAIN: Final = Style()
FAINT: Final = Style(color="#7f8c98")
STRONG: Final = Style(bold=True)
GOOD: Final = Style(color="#87d787")
DOUBTFUL: Final = Style(color="#e5c07b")
BAD: Final = Style(color="#ff6c6b", bold=True)
KEY: Final = Style(color="#5fd7d7", bold=True)
SELECTED: Final = Style(bgcolor="#26415a", bold=True)
SELECTED_PLAIN: Final = Style(reverse=True)
LEVEL_STYLES: Final = {
    "ERROR": BAD,
    "WARN": DOUBTFUL,
    "INFO": GOOD,
    "DEBUG": Style(color="#5fafd7"),
    "TRACE": FAINT,
}
RUN_STATE_STYLES: Final = {
    "starting": Style(color="#5fd7d7"),
    "polling": GOOD,
    "backoff": DOUBTFUL,
    "hibernating": Style(color="#b294bb"),
    "draining": BAD,
}
STATE_STYLES: Final = {
    "queued": Style(color="#5fd7d7"),
    "running": Style(color="#5fafd7"),
    "cancelling": DOUBTFUL,
    "succeeded": GOOD,
    "failed": BAD,
    "timeout": BAD,
    "killed": DOUBTFUL,
    "active": GOOD,
    "joining": Style(color="#5fd7d7"),
    "setting_up": Style(color="#5fd7d7"),
    "stale": DOUBTFUL,
    "paused": DOUBTFUL,
    "draining": DOUBTFUL,
    "hibernating": Style(color="#b294bb"),
    "archived": FAINT,
    "gone": FAINT,
    "terminated": FAINT,
}


def drawable(text: str) -> str:
    """Text of others on one line, where it cannot steer the terminal."""
    return in_a_line(text)
