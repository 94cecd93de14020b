"""What is logged of which part: RUST_LOG, in the syntax that operators know from it.

    warn                         everything from this level on
    nymph::drain=debug,warn      the longest name that a target begins with decides
    nymph::drain                 everything of it
    off, nymph=off               nothing

What no directive names is not logged. A directive that makes no sense, or is about spans, of which there are none, is
left out and named. The target of a record is its logger's name with `::` for dots, without the `lakeshore.` before it.
Reference: nymph/telemetry, "Environment overrides"; N-018.
"""

from __future__ import annotations

import logging
import re
from typing import Final

TRACE: Final = 5
OFF: Final = 100
LEVELS: Final = {
    "error": logging.ERROR,
    "warn": logging.WARNING,
    "warning": logging.WARNING,
    "info": logging.INFO,
    "debug": logging.DEBUG,
    "trace": TRACE,
}
_WORDS: Final = LEVELS | {"off": OFF, "0": OFF, "1": 40, "2": 30, "3": 20, "4": 10, "5": TRACE}
_TARGET: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(::[A-Za-z_][A-Za-z0-9_]*)*")


class LogFilter(logging.Filter):
    """Lets through what the directives ask for. `refused` are those that were left out, `lowest` is the lowest level
    that any of them asks for.
    """

    def __init__(self, said: str) -> None:
        super().__init__()
        self.refused: list[str] = []
        found: dict[str, int] = {}
        for written in said.split(","):
            word = written.strip()
            target, _, level = word.rpartition("=")
            if not word:
                continue
            if "=" not in word and word.lower() in _WORDS:
                found[""] = _WORDS[word.lower()]
            elif "=" not in word and _TARGET.fullmatch(word):
                found[word] = TRACE
            elif _TARGET.fullmatch(target) and level.lower() in _WORDS:
                found[target] = _WORDS[level.lower()]
            else:
                self.refused.append(word)
        if not found:
            found[""] = logging.ERROR
        self._directives = sorted(found.items(), key=lambda one: -len(one[0]))
        self._known: dict[str, int] = {}
        self.lowest = min(found.values())

    def filter(self, record: logging.LogRecord) -> bool:
        level = self._known.get(record.name)
        if level is None:
            target = target_of(record.name)
            level = next((level for name, level in self._directives if target.startswith(name)), OFF)
            self._known[record.name] = level
        return record.levelno >= level


def target_of(logger: str) -> str:
    """`lakeshore.nymph.core.drain` -> `nymph::drain`."""
    return logger.removeprefix("lakeshore.").replace(".", "::")
