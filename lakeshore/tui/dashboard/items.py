"""A row of a list as the screen keeps it: what is shown and acted on of it, and the text that a filter looks in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """`id` tells it from the others of its list, at every refresh; `name` is what people call it. `said` is its cells
    in lower case. `seq` is where a page of invocations ended, on its last row alone.
    """

    id: str
    name: str
    row: dict[str, Any]
    said: str
    seq: int | None = None
