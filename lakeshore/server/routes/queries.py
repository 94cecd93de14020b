"""What queries have in common."""

from __future__ import annotations

from typing import Any, Final

from ...plane.contract import DELAYED, STATES
from ...wire.states import row_state
from ..primitives import Wrong
from ..shapes import Rule


def _state(value: Any) -> str:
    state = row_state(value)
    if state not in (*STATES, DELAYED):
        raise Wrong(f"{value!r:.40} is no state: use {', '.join(STATES)}, or {DELAYED}")
    return state


STATE: Final = Rule({"enum": [*STATES, DELAYED]}, _state)
"""A state of a call, in any of its spellings."""
