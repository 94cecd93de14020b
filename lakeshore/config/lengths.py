"""Lengths of time as people write them: `90s`, `5m`, `1h30m`, `2d`, `1w`."""

from __future__ import annotations

import re

UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
_PART = r"(\d+(?:\.\d+)?)([smhdw])"


def seconds_of(text: str) -> float | None:
    """The seconds in such a text; None when it is no length of time."""
    said = text.strip()
    if not re.fullmatch(f"(?:{_PART})+", said):
        return None
    return sum(float(number) * UNITS_S[unit] for number, unit in re.findall(_PART, said))
