"""The reference's pages, read where they are: nothing of their text is kept in the project.

They are found by the environment variable LAKESHORE_SPEC, else in `../shared/spec` beside the checkout.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
SPEC = Path(os.environ.get("LAKESHORE_SPEC") or ROOT.parent / "shared" / "spec").expanduser().absolute()
ABSENT = f"the reference's pages are not at {SPEC}; say where with LAKESHORE_SPEC"

Lines = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One fenced block: `lines` with both fences, counted from 1, and what the opening fence says."""

    lines: Lines
    info: str

    @property
    def is_python(self) -> bool:
        return self.info.split(maxsplit=1)[:1] == ["python"]


def available() -> bool:
    return SPEC.is_dir()


def pages(*patterns: str) -> list[str]:
    """The names of the pages that match, a `*` over any number of folders."""
    names = sorted(path.relative_to(SPEC).with_suffix("").as_posix() for path in SPEC.rglob("*.md"))
    return [name for name in names if any(fnmatchcase(name, pattern) for pattern in patterns)]


def page(name: str) -> list[str]:
    """The lines of a page, which is named by its path without `.md`."""
    return (SPEC / f"{name}.md").read_text("utf-8").splitlines()


def blocks(name: str) -> list[Block]:
    """The fenced blocks of a page that start at the margin."""
    found: list[Block] = []
    opened: tuple[int, str] | None = None
    for number, line in enumerate(page(name), 1):
        if not line.startswith("```"):
            continue
        if opened is None:
            opened = number, line[3:].strip()
        else:
            found.append(Block(lines=(opened[0], number), info=opened[1]))
            opened = None
    return found


def code(name: str, lines: Lines, only: tuple[Lines, ...] = ()) -> str:
    """What stands between the fences at `lines`; with `only`, these lines of it."""
    text = page(name)
    first, last = lines
    assert text[first - 1].startswith("```") and text[last - 1] == "```", f"{name}:{first}-{last} is no fenced block"
    kept = only or ((first + 1, last - 1),)
    assert all(first < a <= b < last for a, b in kept), f"{name}: {only} is not inside {lines}"
    return "\n".join(line for a, b in kept for line in text[a - 1 : b]) + "\n"
