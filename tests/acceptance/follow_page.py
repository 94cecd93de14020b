"""Follows one page of docs/ as a new user, and prints how long each step took. Needs nothing but Python.

PYTHONPATH=. python3 tests/acceptance/follow_page.py docs/first-hour.md THE_ONE_FILE AN_EMPTY_DIRECTORY
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))  # where `ports` is

from snippets.documents import Block, read
from snippets.following import follow


def followed(page: Path, pyz: Path, directory: Path, hosts: Path | None = None) -> str:
    """Follow it; what to print about the time. `hosts`: see `follow`."""
    steps: list[tuple[float, Block]] = []

    def took(block: Block, seconds: float) -> None:
        steps.append((seconds, block))

    follow(read(page), directory, pyz, directory, None, took, hosts)
    lines = [f"{seconds:7.1f} s  line {block.line:<4} {block.code.strip().splitlines()[0]}" for seconds, block in steps]
    total = sum(seconds for seconds, _ in steps)
    return "\n".join([*lines, f"{total:7.1f} s  {page.name}, a machine's time for all {len(steps)} steps"])


if __name__ == "__main__":
    given, archive, place = (Path(argument).resolve() for argument in sys.argv[1:])
    print(followed(given, archive, place))
