"""What a row is given, and the child process that repeats it.

    python -m harness.given ours.rtt '{"count": 200, "repeat": 3, ...}'

Every row runs in a process of its own, so that a row which hangs is ended from outside and spoils no other. It prints
one JSON object: {key: [figure of each repetition]}. A `prepare(given)` of the row is called once, before.

A quick run begins with few tasks and takes four times as many while a repetition is too short to mean anything: so it
ends in time on a machine that is busy, and measures the same on one that is not.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from dataclasses import dataclass, field, replace
from typing import Any

ENOUGH_S = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """`count` tasks or calls a repetition, up to `most`; `until_s`: no repetition is begun after so many seconds."""

    count: int
    most: int = 0
    repeat: int = 3
    until_s: float = 30.0
    url: str = ""
    file: str = ""
    durability: str = "power"
    directory: str = ""
    extra: dict[str, Any] = field(default_factory=dict)


def main() -> None:
    """Repeat one row."""
    row = importlib.import_module(sys.argv[1])
    given = Given(**json.loads(sys.argv[2]))
    started = time.monotonic()
    if hasattr(row, "prepare"):
        row.prepare(given)
    figures: dict[str, list[float]] = {}
    given = _long_enough(row, given, figures)
    while len(next(iter(figures.values()), ())) < given.repeat:
        if figures and time.monotonic() - started > given.until_s:
            break
        _keep(figures, row.measure(given))
    if hasattr(row, "finish"):
        row.finish(given)
    sys.stdout.write(json.dumps(figures) + "\n")
    sys.stdout.flush()


def _long_enough(row: Any, given: Given, figures: dict[str, list[float]]) -> Given:
    while given.count < given.most:
        before = time.monotonic()
        found = row.measure(given)
        if time.monotonic() - before > ENOUGH_S:
            _keep(figures, found)
            return given
        given = replace(given, count=min(given.most, given.count * 4))
    return given


def _keep(figures: dict[str, list[float]], found: dict[str, float]) -> None:
    for key, figure in found.items():
        figures.setdefault(key, []).append(figure)


if __name__ == "__main__":
    main()
