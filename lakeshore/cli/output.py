"""What commands print: JSON, tables, times.

Rules: data on stdout, talk on stderr. A table fits the terminal; into a pipe it is never cut, and what is in its first
column (ids) nowhere. With NO_COLOR there is no bold either; colour says nothing that the text does not say. Times are
ISO in JSON, local and relative for people.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, TextIO

if TYPE_CHECKING:
    from rich.console import Console

WIDE = 10_000
GAP = 2
NARROWEST = 5
"""What is left of the flexible column before others go."""
STATE_STYLES = {
    "queued": "cyan",
    "running": "blue",
    "succeeded": "green",
    "failed": "red",
    "timeout": "red",
    "killed": "yellow",
    "active": "green",
    "stale": "yellow",
    "gone": "red",
    "done": "green",
}
# Anything a server, a worker or a body chose: it must not steer the terminal.
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def print_json(value: Any) -> None:
    """One JSON document on stdout."""
    sys.stdout.write(json_text(value))


def json_text(value: Any) -> str:
    """A JSON document as stdout can have it."""
    readable = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    return json.dumps(value, indent=2, ensure_ascii=not readable) + "\n"


def say(message: str) -> None:
    """A line for the person, on stderr, after what stdout has got so far. It may quote others: see `plain`."""
    sys.stdout.flush()
    sys.stderr.write(plain(message) + "\n")
    sys.stderr.flush()


def plain(text: object) -> str:
    """Text of others, without control characters."""
    return _CONTROLS.sub(lambda found: f"\\x{ord(found.group()):02x}", str(text))


def console(file: TextIO | None = None, width: int | None = None) -> Console:
    """A rich console for stdout, or for `file`; as wide as the terminal, and without limit where there is none."""
    from rich.console import Console  # wall: `--json` does not pay for it

    file = sys.stdout if file is None else file
    if width is None and not file.isatty():
        width = WIDE
    colours: Literal["auto"] | None = None if os.environ.get("NO_COLOR") else "auto"
    return Console(file=file, width=width, color_system=colours, highlight=False, markup=False, emoji=False)


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    right: Iterable[str] = (),
    flexible: str,
    width: int | None = None,
) -> None:
    """A table on stdout: see `table_text`."""
    sys.stdout.write(table_text(columns, rows, right=right, flexible=flexible, width=width))


def table_text(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    right: Iterable[str] = (),
    flexible: str,
    width: int | None = None,
    capitals: bool = True,
) -> str:
    """A table without lines. `right` columns are numbers. Where the terminal is narrow `flexible` gives way, then the
    columns from the last on; the first one stays whole.
    """
    from rich.cells import cell_len  # wall: as above
    from rich.table import Table  # wall: as above
    from rich.text import Text  # wall: as above

    out = console(width=width)
    numbers = set(right)
    texts = [[plain(value) for value in row] for row in rows]
    needed = [max(map(cell_len, (name, *column))) for name, *column in zip(columns, *texts, strict=True)]
    least = [min(size, NARROWEST) if name == flexible else size for name, size in zip(columns, needed, strict=True)]
    shown = len(columns)
    while shown > 1 and sum(least[:shown]) + GAP * (shown - 1) > out.width:
        shown -= 1
    out.width = max(out.width, needed[0])
    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="bold")
    for name in columns[:shown]:
        justify: Literal["left", "right"] = "right" if name in numbers else "left"
        table.add_column(
            name.upper() if capitals else name, justify=justify, no_wrap=name != flexible, overflow="ellipsis"
        )
    for row in texts:
        styles = [
            STATE_STYLES.get(value, "") if name == "state" else "" for name, value in zip(columns, row, strict=True)
        ]
        table.add_row(*(Text(value, style=style) for value, style in zip(row[:shown], styles, strict=False)))
    with out.capture() as captured:
        out.print(table)
    return "".join(f"{line.rstrip()}\n" for line in captured.get().splitlines())


def moment(text: object) -> datetime | None:
    """An ISO time of the API, aware; None for null and for what is no time."""
    if not isinstance(text, str):
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def age(text: object, now: datetime) -> str:
    """How long ago: `4s`, `12m`, `3h`, `5d`; `—` for never."""
    found = moment(text)
    return "—" if found is None else duration((now - found).total_seconds())


def ahead(text: object, now: datetime) -> str:
    """How long until then: `in 4s`, `in 12m`; `now` when it has passed, `—` for never."""
    found = moment(text)
    if found is None:
        return "—"
    left = (found - now).total_seconds()
    return f"in {duration(left)}" if left > 0 else "now"


def duration(seconds: float) -> str:
    """A length of time in one unit, rounded down; below ten seconds with a decimal."""
    seconds = max(seconds, 0.0)
    if seconds < 10:
        return f"{seconds:.1f}s"
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= 2 * size:
            return f"{int(seconds // size)}{unit}"
    return f"{int(seconds)}s"


def local_time(text: object, now: datetime) -> str:
    """A time for people: local, to the second, and how long ago, or how long until then."""
    found = moment(text)
    if found is None:
        return "—"
    how_far = ahead(text, now) if found > now else f"{age(text, now)} ago"
    return f"{found.astimezone():%Y-%m-%d %H:%M:%S %Z} ({how_far})"


def indented(value: Any, depth: int) -> list[str]:
    """A map or a list of others' as lines for a person, what is nested deeper in."""
    pad = "  " * depth
    pairs: list[tuple[str, Any]] = (
        [(f"{plain(key)}:", inner) for key, inner in value.items()]
        if isinstance(value, dict)
        else [("-", inner) for inner in value]
    )
    lines = []
    for label, inner in pairs:
        if isinstance(inner, dict | list) and inner:
            lines += [pad + label, *indented(inner, depth + 1)]
        else:
            lines.append(f"{pad}{label} {'—' if inner is None else plain(inner)}")
    return lines
