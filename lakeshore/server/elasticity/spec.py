"""What a queue's `elasticity` says, read once and with its defaults. Pure.

Only `kind` is looked at when a queue is made (S-292): a value that cannot be used is found here, and the queue is left
alone for it.
Reference: get-started/scaling-rules, "Configuration reference"; S-518…S-521, S-536, S-537.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from ...wire.values import value

KINDS: Final = ("fixed", "fully_elastic", "pool_with_threshold", "max_count")
HIGH: Final = 0.8
LOW: Final = 0.3
_MOST_WEIGHT: Final = 1e18
"""An integer may be larger than any float."""


class BadSpec(Exception):
    """Nothing can be decided by it; the message is the reason."""


@value
class Spec:
    """How many daemons a queue may have. `most` is `inf` where nothing bounds it; a floor above it goes before it."""

    kind: str = "fixed"
    least: int = 0
    most: float = math.inf
    high: float = HIGH
    low: float = LOW

    @property
    def ceiling(self) -> float:
        """So many at most, the floor included."""
        return max(self.most, self.least)


def read(said: Mapping[str, Any] | None) -> Spec:
    """The spec of a queue; nothing said is `fixed`. Raises BadSpec."""
    told = said or {}
    kind = told.get("kind", "fixed")
    if kind not in KINDS:
        raise BadSpec(f'unknown elasticity.kind="{kind}" — defaulting to no-op')
    if kind == "fixed":
        return Spec()
    unbounded = 0.0 if kind == "max_count" else math.inf
    return Spec(
        kind=kind,
        least=int(_count(told, "min", 0)),
        most=_count(told, "max", unbounded),
        high=_share(told, "threshold", HIGH),
        low=_share(told, "threshold_low", LOW),
    )


def pool_of(said: Mapping[str, Any] | None) -> str | None:
    """The pool that a queue shares its daemons with."""
    pool = (said or {}).get("pool")
    return pool if isinstance(pool, str) and pool else None


def weight_of(said: Any) -> float | None:
    """A `cost_weight`; None where there is none that could be compared."""
    return float(said) if type(said) in (int, float) and abs(said) < _MOST_WEIGHT else None


def _count(told: Mapping[str, Any], name: str, default: float) -> float:
    said = told.get(name)
    if said is None:
        return default
    if type(said) not in (int, float) or not 0 <= said < 2**53 or said != int(said):
        raise BadSpec(f"elasticity.{name} must be a whole number from 0, not {said!r:.40} — nothing is done")
    return float(said)


def _share(told: Mapping[str, Any], name: str, default: float) -> float:
    said = told.get(name)
    if said is None:
        return default
    if type(said) not in (int, float) or not 0 <= said < 2**53:
        raise BadSpec(f"elasticity.{name} must be a number from 0, not {said!r:.40} — nothing is done")
    return float(said)
