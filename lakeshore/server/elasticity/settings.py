"""Whether the controller runs, how often, and for whom: its environment variables.

Reference: get-started/scaling-rules, "Configuration reference"; S-508, S-706, S-760.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Final

from ...wire.errors import NameError_
from ...wire.names import check_slug
from ...wire.values import value

TICK_S: Final = 5.0
_ON: Final = frozenset({"true", "1", "yes", "on"})
_OFF: Final = frozenset({"", "false", "0", "no", "off"})


@value
class Settings:
    """A look every `tick_s` seconds at the queues of these namespaces; None: of all."""

    tick_s: float = TICK_S
    namespaces: frozenset[str] | None = None

    def covers(self, ns: str) -> bool:
        """Whether it looks after a namespace."""
        return self.namespaces is None or ns in self.namespaces


def settings_from(environ: Mapping[str, str]) -> Settings | None:
    """None while it is off, which it is unless it is switched on. Raises ValueError for what is no setting."""
    said = environ.get("ELASTICITY_ENABLED", "").strip().lower()
    if said not in _ON | _OFF:
        raise ValueError(f"ELASTICITY_ENABLED={said!r} is neither true nor false")
    if said in _OFF:
        return None
    text = environ.get("ELASTICITY_TICK_S", "").strip()
    try:
        tick_s = float(text) if text else TICK_S
    except ValueError:
        tick_s = 0.0
    if not 0 < tick_s < math.inf:
        raise ValueError(f"ELASTICITY_TICK_S={text!r} is no number of seconds above 0")
    names = [name for name in re.split(r"[,\s]+", environ.get("ELASTICITY_NAMESPACES", "")) if name]
    try:
        for name in names:
            check_slug(name)
    except NameError_ as error:
        raise ValueError(f"ELASTICITY_NAMESPACES: {error}") from error
    return Settings(tick_s=tick_s, namespaces=frozenset(names) or None)
