"""What was seen lately, bounded: a command that comes twice is followed once (K-8, K-34; nymph/daemons)."""

from __future__ import annotations

from typing import Final

KEPT: Final = 4096


class Recent:
    """The last `kept` keys, each with the greatest number it was seen with."""

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        self._seen: dict[str, int] = {}

    def is_new(self, key: str, number: int = 0) -> bool:
        """Whether `key` was not seen with this number or a greater one; it is now."""
        seen = self._seen.pop(key, None)
        self._seen[key] = number if seen is None else max(seen, number)
        if len(self._seen) > self._kept:
            del self._seen[next(iter(self._seen))]
        return seen is None or number > seen
