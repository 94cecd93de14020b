"""When a screen looks for garbage: a key waits for it meanwhile, and all that was imported takes 0.1 s to look through.

Rules: nothing is collected before the first picture; what is there then, and what is read at the start, is never looked
through, since it stays; all of the rest only while nobody presses a key. Reference: benchmarks/README.md, "The
dashboard".
"""

from __future__ import annotations

import gc
from typing import Final

QUIET_S: Final = 3.0
"""So long nobody has pressed a key,"""
EVERY_S: Final = 30.0
"""and so long ago all was looked through."""
_YOUNG: Final = 700
_MIDDLE: Final = 10
_NEVER: Final = 1_000_000


def spare() -> None:
    """From now on collect what comes, and leave out what is there. `gc.disable` was called at the start."""
    gc.freeze()
    gc.set_threshold(_YOUNG, _MIDDLE, _NEVER)
    gc.enable()


class Quiet:
    """`look` often, and tell it of keys; times are monotonic seconds."""

    def __init__(self, now: float) -> None:
        self.pressed_at = self._looked_at = now

    def look(self, now: float) -> bool:
        """Look all through, if it is time. Whether it was."""
        if now - self.pressed_at < QUIET_S or now - self._looked_at < EVERY_S:
            return False
        gc.collect()
        self._looked_at = now
        return True
