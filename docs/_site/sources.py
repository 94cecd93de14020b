"""Pages and parts of pages that are files of the repository elsewhere.

    <!-- include: benchmarks/README.md#Table -->            a section, without its heading
    <!-- include: benchmarks/README.md#Table rows=a; b columns=c; d -->
                                                            of its first table what begins with these words

Rule: a comment is for who builds or tests, so none reaches a reader.
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_INCLUDE = re.compile(
    r"^<!-- include: (?P<file>[^#\s]+)#(?P<section>[^>]+?)"
    r"(?: rows=(?P<rows>[^>]+?))?(?: columns=(?P<columns>[^>]+?))? -->$",
    re.M,
)
ABOUT = re.compile(r"<!-- about: (.*?) -->")
_COMMENT = re.compile(r"^<!--.*?-->\n?", re.M | re.S)
_FENCE = re.compile(r"(^(```+|~~~+).*?^\2[ \t]*$)", re.M | re.S)


def read(path: str) -> str:
    """A file of the repository."""
    return (ROOT / path).read_text("utf-8")


def included(markdown: str) -> str:
    """The text with its includes. Raises ValueError for a section or a row that is not there: the build stops."""
    return _INCLUDE.sub(lambda found: _part(found["file"], found["section"], found["rows"], found["columns"]), markdown)


def without_directives(markdown: str) -> str:
    """The text without its comments, but those inside fences."""
    pieces = _FENCE.split(markdown)
    # split gives text, fence, marker, text, ...: the marker is the fence's own and falls away
    kept = [_COMMENT.sub("", piece) if place % 3 == 0 else piece for place, piece in enumerate(pieces) if place % 3 < 2]
    return "".join(kept)


def _part(file: str, title: str, rows: str | None, columns: str | None) -> str:
    found = re.search(rf"^(#+) {re.escape(title)}\n(.*?)(?=^#{{1,6}} |\Z)", read(file), re.M | re.S)
    if found is None:
        raise ValueError(f"{file} has no section {title!r}")
    body = found[2].strip()
    return body if rows is None else table(body, _words(rows), None if columns is None else _words(columns))


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(";")]


def table(text: str, rows: list[str], columns: list[str] | None = None) -> str:
    """The first table of a text: the rows and the columns that begin with these words, in this order."""
    cells = [[cell.strip() for cell in line.strip("| ").split("|")] for line in text.splitlines() if line[:1] == "|"]
    head, under, *body = cells
    places = [_place(head, words) for words in columns or head]
    first = [row[0] for row in body]
    kept = [head, under, *(body[_place(first, words)] for words in rows)]
    return "\n".join(f"| {' | '.join(row[place] for place in places)} |" for row in kept)


def _place(names: list[str], words: str) -> int:
    found = [place for place, name in enumerate(names) if name.startswith(words)]
    if len(found) != 1:
        raise ValueError(f"{len(found)} of {names} begin with {words!r}")
    return found[0]


def changelog() -> str:
    """CHANGELOG.md."""
    return read("CHANGELOG.md")


def contributing() -> str:
    """CONTRIBUTING.md."""
    return read("CONTRIBUTING.md")


def benchmarks() -> str:
    """benchmarks/README.md."""
    return read("benchmarks/README.md")


def decisions() -> str:
    """The index of the architecture decision records."""
    lines = [
        "# Decisions",
        "",
        "Why it is as it is: one record for each decision that would be hard to take back.",
        "",
        "| | decision | in short |",
        "| ---: | --- | --- |",
    ]
    for path in sorted((ROOT / "docs" / "adr").glob("*.md")):
        text = path.read_text("utf-8")
        heading = re.search(r"^# (\d+)[.:] (.+)", text, re.M)
        if heading is None:
            raise ValueError(f"{path.name} does not begin with `# <number>. <title>`")
        decided = re.search(r"\*\*(?:Decision|Rule|Order)\.\*\* (.+?[.:])(\s|$)", text, re.S)
        short = " ".join(decided[1].split()).rstrip(":.") if decided is not None else ""
        lines.append(f"| {heading[1]} | [{heading[2]}](adr/{path.name}) | {short} |")
    return "\n".join(lines) + "\n"
