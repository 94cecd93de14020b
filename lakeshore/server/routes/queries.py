"""What queries have in common."""

from __future__ import annotations

import math
from typing import Any, Final

from ...plane.contract import DELAYED, STATES
from ...wire.states import row_state
from ..primitives import Wrong
from ..shapes import Rule
from ..structure import bad_field


def _state(value: Any) -> str:
    state = row_state(value)
    if state not in (*STATES, DELAYED):
        raise Wrong(f"{value!r:.40} is no state: use {', '.join(STATES)}, or {DELAYED}")
    return state


STATE: Final = Rule({"enum": [*STATES, DELAYED]}, _state)
"""A state of a call, in any of its spellings."""


def number(query: dict[str, str], name: str, default: int, least: int, most: int) -> int:
    """A whole number. HttpError 422."""
    text = query.get(name)
    if text is None:
        return default
    try:
        value = int(text)
    except ValueError:
        value = least - 1
    if not least <= value <= most:
        raise bad_field(name, f"must be an integer from {least} to {most}")
    return value


def seconds(query: dict[str, str], name: str, longest: float) -> float:
    """A time from 0, which is the default, to `longest`. HttpError 422 for what is no number."""
    try:
        value = float(query.get(name, "0"))
    except ValueError:
        value = math.nan
    if math.isnan(value):
        raise bad_field(name, "must be a number of seconds")
    return min(max(value, 0.0), longest)
