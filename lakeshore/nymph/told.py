"""Reading what a server says: a value of another kind than is meant is as if it were not there.

A daemon outlives its server's version, and whatever stands between that answers in its place: nothing that is said
ends it. Numbers are finite, or times that are computed from them would never come.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from lakeshore.wire.messages import Pair


def number(said: object) -> float | None:
    """A finite number."""
    if isinstance(said, bool) or not isinstance(said, int | float):
        return None
    try:
        found = float(said)
    except OverflowError:
        return None
    return found if math.isfinite(found) else None


def positive(said: object) -> float | None:
    """A finite number above 0."""
    found = number(said)
    return found if found is not None and found > 0 else None


def count(said: object) -> int:
    """A whole number; 0 for anything else."""
    return said if type(said) is int else 0


def items(said: object) -> Sequence[Any]:
    """A list."""
    return said if isinstance(said, list | tuple) else ()


def maps(said: object) -> list[Mapping[str, Any]]:
    """The maps of a list."""
    return [one for one in items(said) if isinstance(one, Mapping)]


def pair(said: object) -> Pair | None:
    """(invocation_id, claim)."""
    match said:
        case [str(id_), int(claim)]:
            return id_, claim
    return None


def pairs(said: object) -> list[Pair]:
    """The pairs of a list."""
    return [found for one in items(said) if (found := pair(one)) is not None]
